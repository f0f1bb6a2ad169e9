"""Bounds on the event times of a pair (``[join.NAME] within``), checked where an adapter joins. Pure.

A foreign event at F and the primary event of its key at P are a pair if F - before <= P <= F + after. Otherwise the
foreign event is unmatched at once: its key names that primary event, so there is nothing to wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple, TypeVar

import numpy as np

from photon.adapters.contract import (
    Adapter,
    AdapterError,
    BadRecord,
    Filtered,
    Joined,
    LogFile,
    Pairs,
    Payloads,
    Unpaired,
)
from photon.batch.files import intern_files

_T = TypeVar("_T")
Time = int | BadRecord  # ns UTC, or the reason why there is none


class Bounds(NamedTuple):
    """How far a primary event may precede (``before_ns``) or follow the foreign event, in ns, inclusive."""

    before_ns: int
    after_ns: int

    def refusal(self, foreign_ns: int, primary_ns: int) -> Unpaired | None:
        """Returns why events at these times are not a pair; ``None`` if they are a pair."""
        earlier = foreign_ns - primary_ns
        if earlier > self.before_ns:
            return Unpaired(
                f"the primary event is {_said(earlier)} older, and within.before is {_said(self.before_ns)}"
            )
        if -earlier > self.after_ns:
            return Unpaired(
                f"the primary event is {_said(-earlier)} newer, and within.after is {_said(self.after_ns)}"
            )
        return None


def bounded_adapter(adapter: Adapter, bounds: Bounds, where: str) -> Adapter:
    """Changes ``adapter`` so that it joins only pairs within these bounds, and returns it.

    Raises AdapterError at ``where`` ("join.clicks") if the adapter reads no time of primary events.
    """
    if not adapter.has_primary_time:
        todo = "give the primary a time too: time = { field = …, unit = … } in its table, or define primary_time"
        raise AdapterError("within compares event times", where, todo)
    join, join_columns = adapter.join, adapter.join_columns
    foreign_header, header_columns = adapter.foreign_header, adapter.header_columns
    columns = adapter.defines("join_columns")

    def foreign_times(records: Sequence[bytes], file: LogFile) -> list[Time]:
        found = header_columns(records, file)
        return [found.others.get(row, time_ns) for row, time_ns in enumerate(found.times)]

    def refusals(pairs: Pairs) -> dict[int, Unpaired | BadRecord]:
        """Returns, for each row that must not be joined, why it is not a pair or why that cannot be decided."""
        times = zip(
            of_each(foreign_times, pairs.foreign, pairs.foreign_files),
            of_each(adapter.primary_times, pairs.primary, pairs.primary_files),
            strict=True,
        )
        return {row: why for row, both in enumerate(times) if (why := _refusal(bounds, *both)) is not None}

    def bounded(
        foreign: bytes, foreign_file: LogFile, primary: bytes, primary_file: LogFile
    ) -> Joined | Filtered | Unpaired:
        foreign_ns = foreign_header(foreign, foreign_file).event_time_ns
        try:
            primary_ns: Time = adapter.primary_time(primary, primary_file)
        except BadRecord as bad:
            primary_ns = bad
        why = _refusal(bounds, foreign_ns, primary_ns)
        if isinstance(why, BadRecord):
            raise why
        return why or join(foreign, foreign_file, primary, primary_file)

    def bounded_columns(pairs: Pairs) -> Payloads:
        others = refusals(pairs)
        if not others:
            return join_columns(pairs)
        kept = [row for row in range(len(pairs.foreign)) if row not in others]
        made = join_columns(_rows(pairs, kept))
        return Payloads(
            _spread(made.foreign, kept, len(pairs.foreign)),
            _spread(made.primary, kept, len(pairs.foreign)),
            {**others, **{kept[at]: other for at, other in made.others.items()}},
        )

    adapter.within = bounds._asdict()
    adapter.join = bounded  # type: ignore[method-assign]
    if columns:
        adapter.join_columns = bounded_columns  # type: ignore[method-assign]
    return adapter


def bounded_again(adapter: Adapter, within: Mapping[str, int] | None) -> Adapter:
    """Applies ``within``, taken from another instance of the adapter (``Adapter.within``)."""
    return adapter if within is None else bounded_adapter(adapter, Bounds(**within), "within")


def _refusal(bounds: Bounds, foreign_ns: Time, primary_ns: Time) -> Unpaired | BadRecord | None:
    if isinstance(foreign_ns, BadRecord):
        return foreign_ns
    if isinstance(primary_ns, BadRecord):
        return BadRecord(f"the primary event: {primary_ns.reason}")
    return bounds.refusal(foreign_ns, primary_ns)


def of_each(
    ask: Callable[[Sequence[bytes], LogFile], Sequence[_T]], records: Sequence[bytes], files: Sequence[LogFile]
) -> Sequence[_T]:
    """Calls ``ask`` once per file, and returns its answers in the order of ``records``."""
    several, index = intern_files(files)
    if len(several) == 1:
        return ask(records, several[0])
    found: dict[int, _T] = {}
    for number, file in enumerate(several):
        rows = np.flatnonzero(index == number).tolist()
        found.update(zip(rows, ask([records[row] for row in rows], file), strict=True))
    return [found[row] for row in range(len(records))]


def _rows(pairs: Pairs, rows: Sequence[int]) -> Pairs:
    foreign, foreign_files, primary, primary_files = pairs
    return Pairs(
        [foreign[row] for row in rows],
        [foreign_files[row] for row in rows],
        [primary[row] for row in rows],
        [primary_files[row] for row in rows],
    )


def _spread(made: Sequence[bytes | None], rows: Sequence[int], count: int) -> list[bytes | None]:
    out: list[bytes | None] = [None] * count
    for row, each in zip(rows, made, strict=True):
        out[row] = each
    return out


def _said(ns: int) -> str:
    """Formats a duration for display, to the microsecond: ``1 day, 2:00:01``."""
    try:
        return str(timedelta(microseconds=ns // 1000))
    except OverflowError:
        return f"{ns / 1e9:.0f} s"
