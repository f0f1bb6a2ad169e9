"""One id's entry as a person wants to see it: whose it is, under which token, and whether it is cleared."""

from __future__ import annotations

from dataclasses import dataclass

from photon.idregistry.api import Answer, incarnation_of
from photon.idregistry.core.id_table import CLEARED, REOPENED, Entry
from photon.idregistry.core.shard_snapshot import NO_BOUNDARY, ShardState


@dataclass(frozen=True, slots=True)
class Traced:
    """What a shard says of one id. The owner's fields are empty where it has no entry."""

    answer: Answer
    """ABSENT, PRESENT, BELOW_BOUNDARY or REOPENED."""
    shard: int = 0
    cleared: bool = False
    token: int = 0
    kind: int = 0
    generation: int = 0
    slot: str = ""
    datacentre: str = ""
    boundary_ns: int | None = None
    """None: it has not moved."""
    replica: str = ""
    applied: int = 0
    """Entries of the shard's log that this replica had applied."""


def traced(entry: Entry | None, state: ShardState, time_ns: int) -> Traced:
    """Of a shard's entry for an id with this event time; None: it has none."""
    boundary = None if state.boundary == NO_BOUNDARY else state.boundary
    if entry is None:
        below = boundary is not None and time_ns < boundary
        answer = Answer.BELOW_BOUNDARY if below else Answer.ABSENT
        return Traced(answer, state.number, boundary_ns=boundary)
    name = state.incarnations.get(incarnation_of(entry.token), "")
    slot = state.slots.get(name)
    known = slot is not None and 0 <= slot.datacentre < len(state.datacentres)
    return Traced(
        Answer.REOPENED if entry.state == REOPENED else Answer.PRESENT,
        state.number,
        entry.state == CLEARED,
        entry.token,
        entry.kind,
        entry.generation,
        name,
        state.datacentres[slot.datacentre] if slot is not None and known else "",
        boundary,
    )
