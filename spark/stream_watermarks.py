"""The watermark that a stream's offset carries: of what was read up to it, so the same whenever a batch is repeated.

Spark has no way for a source to say a watermark: its own is the largest value of a column, less a delay. So ours is
carried as a column that all rows of a batch have alike, ``DELAY_MS`` later: with
``withWatermark("watermark", "1 second")`` it is Spark's, and no record is late to Spark. A batch that moves it has a
row that says no more than that, so that time goes on where no record comes.
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
    """``time_ns`` None: nothing is known yet. ``waiting``: so many events before it may still come; with the exact
    watermark none does."""

    time_ns: int | None = None
    waiting: int = 0

    @property
    def ms(self) -> int:
        """Spark's watermark; 0 is its first one."""
        return max((self.time_ns or 0) // NS_PER_MS, 0)

    @property
    def column_us(self) -> int:
        """The value of the column, microseconds."""
        return (self.ms + DELAY_MS) * 1000

    def later(self, other: Mark) -> Mark:
        """It never goes back."""
        return other if other.time_ns is not None and other.time_ns > (self.time_ns or 0) else self


UNKNOWN = Mark()


def least(marks: Iterable[Mark]) -> Mark:
    """Of all that are expected: one that has said nothing holds it."""
    marks = list(marks)
    waiting = max((each.waiting for each in marks), default=0)  # each reads every event
    known = [each.time_ns for each in marks if each.time_ns is not None]
    return Mark(min(known) if marks and len(known) == len(marks) else None, waiting)


class SourceWatermarks:
    """Of several outputs, of these kinds. For one reader, whose cursors do not go back."""

    def __init__(self, disk: Disk, states: Mapping[str, Path], kinds: Sequence[str], which: str) -> None:
        """``states``: name -> the pipeline's state directory; ``which``: one of WHICH."""
        self._disk, self._states, self._kinds, self._exact = disk, states, kinds, which == "exact"
        self._heard: dict[str, PairsHeard] = {
            name: WatermarkTail(disk, state, kinds) for name, state in states.items()
        }
        self._marks = dict.fromkeys(states, UNKNOWN)

    def freeze(self) -> None:
        """What is journaled later does not count any more. Raises OSError."""
        for name, state in self._states.items():
            self._heard[name] = heard = PairsHeard(self._kinds)
            heard.add(pairs_of(read_journal(self._disk, state)))

    def at(self, cursors: Mapping[str, Cursor]) -> Mark:
        """What holds for who has read up to there. Raises OSError."""
        for name, heard in self._heard.items():
            if (pair := heard.moved(cursors.get(name, Cursor()))) is not None:
                self._marks[name] = self._marks[name].later(self._of(pair))
        return least(self._marks.values())

    def _of(self, pair: Pair) -> Mark:
        return Mark(pair.exact_ns) if self._exact else Mark(pair.percentile_ns, pair.waiting)
