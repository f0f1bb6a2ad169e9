"""What an output was begun for, and what a deployment knows of its backfills."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.spark.backfill.known import (
    BackfillDamaged,
    BackfillJob,
    BackfillPaths,
    begun,
    known_backfills,
    remember,
    source_of,
)

DISK = RealDisk()
JOB = BackfillJob(slot="s", datacentre="d", join="j", from_ns=1, to_ns=2, unmatched=False, boundary_ns=1)


def test_a_directory_serves_the_job_that_it_was_begun_for(tmp_path: Path) -> None:
    paths = BackfillPaths(tmp_path / "out")
    assert begun(DISK, paths, JOB) == JOB
    assert begun(DISK, paths, msgspec.structs.replace(JOB, slot="t", boundary_ns=2)) == JOB
    with pytest.raises(UsageError, match="was begun with to_ns = 2, not 3"):
        begun(DISK, paths, msgspec.structs.replace(JOB, to_ns=3))
    paths.job.write_bytes(b'{"version":1')
    with pytest.raises(BackfillDamaged, match=r"backfill\.json: unreadable"):
        begun(DISK, paths, JOB)
    of_a_join = BackfillPaths(tmp_path / "joined")
    (of_a_join.state / "slots" / "east-1").mkdir(parents=True)
    with pytest.raises(UsageError, match="is not empty; name another --output"):
        begun(DISK, of_a_join, JOB)


def test_a_deployment_knows_its_backfills(tmp_path: Path) -> None:
    def known(join: str, since: int, until: int) -> list[Path]:
        return list(known_backfills(DISK, tmp_path, join, since, until))

    paths = BackfillPaths(tmp_path / "out")
    assert known("j", 0, 9) == []
    remember(DISK, tmp_path, paths.output, JOB)
    assert known("j", 0, 9) == []  # its directory is gone, or not made yet
    begun(DISK, paths, JOB)
    assert known("j", 0, 9) == known("j", 1, 2) == [paths.output]
    assert known("j", 2, 9) == known("j", 0, 1) == known("other", 0, 9) == []
    assert source_of(DISK, paths.output, "j").datacentre == "d"
    with pytest.raises(UsageError, match="holds no backfill of join other"):
        source_of(DISK, paths.output, "other")
    (tmp_path / "backfills" / "s.json").write_bytes(b"{")
    with pytest.raises(BackfillDamaged, match=r"s\.json: unreadable"):
        known("j", 0, 9)
