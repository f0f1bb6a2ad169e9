"""Ranges of bytes planned without looking into the files: each line is in exactly one of them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from photon.config.disk import RealDisk
from photon.outputs import Cursor, CursorLost, FileRange, OutputFile, OutputLog, Position, end_of, plan, read_range
from photon.outputs.content import OutputMissing
from tests.unit.outputs.helpers import WrittenSlot, lines

DISK = RealDisk()


def content(parts: list[FileRange], *, block_bytes: int = 64) -> bytes:
    return b"".join(each.data for part in parts for each in read_range(DISK, part, block_bytes=block_bytes))


class OneFile(RealDisk):
    """A file in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, path: Path, offset: int = 0, length: int | None = None) -> bytes:
        return self._data[offset:] if length is None else self._data[offset : offset + length]


@given(
    texts=st.lists(st.binary(max_size=30).map(lambda text: text.replace(b"\n", b"")), min_size=1, max_size=30),
    split=st.integers(1, 100),
    block=st.integers(1, 64),
)
@settings(max_examples=300, deadline=None)
def test_the_ranges_have_each_line_once_and_know_where_it_stands(texts: list[bytes], split: int, block: int) -> None:
    data = b"\n".join(texts) + b"\n"
    file = OutputFile("joined/s0-000001.jsonl", len(data), True, False)
    parts = [FileRange("s0", file, Path("x"), at, min(at + split, len(data))) for at in range(0, len(data), split)]
    found = []
    for part in parts:
        for each in read_range(OneFile(data + b"not published"), part, block_bytes=block):
            assert each.data.endswith(b"\n")
            assert data[each.offset : each.offset + len(each.data)] == each.data
            assert part.start <= each.offset < part.end
            found.append(each.data)
    assert b"".join(found) == data


def test_from_cursor_to_cursor(tmp_path: Path) -> None:
    slot = WrittenSlot(tmp_path)
    out = slot.place.output
    everything = b""
    cursor = Cursor()
    for number in range(1, 6):
        data = lines(number * 100, 30)
        for half in (data[: data.find(b"\n", 200) + 1], data[data.find(b"\n", 200) + 1 :]):
            slot.append(number, half)
            published = slot.place.published(DISK)
            until = end_of(published)
            parts = plan(published, out, since=cursor, until=until, split_bytes=100)
            assert content(parts) == half
            assert content(plan(published, out, since=until)) == b""
            everything += half
            cursor = until
        slot.roll(number)
        if number % 2:
            slot.finish(number, compressed=number != 3)
    published = slot.place.published(DISK)
    assert content(plan(published, out, until=cursor)) == everything
    parts = plan(published, out, split_bytes=1000)
    assert [(part.file.number, part.start) for part in parts if part.file.compressed] == [(1, 0), (5, 0)]
    assert [part.start for part in plan(published, out, split_bytes=200) if part.file.number == 3][:2] == [0, 200]
    assert content(plan(published, out, until=Cursor())) == b""
    assert plan(published, out, kinds=["late"]) == []


def test_a_file_that_becomes_final_after_the_planning(tmp_path: Path) -> None:
    slot = WrittenSlot(tmp_path)
    data = lines(0, 100)
    slot.append(1, data)
    slot.roll(1)
    parts = plan(slot.place.published(DISK), slot.place.output, split_bytes=77)
    assert len(parts) > 10
    slot.finish(1)
    assert content(parts) == data


def test_places_where_nothing_is_published(tmp_path: Path) -> None:
    slot = WrittenSlot(tmp_path)
    slot.append(1, b"abc\n")
    published = slot.place.published(DISK)
    for place, at, said in (
        (OutputLog("s0", "joined"), Position(1, 5), "only 4 bytes"),
        (OutputLog("s0", "joined"), Position(2, 0), "no such file"),
        (OutputLog("s1", "joined"), Position(1, 0), "s1 has published no joined file"),
        (OutputLog("s0", "late"), Position(1, 0), "s0 has published no late file"),
    ):
        for limit in ("since", "until"):
            with pytest.raises(CursorLost, match=said):
                plan(published, slot.place.output, **{limit: Cursor({place: at})})
    gone = [dataclasses.replace(published[0], files=(), retired=True)]
    assert plan(gone, slot.place.output, since=Cursor({OutputLog("s0", "joined"): Position(9, 9)})) == []


@pytest.mark.parametrize(
    ("there", "said"), [(None, "is gone"), (b"ab", "has 2 bytes, but 4 were"), (b"abcd", "no line")]
)
def test_what_is_not_there_is_said(tmp_path: Path, there: bytes | None, said: str) -> None:
    slot = WrittenSlot(tmp_path)
    slot.append(1, b"abc\n")
    [part] = plan(slot.place.published(DISK), slot.place.output)
    slot.path(1).unlink()
    if there is not None:
        slot.path(1).write_bytes(there)
    with pytest.raises(OutputMissing, match=said) as raised:
        content([part])
    assert str(slot.path(1)) in str(raised.value)
