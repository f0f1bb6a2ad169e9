"""The journal of watermarks."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from photon.config.disk import RealDisk
from photon.outputs import watermarks
from photon.outputs.cursor import Cursor, OutputLog, Position
from photon.outputs.output_places import PublishedEnd
from photon.outputs.watermarks import (
    JOURNAL,
    Entry,
    Late,
    Pair,
    WatermarkTail,
    decode,
    late_in,
    newest_before,
    pairs_of,
    read_journal,
    thinned,
)
from tests.unit.outputs.helpers import WrittenSlot, lines

LOG = OutputLog("s0", "joined")


def _pair(number: int, offset: int | None = None) -> Pair:
    cursor = Cursor({LOG: Position(1, 10 * number if offset is None else offset)})
    return Pair(number, number * 100, number * 200, number, cursor, ("why",))


def test_what_was_journaled_is_read_again() -> None:
    entries = [_pair(1), Late("joined/s0-000001.jsonl", 70, 3, 5), _pair(2), Pair(3, None, None, 0, Cursor())]
    assert list(decode(b"".join(entry.encode() + b"\n" for entry in entries))) == entries


def test_a_line_that_says_nothing_does_not_hide_the_others(tmp_path: Path) -> None:
    path = tmp_path / JOURNAL
    path.parent.mkdir()
    later = _pair(2).encode().replace(b'"photon_watermark":1', b'"photon_watermark":2')
    path.write_bytes(b"\n".join([_pair(1).encode(), b"{", later, _pair(3).encode(), b'{"photon_wat']))
    assert read_journal(RealDisk(), tmp_path) == [_pair(1), _pair(3)]
    assert read_journal(RealDisk(), tmp_path / "none") == []


def test_a_reader_is_told_what_holds_for_its_kinds() -> None:
    pairs = [_pair(1), _pair(2), _pair(3)]
    at = Cursor({LOG: Position(1, 25)})
    assert newest_before(pairs, at, ["joined"]) == pairs[1]
    assert newest_before(pairs, at, ["unmatched"]) == pairs[2]
    assert newest_before(pairs, Cursor(), ["joined"]) is None
    assert newest_before(pairs, Cursor({LOG: Position(2, 0)}), ["joined"]) == pairs[2]


@given(st.integers(0, 40), st.integers(1, 10), st.integers(1, 10), st.lists(st.integers(1, 3), max_size=6))
def test_fewer_entries_say_less_and_nothing_else(pairs: int, newest: int, older: int, late: list[int]) -> None:
    entries: list[Entry] = [_pair(number) for number in range(pairs)]
    entries += [Late(f"joined/s{at % 2}-000001.jsonl", at + 1, records, at) for at, records in enumerate(late)]
    kept = thinned(entries, newest, older)
    assert late_in(kept) == sum(late)
    ends, ends_kept = ({each.file: each.end for each in of if isinstance(each, Late)} for of in (entries, kept))
    assert ends == ends_kept
    found = pairs_of(kept)
    before = pairs_of(entries)
    assert [each for each in before if each in found] == found
    assert found[-newest:] == before[-newest:]
    assert len(found) <= newest + older


def test_a_reader_who_goes_on_is_told_each_time_once(tmp_path: Path) -> None:
    tail = WatermarkTail(RealDisk(), tmp_path, ["joined"])
    at = Cursor({LOG: Position(1, 25)})
    assert tail.moved(at) is None
    path = tmp_path / JOURNAL
    path.parent.mkdir()
    path.write_bytes(b"".join(_pair(number).encode() + b"\n" for number in (1, 2, 3)) + b'{"photon_')
    assert tail.moved(at) == _pair(2)
    assert tail.moved(at) is None
    assert tail.moved(Cursor({LOG: Position(1, 30)})) == _pair(3)
    path.write_bytes(_pair(4).encode() + b"\n")
    assert tail.moved(Cursor({LOG: Position(1, 40)})) == _pair(4)


def test_a_reader_far_behind_holds_no_more_than_is_left_and_is_never_told_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("LINES_MAX", 20), ("NEWEST_KEPT", 5), ("OLDER_KEPT", 5)):
        monkeypatch.setattr(watermarks, name, value)
    path = tmp_path / JOURNAL
    path.parent.mkdir()
    tail = WatermarkTail(RealDisk(), tmp_path, ["joined"])
    pairs = [_pair(number) for number in range(200)]
    at = Cursor({LOG: Position(1, 10 * 50)})

    def journal(some: list[Pair]) -> None:
        path.write_bytes(b"".join(pair.encode() + b"\n" for pair in some))

    journal(pairs[:60])
    assert (told := tail.moved(at)) is not None
    assert len(tail._pairs) <= 20
    journal([pairs[0], *pairs[55:60]])
    assert tail.moved(at) is None, "of those that are left an older one holds"
    assert tail._pairs == [pairs[0], *pairs[55:60]], "what was read before is not there twice"
    for end in range(61, 200):
        journal([pairs[0], *pairs[55:end]])
        assert tail.moved(at) is None
        assert len(tail._pairs) <= 20
    assert (last := tail.moved(Cursor({LOG: Position(1, 10 * 198)}))) == pairs[198]
    assert last is not None
    assert told.at_ns < last.at_ns


def test_the_end_of_what_slots_published_is_found_again_and_again(tmp_path: Path) -> None:
    slot = WrittenSlot(tmp_path)
    end = PublishedEnd(RealDisk(), slot.place.state / "slots")
    assert end.look() == (Cursor(), set())
    slot.append(1, lines(0, 3))
    first, _ = end.look()
    assert first.positions[LOG] == (1, slot.files[slot.name(1)])
    slot.roll(1)
    slot.compress(1)
    slot.list(1)
    slot.append(2, lines(3, 1))
    slot.append(1, lines(0, 1), "unmatched")
    assert end.look()[0].positions == {
        LOG: (2, slot.files[slot.name(2)]),
        OutputLog("s0", "unmatched"): (1, slot.files[slot.name(1, "unmatched")]),
    }
    assert end.look() == end.look()
