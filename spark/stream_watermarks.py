"""Carries in a stream's offset the watermark of the records before it, so that a repeated batch has the same one.

A Spark source cannot declare a watermark: Spark uses the largest value of a column, minus a delay. So all rows of a
batch carry our watermark plus ``DELAY_MS`` in a column: with ``withWatermark("watermark", "1 second")`` it becomes
Spark's watermark, and Spark considers no record late. A batch that moves the watermark has an extra row for it, so
that time advances even without records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from photon.config.disk import Disk
from photon.outputs.cursor import Cursor
from photon.outputs.watermarks import Pair, PairsHeard, WatermarkTail, pairs_of, read_journal

DELAY_MS = 1000
NS_PER_MS = 1_000_000
KIND = "watermark"  # of the row that only moves the watermark
WHICH = ("exact", "percentile")


@dataclass(frozen=True, slots=True)
class Mark:
    """A watermark. ``time_ns``: ``None`` means that nothing is known yet. ``waiting``: events before ``time_ns`` that
    may still come; zero with the exact watermark. ``exact_ns``: the exact watermark, even if the percentile is
    used."""

    time_ns: int | None = None
    waiting: int = 0
    exact_ns: int | None = None

    @property
    def ms(self) -> int:
        """Spark's watermark in milliseconds, initially 0."""
        return max((self.time_ns or 0) // NS_PER_MS, 0)

    @property
    def column_us(self) -> int:
        """The value of the column, in microseconds."""
        return (self.ms + DELAY_MS) * 1000

    def later(self, other: Mark) -> Mark:
        """Returns the later of both marks, as a watermark never goes back; ``other`` if their times are equal."""
        return other if other.time_ns is not None and other.time_ns >= (self.time_ns or 0) else self


UNKNOWN = Mark()


def least(marks: Iterable[Mark]) -> Mark:
    """Returns the lowest mark; if one is unknown, the result is unknown."""
    marks = list(marks)
    waiting = max((each.waiting for each in marks), default=0)  # each mark covers every event
    return Mark(lowest(each.time_ns for each in marks), waiting, lowest(each.exact_ns for each in marks))


def lowest(times: Iterable[int | None]) -> int | None:
    """Returns the lowest time; ``None`` if any time is unknown, or there are none."""
    times = list(times)
    known = [each for each in times if each is not None]
    return min(known) if known and len(known) == len(times) else None


class SourceWatermarks:
    """The watermarks of several outputs for these kinds. Serves one reader, whose cursors must not go back."""

    def __init__(self, disk: Disk, states: Mapping[str, Path], kinds: Sequence[str], which: str) -> None:
        """``states``: each output's state directory; ``which``: one of WHICH."""
        self._disk, self._states, self._kinds, self._exact = disk, states, kinds, which == "exact"
        self._heard: dict[str, PairsHeard] = {
            name: WatermarkTail(disk, state, kinds) for name, state in states.items()
        }
        self._marks = dict.fromkeys(states, UNKNOWN)

    def freeze(self) -> None:
        """Ignores journal entries written after this call. Raises OSError."""
        for name, state in self._states.items():
            self._heard[name] = heard = PairsHeard(self._kinds)
            heard.add(pairs_of(read_journal(self._disk, state)))

    def at(self, cursors: Mapping[str, Cursor]) -> Mark:
        """Returns the watermark for a reader at these cursors. Raises OSError."""
        for name, heard in self._heard.items():
            if (pair := heard.moved(cursors.get(name, Cursor()))) is not None:
                self._marks[name] = self._marks[name].later(self._of(pair))
        return least(self._marks.values())

    def _of(self, pair: Pair) -> Mark:
        followed = (pair.exact_ns, 0) if self._exact else (pair.percentile_ns, pair.waiting)
        return Mark(*followed, pair.exact_ns)
