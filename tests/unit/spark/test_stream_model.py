"""The stream of the data source as Spark calls it, without Spark: each line is in one batch, whatever happens.

The test plays Spark's part: offsets go through JSON into a checkpoint, batches are redone, queries are restarted from
the checkpoint. The files grow, roll, and become final meanwhile.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.outputs.cursor import OutputLog, Position
from photon.outputs.damaged import add_damaged
from photon.outputs.log.format import DamagedRange
from photon.outputs.next_read import end_of
from photon.outputs.published import SlotListing
from photon.outputs.watermarks import Journal, Pair
from photon.spark.data_source import OutputReader, OutputStream, read_options
from photon.spark.data_source_options import decoded
from tests.lines import event_of
from tests.unit.outputs.helpers import WrittenSlot
from tests.unit.spark.test_output_lines import Joined, joined

SCHEMA = StructType([StructField("event_id", StringType()), StructField("hour", LongType())])
STEPS = 25
HOUR_NS = 3_600_000_000_000


def line(n: int) -> bytes:
    event = event_of(event_id=b"e%d" % n, event_time_ns=n * HOUR_NS)
    return joined(Joined(b'{"n":%d,"pad":"%s"}' % (n, b"x" * (n % 50)), b"{}"), event) + b"\n"


def deployment(base: Path) -> str:
    """A deployment file for output in ``base``."""
    file = base / "photon.toml"
    file.write_text(
        '[join.clicks]\n[join.clicks.primary]\nformat = "jsonl"\nkey = "q"\n'
        '[join.clicks.foreign]\nformat = "jsonl"\nkey = "q"\ntime = { field = "t", unit = "s" }\n'
        '[datacentre.east]\njoin = "clicks"\nprimary = "p"\nforeign = "f"\noutput = "out"\nstate = "state"\n'
        'address = "127.0.0.1:1"\n'
    )
    return str(file)


class Writer:
    """Two slots that write numbered lines, and treat their files like joiners do."""

    def __init__(self, base: Path, chance: random.Random) -> None:
        self._slots = [WrittenSlot(base, f"s{n}") for n in range(2)]
        self._numbers = [1, 1]
        self._rolled: list[tuple[int, int]] = []
        self._chance = chance
        self.written = 0

    def step(self) -> None:
        which = self._chance.randrange(2)
        slot = self._slots[which]
        data = b"".join(line(self.written + n) for n in range(self._chance.randrange(1, 20)))
        self.written += data.count(b"\n")
        slot.append(self._numbers[which], data)
        if self._chance.random() < 0.3:
            slot.roll(self._numbers[which])
            self._rolled.append((which, self._numbers[which]))
            self._numbers[which] += 1
        if self._rolled and self._chance.random() < 0.5:
            done, number = self._rolled.pop(0)
            self._slots[done].finish(number)


class Query:
    """Spark's use of a source. ``checkpoint``: offsets of batches that were begun, as JSON."""

    def __init__(self, path: str, checkpoint: list[str]) -> None:
        self._stream = OutputStream(read_options({"path": path, "partitionBytes": "700"}), SCHEMA)
        self._checkpoint = checkpoint

    def batch(self, most: int | None) -> list[str] | None:
        """Begins a batch and does it; ``None`` means that there is nothing new."""
        if not self._checkpoint:
            self._checkpoint.append(json.dumps(self._stream.initialOffset()))
        start = json.loads(self._checkpoint[-1])
        end = self._stream.latestOffset(start, ReadAllAvailable() if most is None else ReadMaxBytes(most))
        if end == start:
            return None
        self._checkpoint.append(json.dumps(end))
        return self.last()

    def last(self) -> list[str]:
        """Does the last begun batch, perhaps again."""
        start, end = (json.loads(each) for each in self._checkpoint[-2:])
        return ids(self._stream, self._stream.partitions(start, end))


def ids(reader: OutputStream | OutputReader, partitions: Any) -> list[str]:
    return [id_ for part in partitions for batch in reader.read(part) for id_ in batch["event_id"].to_pylist()]


@pytest.fixture
def slot(tmp_path: Path) -> WrittenSlot:
    return WrittenSlot(tmp_path, "s0")


@pytest.fixture
def stream(tmp_path: Path) -> OutputStream:
    return OutputStream(read_options({"path": deployment(tmp_path)}), SCHEMA)


@pytest.mark.parametrize("seed", range(12))
def test_each_line_is_in_one_batch(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    path, checkpoint = deployment(tmp_path), list[str]()
    writer = Writer(tmp_path, chance)
    query, seen = Query(path, checkpoint), list[str]()
    for _ in range(STEPS):
        writer.step()
        if chance.random() < 0.3:
            query = Query(path, checkpoint)  # stopped and started again
        if chance.random() < 0.7:
            rows = query.batch(chance.choice([None, 300, 2000]))
            if rows is not None and chance.random() < 0.3:
                writer.step()
                query = Query(path, checkpoint)
                assert sorted(query.last()) == sorted(rows)  # died before its commit: the very same rows
            seen += rows or []
    while (rows := query.batch(1000)) is not None:
        seen += rows
    assert sorted(seen, key=lambda each: int(each[1:])) == [f"e{n}" for n in range(writer.written)]


def test_a_bound_is_kept_and_reached(tmp_path: Path, slot: WrittenSlot) -> None:
    slot.append(1, b"".join(map(line, range(100))))
    checkpoint: list[str] = []
    query, sizes = Query(deployment(tmp_path), checkpoint), []
    while (rows := query.batch(2000)) is not None:
        sizes.append(sum(len(line(int(each[1:]))) for each in rows))
    assert len(sizes) > 5
    assert max(sizes) < 2000 + 400


def test_what_comes_after_the_target_waits(slot: WrittenSlot, stream: OutputStream) -> None:
    slot.append(1, line(0))
    start = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()
    slot.append(1, line(1))
    end = stream.latestOffset(start, ReadAllAvailable())
    assert ids(stream, stream.partitions(start, end)) == ["e0"]
    assert stream.latestOffset(end, ReadAllAvailable()) == end


def test_a_slot_that_is_not_seen_for_a_moment_is_not_read_again(slot: WrittenSlot, stream: OutputStream) -> None:
    slot.append(1, line(0))
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    (slot.state / "durable.json").rename(slot.state / "gone")
    assert stream.latestOffset(end, ReadAllAvailable()) == end
    (slot.state / "gone").rename(slot.state / "durable.json")
    slot.append(1, line(1))
    again = stream.latestOffset(end, ReadAllAvailable())
    assert ids(stream, stream.partitions(end, again)) == ["e1"]


def test_a_batch_of_event_times(tmp_path: Path, slot: WrittenSlot) -> None:
    slot.append(1, b"".join(map(line, range(50))))
    given = {"path": deployment(tmp_path), "from": "1970-01-02T23:00", "to": "1970-01-03T01:00"}
    reader = OutputReader(read_options(given), SCHEMA)
    assert ids(reader, reader.partitions()) == ["e47", "e48"]
    with pytest.raises(UsageError, match="to 'noon': a time is"):
        read_options(given | {"to": "noon"})


def test_no_more_records_than_asked_for(tmp_path: Path, slot: WrittenSlot) -> None:
    slot.append(1, b"".join(map(line, range(50))))
    slot.finish(1)
    slot.append(2, b"".join(map(line, range(50, 75))))
    stream = OutputStream(read_options({"path": deployment(tmp_path), "maxRecordsPerTrigger": "30"}), SCHEMA)
    at, sizes = stream.initialOffset(), list[int]()
    assert stream.getDefaultReadLimit() == ReadMaxRows(30)
    while (end := stream.latestOffset(at, stream.getDefaultReadLimit())) != at:
        sizes.append(len(ids(stream, stream.partitions(at, end))))
        at = end
    assert sizes == [30, 30, 15]


class Marked:
    """A slot whose pipeline journals watermarks, and a stream of it that carries them."""

    def __init__(self, base: Path, which: str, **options: str) -> None:
        self.slot = WrittenSlot(base, "s0")
        self.journal = Journal(RealDisk(), base / "state")
        self.journal.begin()
        self._options = {"path": deployment(base), "watermark": which, **options}
        kinds = {"event_id": StringType(), "kind": StringType(), "watermark": TimestampType(), "waiting": LongType()}
        self.schema = StructType([StructField(*each) for each in kinds.items()])

    def stream(self) -> OutputStream:
        return OutputStream(read_options(self._options), self.schema)

    def say(self, exact: int | None, percentile: int, waiting: int) -> None:
        """Reports hours, for everything published now."""
        times = (None if each is None else each * HOUR_NS for each in (exact, percentile))
        end = end_of([SlotListing(RealDisk(), self.slot.state).look()])
        self.journal.add(Pair(1, *times, waiting, end))


def rows(stream: OutputStream, start: Any, end: Any) -> list[dict[str, Any]]:
    return [row for part in stream.partitions(start, end) for batch in stream.read(part) for row in batch.to_pylist()]


def hours(row: dict[str, Any]) -> float:
    """Hours of its watermark, as ``withWatermark("watermark", "1 second")`` has it."""
    return (row["watermark"].timestamp() - 1) / 3600


def test_an_offset_carries_the_watermark_of_what_it_has_read(tmp_path: Path) -> None:
    marked = Marked(tmp_path, "percentile", maxRecordsPerTrigger="10")
    marked.slot.append(1, b"".join(map(line, range(10))))
    marked.say(None, 8, 3)
    marked.slot.append(1, b"".join(map(line, range(10, 20))))
    marked.say(None, 18, 4)
    stream, limit = marked.stream(), ReadMaxRows(10)
    at = stream.initialOffset()
    first = json.loads(json.dumps(stream.latestOffset(at, limit)))
    found = rows(stream, at, first)
    assert [row["event_id"] for row in found] == [f"e{n}" for n in range(10)] + [None]
    assert {(hours(row), row["waiting"]) for row in found} == {(8, 3)}  # not that of later published lines
    assert [row["kind"] for row in found].count("watermark") == 1
    second = stream.latestOffset(first, limit)
    marked.say(None, 30, 0)  # nothing has come since: time goes on
    again = marked.stream()  # and the cluster is gone: everything there is, is in the checkpoint
    assert rows(again, first, second) == rows(stream, first, second)
    third = again.latestOffset(second, limit)
    (only,) = rows(again, second, third)
    assert (only["kind"], hours(only), only["waiting"]) == ("watermark", 30, 0)
    assert again.latestOffset(third, limit) == third


def test_waiting_events_are_told_while_the_time_stands(tmp_path: Path) -> None:
    marked = Marked(tmp_path, "percentile")
    marked.slot.append(1, line(0))
    marked.say(1, 8, 3)
    stream, limit = marked.stream(), ReadAllAvailable()
    first = stream.latestOffset(stream.initialOffset(), limit)
    marked.say(2, 8, 1)
    (only,) = rows(stream, first, stream.latestOffset(first, limit))
    assert (hours(only), only["waiting"]) == (8, 1)


def test_the_exact_watermark_waits_for_all(tmp_path: Path) -> None:
    marked = Marked(tmp_path, "exact")
    marked.slot.append(1, line(0))
    marked.say(None, 8, 3)
    stream, limit = marked.stream(), ReadAllAvailable()
    first = stream.latestOffset(stream.initialOffset(), limit)
    assert {hours(row) for row in rows(stream, stream.initialOffset(), first)} == {0}
    marked.say(5, 9, 3)
    (only,) = rows(stream, first, stream.latestOffset(first, limit))
    assert (hours(only), only["waiting"]) == (5, 0)


def test_what_is_said_after_the_target_waits(tmp_path: Path) -> None:
    marked = Marked(tmp_path, "percentile")
    marked.slot.append(1, line(0))
    marked.say(None, 8, 3)
    stream = marked.stream()
    stream.prepareForTriggerAvailableNow()
    marked.say(None, 9, 0)
    first = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    assert {hours(row) for row in rows(stream, stream.initialOffset(), first)} == {8}
    assert stream.latestOffset(first, ReadAllAvailable()) == first


def test_a_checkpoint_without_watermarks_goes_on_with_them(tmp_path: Path, stream: OutputStream) -> None:
    marked = Marked(tmp_path, "percentile")
    marked.slot.append(1, line(0))
    start = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    assert start["version"] == 1
    marked.say(None, 8, 0)
    again = marked.stream()
    (only,) = rows(again, start, again.latestOffset(start, ReadAllAvailable()))
    assert hours(only) == 8


def test_a_watermark_is_of_a_stream(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="watermark 'about': must be exact or percentile"):
        read_options({"path": str(tmp_path), "watermark": "about"})


def test_a_datacentre_that_is_left_out_for_a_time_is_read_on(tmp_path: Path, stream: OutputStream) -> None:
    writer = Writer(tmp_path, random.Random(1))
    writer.step()
    all_read = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    west = all_read["cursors"]["east"]
    before = {**all_read, "cursors": {"east": west, "west": west}}
    writer.step()
    after = stream.latestOffset(before, ReadAllAvailable())
    assert after["cursors"]["west"] == west
    assert after["cursors"]["east"] != west


def test_where_there_is_nothing_to_read_is_one_partition_without_rows(
    tmp_path: Path, slot: WrittenSlot, stream: OutputStream
) -> None:
    """Spark reads ``None`` if there is no partition at all."""
    for given in ({}, {"kind": "late"}, {"from": "2020-01-01", "to": "2020-01-02"}):
        reader = OutputReader(read_options({"path": deployment(tmp_path), **given}), SCHEMA)
        assert len(reader.partitions()) == 1
        assert ids(reader, reader.partitions()) == []
    at = stream.initialOffset()
    assert len(stream.partitions(at, at)) == 1
    assert ids(stream, stream.partitions(at, at)) == []
    slot.append(1, line(0))
    assert ids(stream, stream.partitions(at, stream.latestOffset(at, ReadAllAvailable()))) == ["e0"]


@pytest.mark.parametrize("limit", [{}, {"maxRecordsPerTrigger": "30"}, {"maxBytesPerTrigger": "1000"}])
def test_a_stream_passes_over_damaged_ranges(tmp_path: Path, slot: WrittenSlot, limit: dict[str, str]) -> None:
    data = b"".join(map(line, range(50)))
    for number in (1, 2, 3):
        slot.append(number, data)
        slot.finish(number)
        slot.path(number).with_name(slot.path(number).name + ".gz").unlink()
    slot.append(4, data)
    slot.roll(4)
    slot.append(5, data)
    slot.remove(5)
    lost = [DamagedRange(slot.name(number), 0, len(data), "", "") for number in (1, 2, 3, 5)]
    add_damaged(RealDisk(), slot.state, "s0", lost)
    stream = OutputStream(read_options({"path": deployment(tmp_path), **limit}), SCHEMA)
    at, found = stream.initialOffset(), list[str]()
    while (end := stream.latestOffset(at, stream.getDefaultReadLimit())) != at:
        found += ids(stream, stream.partitions(at, end))
        at = end
    assert sorted(found) == sorted(f"e{n}" for n in range(50))
    assert at == stream.latestOffset(at, ReadAllAvailable()), "the cursor is behind the damaged ranges"
    assert decoded(at)["east"].positions[OutputLog("s0", "joined")] == Position(5, len(data))
