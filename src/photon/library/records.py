"""An output's records, one by one or as a table: the results of ``photon.read`` and ``photon.join``.

One object for all uses: ``for``, ``async for``, and ``__arrow_c_stream__``, which DuckDB, Polars and pandas accept.
Like a list, it can be iterated several times, each time from its start (``cursor=``); ``cursor`` is the position of
the running loop, or else of the newest one.
"""

from __future__ import annotations

import asyncio
import time
import warnings
import weakref
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec

from photon.adapters.formats.json_values import parse_line
from photon.config.errors import UsageError
from photon.config.extras import needed
from photon.library.output import POLL_S, Output
from photon.outputs import Cursor, OutputBlock
from photon.outputs.typed_columns import SAMPLE_BYTES, UNREADABLE, LineTypes

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Record(Mapping[str, Any]):
    """One record of an output; a joined one is a pair. It is also a mapping of all its members (docs/output.md)."""

    __slots__ = ("_line", "_members", "kind")

    def __init__(self, kind: str, line: bytes) -> None:
        self.kind = kind
        """joined, unmatched, filtered, rejected or late."""
        self._line = line
        self._members: dict[str, Any] | None = None

    @property
    def line(self) -> bytes:
        """The record's line in the output, without newline."""
        return self._line

    @property
    def event_id(self) -> str | bytes | None:
        """The event's id: bytes if it is not UTF-8; ``None`` for an unreadable record."""
        return self._text("event_id")

    @property
    def key(self) -> str | bytes | None:
        """The key, with the same types as ``event_id``."""
        return self._text("key")

    @property
    def event_time_ns(self) -> int | None:
        """The event time in nanoseconds since 1970, UTC; ``None`` for an unreadable record."""
        found: int | None = self.get("event_time_ns")
        return found

    @property
    def event_time(self) -> datetime | None:
        """The event time in UTC, truncated to microseconds."""
        ns = self.event_time_ns
        return None if ns is None else _EPOCH + timedelta(microseconds=ns // 1000)

    @property
    def foreign(self) -> Any:
        """The foreign record, usually a dict.

        For an unjoined record, its parsed value if it is a JSON object, else ``None``.
        """
        if "foreign" in self or self.kind == "joined":
            return self.get("foreign")
        text = self.get("record")
        if not isinstance(text, str) or not text.lstrip().startswith("{"):
            return None
        try:
            return parse_line(text.encode())
        except ValueError:
            return None

    @property
    def primary(self) -> Any:
        """The primary record, usually a dict; ``None`` if there is none."""
        return self.get("primary")

    @property
    def record(self) -> str | bytes | None:
        """The original foreign record, if the event is not joined."""
        return self._text("record")

    @property
    def reason(self) -> str | None:
        """The reason why the event is not joined."""
        found: str | None = self.get("reason")
        return found

    def _all(self) -> dict[str, Any]:
        if self._members is None:
            try:
                self._members = msgspec.json.decode(self._line, type=dict[str, Any])
            except UNREADABLE:
                self._members = parse_line(self._line)
        return self._members

    def _text(self, name: str) -> str | bytes | None:
        from base64 import b64decode

        raw = self.get(f"{name}_raw_base64")
        found: str | None = self.get(name)
        return found if raw is None else b64decode(raw)

    def __getitem__(self, name: str) -> Any:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __repr__(self) -> str:
        return f"Record({self.kind}, {self._line.decode('utf-8', 'backslashreplace')})"


class _Place:
    """The position of one iteration through the records."""

    __slots__ = ("_before", "_block", "_given_out", "_loop")

    def __init__(self, start: Cursor) -> None:
        self._before = start
        self._block: OutputBlock | None = None
        """The block whose records are being returned."""
        self._given_out = 0
        """Bytes of the block already returned."""
        self._loop: weakref.ref[Any] | None = None

    @property
    def cursor(self) -> Cursor:
        if self._block is None:
            return self._before
        return self._before.moved(self._block.place, self._block.end(self._given_out), self._block.output)

    def records(self, block: OutputBlock) -> Iterator[Record]:
        self._block, self._given_out = block, 0
        for line in block.data.split(b"\n")[:-1]:
            self._given_out += len(line) + 1
            yield Record(block.place.kind, line)
        self.passed(block)

    def passed(self, block: OutputBlock) -> None:
        self._before, self._block = self._before.moved(block.place, block.end(), block.output), None

    def belongs_to(self, loop: object) -> None:
        """Ties the position to ``loop``, the generator of the running loop, until it ends or is dropped."""
        self._loop = weakref.ref(loop)

    def ended(self) -> None:
        self._loop = None

    def running(self) -> bool:
        return self._loop is not None and self._loop() is not None


class Records:
    """The published records of some kinds after a cursor, each exactly once, in the order of the pipeline's files.

    ``for`` and ``async for`` yield one ``Record`` at a time; ``cursor`` is always the position after the last record
    yielded. A program that commits results and cursor together gets each record once, even after a crash. A table or
    a loop that starts inside a loop does not move the outer loop's cursor. Tables have the columns that
    ``photon.outputs.typed_columns`` lists: payloads are structs, ``foreign.amount``, or flattened,
    ``foreign_amount``; values that do not fit their column are in ``_rest``. Memory is about one MiB, and 4 MiB while
    types are inferred; ``to_arrow``, ``to_pandas`` and ``to_polars`` hold the whole table. Not thread-safe.

    All methods raise CursorLost, OutputMissing, PublishedDamaged and LineUnreadable, with one-line messages, and
    OSError.
    """

    def __init__(
        self,
        output: Output,
        *,
        kinds: Sequence[str] = ("joined",),
        cursor: bytes | str | None = None,
        follow: bool = False,
        cleared_only: bool = False,
        schema: Mapping[str, Any] | None = None,
        flatten: bool = False,
    ) -> None:
        """The parameters are those of ``photon.read``. Raises UsageError."""
        self._output = output
        self._kinds = output.checked_kinds(kinds)
        self._start = output.cursor_of(cursor)
        self._follow = follow
        self._cleared_only = cleared_only
        self._flat = flatten
        self._types = LineTypes.of_schema(schema, flat=flatten) if schema is not None else None
        self._place = _Place(self._start)
        """The position of the running loop, or else of the newest one."""

    @property
    def cursor(self) -> bytes:
        """The position after all records returned so far: one line of JSON, for ``cursor=``."""
        return self._place.cursor.encode()

    def _begun(self, place: _Place) -> None:
        if not self._place.running():
            self._place = place

    # -- records -----------------------------------------------------------------------------------------------
    def __iter__(self) -> Iterator[Record]:
        place = _Place(self._start)
        loop = self._loop(place)
        place.belongs_to(loop)
        return loop

    def _loop(self, place: _Place) -> Iterator[Record]:
        try:
            blocks = self._blocks()
            self._begun(place)
            for block in blocks:
                if block is None:
                    time.sleep(POLL_S)
                else:
                    yield from place.records(block)
        finally:
            place.ended()

    def __aiter__(self) -> AsyncIterator[Record]:
        """Reads files in a thread. After a cancellation at any time, ``cursor`` is after the last record yielded."""
        place = _Place(self._start)
        loop = self._async_loop(place)
        place.belongs_to(loop)
        return loop

    async def _async_loop(self, place: _Place) -> AsyncIterator[Record]:
        done = object()
        try:
            blocks = self._blocks()
            self._begun(place)
            while (block := await asyncio.to_thread(next, blocks, done)) is not done:
                if block is None:
                    await asyncio.sleep(POLL_S)
                else:
                    assert isinstance(block, OutputBlock)
                    for each in place.records(block):
                        yield each
        finally:
            place.ended()

    def _blocks(self) -> Iterator[OutputBlock | None]:
        """Yields blocks from the start position; ``None`` means that there is no more for now."""
        reader = self._output.reader(self._kinds, self._start, cleared_only=self._cleared_only)
        while True:
            over = self._over()  # checked first, so that everything published by then is read below
            yield from reader.read()
            if over:
                return
            yield None

    def _over(self) -> bool:
        """True if no more records will come."""
        return not self._follow

    # -- tables ------------------------------------------------------------------------------------------------
    def arrow_batches(self) -> Iterator[pa.RecordBatch]:
        """Yields record batches of at most a few MiB, all with one schema; ``cursor`` is after the newest batch. With
        ``follow``, also yields new records. Types not given are inferred from the first 4 MiB, or from fewer records
        if there are no more. Raises ExtraMissing."""
        needed("pyarrow", "arrow")
        place = _Place(self._start)
        loop = self._batches(place)
        place.belongs_to(loop)
        return loop

    def _batches(self, place: _Place) -> Iterator[pa.RecordBatch]:
        try:
            blocks = self._sampled()
            self._begun(place)
            for block in blocks:
                if block is None:
                    time.sleep(POLL_S)
                elif not block.data:
                    place.passed(block)
                else:
                    assert self._types is not None
                    made = self._types.batch(block.place.kind, block.data.split(b"\n")[:-1])
                    for unfit in self._types.unfit():
                        warnings.warn(unfit, RuntimeWarning, stacklevel=2)
                    place.passed(block)
                    yield made
        finally:
            place.ended()

    def _sampled(self) -> Iterator[OutputBlock | None]:
        """Yields all blocks once the types are inferred; holds the sample's blocks until then."""
        blocks = self._blocks()
        if self._types is None:
            held: list[OutputBlock] = []
            for block in blocks:
                if block is not None:
                    held.append(block)
                elif not held:
                    yield None
                if (block is None and held) or sum(len(each.data) for each in held) >= SAMPLE_BYTES:
                    break
            types = LineTypes(flat=self._flat)
            types.learn(line for block in held for line in block.data.split(b"\n")[:-1])
            self._types = types
            while held:
                yield held.pop(0)
        yield from blocks

    def schema(self) -> dict[str, Any]:
        """Returns the payloads' types, nested, in the form of ``schema=``, to inspect, correct and pass back. Raises
        ExtraMissing."""
        if self._types is None:
            needed("pyarrow", "arrow")
            blocks = self._sampled()
            while next(blocks, None) is None and self._types is None:
                time.sleep(POLL_S)
        assert self._types is not None
        return dict(self._types.payloads)

    @property
    def unfit(self) -> dict[str, int]:
        """Counts values so far that did not fit their type and became null, by dotted path in ``schema``."""
        return {} if self._types is None else dict(self._types.unfit_counts)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Returns Arrow's C stream (PyCapsule interface), which DuckDB, Polars, pandas and pyarrow read directly.
        Raises like ``to_arrow``."""
        return self._reader().__arrow_c_stream__(requested_schema)

    def _reader(self) -> pa.RecordBatchReader:
        if self._follow:
            raise UsageError(
                "with follow, records have no end and cannot become a table; use arrow_batches(), or follow=False"
            )
        pa = needed("pyarrow", "arrow")
        batches = self._batches(_Place(self._start))  # not a loop: the next one takes the cursor
        first = next(batches, None)
        assert self._types is not None
        return pa.RecordBatchReader.from_batches(self._types.schema, chain([] if first is None else [first], batches))

    def to_arrow(self) -> pa.Table:
        """Returns all records as one table. Raises UsageError (with ``follow`` there is no end), ExtraMissing."""
        return self._reader().read_all()

    def to_pandas(self) -> pd.DataFrame:
        """Like ``to_arrow``. Structs become dicts; ``flatten=True`` makes columns of them."""
        needed("pandas", "pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """Like ``to_arrow``."""
        polars = needed("polars", "polars")
        frame: pl.DataFrame = polars.from_arrow(self.to_arrow())
        return frame
