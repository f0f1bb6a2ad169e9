"""Which days need no new look."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from photon.config.disk import RealDisk
from photon.spark.classes import Class
from photon.spark.verify.days import Days, Piece, as_counts, counts_by_piece, pieces_of, span_of
from photon.spark.verify.figures import ClassCount
from photon.spark.verify.verdict import InputFile, ReportRefused, write_report

DAY = (24, 48)
PRINT = {DAY: (3, 77)}
FOREIGN = InputFile(what="foreign", datacentre="east", path="a.log", bytes=10, mtime_ns=5)
OUTPUT = InputFile(what="output", datacentre="east", path="joined/s.jsonl", bytes=10, mtime_ns=5)
PRIMARY = InputFile(what="primary", datacentre="east", path="q.log", bytes=10, mtime_ns=5)
FILES = [FOREIGN, OUTPUT, PRIMARY]
RIGHT = (30, "east", "correct", 3)


def report(tmp_path: Path, *, absent: bool = False, counts: tuple[object, ...] = (RIGHT,)) -> Path:
    """Of a run that read events of hour 30 from both files."""
    days = Days("d", FILES)
    days.keep([Piece(begin=24, end=48, absent=absent, registry=(3, 77), counts=list(counts))])  # type: ignore[arg-type]
    days.ranges = {("foreign", "east", "a.log"): (30, 31), ("output", "east", "joined/s.jsonl"): (30, 30)}
    days.write(RealDisk(), tmp_path)
    return tmp_path


def good(before: Path, files: list[InputFile], fresh: tuple[int, int] | None = None, **more: object) -> bool:
    days = Days.since(before, str(more.get("deployment", "d")), files)
    found = {} if fresh is None else {("foreign", "east", "new.log"): fresh}
    return bool(days.good([DAY], more.get("registry", PRINT), found))  # type: ignore[arg-type]


def test_nothing_has_changed(tmp_path: Path) -> None:
    before = report(tmp_path)
    assert good(before, FILES)
    assert not good(before, FILES, deployment="another")
    assert not good(before, FILES, registry={DAY: (2, 77)})
    assert not good(tmp_path / "none", FILES)
    (before / "days.json").write_bytes(b"{")
    assert not good(before, FILES)


@pytest.mark.parametrize("kind", ["lost-owned", "pending", "torn"])
def test_a_day_with_something_open_is_looked_at_again(tmp_path: Path, kind: str) -> None:
    assert not good(report(tmp_path, counts=(RIGHT, (30, "east", kind, 1))), FILES)


@pytest.mark.parametrize("file", [FOREIGN, OUTPUT])
def test_a_file_of_the_day_that_changed(tmp_path: Path, file: InputFile) -> None:
    before = report(tmp_path)
    for change in ({"bytes": 11}, {"mtime_ns": 6}):
        assert not good(before, [msgspec.structs.replace(f, **change) if f is file else f for f in FILES])


def test_files_that_are_gone_or_new(tmp_path: Path) -> None:
    before = report(tmp_path)
    assert good(before, [OUTPUT, PRIMARY]), "it was compared while it was there"
    assert not good(before, [FOREIGN, PRIMARY])
    new = msgspec.structs.replace(FOREIGN, path="new.log")
    assert good(before, [*FILES, new], fresh=(48, 50))
    assert not good(before, [*FILES, new], fresh=(47, 50))


def test_a_new_primary_log_counts_where_a_primary_event_was_missing(tmp_path: Path) -> None:
    new = [*FILES, msgspec.structs.replace(PRIMARY, path="q2.log")]
    assert good(report(tmp_path), new)
    assert not good(report(tmp_path, absent=True), new)


def test_hours_of_a_file_are_remembered_when_it_is_not_read(tmp_path: Path) -> None:
    before = report(tmp_path)
    days = Days.since(before, "d", FILES)
    days.keep(days.good([DAY], PRINT, {}))
    days.write(RealDisk(), before)
    assert not good(before, [msgspec.structs.replace(FOREIGN, bytes=11), OUTPUT, PRIMARY])


def test_pieces() -> None:
    assert pieces_of(20, 50) == [(20, 24), (24, 48), (48, 50)]
    assert pieces_of(24, 48) == [(24, 48)]
    assert pieces_of(5, 5) == []
    assert span_of([(20, 24), (24, 48)]) == (20, 48)
    assert span_of([]) is None
    counts = [ClassCount(30, "east", Class.CORRECT, 3), ClassCount(None, "east", Class.TORN, 1)]
    of = counts_by_piece([DAY], counts)
    assert of == {DAY: [RIGHT]}
    assert as_counts(Piece(begin=24, end=48, absent=False, registry=(0, 0), counts=of[DAY])) == counts[:1]


def test_a_report_stands_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "report"

    def build(text: str) -> None:
        write_report(RealDisk(), target, lambda directory: (directory / "verdict.json").write_text(text) and None)

    def fail(directory: Path) -> None:
        (directory / "half").touch()
        raise OSError("full")

    build("one")
    build("two")
    assert (target / "verdict.json").read_text() == "two"
    with pytest.raises(OSError, match="full"):
        write_report(RealDisk(), target, fail)
    assert (target / "verdict.json").read_text() == "two"
    assert [path.name for path in tmp_path.iterdir()] == ["report"]
    target.rename(tmp_path / "report.before")  # cut short between two renames
    with pytest.raises(OSError, match="full"):
        write_report(RealDisk(), target, fail)
    assert (target / "verdict.json").read_text() == "two"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x").touch()
    with pytest.raises(ReportRefused):
        write_report(RealDisk(), tmp_path / "other", fail)
