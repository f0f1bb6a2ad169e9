"""A verification's report below a URL, and the progress of its repair."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from photon.objects.api import ObjectChanged, ObjectsFailed
from photon.objects.disk import UrlDisk
from photon.objects.paths import ObjectPath
from photon.objects.transfer import ObjectsUnavailable, put_file, told
from photon.spark.classes import Class
from photon.spark.recover.journal import RepairProgress, ReportRefused, read_journal, write_journal
from photon.spark.recover.report import findings, opened
from photon.spark.verify import verdict
from tests.unit.objects.fakes import MemoryBucket
from tests.unit.spark.recover.rows import DEPLOYMENT, lost, write_report


def test_it_is_replaced_as_a_whole(bucket: MemoryBucket, logs: ObjectPath, tmp_path: Path) -> None:
    """While another one is written there is none; files of no report are left alone."""
    one = write_report(tmp_path / "one", [lost(number) for number in range(3)], files=3)
    other = write_report(tmp_path / "other", [lost(1)])
    verdict.put_below(one, logs)
    bucket.data["logs/recover-1.json"] = b"{}"
    with opened(UrlDisk(), logs, DEPLOYMENT) as report:
        assert len(list(findings(report, [Class.LOST_CLEARED]))) == 1
    assert not report.problems.exists()
    full = ObjectsFailed(errno.ENOSPC, "507 Insufficient Storage")
    bucket._fails = lambda request: full if request.startswith("part logs/problems") else None
    with pytest.raises(ObjectsUnavailable, match="507"):
        verdict.put_below(other, logs)
    assert "logs/verdict.json" not in bucket.data
    with pytest.raises(ReportRefused, match="cannot be read"), opened(UrlDisk(), logs, DEPLOYMENT):
        pass
    bucket._fails = lambda request: None
    verdict.put_below(other, logs)
    names = {str(path.relative_to(other)) for path in other.rglob("*") if path.is_file()}
    assert {key.removeprefix("logs/") for key in bucket.data} == names
    bucket.data["logs/of-somebody"] = b""
    with pytest.raises(verdict.ReportRefused, match="holds of-somebody, which does not belong to a report"):
        verdict.put_below(one, logs)


def test_of_two_repairs_one_hears_of_the_other(bucket: MemoryBucket, logs: ObjectPath) -> None:
    one, other = UrlDisk(), UrlDisk()
    name = "0" * 32
    progress = [read_journal(disk, logs, name) for disk in (one, other)]
    write_journal(one, logs, progress[0])
    write_journal(one, logs, RepairProgress(name, {"losses": 1}))
    with pytest.raises(ObjectChanged):
        write_journal(other, logs, progress[1])
    assert read_journal(UrlDisk(), logs, name).done == {"losses": 1}


def test_a_file_of_this_machine_is_not_the_bucket(logs: ObjectPath, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="not-there"), told(logs):
        put_file(tmp_path / "not-there", logs)
    with pytest.raises(ObjectsUnavailable, match="no such object"), told(logs):
        UrlDisk().read(logs / "not-there")
