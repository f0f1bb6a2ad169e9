"""Two verifications at once, and what Spark says of a full disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from py4j.protocol import Py4JError

from photon.config.errors import UsageError
from photon.operations.spark_verify import _alone
from photon.spark.session import said_by_spark

FULL = """An error occurred while calling o12.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:2856)
Caused by: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
"""


@pytest.mark.parametrize(
    ("working", "report", "join", "busy"),
    [
        ("work", "r", "clicks", r"r: another photon spark verify writes it; let it end"),
        ("other", "r", "views", r"r: another photon spark verify writes it"),
        ("work", "s", "clicks", r"work: another photon spark verify of join clicks works there; .* another --work"),
        ("work", None, "clicks", "works there"),
        ("work", "s", "views", None),
        ("other", "s", "clicks", None),
    ],
)
def test_two_at_once(tmp_path: Path, working: str, report: str | None, join: str, busy: str | None) -> None:
    there = None if report is None else tmp_path / "reports" / report
    with _alone(tmp_path / "work", tmp_path / "reports" / "r", "clicks"):
        if busy is not None:
            with pytest.raises(UsageError, match=busy), _alone(tmp_path / working, there, join):
                pass
        else:
            with _alone(tmp_path / working, there, join):
                pass
    with _alone(tmp_path / working, there, join):
        pass


def test_a_full_disk_is_one_line() -> None:
    said = said_by_spark(Py4JError(FULL))
    assert said == "a disk is full: make room for spark.local.dir and the working directory"
    task = FULL.replace("Caused by", "OSError: [Errno 28] No space left on device: '/mnt/k/keys-1'\nCaused by")
    assert "(OSError: [Errno 28] No space left on device: '/mnt/k/keys-1')" in (said_by_spark(Py4JError(task)) or "")
    assert said_by_spark(OSError(28, "No space left on device")) is None
    (other,) = [line for line in FULL.splitlines() if "SparkException" in line]
    assert said_by_spark(Py4JError(FULL.replace("No space left on device", "-"))) == other.lstrip()
