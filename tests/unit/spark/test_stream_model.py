"""The stream of the data source as Spark calls it, without Spark: each line is in one batch, whatever happens.

Spark's part is played here: offsets go through JSON into a checkpoint, batches are done again, queries are started
anew from what the checkpoint holds. The files grow, roll, and become final meanwhile.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes
from pyspark.sql.types import LongType, StringType, StructField, StructType

from photon.config.errors import UsageError
from photon.spark.data_source import OutputReader, OutputStream, read_options
from tests.unit.outputs.helpers import WrittenSlot
from tests.unit.spark.test_output_lines import Event, Joined, joined

SCHEMA = StructType([StructField("event_id", StringType()), StructField("hour", LongType())])
STEPS = 25
HOUR_NS = 3_600_000_000_000


def line(n: int) -> bytes:
    event = Event(event_id=b"e%d" % n, event_time_ns=n * HOUR_NS)
    return joined(Joined(b'{"n":%d,"pad":"%s"}' % (n, b"x" * (n % 50)), b"{}"), event) + b"\n"


def deployment(base: Path) -> str:
    """A deployment file for output in ``base``."""
    file = base / "photon.toml"
    file.write_text(
        '[join.clicks]\n[join.clicks.primary]\nformat = "jsonl"\nkey = "q"\n'
        '[join.clicks.foreign]\nformat = "jsonl"\nkey = "q"\ntime = { field = "t", unit = "s" }\n'
        '[datacentre.east]\njoin = "clicks"\nprimary = "p"\nforeign = "f"\noutput = "out"\nstate = "state"\n'
        'eventstore = "127.0.0.1:1"\n[datacentre.east.joiners.s0]\naddress = "127.0.0.1:2"\n'
    )
    return str(file)


class Writer:
    """Two slots that write numbered lines, and do to their files what joiners do."""

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
    """What Spark does with a source. ``checkpoint``: offsets of batches that were begun, as JSON."""

    def __init__(self, path: str, checkpoint: list[str]) -> None:
        self._stream = OutputStream(read_options({"path": path, "partitionBytes": "700"}), SCHEMA)
        self._checkpoint = checkpoint

    def batch(self, most: int | None) -> list[str] | None:
        """Begins a batch and does it; None: there is nothing new."""
        if not self._checkpoint:
            self._checkpoint.append(json.dumps(self._stream.initialOffset()))
        start = json.loads(self._checkpoint[-1])
        end = self._stream.latestOffset(start, ReadAllAvailable() if most is None else ReadMaxBytes(most))
        if end == start:
            return None
        self._checkpoint.append(json.dumps(end))
        return self.last()

    def last(self) -> list[str]:
        """Does the batch that was begun last, perhaps again."""
        start, end = (json.loads(each) for each in self._checkpoint[-2:])
        return ids(self._stream, self._stream.partitions(start, end))


def ids(reader: OutputStream | OutputReader, partitions: Any) -> list[str]:
    return [
        each for part in partitions for batch in reader.read(part) for each in batch.column("event_id").to_pylist()
    ]


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


def test_a_bound_is_kept_and_reached(tmp_path: Path) -> None:
    slot = WrittenSlot(tmp_path, "s0")
    slot.append(1, b"".join(map(line, range(100))))
    checkpoint: list[str] = []
    query, sizes = Query(deployment(tmp_path), checkpoint), []
    while (rows := query.batch(2000)) is not None:
        sizes.append(sum(len(line(int(each[1:]))) for each in rows))
    assert len(sizes) > 5
    assert max(sizes) < 2000 + 400


def test_what_comes_after_the_target_waits(tmp_path: Path) -> None:
    slot = WrittenSlot(tmp_path, "s0")
    slot.append(1, line(0))
    stream = OutputStream(read_options({"path": deployment(tmp_path)}), SCHEMA)
    start = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()
    slot.append(1, line(1))
    end = stream.latestOffset(start, ReadAllAvailable())
    assert ids(stream, stream.partitions(start, end)) == ["e0"]
    assert stream.latestOffset(end, ReadAllAvailable()) == end


def test_a_slot_that_is_not_seen_for_a_moment_is_not_read_again(tmp_path: Path) -> None:
    slot = WrittenSlot(tmp_path, "s0")
    slot.append(1, line(0))
    stream = OutputStream(read_options({"path": deployment(tmp_path)}), SCHEMA)
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    (slot.state / "durable.json").rename(slot.state / "gone")
    assert stream.latestOffset(end, ReadAllAvailable()) == end
    (slot.state / "gone").rename(slot.state / "durable.json")
    slot.append(1, line(1))
    again = stream.latestOffset(end, ReadAllAvailable())
    assert ids(stream, stream.partitions(end, again)) == ["e1"]


def test_a_batch_of_event_times(tmp_path: Path) -> None:
    slot = WrittenSlot(tmp_path, "s0")
    slot.append(1, b"".join(map(line, range(50))))
    given = {"path": deployment(tmp_path), "from": "1970-01-02T23:00", "to": "1970-01-03T01:00"}
    reader = OutputReader(read_options(given), SCHEMA)
    assert ids(reader, reader.partitions()) == ["e47", "e48"]
    with pytest.raises(UsageError, match="to 'noon': a time is"):
        read_options(given | {"to": "noon"})
