"""The interface between dispatcher and joiner, implemented by the gRPC client and the embedded joiner."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Protocol

import numpy as np

from photon.batch.columns import Mask
from photon.batch.events import Events
from photon.batch.events import ForeignEvent as ForeignEvent
from photon.batch.verdicts import Verdicts


class Outcome(enum.IntEnum):
    """The result of one attempt at one event.

    The four after RETRY are verdicts of this datacentre; each has the number of the ``Kind`` under which the id is
    registered.
    """

    RETRY = 0  # no verdict: try again later, here or elsewhere (unknown, unavailable, overloaded)
    JOINED = 1
    FILTERED = 2
    UNMATCHED = 3
    REJECTED = 4
    NOT_YET = 5  # the primary event has not been read yet, or may still come within the patience
    # Registered before under another token: for this very line (read again), or for another one with the same id.
    TAKEN = 6
    LATE = 7  # below the boundary: the dispatcher takes the event through the late path (rule 10)
    TOO_NEW = 8  # its event time is in the future: retry it then


UNKNOWN_REASON = "its registration is still unknown"  # as the reason for RETRY: the registry has not answered
GONE_REASON = "the primary log that holds its event is gone"  # the reason for RETRY
WAIT_NS = -(2**63)  # as ``unmatched_as_of_ns``: no miss makes this event unmatched


@dataclass(frozen=True, slots=True, eq=False)
class JoinAnswers:
    """One row for each event of a batch."""

    # ``outcomes`` are ``Outcome`` values. Owners are given for TAKEN rows, ``reasons`` for RETRY and REJECTED.
    verdicts: Verdicts
    # For TAKEN rows: the owner's line had this line's bytes, offset and log name. For another datacentre's line this
    # is only meaningful if both read identical copies of the logs, which the caller knows.
    same_line: Mask
    overloaded: bool = False  # nothing was accepted, and all rows are RETRY
    failed: bool = False  # the call failed: the batch's fate is unknown, and all rows are RETRY
    ambiguous: Sequence[int] = ()  # rows whose key has several different primary records
    unpaired: Sequence[int] = ()  # rows that are unmatched although their primary event exists

    @property
    def useless(self) -> bool:
        return not self.verdicts.outcomes.any()

    def counts(self) -> dict[Outcome, int]:
        outcomes = self.verdicts.outcomes.tobytes()
        return {Outcome(outcome): outcomes.count(outcome) for outcome in set(outcomes)}

    def noted(self) -> dict[str, int]:
        """Returns counts of the rows as attributes of a span."""
        return {f"outcome.{outcome.name.lower()}": count for outcome, count in self.counts().items()}

    @staticmethod
    def alike(
        n: int, outcome: Outcome, reason: str = "", *, overloaded: bool = False, failed: bool = False
    ) -> JoinAnswers:
        """Returns ``n`` equal rows, without an owner."""
        verdicts = Verdicts.blank(n, outcome)
        if reason:
            verdicts = replace(verdicts, reasons=dict.fromkeys(range(n), reason))
        return JoinAnswers(verdicts, np.zeros(n, np.bool_), overloaded, failed)

    @staticmethod
    def concat(parts: Sequence[JoinAnswers]) -> JoinAnswers:
        ends = list(accumulate(len(part.verdicts) for part in parts))
        reasons: dict[int, str] = {}
        ambiguous: list[int] = []
        unpaired: list[int] = []
        placed = []
        for part, end in zip(parts, ends, strict=True):
            begin = end - len(part.verdicts)
            placed.append((np.arange(begin, end), part.verdicts))
            reasons.update((begin + row, reason) for row, reason in part.verdicts.reasons.items())
            ambiguous += [begin + row for row in part.ambiguous]
            unpaired += [begin + row for row in part.unpaired]
        verdicts = Verdicts.blank(ends[-1] if ends else 0).put(placed)
        same_line = np.concatenate([np.zeros(0, np.bool_), *(part.same_line for part in parts)])
        failed = any(part.failed for part in parts)
        verdicts = replace(verdicts, reasons=reasons)
        return JoinAnswers(verdicts, same_line, failed=failed, ambiguous=ambiguous, unpaired=unpaired)


class Joiner(Protocol):
    """Joins events. Any joiner can serve any event: no state binds an event to a joiner."""

    async def join(self, events: Events, *, timeout: float) -> JoinAnswers:
        """Makes one attempt at each event. If the joiner is unreachable, all rows are RETRY."""

    async def close(self) -> None: ...
