"""Lines on their way to a sink, and the cursor that goes with them."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.outputs import (
    Cursor,
    CursorLost,
    CursorUnreadable,
    OutputLog,
    Position,
    Reader,
    plan,
    read_range,
    retired_bytes,
)
from photon.outputs.content import OutputMissing
from photon.outputs.cursor import CursorFile
from photon.outputs.streaming import Stream, StreamTerms
from tests.unit.outputs.helpers import WrittenSlot, lines

DISK = RealDisk()


class Consumer:
    """A sink with some room, a consumer that asks to stop, and a cursor file, all in memory."""

    def __init__(self, room: int = 1 << 30) -> None:
        self.out = b""
        self.room = room
        self.asked = False
        self.broken = False
        self.saved: list[tuple[Cursor, int]] = []  # each saved cursor, and the amount written and flushed by then
        self.flushed = 0
        self.waits = 0
        self.now = 0.0

    def write(self, data: bytes) -> int:
        if self.broken:
            raise BrokenPipeError
        taken = data[: self.room - len(self.out)]
        self.out += taken
        self.asked = self.asked or len(taken) < len(data)
        return len(taken)

    def flush(self) -> None:
        self.flushed = len(self.out)

    def wait(self, seconds: float) -> None:
        self.waits += 1
        self.asked = self.waits > 1

    def save(self, cursor: Cursor) -> None:
        self.saved.append((cursor, self.flushed))

    def monotonic(self) -> float:
        self.now += 0.4
        return self.now


def stream_of(slot: WrittenSlot, consumer: Consumer, cursor: Cursor | None = None, *, block: int = 100,
              cleared_only: bool = False, **terms: object) -> Stream:  # fmt: skip
    start = cursor or Cursor()
    reader = Reader(DISK, slot.place, cursor=start, block_bytes=block, cleared_only=cleared_only)
    ways = {"save": consumer.save, "monotonic": consumer.monotonic}
    return Stream(reader, start, consumer, consumer, StreamTerms(**terms), **ways)  # type: ignore[arg-type]


def rest_of(slot: WrittenSlot, cursor: Cursor, **more: bool) -> bytes:
    """Lines for a reader that continues from there."""
    consumer = Consumer()
    stream_of(slot, consumer, cursor, **more).run()
    return consumer.out


def filled(path: Path, files: int = 3, count: int = 40) -> tuple[WrittenSlot, bytes]:
    slot = WrittenSlot(path)
    data = b""
    for number in range(1, files + 1):
        part = lines(number * 1000, count)
        slot.append(number, part)
        data += part
        if number < files:
            slot.roll(number)
    slot.finish(1)
    return slot, data


def test_all_of_it_and_then_what_came(tmp_path: Path) -> None:
    slot, data = filled(tmp_path)
    consumer = Consumer()
    stream_of(slot, consumer).run()
    assert consumer.out == data
    cursor, flushed = consumer.saved[-1]
    assert cursor == Cursor({OutputLog("s0", "joined"): Position(3, slot.path(3).stat().st_size)})
    assert flushed == len(data)
    slot.append(3, b"more\n")
    assert rest_of(slot, cursor) == b"more\n"


def test_no_saved_cursor_is_beyond_what_was_flushed(tmp_path: Path) -> None:
    slot, data = filled(tmp_path)
    consumer = Consumer()
    stream_of(slot, consumer, save_s=1.0).run()
    assert len(consumer.saved) > 3
    for cursor, flushed in consumer.saved:
        assert consumer.out[:flushed] + rest_of(slot, cursor) == data


@pytest.mark.parametrize("room", [0, 1, 21, 150, 1000])
def test_told_to_stop_in_the_middle(tmp_path: Path, room: int) -> None:
    """Data after the last whole line is passed on again."""
    slot, data = filled(tmp_path)
    consumer = Consumer(room)
    stream = stream_of(slot, consumer, follow=True)
    stream.run()
    whole = consumer.out[: consumer.out.rfind(b"\n") + 1]
    assert whole + rest_of(slot, stream.cursor) == data
    assert not consumer.waits


@pytest.mark.parametrize("limit", [0, 1, 5, 39, 40, 41, 119, 120])
def test_a_limit_is_met_exactly(tmp_path: Path, limit: int) -> None:
    slot, data = filled(tmp_path)
    consumer = Consumer()
    stream = stream_of(slot, consumer, limit=limit, follow=True)
    stream.run()
    assert consumer.out.splitlines() == data.splitlines()[:limit]
    assert consumer.out + rest_of(slot, stream.cursor) == data


@pytest.mark.parametrize("seed", range(20))
def test_lines_and_cursor_committed_together_are_exactly_once(tmp_path: Path, seed: int) -> None:
    """A consumer commits the lines before each cursor line; it is killed anywhere, and begins at its cursor."""
    slot, data = filled(tmp_path)
    random = Random(seed)
    committed, cursor = b"", Cursor()
    for _ in range(1000):
        consumer = Consumer(random.randint(100, 700))
        stream_of(slot, consumer, cursor, with_cursor=True, block=random.choice((1, 50, 500))).run()
        pending = b""
        for line in consumer.out[: consumer.out.rfind(b"\n") + 1].splitlines(keepends=True):
            if line.startswith(b'{"photon_cursor":'):
                committed, pending, cursor = committed + pending, b"", Cursor.decode(line, "stream")
            else:
                pending += line
        if not consumer.asked:
            break
    assert committed == data


def test_following_ends_when_asked_and_finds_new_slots(tmp_path: Path) -> None:
    slot, data = filled(tmp_path)
    consumer = Consumer()

    def wait(seconds: float) -> None:
        Consumer.wait(consumer, seconds)
        if consumer.waits == 1:
            slot.append(3, b"later\n")
            WrittenSlot(tmp_path, "s1").append(1, b"new\n")

    consumer.wait = wait  # type: ignore[method-assign]
    stream_of(slot, consumer, follow=True).run()
    assert consumer.out == data + b"later\nnew\n"


def test_a_file_that_was_written_anew_is_not_gone_on_with_in_the_middle_of_a_line(tmp_path: Path) -> None:
    """A dispatcher that continues from an older copy of its database writes different lines over its earlier ones."""
    slot = WrittenSlot(tmp_path)
    slot.append(1, b"one\ntwo\n")
    reader = Reader(DISK, slot.place)
    assert [block.data for block in reader.read()] == [b"one\ntwo\n"]
    slot.path(1).write_bytes(b"")
    slot.append(1, b"one\nother\nthree\n")
    with pytest.raises(CursorLost, match="no line ends there"):
        list(reader.read())


def test_after_a_broken_pipe_nothing_is_saved(tmp_path: Path) -> None:
    slot, _ = filled(tmp_path)
    consumer = Consumer()
    stream = stream_of(slot, consumer, save_s=1e9, follow=True)
    consumer.broken = True
    with pytest.raises(BrokenPipeError):
        stream.run()
    assert consumer.saved == []


def test_what_went_out_before_an_error_is_saved(tmp_path: Path) -> None:
    slot, _ = filled(tmp_path)
    slot.remove(2)
    consumer = Consumer()
    stream = stream_of(slot, consumer)
    with pytest.raises(OutputMissing, match="is gone"):
        stream.run()
    cursor, flushed = consumer.saved[-1]
    assert cursor.positions[OutputLog("s0", "joined")].number == 1
    assert flushed == len(consumer.out)


def test_the_last_lines_of_a_damaged_final_file_are_not_passed_on(tmp_path: Path) -> None:
    slot = WrittenSlot(tmp_path)
    slot.append(1, lines(0, 100))
    slot.roll(1)
    slot.finish(1)
    final = slot.path(1).with_name(slot.path(1).name + ".gz")
    packed = bytearray(final.read_bytes())
    packed[-6] ^= 1  # in the checksum, so that all bytes are right
    final.write_bytes(packed)
    consumer = Consumer()
    stream = stream_of(slot, consumer)
    with pytest.raises(OutputMissing, match="is damaged"):
        stream.run()
    at = stream.cursor.positions[OutputLog("s0", "joined")]
    assert 0 < at.offset == len(consumer.out) < len(lines(0, 100))
    [part] = plan(slot.place.published(DISK), slot.place.output)
    with pytest.raises(OutputMissing, match="is damaged"):
        list(read_range(DISK, part))


def test_only_what_is_cleared(tmp_path: Path) -> None:
    slot = WrittenSlot(tmp_path)
    told: list[dict[str, int]] = []

    def read(cursor: Cursor) -> tuple[bytes, Cursor]:
        consumer = Consumer()
        stream = stream_of(slot, consumer, cursor, cleared_only=True)
        stream._tell = told.append
        stream.run()
        return consumer.out, stream.cursor

    for number in (1, 2, 3):
        slot.append(number, b"a\nb\n")
        if number < 3:
            slot.roll(number)
    out, cursor = read(Cursor())
    assert (out, cursor) == (b"", Cursor())
    slot.clear({slot.name(1): 2, slot.name(2): 4})
    out, cursor = read(cursor)
    assert out == b"a\n"
    slot.clear({slot.name(1): 4, slot.name(2): 4, slot.name(3): 2})
    out, cursor = read(cursor)
    assert out == b"b\na\nb\na\n"
    slot.finish(1)
    slot.clear({slot.name(2): 4, slot.name(3): 2}, {slot.name(2): 1})
    assert read(cursor) == (b"", cursor)
    assert told == []
    assert read(Cursor())[0] == b"a\nb\n"
    assert told == [{slot.name(2): 1}]


@pytest.mark.parametrize(
    ("positions", "said"),
    [
        ({OutputLog("s0", "joined"): Position(9, 1)}, "no such file"),
        ({OutputLog("s0", "joined"): Position(3, 10**6)}, r"only \d+ bytes"),
        ({OutputLog("s7", "joined"): Position(1, 1)}, "there is no s7 below"),
        ({OutputLog("s0", "joined"): Position(2, 3)}, "no line ends there"),
        ({OutputLog("s0", "joined"): Position(1, 3)}, "no line ends there"),
    ],
)
def test_a_cursor_of_somewhere_else(tmp_path: Path, positions: dict[OutputLog, Position], said: str) -> None:
    slot, _ = filled(tmp_path)
    with pytest.raises(CursorLost, match=said):
        stream_of(slot, Consumer(), Cursor(positions)).run()


def test_what_a_power_cut_took_back_is_waited_for(tmp_path: Path) -> None:
    """The newest durable.json was not durable yet, but its lines were; the slot's next start publishes them again."""
    slot, _ = filled(tmp_path)
    consumer = Consumer()
    stream = stream_of(slot, consumer)
    stream.run()
    published = dict(slot.files)
    for lengths in ({slot.name(3): 21}, {}):
        slot.files = dict(published) | lengths if lengths else {slot.name(2): published[slot.name(2)]}
        slot.publish()
        assert rest_of(slot, stream.cursor) == b""
    slot.files = published
    slot.append(3, b"more\n")
    assert rest_of(slot, stream.cursor) == b"more\n"


def test_readers_go_on_in_a_sealed_copy_and_leave_a_slot_without_one(tmp_path: Path) -> None:
    slot, data = filled(tmp_path)
    consumer = Consumer()
    stream = stream_of(slot, consumer, limit=100)
    stream.run()
    copy = tmp_path / "copy"
    for number in (2, 3):
        target = copy / slot.name(number)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(slot.path(number).read_bytes())
        slot.remove(number)
    lengths = {slot.name(number): (copy / slot.name(number)).stat().st_size for number in (2, 3)}
    (slot.state / "retired.json").write_bytes(retired_bytes("s0", lengths, copy))
    for cleared_only in (False, True):
        assert consumer.out + rest_of(slot, stream.cursor, cleared_only=cleared_only) == data
    (slot.state / "retired.json").write_bytes(retired_bytes("s0"))
    assert rest_of(slot, stream.cursor) == b""


@pytest.mark.parametrize("at", [Position(1, 3), Position(1, 4), Position(1, 8), Position(2, 1)])
def test_who_read_more_than_was_sealed_has_no_more_to_read(tmp_path: Path, at: Position) -> None:
    slot = WrittenSlot(tmp_path)
    slot.append(1, b"a\nb\nc\nd\n")
    (slot.state / "retired.json").write_bytes(retired_bytes("s0", {slot.name(1): 4}))
    cursor = Cursor({OutputLog("s0", "joined"): at, OutputLog("s0", "late"): at})
    if at == Position(1, 3):
        with pytest.raises(CursorLost, match="no line ends there"):
            stream_of(slot, Consumer(), cursor).run()
        return
    assert rest_of(slot, cursor) == b""
    assert plan(slot.place.published(DISK), slot.place.output, since=cursor) == []
    assert sum(part.end for part in plan(slot.place.published(DISK), slot.place.output, until=cursor)) == 4


def test_a_cursor_file_serves_one_reader(tmp_path: Path) -> None:
    path = tmp_path / "c"
    kept = CursorFile(DISK, path)
    assert kept.load() is None
    cursor = Cursor({OutputLog("s0", "joined"): Position(3, 4)})
    kept.save(cursor)
    assert kept.load() == cursor
    with pytest.raises(UsageError, match="another process reads with this cursor"):
        CursorFile(DISK, path)
    kept.close()
    again = CursorFile(DISK, path)
    assert again.load() == cursor
    path.write_bytes(b"junk")
    with pytest.raises(CursorUnreadable, match=f"{path}: not a cursor"):
        again.load()
    again.close()
    for bad in (tmp_path, tmp_path / "none" / "c"):
        with pytest.raises(UsageError, match="cursor"):
            CursorFile(DISK, bad)


def test_a_watermark_comes_after_all_that_was_read(tmp_path: Path) -> None:
    slot = WrittenSlot(tmp_path)
    slot.append(1, lines(0, 3))
    consumer = Consumer()
    told: list[Cursor] = []

    def watermark(cursor: Cursor) -> bytes:
        told.append(cursor)
        return b"" if len(told) > 1 else b'{"photon_watermark":1}\n'

    stream = Stream(
        Reader(DISK, slot.place, ["joined"]), Cursor(), consumer, consumer, StreamTerms(follow=True),
        save=consumer.save, monotonic=lambda: consumer.now, watermark=watermark,
    )  # fmt: skip
    stream.run()
    assert consumer.out == lines(0, 3) + b'{"photon_watermark":1}\n'
    assert told[0] == stream.cursor
