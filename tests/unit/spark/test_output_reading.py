"""Lines of output files that are damaged, truncated, gone or not named, as executors read them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from photon.config.output_kinds import KINDS
from photon.spark.outputs import RangeWork, read_work, source_ranges, unnamed_ranges
from photon.spark.sources import OutputSource
from tests.lines import event_of
from tests.unit.outputs.helpers import WrittenSlot
from tests.unit.spark.test_output_lines import Joined, joined

HOUR_NS = 3_600_000_000_000


def line(n: int) -> bytes:
    event = event_of(event_id=b"e%d" % n, key=b"k%d" % (n % 7), event_time_ns=n * HOUR_NS // 2)
    return joined(Joined(b'{"n" : %d}' % n, b"{}"), event) + b"\n"


def site(base: Path) -> tuple[WrittenSlot, OutputSource, Path]:
    """300 lines in a final file, which is the third, and 100 in one that grows."""
    slot = WrittenSlot(base, "s0")
    slot.append(1, b"".join(map(line, range(300))))
    slot.finish(1)
    slot.append(2, b"".join(map(line, range(300, 400))))
    source = OutputSource(datacentre="east", output=str(slot.place.output), state=str(slot.place.state))
    path = slot.path(1)
    return slot, source, path.with_name(path.name + ".gz")


def read(works: list[RangeWork]) -> tuple[list[int], list[tuple[int, str]]]:
    """Numbers of the events, and (offset, reason) of torn lines."""
    rows = [
        row
        for work in works
        for each in read_work(work)
        for row in zip(each.offsets, each.lines, each.torn, each.raw, strict=True)
    ]
    assert all(raw is None for _, _, why, raw in rows if why is not None)
    events = [int(found.event_id[1:]) for _, found, _, _ in rows if found is not None and found.event_id is not None]
    return events, [(offset, why) for offset, _, why, _ in rows if why is not None]


def wrong_checksum(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-6] ^= 1
    path.write_bytes(data)


def cut_at_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    ("damage", "least", "most", "why"),
    [
        (wrong_checksum, 300, 300, "checksum wrong, but all 300 lines are complete"),
        (cut_at_half, 100, 299, "is cut short after line "),
        (Path.unlink, 0, 0, "was published, but is gone"),
    ],
)
def test_every_line_that_can_be_read_is_read(
    tmp_path: Path, damage: Callable[[Path], None], least: int, most: int, why: str
) -> None:
    _, source, final = site(tmp_path)
    damage(final)
    events, [(offset, said)] = read(source_ranges(source, KINDS, 1 << 30))
    kept = len(events) - 100
    assert least <= kept <= most
    assert events == [*range(kept), *range(300, 400)]
    assert offset == sum(len(line(n)) for n in range(kept))
    assert said.startswith(why)


def test_a_cursor_ends_before_the_damage(tmp_path: Path) -> None:
    """A reader that asks for the lines before it is not told about it."""
    _, source, final = site(tmp_path)
    wrong_checksum(final)
    (work, _) = source_ranges(source, KINDS, 1 << 30)
    ends = [len(line(0)), len(line(0)) + len(line(1))]
    for start, stop, events in ((*ends, [1]), (ends[0] - 5, ends[0] + 1, [1]), (1, ends[0], []), (0, 1, [0])):
        before = RangeWork("east", "s0", work.name, work.length, True, True, work.path, start, stop)
        assert read([before]) == (events, [])


def test_files_that_nothing_names(tmp_path: Path) -> None:
    slot, source, final = site(tmp_path)
    assert unnamed_ranges(source, KINDS) == []
    slot.path(3).write_bytes(line(400))  # begun, and not published yet
    assert unnamed_ranges(source, KINDS) == []
    (final.parent / "s0-000077.jsonl.gz").write_bytes(final.read_bytes())
    (slot.state / "manifest.jsonl").write_bytes(b"")
    (final.parent / "copies").mkdir()
    (final.parent / "copies" / "mine.jsonl").write_bytes(line(9) + b'{"half')
    works = unnamed_ranges(source, KINDS)
    names = ["joined/copies/mine.jsonl", "joined/s0-000001.jsonl", "joined/s0-000077.jsonl"]
    assert [(each.name, each.named) for each in works] == [(name, False) for name in names]
    assert read(works[:1]) == ([9], [(len(line(9)), "has an unfinished last line after line 1")])
    assert read(works[1:]) == ([*range(300), *range(300)], [])
    (slot.state / "retired.json").write_bytes(b'{"version":1,"slot":"s0"}')
    assert [each.name for each in unnamed_ranges(source, KINDS)] == names[:1], "its readers were told to leave it"
