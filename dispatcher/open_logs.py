"""The logs being read: their stretches beyond the committed offset, and how far lines were counted before. Pure.

A log may be read again from an earlier place: after a crash, or because its file was *rewritten*, so that the bytes
before its position differ from those counted. The lines of such ``repeated`` stretches may already be counted, there
or in another log with the same beginning. A rewritten log *diverges* at its first line that is not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, takewhile

from photon.adapters.logs.api import Block
from photon.adapters.logs.identity import ALIKE_MARK, numbered
from photon.dispatcher.events import Stretch


@dataclass(slots=True)
class OpenLog:
    """One log's stretches beyond its committed offset, in order."""

    stretches: deque[Stretch] = field(default_factory=deque)
    end: int = 0  # the highest offset this log was ever read up to
    rewritten: bool = False  # the bytes before ``end`` differ from those read


class OpenLogs:
    """All logs, with their stretches in memory; ``window_bytes``: total weight of the stretches."""

    def __init__(self, highs: Mapping[str, int], rewritten: Collection[str]) -> None:
        """The parameters are as in ``State``."""
        self._logs: dict[str, OpenLog] = {
            identity: OpenLog(end=high, rewritten=identity in rewritten) for identity, high in highs.items()
        }
        self._busy: dict[str, OpenLog] = {}  # the logs that have stretches
        self._begun = 0
        self.window_bytes = 0

    def begin(self, block: Block, now: float) -> Stretch:
        """Opens a stretch for the block. The log's offset does not move past it until it is ``whole``."""
        log = self._log(block)
        self._logs[block.identity] = log
        self._begun += 1
        stretch = _stretch_of(block, now, log.end, self._begun)
        log.rewritten = stretch.rewritten = stretch.repeated and (log.rewritten or block.rewritten)
        log.end = max(log.end, stretch.end)
        log.stretches.append(stretch)
        self._busy[block.identity] = log
        self.window_bytes += stretch.weight
        return stretch

    def _log(self, block: Block) -> OpenLog:
        log = self._logs.get(block.identity)
        if log is None or log.rewritten or block.rewritten:
            ends = [self._logs[each].end for each in self._alike(block.identity)]
            log = log or OpenLog(rewritten=bool(ends))
            log.end = max(ends, default=0)  # lines up to here were counted by then
        return log

    def _alike(self, identity: str) -> list[str]:
        first = identity.partition(ALIKE_MARK)[0]
        others = takewhile(self._logs.__contains__, (numbered(first, number) for number in count(1)))
        return [*([first] if first in self._logs else ()), *others]

    def repeats(self, block: Block) -> bool:
        """True if the block's log was already read beyond its start, so that its lines may be counted."""
        return block.offset < self._log(block).end

    def clear(self, stretches: Sequence[Stretch]) -> bool:
        """True if all earlier stretches that may hold the same lines as these ``repeated`` ones are committed.

        Otherwise they will be soon: their events without a verdict become rows. Each stretch waits only for earlier
        ones.
        """
        first = stretches[0].number
        clear = True
        for stretch in stretches:
            for identity in self._busy.keys() & self._alike(stretch.identity):
                before = list(takewhile(lambda each: each.number < first, self._busy[identity].stretches))
                while before and not _may_hold(before[-1], stretch, of_its_own=identity == stretch.identity):
                    before.pop()
                for each in before:
                    each.store_now = True
                clear = clear and not before
        return clear

    def diverge(self, identity: str, at: int) -> None:
        """Notes where a rewritten log diverges from the lines counted. Commit this before its events are sent."""
        log = self._logs[identity]
        for stretch in log.stretches:
            stretch.store_now = True
            if stretch.rewritten and at < stretch.end:
                stretch.rewritten, stretch.diverged, stretch.counted_to = False, True, at
        log.rewritten, log.end = False, log.stretches[-1].end

    def weigh(self, stretch: Stretch, more: int) -> None:
        """Adds ``more`` bytes, which may be negative, to a stretch's weight."""
        stretch.weight += more
        self.window_bytes += more

    def busy(self) -> Iterable[deque[Stretch]]:
        """Returns the stretches in memory of each log that has any."""
        return [log.stretches for log in self._busy.values()]

    def passed(self, stretch: Stretch) -> None:
        """Removes the oldest stretch of its log: the log's offset moves past it."""
        stretches = self._busy[stretch.identity].stretches
        stretches.popleft()
        self.window_bytes -= stretch.weight
        if not stretches:
            del self._busy[stretch.identity]

    def heads(self) -> Iterator[Stretch]:
        """Yields the oldest stretch of each log that has any in memory."""
        return (log.stretches[0] for log in self._busy.values())

    def oldest_first_read_ns(self) -> int | None:
        """Returns roughly when the oldest event in memory was first read; looks at each log's oldest stretch only."""
        return min((stretch.first_read_ns for stretch in self.heads() if stretch.left), default=None)


def _stretch_of(block: Block, read_at: float, counted_to: int, number: int) -> Stretch:
    """Returns an empty stretch that spans the block."""
    weight = len(block.data) + sum(len(o.head) for o in block.oversized)
    repeated = block.offset < counted_to
    if repeated:
        counted_to = _whole_to(block, counted_to)
    return Stretch(
        block.identity,
        block.file,
        block.offset,
        block.end,
        counted_to,
        read_at,
        block.proof,
        number,
        weight=weight,
        repeated=repeated,
    )


def _whole_to(block: Block, counted_to: int) -> int:
    """Returns ``counted_to``, or the start of the record it is inside: that record was not counted as a whole."""
    at = counted_to - block.offset
    ends = block.data[at - 1 : at + 1]
    if at >= len(block.data) or b"\n" in ends or block.data[at : at + 2] == b"\r\n":
        return counted_to
    return block.offset + block.data.rfind(b"\n", 0, at) + 1


def _may_hold(before: Stretch, lines: Stretch, *, of_its_own: bool) -> bool:
    """True if the verdicts of an earlier stretch must be known before these lines are looked up.

    The stretch may hold the same lines, or show that the log diverges from the lines counted.
    """
    return before.overlaps(lines) or (of_its_own and not (before.repeated and before.whole))
