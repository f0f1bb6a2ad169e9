"""Days that need no new look."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from photon.config.disk import RealDisk
from photon.spark.classes import Class
from photon.spark.verify.days import (
    SAMPLE_HOURS,
    Days,
    Piece,
    Span,
    as_counts,
    counts_by_piece,
    merged,
    name_of,
    pieces_of,
)
from photon.spark.verify.figures import ClassCount
from photon.spark.verify.verdict import InputFile, ReportRefused, write_report

DAY = (24, 48)
PRINT = {DAY: (3, 77)}
FOREIGN = InputFile(what="foreign", datacentre="east", path="a.log", bytes=10, mtime_ns=5, identity="1a")
OUTPUT = InputFile(what="output", datacentre="east", path="joined/s.jsonl", bytes=10, mtime_ns=5)
PRIMARY = InputFile(what="primary", datacentre="east", path="q.log", bytes=10, mtime_ns=5, identity="9e")
FILES = [FOREIGN, OUTPUT, PRIMARY]
RIGHT = (30, "east", "correct", 3)
changed = msgspec.structs.replace


def piece(**more: object) -> Piece:
    return Piece(**({"begin": 24, "end": 48, "absent": b"", "registry": (3, 77), "counts": [RIGHT]} | more))  # type: ignore[arg-type]


def report(tmp_path: Path, **more: object) -> Path:
    """Report of a run that read events of hour 30 from both files."""
    days = Days("d", FILES)
    days.keep([piece(**more)])
    days.spans = {
        ("foreign", "east", "1a"): Span(30, 31, True),
        ("output", "east", "joined/s.jsonl"): Span(30, 30, True),
    }
    days.write(RealDisk(), tmp_path, [DAY])
    return tmp_path


def good(before: Path, files: list[InputFile], fresh: Span | None = None, **more: object) -> bool:
    days = Days.known(before, str(more.get("deployment", "d")), files)
    if fresh is not None:
        days.spans["foreign", "east", "2b"] = fresh
    days.met = more.get("met", set())  # type: ignore[assignment]
    return bool(days.good([DAY], more.get("registry", PRINT)))  # type: ignore[arg-type]


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
    assert not good(report(tmp_path, counts=[RIGHT, (30, "east", kind, 1)]), FILES)


@pytest.mark.parametrize("file", [FOREIGN, OUTPUT])
def test_a_file_of_the_day_that_changed(tmp_path: Path, file: InputFile) -> None:
    before = report(tmp_path)
    for change in ({"bytes": 11}, {"mtime_ns": 6}):
        assert not good(before, [changed(f, **change) if f is file else f for f in FILES])


def test_a_log_that_was_renamed_is_the_same(tmp_path: Path) -> None:
    before = report(tmp_path)
    files = [changed(FOREIGN, path="a.log.1"), OUTPUT, changed(PRIMARY, path="q.log.1")]
    assert good(before, files)
    days = Days.known(before, "d", files)
    assert (days.unknown(), days.changed("primary")) == ([], [])


def test_files_that_are_gone_or_new(tmp_path: Path) -> None:
    before = report(tmp_path)
    assert good(before, [OUTPUT, PRIMARY]), "it was compared while it was there"
    assert not good(before, [FOREIGN, PRIMARY])
    new = changed(FOREIGN, path="new.log", identity="2b")
    assert good(before, [*FILES, new], fresh=Span(48, 50, True))
    assert not good(before, [*FILES, new], fresh=Span(47, 50, False))
    assert Days.known(before, "d", [*FILES, new]).unknown() == [new]


def test_a_new_primary_log_counts_where_a_primary_event_was_missing(tmp_path: Path) -> None:
    new = [*FILES, changed(PRIMARY, path="q2.log", identity="7c")]
    assert good(report(tmp_path), new)
    assert good(report(tmp_path, absent=b"8 bytes."), new), "it has none of its keys"
    assert not good(tmp_path, new, met={DAY})
    assert not good(report(tmp_path, absent=None), new), "there were too many keys to remember"
    assert good(tmp_path, FILES)


def test_hours_of_a_file_are_remembered_when_it_is_not_read(tmp_path: Path) -> None:
    before = report(tmp_path)
    for _ in range(2):
        days = Days.known(before, "d", FILES)
        days.keep(days.good([DAY], PRINT))
        days.write(RealDisk(), before, [])
    assert not good(before, [changed(FOREIGN, bytes=11), OUTPUT, PRIMARY])


def test_days_that_nobody_asks_for_are_kept_and_lost_all_the_same(tmp_path: Path) -> None:
    """Changes while other days are verified are not forgotten."""
    before = report(tmp_path)
    other = changed(FOREIGN, path="b.log", identity="2b")
    days = Days.known(before, "d", [*FILES, other])
    days.spans["foreign", "east", "2b"] = Span(50, 60, True)
    days.keep([piece(begin=48, end=72)])
    days.write(RealDisk(), before, [(48, 72)])
    assert sorted(Days.known(before, "d", [*FILES, other]).pieces) == [DAY, (48, 72)]
    rotten = [changed(FOREIGN, mtime_ns=6), OUTPUT, PRIMARY, other]
    days = Days.known(before, "d", rotten)
    days.keep(days.good([(48, 72)], {(48, 72): (3, 77)}))
    days.write(RealDisk(), before, [])
    assert sorted(Days.known(before, "d", rotten).pieces) == [(48, 72)]


@pytest.mark.parametrize("fresh", [(48, 50), (47, 50)])
@pytest.mark.parametrize("file", [FOREIGN, OUTPUT])
def test_of_what_has_grown_only_what_is_new_counts(tmp_path: Path, file: InputFile, fresh: tuple[int, int]) -> None:
    days = Days("d", [changed(file, tail="ab")])
    days.keep([piece()])
    days.spans = {name_of(file): Span(30, 31, True)}
    days.write(RealDisk(), tmp_path, [DAY])
    now = changed(file, bytes=12, mtime_ns=9, tail="cd")
    days = Days.known(tmp_path, "d", [now])
    days.note_growth(lambda _, end: "ab" if end == 10 else "")
    assert days.unknown() == [now]
    days.spans[name_of(file)], days.fresh[name_of(file)] = Span(30, 50, True), Span(*fresh, True)
    assert days.unknown() == []
    assert bool(days.good([DAY], PRINT)) is (fresh[0] >= 48)
    days.grown.clear()
    days.fresh.clear()
    days.note_growth(lambda *_: "other bytes")
    assert not days.good([DAY], PRINT)


def test_a_log_that_was_compressed_is_the_same(tmp_path: Path) -> None:
    packed = changed(FOREIGN, path="a.log.1.gz", bytes=3)
    assert good(report(tmp_path), [packed, OUTPUT, PRIMARY])
    assert good(tmp_path, [changed(packed, mtime_ns=0), OUTPUT, PRIMARY]), "of whole seconds"
    assert not good(tmp_path, [changed(packed, mtime_ns=6), OUTPUT, PRIMARY]), "written to since"
    assert not good(tmp_path, [changed(packed, mtime_ns=5_000_000_000), OUTPUT, PRIMARY])


def test_which_files_are_read_for_some_hours(tmp_path: Path) -> None:
    final = changed(OUTPUT, path="joined/t.jsonl", first=30, last=40)
    grown = changed(FOREIGN, bytes=11)
    days = Days.known(report(tmp_path), "d", [grown, OUTPUT, final])
    assert days.unknown() == [grown]
    for hours, read in (((20, 30), [grown]), ((20, 31), [grown, OUTPUT, final]), ((40, 41), [grown, final])):
        assert [each for each in days.files if days.reads(each, [hours])] == read
    days.spans["foreign", "east", "1a"] = Span(30, 31, False)
    assert days.reads(grown, [(90, 91)]), "it is damaged"


@pytest.mark.parametrize("log", [FOREIGN, PRIMARY])
@pytest.mark.parametrize("grown", [True, False])
def test_a_log_that_could_not_be_read_is_new_the_next_time_as_well(
    tmp_path: Path, log: InputFile, grown: bool
) -> None:
    now = changed(log, bytes=12, mtime_ns=9) if grown else changed(log, path="b.log", identity="2b")
    files = [*(each for each in FILES if each is not log or not grown), now]
    for asked, read, again in (
        (set(), set(), []),
        ({name_of(now)}, {name_of(now)}, []),
        ({name_of(now)}, set(), [now]),
    ):
        days = Days.known(report(tmp_path), "d", files)
        days.asked, days.read = asked, read
        days.write(RealDisk(), tmp_path, [])
        assert Days.known(tmp_path, "d", files).changed("foreign", "primary") == again


def test_what_is_new_in_a_grown_file_is_looked_at_though_its_hours_are_told(tmp_path: Path) -> None:
    """Its manifest lists them while the plain file is still there."""
    days = Days("d", [changed(OUTPUT, tail="ab")])
    days.keep([piece()])
    days.spans = {name_of(OUTPUT): Span(30, 30, True)}
    days.write(RealDisk(), tmp_path, [DAY])
    now = changed(OUTPUT, bytes=12, tail="cd", first=30, last=40)
    days = Days.known(tmp_path, "d", [now])
    days.note_growth(lambda *_: "ab")
    assert days.unknown() == [now]
    assert days.reads(now, [(90, 91)])
    days.fresh[name_of(now)] = Span(31, 40, True)
    assert not days.reads(now, [(90, 91)])


def test_samples_take_turns() -> None:
    one, hours = piece(end=24 + 2 * SAMPLE_HOURS - 1, counts=[]), []
    for now in range(1, 6):
        hours.append(one.sample())
        after = one.after_sample([], now)
        assert after is not None
        one = after
    assert hours == [(24, 27), (27, 29), (24, 27), (27, 29), (24, 27)]
    assert one.looked_ns == 4


def test_a_sample_that_is_not_as_it_was() -> None:
    one = piece(counts=[(24, "east", "correct", 3)])
    same = [ClassCount(24, "east", Class.CORRECT, 3)]
    assert one.after_sample(same, 1) is not None
    for kind in (Class.WRONGLY_JOINED, Class.INVENTED):
        assert one.after_sample([ClassCount(24, "east", kind, 3)], 1) is None
    gone = msgspec.structs.replace(one, raw_gone=True)
    assert gone.after_sample([ClassCount(24, "east", Class.INVENTED, 3)], 1) is not None, "its log was deleted"
    assert gone.after_sample([ClassCount(24, "east", Class.WRONGLY_JOINED, 3)], 1) is None
    assert one.after_sample([], 1) is None


def test_deleted_raw_logs_are_remembered(tmp_path: Path) -> None:
    for left, gone in ((FILES, False), ([OUTPUT, PRIMARY], True), ([FOREIGN, OUTPUT], True)):
        days = Days.known(report(tmp_path), "d", left)
        days.keep(days.good([DAY], PRINT))
        days.write(RealDisk(), tmp_path, [])
        assert Days.known(tmp_path, "d", left).pieces[DAY].raw_gone is gone
        missed = {"a.log", "q.log"} - {each.path for each in left}
        assert {each.path for each in Days.known(tmp_path, "d", left).gone("foreign", "primary")} == missed


def test_a_log_that_is_gone_says_nothing_of_later_days(tmp_path: Path) -> None:
    """It is remembered; days verified after that are not suspected because of it."""
    left = [FOREIGN, OUTPUT]
    for raw_gone in (True, False):
        days = Days.known(report(tmp_path) if raw_gone else tmp_path, "d", left)
        days.keep([piece()])
        days.write(RealDisk(), tmp_path, [DAY])
        assert Days.known(tmp_path, "d", left).pieces[DAY].raw_gone is raw_gone


def test_pieces() -> None:
    assert pieces_of(20, 50) == [(20, 24), (24, 48), (48, 50)]
    assert pieces_of(24, 48) == [(24, 48)]
    assert pieces_of(5, 5) == []
    assert merged([(48, 50), (20, 24), (24, 48), (60, 61)]) == [(20, 50), (60, 61)]
    assert merged([]) == []
    counts = [ClassCount(30, "east", Class.CORRECT, 3), ClassCount(None, "east", Class.TORN, 1)]
    of = counts_by_piece([DAY], counts)
    assert of == {DAY: [RIGHT]}
    assert as_counts(piece(counts=of[DAY])) == counts[:1]


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
