"""Damaged ranges: marked once, and from then on every reader yields exactly the lines outside of them."""

from __future__ import annotations

import gzip
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from photon.config.disk import RealDisk
from photon.outputs import Cursor, OutputLog, Position, Reader, plan, read_range
from photon.outputs.content import FileContent, OutputMissing
from photon.outputs.damaged import FilledContent, add_damaged, mark_damaged, tell_skipped, unreadable
from photon.outputs.log.format import DAMAGED_NAME, DamagedRange, damaged_bytes
from photon.outputs.published import PublishedDamaged, read_damaged, readable
from tests.simulation.world.disk import PowerOff, SimulatedDisk
from tests.unit.outputs.helpers import WrittenSlot, lines, written_output
from tests.unit.refusals import one_line

DISK = RealDisk()
AT = "2026-11-28T01:00:00+00:00"
LOG = OutputLog("s0", "joined")


@pytest.fixture(autouse=True)
def untold() -> None:
    tell_skipped.cache_clear()


def no_record(line: bytes, kind: str) -> str | None:
    return None if line.startswith(b"{") else "garbage"


def mark(slot: WrittenSlot, *places: tuple[int, int]) -> list[DamagedRange | str]:
    named = [(slot.name(number), offset) for number, offset in places]
    return mark_damaged(DISK, slot.state, slot.place.output, named, AT, no_record)


def read(slot: WrittenSlot, at: Cursor | None = None, **options: Any) -> bytes:
    return b"".join(block.data for block in Reader(DISK, slot.place, cursor=at, **options).read())


def planned(slot: WrittenSlot, split: int = 100, block: int = 64, **limits: Any) -> bytes:
    parts = plan(slot.place.published(DISK), slot.place.output, split_bytes=split, **limits)
    return b"".join(each.data for part in parts for each in read_range(DISK, part, block_bytes=block))


RANGES = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 8)), max_size=5)
FILES = st.lists(
    st.tuples(st.integers(1, 30), RANGES, st.sampled_from(["plain", "final", "missing"])), min_size=1, max_size=4
)


@given(files=FILES, block=st.integers(1, 200), split=st.integers(1, 300), stop=st.integers(0, 40))
@settings(max_examples=150, deadline=None)
def test_readers_yield_exactly_the_lines_outside(
    tmp_path_factory: pytest.TempPathFactory,
    files: list[tuple[int, list[tuple[int, int]], str]],
    block: int,
    split: int,
    stop: int,
) -> None:
    slot, expected, marks = WrittenSlot(tmp_path_factory.mktemp("output")), b"", list[DamagedRange]()
    for number, (count, ranges, form) in enumerate(files, 1):
        data = lines(100 * number, count).splitlines(keepends=True)
        ends = [sum(map(len, data[:line])) for line in range(count + 1)]
        lost = set(range(count)) if form == "missing" else set()
        lost |= {line for begin, more in ranges for line in range(begin, min(begin + more, count))}
        marks += [DamagedRange(slot.name(number), ends[line], ends[line + 1], "x", AT) for line in sorted(lost)]
        written = [b"#" * (len(line) - 1) + b"\n" if at in lost else line for at, line in enumerate(data)]
        expected += b"".join(line for at, line in enumerate(data) if at not in lost)
        slot.append(number, b"".join(written))
        slot.roll(number)
        if form == "final":
            slot.finish(number)
        elif form == "missing":
            slot.remove(number)
    add_damaged(DISK, slot.state, "s0", marks)
    assert read(slot, block_bytes=block) == expected
    assert planned(slot, split, block) == expected
    cursor, found = Cursor(), b""
    while True:  # stopped after some blocks, and begun again at the cursor
        before = cursor
        for count, each in enumerate(Reader(DISK, slot.place, cursor=cursor, block_bytes=block).read()):
            found += each.data
            cursor = cursor.moved(each.place, each.end())
            if count == stop:
                break
        if cursor == before:
            break
    assert found == expected
    assert cursor.positions.get(LOG) == Position(
        len(files), sum(map(len, lines(100 * len(files), files[-1][0]).splitlines(keepends=True)))
    )
    assert planned(slot, split, block, since=cursor) == b""


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)), max_size=6), st.integers(0, 50), st.integers(1, 60))
def test_what_is_readable_is_what_no_range_holds(ranges: list[tuple[int, int]], at: int, end: int) -> None:
    marks = sorted(
        (DamagedRange("f", start, start + size, "", "") for start, size in ranges), key=lambda each: each.start
    )
    outside = [byte for byte in range(at, end) if not any(each.start <= byte < each.end for each in marks)]
    found = list[int]()
    while at < end:
        at, stop = readable(marks, at, end)
        found += range(at, stop)
        at = stop
    assert found == outside


def test_a_range_is_skipped_with_one_line_and_the_cursor_moves_past(tmp_path: Path) -> None:
    slot = WrittenSlot(tmp_path)
    for number in (1, 2):
        slot.final(number, lines(number, 5))
    length = len(lines(2, 5))
    slot.path(2).with_name(slot.path(2).name + ".gz").unlink()
    with pytest.raises(OutputMissing, match="is gone"):
        read(slot)
    [marked] = mark(slot, (2, 0))
    assert marked == DamagedRange(
        slot.name(2), 0, length, "was published, but is gone, even as .gz (lost, or archived)", AT
    )
    with capture_logs() as said:
        blocks = list(Reader(DISK, slot.place).read())
        assert read(slot) == lines(1, 5)
        assert planned(slot) == lines(1, 5)
    assert [(block.data, block.end()) for block in blocks] == [
        (lines(1, 5), Position(1, len(lines(1, 5)))), (b"", Position(2, length)),
    ]  # fmt: skip
    [line] = said
    assert (line["slot"], line["file"], line["begin"], line["end"]) == ("s0", slot.name(2), 0, length)
    assert read(slot, Cursor({LOG: Position(2, 7)})) == b"", "it had begun to read the file before that was lost"


def test_marking_finds_what_is_damaged(tmp_path: Path) -> None:
    slot = WrittenSlot(tmp_path)
    data = lines(0, 50)
    begins = [0, *(at + 1 for at in range(len(data)) if data[at : at + 1] == b"\n")]
    torn = bytearray(data)
    torn[begins[3] : begins[4] - 1] = b"x" * (begins[4] - begins[3] - 1)
    torn[begins[4] : begins[5] - 1] = b"y" * (begins[5] - begins[4] - 1)
    slot.append(1, bytes(torn))
    slot.roll(1)
    slot.append(2, data)
    slot.path(2).write_bytes(data[: begins[20] + 3])
    good, line, next_line, cut, within, beyond, unknown = mark(
        slot, (1, 0), (1, begins[3]), (1, begins[4]), (2, begins[20]), (2, begins[30]), (2, len(data)), (3, 0)
    )
    assert good == f"{slot.name(1)}: the record at byte 0 is readable; verify again"
    assert line == next_line == DamagedRange(slot.name(1), begins[3], begins[5], "garbage", AT), "one range"
    why = f"has {begins[20] + 3} bytes, but {len(data)} were published"
    assert cut == within == DamagedRange(slot.name(2), begins[20], len(data), why, AT)
    said = f"no line begins at byte {len(data)}: only {len(data)} bytes are published; see its cause"
    assert beyond == f"{slot.name(2)}: {said}"
    assert unknown == f"{slot.name(3)}: is not published, so it is not read"
    before = (slot.state / DAMAGED_NAME).read_bytes()
    assert [mark(slot, (1, begins[3])), mark(slot, (2, begins[20]))] == [[line], [cut]]
    assert (slot.state / DAMAGED_NAME).read_bytes() == before, "nothing is new"
    assert read(slot) == data[: begins[3]] + data[begins[5] :] + data[: begins[20]]


def test_a_damaged_gzip_file_is_read_up_to_its_damage_and_no_checksum_counts_then(tmp_path: Path) -> None:
    slot = WrittenSlot(tmp_path)
    data = lines(0, 4000, 200)
    slot.final(1, data)
    final = slot.path(1).with_name(slot.path(1).name + ".gz")
    whole = final.read_bytes()
    for packed in (whole[:-2000] + b"\xff" * 1000 + whole[-1000:], whole[: len(whole) // 2]):
        final.write_bytes(packed)
        found, content = b"", FileContent(DISK, slot.path(1), 0)
        with suppress(OutputMissing):
            while part := content.read(10_000):
                found += part
        assert len(found) > len(data) / 3
        assert data.startswith(found) or packed != whole[: len(whole) // 2]
        offset = found.rfind(b"\n", 0, len(data) // 3) + 1
        (slot.state / DAMAGED_NAME).unlink(missing_ok=True)
        add_damaged(DISK, slot.state, "s0", [DamagedRange(slot.name(1), offset, len(data), "", AT)])
        assert read(slot) == planned(slot) == data[:offset]
    final.write_bytes(whole[:-8] + b"\0" * 8)
    (slot.state / DAMAGED_NAME).unlink()
    [refused] = mark(slot, (1, 0))
    assert "is readable" in str(refused), "a wrong checksum alone is no damaged range"
    with pytest.raises(OutputMissing, match="incorrect data check"):
        read(slot)
    add_damaged(DISK, slot.state, "s0", [DamagedRange(slot.name(1), 0, data.find(b"\n") + 1, "", AT)])
    assert read(slot) == planned(slot) == data[data.find(b"\n") + 1 :]


def test_what_readers_stop_at(tmp_path: Path) -> None:
    slot = WrittenSlot(tmp_path)
    data = lines(0, 30)
    for number in (1, 2, 3, 4):
        slot.final(number, data)
    for number in (5, 6):
        slot.append(number, data)

    def found() -> list[tuple[str, int, int, str]]:
        [published] = slot.place.published(DISK)
        return [
            (each.file, each.start, each.end, each.why) for each in unreadable(DISK, published, slot.place.output)
        ]

    assert found() == []
    finals = {number: slot.path(number).with_name(slot.path(number).name + ".gz") for number in (1, 2, 3)}
    finals[1].unlink()
    finals[2].write_bytes(finals[2].read_bytes()[:100])
    half = len(data) // 2
    finals[3].write_bytes(gzip.compress(data[:half]) + gzip.compress(data[half:]))  # of two members, and whole
    slot.path(5).write_bytes(data[:7])
    [gone, cut, short] = found()
    assert gone == (slot.name(1), 0, len(data), "is gone")
    assert cut[0] == slot.name(2)
    assert 0 < cut[1] < cut[2] == len(data)
    assert short == (slot.name(5), 7, len(data), f"has 7 bytes, but {len(data)} were published")
    mark(slot, (1, 0), (2, data.rfind(b"\n", 0, cut[1]) + 1), (5, 0))
    assert found() == []


def test_a_kill_or_power_cut_while_marking_leaves_all_or_nothing() -> None:
    state, output = Path("/state/slots/s0"), Path("/out")
    for stop in range(1, 40):
        disk = SimulatedDisk(Random(stop))
        disk.make_dir(state)
        disk.make_dir(output / "joined")
        disk.replace(state / "durable.json", b'{"version":1,"slot":"s0","files":{"joined/s0-000001.jsonl":9}}')
        disk.replace(
            state / DAMAGED_NAME, damaged_bytes("s0", [DamagedRange("joined/s0-000000.jsonl", 0, 5, "", AT)])
        )
        before = read_damaged(disk, state)
        disk.crash_after(stop)
        try:
            mark_damaged(disk, state, output, [("joined/s0-000001.jsonl", 0)], AT, no_record)
            done = True
        except PowerOff:
            done = False
        disk.crash_after(None)
        disk.power_cut() if stop % 2 else disk.kill()
        now = read_damaged(disk, state)
        assert now[: len(before)] == before
        assert len(now) in ((2,) if done else (1, 2))
        mark_damaged(disk, state, output, [("joined/s0-000001.jsonl", 0)], AT, no_record)
        assert [each.file for each in read_damaged(disk, state)] == [
            "joined/s0-000000.jsonl",
            "joined/s0-000001.jsonl",
        ]
        if done:
            return
    raise AssertionError("it never came to its end")


@pytest.mark.parametrize("content", [b"{", b'{"version":1,"slot":"s0","ranges":[{}]}'])
def test_a_damaged_file_is_refused(tmp_path: Path, content: bytes) -> None:
    slot = WrittenSlot(tmp_path)
    slot.append(1, b"{}\n")
    (slot.state / DAMAGED_NAME).write_bytes(content)
    with one_line(PublishedDamaged, DAMAGED_NAME):
        read(slot)


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), max_size=4), st.integers(1, 30), st.integers(0, 60)
)
@settings(max_examples=50, deadline=None)
def test_copied_content_keeps_its_offsets(ranges: list[tuple[int, int]], size: int, at: int) -> None:
    class Memory(RealDisk):
        def read(self, path: Path, offset: int = 0, length: int | None = None) -> bytes:
            return b"0123456789"[offset : None if length is None else offset + length]

    marks = sorted(
        (DamagedRange("f", start, start + count, "", "") for start, count in ranges), key=lambda each: each.start
    )
    content, found = FilledContent(Memory(), Path("f"), at, marks), b""
    while part := content.read(size):
        found += part
    filled = [
        10 if any(each.start <= byte < each.end for each in marks) else b"0123456789"[byte : byte + 1]
        for byte in range(100)
    ]
    expected = b""
    for each in filled[at:]:
        if each == b"":
            break
        expected += b"\n" if each == 10 else each  # type: ignore[operator]
    assert found == expected


def test_users_of_the_library_read_on(tmp_path: Path) -> None:
    from photon.library import Output

    slot = written_output(tmp_path)
    for number in (1, 2, 3):
        slot.final(number, lines(number * 10, 3))
    slot.path(2).with_name(slot.path(2).name + ".gz").unlink()
    mark(slot, (2, 0))
    output = Output(slot.place)
    batches = list(output.batches())
    assert b"".join(batch.data for batch in batches) == lines(10, 3) + lines(30, 3)
    assert all(batch.data for batch in batches)
    assert list(output.batches(cursor=batches[0].cursor)) == batches[1:]
