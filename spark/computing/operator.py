"""Runs one computation as an operator of ``transformWithState``: a ``Stage`` with Spark's state as its store.

As in any store, a key has one row, which holds its timers and the time of the next one. A single Spark timer wakes
the key at that time or earlier; since the row tells which timers are due, waking too early is harmless.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec
from pyspark.sql import Row as SparkRow
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from photon.adapters.containment import Watched
from photon.adapters.formats.json_values import parse_line
from photon.computing import guarding
from photon.computing.errors import ComputingError
from photon.computing.model import Computation, Record
from photon.computing.row import Taken
from photon.computing.stage import Stage, cost
from photon.computing.store import Due, Row, Store
from photon.computing.topology import Topology
from photon.computing.wire import ENDED_NS
from photon.spark.computing.plan import (
    ASIDE,
    FAULT,
    KEY_PREFIX,
    MARKER,
    PUBLISHED,
    Item,
    Plan,
    Standing,
    added,
    aside_of,
    before,
    consumers,
    items_of,
    marker_of,
    pack,
    standing_of,
    topology_of,
    wake_ms,
)
from photon.spark.stream_watermarks import DELAY_MS, NS_PER_MS

OUT = SparkRow("to", "key", "items", "watermark")
# Columns of a key: its row, its next timer, when Spark wakes it, and if it is set aside the run in which it was, else
# empty, and the number of records and timers. Of a marker's key the row is a Standing.
STATE = "data binary, event_ns bigint, wake_ms bigint, run string, aside bigint"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_unpacked = msgspec.msgpack.Decoder().decode


class _Nothing:
    """An empty store, for a stage that only computes keys."""

    def load(self, computation: str, keys: Sequence[str]) -> dict[str, Row]:
        return {}

    def aside(self) -> Iterable[tuple[str, str, int]]:
        return ()

    def due(self, computation: str, wall: bool, until_ns: int, limit: int) -> list[Due]:
        return []

    def parts(self, prefix: str, key: str) -> Iterable[Row]:
        return ()


class _OfKey(_Nothing):
    """The set-aside records and entries of Spark's current key, whose row is already in the stage's cache."""

    def __init__(self, aside: Any) -> None:
        self.rows = aside

    def load(self, computation: str, keys: Sequence[str]) -> dict[str, Row]:
        found = self.rows.getValue((computation,))
        return {} if found is None else {key: Row(computation, key, bytes(found[0])) for key in keys}

    def parts(self, prefix: str, key: str) -> Iterable[Row]:
        found = [(name, data) for (name,), (data,) in self.rows.iterator() if name.startswith(prefix)]
        return [Row(name, key, bytes(data)) for name, data in found]


def guard_of(computation: Computation) -> guarding.Guard:
    """Returns a guard with a time limit. It works only in the main thread, in which Spark's workers run."""
    if threading.current_thread() is not threading.main_thread():
        return guarding.Unguarded(computation)
    return Watched(computation)


def stages_of(topology: Topology, store: Any = None) -> list[Stage]:
    """Returns the stages of all computations, in order."""
    kept, limits = cast("Store", store or _Nothing()), topology.limits
    return [
        Stage(part, kept, guard_of(part.computation), limits.state_bytes, limits.timers_of_key, topology.published)
        for part in topology.checked()
    ]


class Operator(StatefulProcessor):
    def __init__(self, plan: Plan, number: int) -> None:
        self._plan, self._number = plan, number
        self._said = False  # True once this batch's marker has come

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._row = handle.getValueState("row", STATE)
        self._aside = handle.getMapState("aside", "name string", "data binary")
        self._stages: list[Stage] = []

    def close(self) -> None: ...

    def _begin(self, rows: Sequence[SparkRow], values: TimerValues) -> None:
        """Begins a batch with ``rows``, the rows of a marker's key. Raises ComputingError if Spark's watermark
        differs from the marker's: rows would run at the wrong time."""
        (marker,) = [marker_of(row.items) for row in rows if row.to == MARKER]
        self._spark_ms = values.getCurrentWatermarkInMs()
        if marker.spark_ms != self._spark_ms:
            raise ComputingError(
                f"the watermark of this batch is {marker.spark_ms} ms, but Spark's is {self._spark_ms}"
            )
        self._column = EPOCH + timedelta(milliseconds=self._spark_ms + DELAY_MS)
        topology = topology_of(self._plan.file, self._plan.text)
        self._published = topology.published.keys()
        self._sources = topology.sources.keys()
        self._consumers = {
            stream: consumers(topology, stream) for part in topology.parts.values() for stream in part.outputs
        }
        self._stages = stages_of(topology, _OfKey(self._aside))
        self._stage = self._stages[self._number]
        kept = self._row.get()
        last = Standing() if kept is None else standing_of(bytes(kept[0]))
        aside = added(last.aside, (aside_of(row.items) for row in rows if row.to == ASIDE))
        expected, exact = sum(aside.get(each, 0) for each in before(topology, self._number)), self._plan.exact
        held = expected and exact and marker.mark_ns < ENDED_NS  # they may come with any time
        now = Standing(last.low_ns if held else marker.mark_ns, marker.waiting + (0 if exact else expected), aside)
        self._row.update((pack(now), None, None, "", 0))
        self._low, self._mark = (last.low_ns, last.waiting), (now.low_ns, now.waiting)
        self._said = True

    def handleInputRows(  # noqa: N802 Spark's name
        self,
        key: Any,
        rows: Iterator[SparkRow],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[SparkRow]:
        found: list[Item] = []
        if not key[0].startswith(KEY_PREFIX):
            rows = iter(said := list(rows))
            self._begin(said, timerValues)
        for row in rows:
            if row.to == self._number:
                found += items_of(row.items)
            else:
                yield OUT(row.to, row.key, row.items, self._column)
        if found:
            found.sort(key=lambda each: (each.time_ns, each.stream, each.value))  # the order before the shuffle
            records = [self._taken(each) for each in found]
            yield from self._run(key[0].removeprefix(KEY_PREFIX), records, timerValues)

    def handleExpiredTimer(  # noqa: N802 Spark's name
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803
    ) -> Iterator[SparkRow]:
        if not self._said:
            raise ComputingError(
                "a batch came without a watermark: spark.sql.streaming.noDataMicroBatches.enabled must be false"
            )
        expired_ms = expiredTimerInfo.getExpiryTimeInMs()
        yield from self._run(key[0].removeprefix(KEY_PREFIX), [], timerValues, expired_ms)

    def _value(self, item: Item) -> Any:
        return parse_line(item.value) if item.stream in self._sources else _unpacked(item.value)

    def _taken(self, item: Item) -> Taken:
        value = self._value(item)
        return Record(value, item.time_ns, item.stream), pack(value) if item.stream in self._sources else item.value

    def _run(
        self, key: str, records: Sequence[Taken], values: TimerValues, expired_ms: int | None = None
    ) -> Iterator[SparkRow]:
        """Runs records at the previous watermark, then moves the watermark and fires due timers."""
        stage = self._stage
        kept = self._row.get()
        data, event_ns, wake, run, aside = (None, None, None, "", 0) if kept is None else kept
        stored = Row(stage.name, key, None if data is None else bytes(data), event_ns, aside=aside)
        stage.cache[key] = stored
        stage.cached += cost(stored)
        if aside:
            stage.aside[key] = aside
        now_ns = values.getCurrentProcessingTimeInMs() * NS_PER_MS
        stage.low_ns, stage.waiting = self._low
        if run and run != self._plan.run:
            stage.retry(key, now_ns)
        if records:
            stage.run({key: list(records)}, now_ns)
        while (row := stage.dirty.get(key, stored)).event_ns is not None and row.event_ns <= self._mark[0]:
            stage.fire([key], *self._mark, now_ns)
        if row.wall_ns is not None:
            raise ComputingError(
                f"computation {stage.name}, key {key!r}: has set a wall-clock timer, which is not supported on Spark"
            )
        self._keep(row, stored, wake, run, expired_ms)
        if change := stage.aside.pop(key, 0) - aside:
            said = pack((self._number, change))
            yield from (OUT(ASIDE, marker, said, self._column) for marker in self._plan.markers)
        yield from self._out(key, stage)

    def _keep(self, row: Row, stored: Row, wake: int | None, run: str, expired_ms: int | None) -> None:
        next_ms = None
        if row.aside:  # set-aside keys wake whenever the watermark moves, starting with another run
            next_ms = self._spark_ms + 1
        elif row.event_ns is not None:
            next_ms = wake_ms(row.event_ns, self._spark_ms)
        run_now = self._plan.run if row.aside else ""
        if row.data is None:
            if stored.data is not None:
                self._row.clear()
        elif row is not stored or (next_ms, run_now) != (wake, run):
            self._row.update((row.data, row.event_ns, next_ms, run_now, self._stage.aside.get(row.key, 0)))
        if wake is not None and wake not in (next_ms, expired_ms):
            self._handle.deleteTimer(wake)
        if next_ms is not None and next_ms != wake:
            self._handle.registerTimer(next_ms)
        for (name, _), chunk in self._stage.chunks.items():
            if chunk.data is not None:
                self._aside.updateValue((name,), (chunk.data,))
            elif self._aside.containsKey((name,)):
                self._aside.removeKey((name,))

    def _out(self, key: str, stage: Stage) -> Iterator[SparkRow]:
        made, stage.made = stage.made, []
        stage.committed()
        stage.forget(key)
        messages: dict[tuple[int, str], list[Item]] = {}
        for stream, time_ns, value in made:
            item = Item(time_ns, stream, value)
            if stream in self._published:
                messages.setdefault((PUBLISHED, key), []).append(item)
            for number in self._consumers.get(stream, ()):  # errors have none
                to = self._stages[number]
                (named,) = to.keys_of(to.part.inputs[stream], [self._taken(item)[0]])
                if to.faults:
                    raise ComputingError(f"computation {to.name}: {to.faults[0].reason}; fix it and run again")
                messages.setdefault((number, named), []).append(item)
        for (to_number, named), items in messages.items():
            yield OUT(to_number, KEY_PREFIX + named, pack(items), self._column)
        for fault in stage.faults:
            yield OUT(FAULT, KEY_PREFIX + key, fault.line.encode(), self._column)
        stage.faults.clear()
