"""Spark's handling of a chain of operators, without Spark: batches, state per key, one watermark, timers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues

from photon.adapters.formats.json_values import parse_line
from photon.computing.model import Record
from photon.computing.topology import Topology
from photon.spark.computing.operator import OUT, Operator, stages_of
from photon.spark.computing.plan import KEY_PREFIX, MARKER, Item, Marker, Plan, consumers, pack, topology_of
from photon.spark.stream_watermarks import NS_PER_MS

MARKER_KEY = "0m"


class _Value:
    def __init__(self, rows: dict[str, Any], at: Handle) -> None:
        self._rows, self._at = rows, at

    def get(self) -> Any:
        return self._rows.get(self._at.key)

    def update(self, value: Any) -> None:
        self._rows[self._at.key] = value

    def clear(self) -> None:
        self._rows.pop(self._at.key, None)


class _Map:
    def __init__(self, rows: dict[str, Any], at: Handle) -> None:
        self._rows, self._at = rows, at

    @property
    def _own(self) -> dict[Any, Any]:
        found: dict[Any, Any] = self._rows.setdefault(self._at.key, {})
        return found

    def getValue(self, key: Any) -> Any:  # noqa: N802 Spark's name
        return self._own.get(key)

    def containsKey(self, key: Any) -> bool:  # noqa: N802 Spark's name
        return key in self._own

    def updateValue(self, key: Any, value: Any) -> None:  # noqa: N802 Spark's name
        self._own[key] = value

    def iterator(self) -> Any:
        return iter(list(self._own.items()))

    def removeKey(self, key: Any) -> None:  # noqa: N802 Spark's name
        del self._own[key]


class Handle:
    """Handle of one operator: its state and timers survive batches."""

    def __init__(self) -> None:
        self.key = ""
        self.watermark_ms = 0
        self.states: dict[str, dict[str, Any]] = defaultdict(dict)
        self.timers: set[tuple[int, str]] = set()

    def getValueState(self, name: str, schema: str) -> _Value:  # noqa: N802 Spark's name
        return _Value(self.states[name], self)

    def getMapState(self, name: str, keys: str, values: str) -> _Map:  # noqa: N802 Spark's name
        return _Map(self.states[name], self)

    def registerTimer(self, at_ms: int) -> None:  # noqa: N802 Spark's name
        assert at_ms > self.watermark_ms, "Spark refuses it"
        self.timers.add((at_ms, self.key))

    def deleteTimer(self, at_ms: int) -> None:  # noqa: N802 Spark's name
        self.timers.remove((at_ms, self.key))


class FakeSpark:
    """Runs a topology from a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.begin("one")
        self._handles = [Handle() for _ in self.topology.checked()]

    def begin(self, run: str) -> None:
        """A run, perhaps with other code."""
        text = self._file.read_bytes()
        exact = any(part.exact for part in topology_of(str(self._file), text).checked())
        self._plan = Plan(
            file=str(self._file), text=text, reads=[], exact=exact, once=False, records=1, markers=[MARKER_KEY],
            run=run,
        )  # fmt: skip

    @property
    def left(self) -> bool:
        """True if there is state or a timer of any key."""
        return any(handle.timers or handle.states["row"].keys() - {MARKER_KEY} for handle in self._handles)

    @property
    def topology(self) -> Topology:
        return topology_of(self._plan.file, self._plan.text)

    def batch(
        self, stream: str, records: Sequence[tuple[int, bytes]], mark_ns: int, waiting: int = 0, more_ms: int = 0
    ) -> list[Row]:
        """Records (time, line of JSON), then the watermark. Returns the last operator's output, except markers."""
        topology, spark_ms = self.topology, max(mark_ns // NS_PER_MS, 0) + more_ms
        rows = [OUT(MARKER, MARKER_KEY, pack(Marker(mark_ns, waiting, spark_ms)), None)]
        for number in consumers(topology, stream):
            stage = stages_of(topology)[number]
            keys = stage.keys_of(
                stage.part.inputs[stream], [Record(parse_line(line), at, stream) for at, line in records]
            )
            rows += [
                OUT(number, KEY_PREFIX + key, pack([Item(at, stream, line)]), None)
                for key, (at, line) in zip(keys, records, strict=True)
            ]
        for number, handle in enumerate(self._handles):
            rows = list(self._operator(Operator(self._plan, number), handle, rows, spark_ms))
        return [row for row in rows if row.to != MARKER]

    def _operator(self, operator: Operator, handle: Handle, rows: list[Row], watermark_ms: int) -> Iterator[Row]:
        values = TimerValues(1_000, watermark_ms)
        handle.watermark_ms = watermark_ms
        operator.init(handle)  # type: ignore[arg-type]
        for key, some in groupby(sorted(rows, key=lambda row: row.key), key=lambda row: row.key):
            handle.key = key
            yield from operator.handleInputRows((key,), some, values)
        for at_ms, key in sorted(each for each in handle.timers if each[0] <= watermark_ms):
            handle.key = key
            yield from operator.handleExpiredTimer((key,), values, ExpiredTimerInfo(at_ms))
            handle.timers.remove((at_ms, key))
        operator.close()
