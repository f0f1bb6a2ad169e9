"""Aggregates records by key in windows: each minute, the last hour at every minute, or a visit::

    clicks = Windows("clicks", tumbling(MINUTE_NS), {"n": count(), "cents": sum_of(lambda r: r.value["cents"])})
    topology.add(clicks, {joined: lambda record: record.value["user"]})
    topology.publish("clicks", "streams/clicks")

Once the watermark has passed a window's end, the window's record is produced to the stream of this name::

    {"key": "ann", "from_ns": 0, "to_ns": 60000000000, "waiting": 0, "n": 3, "cents": 12}

A record that comes after that, by at most ``lateness_ns``, is added, and the whole window is produced again to
``NAME.corrections``, with the windows that it ``replaces``; a record that is too late for a window goes unchanged to
``NAME.late``. ``early_ns`` produces unfinished windows to ``NAME.early``. The time of a window's record is the
window's last nanosecond, so that an hour's window takes in the records of its minutes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from photon.computing.errors import TopologyError
from photon.computing.model import Computation, Context, Record, Timer

Of = Callable[[Record], Any]
WINDOWS_MAX = 1_000  # limit of windows of one record
ACCURACY = 0.01  # relative accuracy of a quantile
_BASE = math.log((1 + ACCURACY) / (1 - ACCURACY))


# -- aggregates
@dataclass(frozen=True, slots=True)
class Aggregate:
    """Summarises a window's records in values that a state may hold, and computes the final result. ``merge``: for
    sessions that a record connects.
    """

    start: Callable[[], Any]
    add: Callable[[Any, Record], Any]
    merge: Callable[[Any, Any], Any]
    result: Callable[[Any], Any] = lambda kept: kept


def count() -> Aggregate:
    return Aggregate(int, lambda kept, _: kept + 1, lambda a, b: a + b)


def sum_of(of: Of) -> Aggregate:
    return Aggregate(int, lambda kept, record: kept + of(record), lambda a, b: a + b)


def min_of(of: Of) -> Aggregate:
    return _list(of, lambda values: [min(values)], _first)


def max_of(of: Of) -> Aggregate:
    return _list(of, lambda values: [max(values)], _first)


def top(n: int, of: Of) -> Aggregate:
    """Keeps the ``n`` greatest values, the greatest first. To rank by something else, let ``of`` return [rank,
    value]."""
    return _list(of, lambda values: sorted(values, reverse=True)[:n])


def collect(of: Of) -> Aggregate:
    """Keeps all values, in order of arrival; ``Limits.state_bytes`` bounds them."""
    return _list(of, list)


def quantile(share: float, of: Of) -> Aggregate:
    """Computes the quantile ``share`` of the values, within 1 %. It counts numbers by magnitude (like a DDSketch), so
    that a window keeps at most a few hundred counts."""

    def add(kept: dict[int, int], record: Record) -> dict[int, int]:
        bucket = _bucket(of(record))
        kept[bucket] = kept.get(bucket, 0) + 1
        return kept

    def merge(a: dict[int, int], b: dict[int, int]) -> dict[int, int]:
        return {each: a.get(each, 0) + b.get(each, 0) for each in a | b}

    def result(kept: dict[int, int]) -> float:
        left = max(math.ceil(share * sum(kept.values())), 1)
        for bucket in sorted(kept):
            left -= kept[bucket]
            if left <= 0:
                return _middle(bucket)
        return 0.0

    return Aggregate(dict, add, merge, result)


def _list(of: Of, choose: Callable[[list[Any]], list[Any]], result: Callable[[Any], Any] = list) -> Aggregate:
    return Aggregate(list, lambda kept, record: choose([*kept, of(record)]), lambda a, b: choose([*a, *b]), result)


def _first(kept: list[Any]) -> Any:
    return kept[0] if kept else None


_ONE = 1 << 20  # the bucket of 1; those of smaller numbers are below, and of negative ones negative


def _bucket(number: float) -> int:
    return int(math.copysign(_ONE + math.ceil(math.log(abs(number)) / _BASE), number)) if number else 0


def _middle(bucket: int) -> float:
    return (
        math.copysign(2 * math.exp((abs(bucket) - _ONE) * _BASE) / (1 + math.exp(_BASE)), bucket) if bucket else 0.0
    )


# -- windows
@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of windows. ``every_ns``: time between the starts of two windows; 0 means a session, which ends
    ``size_ns`` after its last record."""

    size_ns: int
    every_ns: int
    offset_ns: int = 0

    def ends(self, time_ns: int) -> list[int]:
        """Returns the ends of all windows that contain this time."""
        if not self.every_ns:
            return [time_ns + self.size_ns]
        first = time_ns - (time_ns - self.offset_ns) % self.every_ns  # start of the latest window
        return [start + self.size_ns for start in range(first, time_ns - self.size_ns, -self.every_ns)]


def tumbling(size_ns: int, offset_ns: int = 0) -> Shape:
    """Makes consecutive windows. ``offset_ns``: shifts their starts from 1970-01-01 UTC, for instance for days of a
    time zone."""
    return _checked(Shape(size_ns, size_ns, offset_ns))


def sliding(size_ns: int, every_ns: int) -> Shape:
    """Makes windows of ``size_ns`` that start every ``every_ns``."""
    if not 0 < every_ns <= size_ns <= every_ns * WINDOWS_MAX:
        raise TopologyError(
            f"windows of {size_ns} ns every {every_ns} ns: a record must be in at least one and at most "
            f"{WINDOWS_MAX} windows"
        )
    return Shape(size_ns, every_ns)


def session(gap_ns: int) -> Shape:
    """Makes windows of records that are each less than ``gap_ns`` after the previous one."""
    return _checked(Shape(gap_ns, 0))


def _checked(shape: Shape) -> Shape:
    if shape.size_ns <= 0:
        raise TopologyError(f"a window of {shape.size_ns} ns: its size must be at least 1 ns")
    return shape


class Windows(Computation):
    """Aggregates records in windows. Its streams are NAME, NAME.corrections, NAME.late and NAME.early.

    The state maps each window's end to [begin, the aggregates' values by name, the produced windows that its next
    record replaces, True if a record came since the last early result].
    """

    def __init__(
        self,
        name: str,
        shape: Shape,
        aggregates: Mapping[str, Aggregate],
        *,
        lateness_ns: int = 0,
        early_ns: int = 0,
    ) -> None:
        """``aggregates``: an aggregate for each field of the window's record. ``lateness_ns``: how long after its
        end, by the watermark, a window is kept for corrections. ``early_ns``: unfinished windows with new records are
        produced whenever the watermark passes a multiple of this; 0 means never. Raises TopologyError."""
        if taken := {"key", "from_ns", "to_ns", "waiting", "replaces"} & set(aggregates):
            raise TopologyError(f"windows {name}: rename {', '.join(sorted(taken))}; windows have such fields")
        if min(lateness_ns, early_ns) < 0:
            raise TopologyError(f"windows {name}: lateness_ns and early_ns must not be negative")
        self.name = name
        self.outputs = self._final, self._corrections, self._late, self._early = (
            name, f"{name}.corrections", f"{name}.late", f"{name}.early"
        )  # fmt: skip
        self._shape, self._aggregates = shape, dict(aggregates)
        self._lateness_ns, self._early_ns = lateness_ns, early_ns

    def process_record(self, ctx: Context, record: Record) -> None:
        missed, find = False, self._fixed if self._shape.every_ns else self._session
        for end in self._shape.ends(record.time_ns):
            window, end = find(ctx, record.time_ns, end)
            if window is None:
                missed = True
                continue
            kept = window[1]
            for name, each in self._aggregates.items():
                kept[name] = each.add(kept[name] if name in kept else each.start(), record)
            window[3] = True
            ctx.state[end] = window
            ctx.set_timer("end", end)
            if self._lateness_ns:
                ctx.set_timer("forget", end + self._lateness_ns)
        if missed:
            ctx.produce(self._late, record.value)
        if self._early_ns:
            after_ns = max(record.time_ns, ctx.watermark_ns)
            ctx.set_timer("early", after_ns - after_ns % self._early_ns + self._early_ns)

    def process_timer(self, ctx: Context, timer: Timer) -> None:
        if timer.tag == "early":
            for end, window in sorted(ctx.state.items()):
                if window[3] and window[0] < timer.time_ns < end:
                    window[3] = False
                    ctx.produce(self._early, self._said(ctx, timer, window, end), timer.time_ns - 1)
        elif timer.tag == "forget":
            del ctx.state[timer.time_ns - self._lateness_ns]
        else:
            end, window = timer.time_ns, ctx.state[timer.time_ns]
            said = self._said(ctx, timer, window, end)
            if window[2]:
                ctx.produce(self._corrections, {**said, "replaces": window[2]}, end - 1)
            else:
                ctx.produce(self._final, said, end - 1)
            window[2:] = [[window[0], end]], False
            if not self._lateness_ns:
                del ctx.state[end]

    def _said(self, ctx: Context, timer: Timer, window: list[Any], end: int) -> dict[str, Any]:
        begin, kept = window[:2]
        return {
            "key": ctx.key, "from_ns": begin, "to_ns": end, "waiting": timer.waiting,
            **{name: each.result(kept[name]) for name, each in self._aggregates.items() if name in kept},
        }  # fmt: skip

    def _fixed(self, ctx: Context, time_ns: int, end: int) -> tuple[list[Any] | None, int]:
        """Returns the window that ends at ``end``, and its end; ``None`` instead of a window that is over."""
        window = ctx.state.get(end)
        if window is None and not ctx.is_late(end + self._lateness_ns):
            window = [end - self._shape.size_ns, {}, [], False]
        return window, end

    def _session(self, ctx: Context, time_ns: int, end: int) -> tuple[list[Any] | None, int]:
        """Like ``_fixed``, but for sessions; merges the sessions that a record connects."""
        touched = [at for at, window in ctx.state.items() if time_ns < at and window[0] < end]
        if not touched and ctx.is_late(end + self._lateness_ns):
            return None, end
        merged: list[Any] = [time_ns, {}, [], False]
        for at in sorted(touched):
            begin, kept, said, _ = ctx.state.pop(at)
            ctx.cancel_timer("end", at)
            ctx.cancel_timer("forget", at + self._lateness_ns)
            for name, each in self._aggregates.items():
                if name in kept:
                    merged[1][name] = each.merge(merged[1][name], kept[name]) if name in merged[1] else kept[name]
            merged[0], merged[2], end = min(merged[0], begin), merged[2] + said, max(end, at)
        return merged, end


class Each(Computation):
    """A computation without state: produces to NAME each value that ``of`` returns for a record."""

    def __init__(self, name: str, of: Callable[[Record], Iterable[Any]]) -> None:
        self.name, self.outputs, self._of = name, (name,), of

    def process_record(self, ctx: Context, record: Record) -> None:
        for value in self._of(record):
            ctx.produce(self.name, value)
