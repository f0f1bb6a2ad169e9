"""Intervals of keys: who owns which (MillWheel 7.1). Pure.

A key has a hash of 32 bits; an interval is a range of hashes, for all computations of a topology. Its id stands for
the range for ever: a split or a merge makes intervals of new ids.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from zlib import crc32

from photon.computing.errors import ComputingError

HASHES = 1 << 32


def hash_of(key: str) -> int:
    return crc32(key.encode("utf-8", "surrogatepass"))


@dataclass(frozen=True, slots=True, order=True)
class Interval:
    """The hashes from ``low`` on, below ``high``."""

    low: int
    high: int
    id: str

    def __contains__(self, hashed: int) -> bool:
        return self.low <= hashed < self.high


class Intervals:
    """All of a topology: they cover each hash once. Raises ComputingError when they do not."""

    def __init__(self, intervals: Iterable[Interval]) -> None:
        self.all = tuple(sorted(intervals))
        at = 0
        for each in self.all:
            if each.low != at or each.high <= at:
                raise ComputingError(f"the intervals of keys do not fit together at {each.id}, {at:#010x}")
            at = each.high
        if at != HASHES:
            raise ComputingError(f"the intervals of keys end at {at:#010x}")
        self.by_id = {each.id: each for each in self.all}
        self._lows = [each.low for each in self.all]

    def of(self, hashed: int) -> Interval:
        return self.all[bisect_right(self._lows, hashed) - 1]


def even(count: int, prefix: str = "i") -> Intervals:
    """``count`` intervals of one length, named ``i0``, ``i1``, …"""
    edges = [HASHES * n // count for n in range(count + 1)]
    return Intervals(Interval(low, high, f"{prefix}{n}") for n, (low, high) in enumerate(pairwise(edges)))
