"""The source of a query as Spark calls it, without Spark: messages, markers, and the resulting batches."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from photon.computing.injector import Injector
from photon.computing.wire import ENDED_NS, NEVER_NS, Watermark
from photon.config.disk import RealDisk
from photon.outputs.output_places import OutputPlace
from photon.outputs.watermarks import Pair, pairs_of
from photon.spark.computing.plan import MARKER, Plan, Reads, items_of, marker_of, topology_of
from photon.spark.computing.run import Wish, _reads_no_more
from photon.spark.computing.source import IDLE_S, ComputeStream, _records
from photon.spark.outputs import RangeWork
from tests.kit.clock import ManualClock
from tests.spark import recorded

LIMIT = ReadMaxRows(200)


def plan(base: Path, *, once: bool, exact: bool = True) -> Plan:
    out = base / "recorded" / "out"
    return Plan(
        file=str(base / "clicks.py"), text=recorded.CLICKS.encode(), exact=exact, once=once, records=200, run="x",
        reads=[Reads("joined", "output", str(out), str(out / ".photon"), ("joined",))], markers=["0a", "0b"],
    )  # fmt: skip


def rows(stream: ComputeStream, start: Any, end: Any) -> list[dict[str, Any]]:
    return [row for part in stream.partitions(start, end) for batch in stream.read(part) for row in batch.to_pylist()]


def test_a_run_to_the_end(tmp_path: Path) -> None:
    recorded.write(tmp_path, 1000, 20)
    stream = ComputeStream(plan(tmp_path, once=True), ManualClock(0))
    stream.prepareForTriggerAvailableNow()
    at, lines, marks, spark_ms = stream.initialOffset(), list[bytes](), [], 0
    while (end := json.loads(json.dumps(stream.latestOffset(at, LIMIT)))) != at:
        found = rows(stream, at, end)
        again = ComputeStream(plan(tmp_path, once=True), ManualClock(0))  # the driver is another one
        assert sorted(map(repr, rows(again, at, end))) == sorted(map(repr, found))
        items = [item for row in found if row["to"] != MARKER for item in items_of(row["items"])]
        assert len(items) <= 200
        lines += [item.value for item in items]
        (marker,) = {marker_of(row["items"]) for row in found if row["to"] == MARKER}
        assert [row["key"] for row in found if row["to"] == MARKER] == ["0a", "0b"]
        assert marker.spark_ms == spark_ms  # Spark's is that of the previous batch
        marks.append(marker.mark_ns)
        (column,) = {row["watermark"] for row in found}
        spark_ms = round(column.timestamp() * 1000) - 1000
        at = end
    assert len(lines) == len(set(lines)) == 1000
    assert marks == sorted(marks)
    assert (marks[0], marks[-1]) == (NEVER_NS, ENDED_NS)
    assert stream.latestOffset(at, LIMIT) == at
    later = ComputeStream(plan(tmp_path, once=True), ManualClock(0))  # a run that finds it at the end
    moved = later.latestOffset(at, LIMIT)
    told = later.latestOffset(moved, LIMIT)
    assert later.latestOffset(told, LIMIT) == told
    (marker,) = {marker_of(row["items"]) for row in rows(later, moved, told)}
    assert (marker.mark_ns, marker.spark_ms) == (ENDED_NS, spark_ms + 1)


def test_a_number_that_no_float_holds_is_read() -> None:
    line = b'{"event_time_ns":1,"foreign":1e999}'
    work = RangeWork("joined", "s", "joined/s-000001.jsonl", 36, True, False, "s-000001.jsonl", 0, 36)
    records, lines = _records(work, 0, line + b"\n", "joined")
    assert (records[0].value["foreign"], lines) == ("1e999", [line])


def test_a_watermark_that_moves_has_a_batch_more(tmp_path: Path) -> None:
    recorded.write(tmp_path, 100, 20)
    stream = ComputeStream(plan(tmp_path, once=False), ManualClock(0))
    at, offsets = stream.initialOffset(), []
    while (end := stream.latestOffset(at, LIMIT)) != at:
        offsets.append(end)
        at = end
    assert len(offsets) == 2  # all records; then the timers of their watermark
    assert offsets[1]["before"] == offsets[1]["watermark"] == offsets[0]["watermark"]
    assert {row["to"] for row in rows(stream, offsets[0], offsets[1])} == {MARKER}


def test_waiting_events_are_told_as_to_the_engine(tmp_path: Path) -> None:
    """Records run under what was known before them; of the same time what is said last counts."""
    recorded.write(tmp_path, 100, 20)
    disk, out = RealDisk(), tmp_path / "recorded" / "out"
    stream = ComputeStream(plan(tmp_path, once=False, exact=False), ManualClock(0))
    injector = Injector(disk, "joined", {"output": OutputPlace.of_join(out)}, ["joined"], None)
    at, chance = stream.initialOffset(), random.Random(3)
    told, heard = list[Watermark](), list[Watermark]()
    with recorded.journal(tmp_path) as journal:
        pair = pairs_of(journal.begin())[-1]
        for _ in range(20):
            exact_s, percentile_s = chance.choice([(1, 0), (0, 1), (1, 1)])
            exact_ns = min((pair.exact_ns or 0) + exact_s * recorded.SECOND, pair.percentile_ns or 0)
            percentile_ns = (pair.percentile_ns or 0) + percentile_s * recorded.SECOND
            pair = Pair(1, exact_ns, percentile_ns, chance.randrange(5), pair.cursor)
            journal.add(pair)
            for _ in range(2):  # the records' batch, and that of the watermark
                at, before = stream.latestOffset(at, LIMIT), at
            for _ in injector.read():
                pass
            (marker,) = {marker_of(row["items"]) for row in rows(stream, before, at) if row["to"] == MARKER}
            told.append(Watermark(at["watermark"]["exact_ns"], marker.mark_ns, marker.waiting))
            heard.append(injector.mark())
    assert told == heard


def test_time_goes_on_while_no_record_comes(tmp_path: Path) -> None:
    """Also for a driver started meanwhile; and an idle hour does not become thousands of batches."""
    recorded.write(tmp_path, 100, 20)
    clock = ManualClock(0)
    stream = ComputeStream(plan(tmp_path, once=False), clock)
    at, low_ns, batches = stream.initialOffset(), 0, list[float]()
    with recorded.journal(tmp_path) as journal:
        pair = pairs_of(journal.begin())[-1]
        for second in range(1800):
            clock.passes(1)
            if second % 30:
                pair = recorded.later(pair, 1)
                journal.add(pair)
                low_ns = pair.exact_ns or 0
            if second == 900:
                stream = ComputeStream(plan(tmp_path, once=False), clock)
            end = stream.latestOffset(at, LIMIT)
            if end != at:
                batches.append(second)
            assert low_ns - end["watermark"]["time_ns"] <= (IDLE_S + 1) * recorded.SECOND
            at = end
    assert len(batches) < 500
    clock.passes(IDLE_S)
    for _ in range(2):  # the watermark, and its timers
        at, before = stream.latestOffset(at, LIMIT), at
        assert at != before
    assert at["before"]["time_ns"] == at["watermark"]["time_ns"] == low_ns
    clock.passes(3600)
    assert stream.latestOffset(at, LIMIT) == at  # nothing at all has changed


@pytest.mark.parametrize(
    ("once", "ended", "all_read", "told"),
    [(True, True, False, True), (True, True, True, False), (False, True, True, True), (False, False, False, False)],
)
def test_what_is_not_read_after_the_end_of_time(
    tmp_path: Path, once: bool, ended: bool, all_read: bool, told: bool
) -> None:
    recorded.write(tmp_path, 100, 20)
    asked = plan(tmp_path, once=once)
    stream = ComputeStream(asked, ManualClock(0))
    offset = stream.initialOffset()
    if all_read:
        offset = stream.latestOffset(offset, LIMIT)
    if ended:
        offset["watermark"] = {"time_ns": ENDED_NS, "waiting": 0}
    checkpoint = tmp_path / "checkpoint"
    (checkpoint / "offsets").mkdir(parents=True)
    wish = Wish(
        topology=topology_of(asked.file, asked.text), file=Path(asked.file), state=tmp_path, reads=asked.reads,
        published={}, once=once, records=200, partitions=1,
    )  # fmt: skip
    assert not _reads_no_more(RealDisk(), checkpoint, wish)
    (checkpoint / "offsets" / "7").write_text(f"v1\n{{}}\n{json.dumps(offset)}")
    assert _reads_no_more(RealDisk(), checkpoint, wish) == told


def test_a_place_that_is_left_out_for_a_time_is_read_on(tmp_path: Path) -> None:
    recorded.write(tmp_path, 100, 20)
    stream = ComputeStream(plan(tmp_path, once=False), ManualClock(0))
    start = stream.latestOffset(stream.initialOffset(), LIMIT)
    (cursor,) = start["cursors"].values()
    start["cursors"]["joined/west"] = cursor
    assert stream.latestOffset(start, LIMIT)["cursors"]["joined/west"] == cursor
