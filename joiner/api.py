"""What a dispatcher may ask of a joiner; the gRPC client and the embedded joiner both offer it."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from photon.batch.events import Events, ForeignEvent
from photon.idregistry.api import I64, Kind


class Outcome(enum.IntEnum):
    """What became of one event in one attempt. The first four are verdicts of this datacentre's making."""

    RETRY = 0
    """No verdict: try again later, here or elsewhere (unknown, unavailable, overloaded)."""
    JOINED = 1
    FILTERED = 2
    UNMATCHED = 3
    REJECTED = 4
    NOT_YET = 5
    """The primary event has not been read yet, or the patience of a missing one is not over."""
    TAKEN = 6
    """Registered before under another token. ``kinds`` says for which verdict, ``owner`` in which datacentre,
    ``same_line`` whether it was this very line (a re-read) or another one with the same id (a duplicate)."""
    LATE = 7
    """Below the boundary: the dispatcher claims it late (rule 10)."""
    TOO_NEW = 8
    """Its event time is in the future: park it."""


VERDICT_OF_KIND = {
    Kind.JOINED: Outcome.JOINED,
    Kind.FILTERED: Outcome.FILTERED,
    Kind.UNMATCHED: Outcome.UNMATCHED,
    Kind.REJECTED: Outcome.REJECTED,
}


UNKNOWN_REASON = "its registration is still unknown"
"""As the reason for RETRY: the registry has not answered."""
WAIT_NS = -(2**63)
"""As ``unmatched_as_of_ns``: a missing primary never makes this event unmatched."""


@dataclass(frozen=True, slots=True)
class TakenBy:
    """Whose an id is that was registered before.

    ``same_line``: the owner's line had this line's bytes, offset and log name. Of another datacentre's line that says
    something only where both read identical copies of the logs; whoever asks knows. ``time_ns``: the event time that
    it was registered with; None: nobody said. ``token`` 0: the same.
    """

    datacentre: str
    kind: Kind
    same_line: bool
    time_ns: int | None = None
    token: int = 0


@dataclass(frozen=True, slots=True)
class JoinAnswers:
    """Aligned with the batch. ``overloaded``: nothing was taken up and all outcomes are RETRY."""

    outcomes: list[Outcome]
    taken: dict[int, TakenBy] = field(default_factory=dict)  # row -> owner, for TAKEN
    reasons: dict[int, str] = field(default_factory=dict)  # row -> why, for RETRY and REJECTED
    overloaded: bool = False
    failed: bool = False
    """The call broke: nobody knows what became of the batch, and all outcomes are RETRY."""
    ambiguous: Sequence[int] = ()
    """Rows whose key several primary records share that differ."""


class Joiner(Protocol):
    """Any joiner serves any event; nothing is routed by state."""

    async def join(self, events: Events, *, timeout: float) -> JoinAnswers:
        """One attempt. An unreachable joiner answers RETRY for all."""
        ...

    async def close(self) -> None: ...


__all__ = [
    "I64",
    "UNKNOWN_REASON",
    "VERDICT_OF_KIND",
    "WAIT_NS",
    "ForeignEvent",
    "JoinAnswers",
    "Joiner",
    "Outcome",
    "TakenBy",
]
