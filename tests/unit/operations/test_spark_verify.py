"""Two verifications at once, and one line for Spark's messages on disks, memory and files."""

from __future__ import annotations

from pathlib import Path

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from photon.config.errors import UsageError
from photon.operations.spark_verify import _alone
from photon.spark.session import said_by_spark

NO_SPACE = "No space left on device"
FULL = """An error occurred while calling o12.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:2856)
Caused by: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
"""


@pytest.mark.parametrize(
    ("working", "report", "join", "busy"),
    [
        ("work", "r", "clicks", r"r: another photon spark verify writes it; wait until it ends"),
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


def test_a_full_disk_is_one_line_that_says_which() -> None:
    local = (
        f"{NO_SPACE} in spark.local.dir: free some space, or name another directory with --spark spark.local.dir=DIR"
    )
    assert said_by_spark(Py4JError(FULL)) == local
    assert said_by_spark(OSError(28, NO_SPACE)) == local, "of pyspark, whose files have no names"
    assert said_by_spark(OSError(28, NO_SPACE, "/mnt/r/verdict.json")) is None
    task = FULL.replace("Caused by", "OSError: [Errno 28] No space left on device: '/mnt/k/keys-1'\nCaused by")
    assert said_by_spark(Py4JError(task)) == f"/mnt/k/keys-1: {NO_SPACE}; free some space"
    report = "[TASK_WRITE_FAILED] Task failed while writing rows to file:/mnt/r.partial/problems. SQLSTATE: 58030"
    written = FULL.replace("Job aborted due to stage failure", report)
    assert said_by_spark(Py4JError(written)) == f"/mnt/r.partial/problems: {NO_SPACE}; free some space"


@pytest.mark.parametrize(("error", "begins"), [
    (FULL.replace(NO_SPACE, "-"), "org.apache.spark.SparkException: Job aborted"),
    ("Error while instantiating 'X':\nCaused by: a.ConfException: bad value\n\tat a.B", "Caused by: a.Conf"),
    ("something else", "something else"),
])  # fmt: skip
def test_other_errors_are_one_line(error: str, begins: str) -> None:
    said = said_by_spark(Py4JError(error))
    assert said is not None
    assert said.startswith((begins, f": {begins}"))
    assert "\n" not in said


@pytest.mark.parametrize(
    "why",
    [
        "Caused by: java.lang.OutOfMemoryError: Java heap space",
        "ExecutorLostFailure (executor 1 exited caused by a running task) Reason: Command exited with code 52",
        "The executor with id 3 exited with exit code 137(SIGKILL, possible container OOM).",
        "Reason: Container killed by YARN for exceeding physical memory limits. 5.1 GB of 5 GB used.",
    ],
)
def test_too_little_memory_is_one_line_that_says_what_to_set(why: str) -> None:
    said = said_by_spark(Py4JError(FULL.replace("Caused by: java.io.IOException: No space left on device", why)))
    assert said is not None
    assert "ran out of memory: give it more with --spark spark.executor.memory=4g" in said


def test_a_file_that_a_task_may_not_read_is_named() -> None:
    why = "PermissionError: [Errno 13] Permission denied: '/logs/c-1.log'"
    text = FULL.replace("Caused by: java.io.IOException: No space left on device", why)
    assert said_by_spark(Py4JError(text)) == "Permission denied: '/logs/c-1.log'"


class Gone(Py4JError):
    """An error whose text is in a Java process that has ended."""

    def __str__(self) -> str:
        raise ConnectionRefusedError(111, "Connection refused")


SHUT = Py4JError("x\n: org.apache.spark.SparkException: Job 9 cancelled because SparkContext was shut down\n\tat a.B")


@pytest.mark.parametrize("error", [Gone(), SHUT, Py4JNetworkError("Answer is empty"), ConnectionResetError()])
def test_a_java_process_that_has_ended_is_one_line_that_says_what_to_set(error: Exception) -> None:
    said = said_by_spark(error)
    assert said is not None
    assert "has ended" in said
    assert "--spark spark.driver.memory=4g" in said
