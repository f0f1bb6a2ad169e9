"""Reports that are acted on, and how their findings are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from photon.config.disk import RealDisk
from photon.spark.classes import Class
from photon.spark.recover.journal import (
    RepairProgress,
    RepairsDamaged,
    ReportRefused,
    journal_path,
    read_journal,
    write_journal,
)
from photon.spark.recover.repairing import CLASSES
from photon.spark.recover.report import findings, open_report
from tests.unit.spark.recover.rows import DEPLOYMENT, lost, write_report


def test_every_class_is_gone_through_at_most_once() -> None:
    gone_through = [kind for classes in CLASSES.values() for kind in classes]
    assert sorted(gone_through) == sorted(set(gone_through))


def test_findings_come_in_the_same_batches_again(tmp_path: Path) -> None:
    rows = [lost(number, Class.LOST_CLEARED if number % 3 else Class.PRIMARY_EXISTS) for number in range(100)]
    report = open_report(RealDisk(), write_report(tmp_path / "report", rows, files=4), DEPLOYMENT)
    (report.directory / "problems" / "_temporary").mkdir()
    (report.directory / "problems" / "_temporary" / "part.parquet").write_bytes(b"of a task that died")
    batches = list(findings(report, [Class.LOST_CLEARED], 7))
    assert [len(batch) for batch in batches] == [7] * 9 + [3]
    assert batches == list(findings(report, [Class.LOST_CLEARED], 7))
    assert sorted(each.event_time_ns for batch in batches for each in batch) == sorted(
        each.event_time_ns for each in rows if each.kind is Class.LOST_CLEARED
    )
    assert {each.token for batch in batches for each in batch} == {100 + n for n in range(100) if n % 3}


def test_reports_that_are_refused(tmp_path: Path) -> None:
    report = write_report(tmp_path / "report", [lost(1)])
    with pytest.raises(ReportRefused, match="the deployment has changed since this report"):
        open_report(RealDisk(), report, "another")
    with pytest.raises(ReportRefused, match="cannot be read"):
        open_report(RealDisk(), tmp_path, DEPLOYMENT)
    blind = write_report(tmp_path / "blind", [lost(1)], exported_ns=0)
    with pytest.raises(ReportRefused, match="without a registry export"):
        open_report(RealDisk(), blind, DEPLOYMENT)
    (part,) = (report / "problems").iterdir()
    part.write_bytes(part.read_bytes()[:-10])
    with pytest.raises(ReportRefused, match="part-00000"):
        list(findings(open_report(RealDisk(), report, DEPLOYMENT), [Class.LOST_CLEARED]))


def test_another_verdict_has_another_journal(tmp_path: Path) -> None:
    disk = RealDisk()
    one = open_report(RealDisk(), write_report(tmp_path / "one", [lost(1)]), DEPLOYMENT)
    other = open_report(RealDisk(), write_report(tmp_path / "other", [lost(1)], exported_ns=2 * 10**18), DEPLOYMENT)
    assert one.name != other.name
    write_journal(disk, tmp_path, RepairProgress(one.name, done={"losses": 3}))
    assert read_journal(disk, tmp_path, one.name).done == {"losses": 3}
    assert read_journal(disk, tmp_path, other.name).done == {}
    journal_path(tmp_path, one.name).write_text("{")
    with pytest.raises(RepairsDamaged, match="verify again"):
        read_journal(disk, tmp_path, one.name)
