"""What waits in a group: commands that were proposed, and a leadership that is to be handed over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from photon.idregistry.raft.api import ProposalOutcome

_NEVER = float("inf")

Done = Callable[[ProposalOutcome], None]


@dataclass(slots=True, eq=False)
class Proposal:
    """Answered once, at its deadline at the latest."""

    command: bytes
    deadline: float
    done: Done
    term: int = 0
    answered: bool = False


@dataclass(slots=True)
class HandOver:
    """The leader is giving its place to another replica; no proposal is taken meanwhile."""

    to: str | None
    until: float
    asked_at: float = -_NEVER
