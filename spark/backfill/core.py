"""One batch of a task attempt from its staging to its result: a pure state machine (rules 1 to 4 and 13).

Events are methods, which return the next instruction. The same machine serves the attempt and the driver, which
repeats the batch of a discarded attempt under its original token.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from photon.batch.columns import RowIndexes
from photon.batch.verdicts import Verdicts
from photon.idregistry.api import Answer, incarnation_of
from photon.joiner.rows import Rows


@dataclass(frozen=True, slots=True)
class Stage:
    """Make the whole batch durable; then ``staged``."""

    rows: Rows


@dataclass(frozen=True, slots=True)
class Insert:
    """Ask the registry once about these rows; then ``answered``, with UNKNOWN for rows without an answer."""

    index: RowIndexes


@dataclass(frozen=True, slots=True)
class Write:
    """Write these rows and make them durable; then ``written``."""

    winners: RowIndexes


@dataclass(frozen=True, slots=True)
class Finish:
    """Make the list of winning rows durable; the batch is done."""

    winners: RowIndexes


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Leave everything as it is: staged rows are done again later, under the same token."""

    reason: str
    fenced: bool = False  # by the registry: whoever did it has nothing more to do


Instruction = Stage | Insert | Write | Finish | GiveUp


@dataclass(slots=True)
class BatchCounts:
    """Rows by outcome."""

    won: int = 0
    own: int = 0  # already registered by this backfill: another attempt or run, or another line with this id
    elsewhere: int = 0  # registered by the live pipeline, here or in another datacentre
    below_boundary: int = 0
    too_new: int = 0


class BatchCore:
    """Unusable once it has finished or given up."""

    def __init__(
        self, rows: Rows, own_incarnations: Collection[int], deadline: float, *, asked_before: bool = False
    ) -> None:
        """``deadline``: monotonic s. ``asked_before``: an earlier attempt may have inserted the batch already."""
        self._rows = rows
        self._own = own_incarnations
        self._deadline = deadline
        self._asked_before = asked_before
        self._open: RowIndexes = np.arange(len(rows), dtype=np.intp)
        self._won = np.zeros(len(rows), dtype=np.bool_)
        self.late = np.zeros(len(rows), dtype=np.bool_)  # below the registry's boundary
        self.counts = BatchCounts()

    def begin(self) -> Stage:
        """Stages even a repeated batch: the rows just read may be only in the cache (rule 7)."""
        return Stage(self._rows)

    def staged(self) -> Instruction:
        """Call it when the batch is durable."""
        return Insert(self._open) if len(self._open) else Finish(self._open)

    def answered(self, answers: Verdicts, now: float) -> Instruction:
        """Takes the answers to the rows of the last Insert, in its order."""
        codes = answers.outcomes
        for answer in (Answer.FENCED, Answer.STALE_INCARNATION):
            if (codes == answer).any():
                return GiveUp(
                    f"the registry says {answer.name}: another run has taken over, or the slot was retired",
                    fenced=True,
                )
        if self._asked_before:
            # Decided by a leader's clock before it looks at the entry, so it does not tell whether the id is ours.
            codes = np.where(codes == Answer.TOO_NEW, np.uint8(Answer.UNKNOWN), codes)
        unknown = codes == Answer.UNKNOWN
        self._won[self._open[codes == Answer.COMMITTED]] = True
        self.late[self._open[codes == Answer.BELOW_BOUNDARY]] = True
        self._count(codes, answers)
        self._open = self._open[unknown]
        self._asked_before = True
        if len(self._open) and now >= self._deadline:
            return self.timed_out()
        return Insert(self._open) if len(self._open) else self._resolved()

    def timed_out(self) -> GiveUp:
        """The registry did not answer before the deadline."""
        return GiveUp(f"the registry has not answered about {len(self._open)} ids")

    def written(self) -> Finish:
        """Call it when all winners are durable."""
        return Finish(np.flatnonzero(self._won))

    def _resolved(self) -> Instruction:
        winners = np.flatnonzero(self._won)
        return Write(winners) if len(winners) else Finish(winners)

    def _count(self, codes: np.ndarray[tuple[int], np.dtype[np.uint8]], answers: Verdicts) -> None:
        counts = self.counts
        counts.won += int((codes == Answer.COMMITTED).sum())
        counts.below_boundary += int((codes == Answer.BELOW_BOUNDARY).sum())
        counts.too_new += int((codes == Answer.TOO_NEW).sum())
        counts.own += int((codes == Answer.DONE).sum())
        taken = answers.owner_tokens[codes == Answer.TAKEN].tolist()
        own = sum(incarnation_of(token) in self._own for token in taken)
        counts.own += own
        counts.elsewhere += len(taken) - own
