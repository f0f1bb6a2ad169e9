"""Intervals of keys, which their owners process (MillWheel 7.1). Pure.

A key has a hash of 32 bits; an interval is a range of hashes, for all computations of a topology. An id always means
the same range: a split or a merge makes intervals with new ids.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from zlib import crc32

from photon.computing.errors import ComputingError
from photon.config.errors import UsageError

HASHES = 1 << 32


def hash_of(key: str) -> int:
    return crc32(key.encode("utf-8", "surrogatepass"))


@dataclass(frozen=True, slots=True, order=True)
class Interval:
    """Hashes in [``low``, ``high``)."""

    low: int
    high: int
    id: str

    def __contains__(self, hashed: int) -> bool:
        return self.low <= hashed < self.high


class Intervals:
    """All intervals of a topology. Raises ComputingError unless they cover each hash exactly once."""

    def __init__(self, intervals: Iterable[Interval]) -> None:
        self.all = tuple(sorted(intervals))
        at = 0
        for each in self.all:
            if each.low != at or each.high <= at:
                raise ComputingError(f"the intervals of keys overlap or leave a gap at {each.id}, {at:#010x}")
            at = each.high
        if at != HASHES:
            raise ComputingError(f"the intervals of keys end at {at:#010x}")
        self.by_id = {each.id: each for each in self.all}
        self._lows = [each.low for each in self.all]

    def of(self, hashed: int) -> Interval:
        return self.all[bisect_right(self._lows, hashed) - 1]

    def named(self, name: str) -> Interval:
        """Returns the interval of this name. Raises UsageError."""
        if name not in self.by_id:
            raise UsageError(f"there is no interval {name}: there are {', '.join(self.by_id)}")
        return self.by_id[name]

    def after(self, move: Move) -> Intervals:
        """Returns the intervals after a move. Raises ComputingError."""
        return Intervals([*(each for each in self.all if each.id not in move.old), *move.new])


@dataclass(frozen=True, slots=True)
class Move:
    """A split of one interval, or a merge of two."""

    old: tuple[str, ...]
    new: tuple[Interval, ...]

    def __str__(self) -> str:
        return f"{' and '.join(self.old)} into {' and '.join(each.id for each in self.new)}"


def split_of(intervals: Intervals, name: str, at: int | None, free: int) -> Move:
    """Returns the split of an interval. ``at``: the first hash of the second half (default: the middle); ``free``:
    the first number not yet used in a name. Raises UsageError."""
    old = intervals.named(name)
    at = (old.low + old.high) // 2 if at is None else at
    if not old.low < at < old.high:
        raise UsageError(
            f"{at:#010x} cannot split {name}, which begins at {old.low:#010x} and ends at {old.high:#010x}"
        )
    return Move((name,), (Interval(old.low, at, f"i{free}"), Interval(at, old.high, f"i{free + 1}")))


def merge_of(intervals: Intervals, one: str, other: str, free: int) -> Move:
    """Returns the merge of two neighbours. Raises UsageError."""
    low, high = sorted((intervals.named(one), intervals.named(other)))
    if low.high != high.low:
        raise UsageError(f"{one} and {other} are not neighbours; in the order of their keys there are "
                         f"{', '.join(intervals.by_id)}")  # fmt: skip
    return Move((low.id, high.id), (Interval(low.low, high.high, f"i{free}"),))


def toward(intervals: Intervals, count: int, free: int) -> Move | None:
    """Returns the next move toward ``count`` intervals: a split of the longest, or a merge of the two neighbours that
    are shortest together. ``None`` means that there are ``count``."""
    if len(intervals.all) < count:
        longest = max(intervals.all, key=lambda each: each.high - each.low)
        return split_of(intervals, longest.id, None, free)
    if len(intervals.all) > count:
        low, high = min(pairwise(intervals.all), key=lambda pair: pair[1].high - pair[0].low)
        return merge_of(intervals, low.id, high.id, free)
    return None


def even(count: int, prefix: str = "i") -> Intervals:
    """Makes ``count`` intervals of equal length, named ``i0``, ``i1``, …"""
    edges = [HASHES * n // count for n in range(count + 1)]
    return Intervals(Interval(low, high, f"{prefix}{n}") for n, (low, high) in enumerate(pairwise(edges)))
