"""A pure state machine that registers a part's rows, from the first request to the list of winners.

Events are methods, which return the next instruction. Each attempt of a part uses its own machine and the part's
token, so the registry answers a repeated insert that it has won.
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
class Insert:
    """Insert these rows once; then call ``answered``, with UNKNOWN for rows without an answer."""

    index: RowIndexes


@dataclass(frozen=True, slots=True)
class Finish:
    """Make the list of winning rows durable; the part is done."""

    winners: RowIndexes


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Leave everything as it is: the part is repeated later, under the same token."""

    reason: str
    fenced: bool = False  # True if fenced by the registry: a newer driver does the part


Instruction = Insert | Finish | GiveUp


@dataclass(slots=True)
class BatchCounts:
    """The number of rows by outcome."""

    own: int = 0  # registered by this slot before: another line with the same id
    elsewhere: int = 0  # registered by another slot, here or in another datacentre
    below_boundary: int = 0


class BatchCore:
    """Registers the rows of one batch. Unusable once it has finished or given up."""

    def __init__(
        self, rows: Rows, own_incarnations: Collection[int], deadline: float, *, asked_before: bool = False
    ) -> None:
        """``deadline``: in monotonic seconds. ``asked_before``: an earlier attempt may have inserted the rows
        already."""
        self._rows = rows
        self._own = own_incarnations
        self._deadline = deadline
        self._asked_before = asked_before
        self._open: RowIndexes = np.arange(len(rows), dtype=np.intp)
        self._won = np.zeros(len(rows), dtype=np.bool_)
        self.late = np.zeros(len(rows), dtype=np.bool_)  # below the registry's boundary
        self.counts = BatchCounts()

    def begin(self) -> Instruction:
        """Returns the first instruction. Call it when the rows are durable."""
        return self._next()

    def answered(self, answers: Verdicts, now: float) -> Instruction:
        """Takes the registry's answers to the last Insert, in the order of its rows."""
        codes = answers.outcomes
        for answer in (Answer.FENCED, Answer.STALE_INCARNATION):
            if (codes == answer).any():
                return GiveUp(
                    f"the registry answered {answer.name}: a newer driver has taken over, or the slot was retired",
                    fenced=True,
                )
        too_new = int((codes == Answer.TOO_NEW).sum())
        if self._asked_before:
            # A leader's clock decides this before the entry is read, so the id may be ours.
            codes = np.where(codes == Answer.TOO_NEW, np.uint8(Answer.UNKNOWN), codes)
        self._won[self._open[codes == Answer.COMMITTED]] = True
        self.late[self._open[codes == Answer.BELOW_BOUNDARY]] = True
        self._count(codes, answers)
        self._open = self._open[codes == Answer.UNKNOWN]
        self._asked_before = True
        if len(self._open) and now >= self._deadline:
            late = f"; newer than its clock: {too_new}" if too_new else ""
            return GiveUp(f"the registry has not answered about {len(self._open)} ids{late}")
        return self._next()

    def _next(self) -> Instruction:
        return Insert(self._open) if len(self._open) else Finish(np.flatnonzero(self._won))

    def _count(self, codes: np.ndarray[tuple[int], np.dtype[np.uint8]], answers: Verdicts) -> None:
        counts = self.counts
        counts.below_boundary += int((codes == Answer.BELOW_BOUNDARY).sum())
        counts.own += int((codes == Answer.DONE).sum())
        taken = answers.owner_tokens[codes == Answer.TAKEN].tolist()
        own = sum(incarnation_of(token) in self._own for token in taken)
        counts.own += own
        counts.elsewhere += len(taken) - own
