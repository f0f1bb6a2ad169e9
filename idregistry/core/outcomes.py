"""The types of a replica's answers, over gRPC or within a process."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from photon.batch.verdicts import Verdicts
from photon.idregistry.api import Opened, Pulse, Slot
from photon.idregistry.core.clock_offsets import ClockFacts
from photon.idregistry.core.commands import Range
from photon.idregistry.core.state_checks import Checked
from photon.idregistry.raft.api import GroupState


class Status(enum.IntEnum):
    """The status of a reply; the numbers are those of registry.proto."""

    UNSPECIFIED = 0
    OK = 1
    NOT_LEADER = 2
    OVERLOADED = 3
    UNKNOWN = 4
    WRONG_SHARD = 5
    UNKNOWN_CALLER = 6
    REFUSED = 7


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reply without an answer. ``leader``: for NOT_LEADER, the leading replica's name if known."""

    status: Status
    reason: str = ""
    leader: str = ""


@dataclass(frozen=True, slots=True)
class SlotClaim:
    slot: Slot
    incarnations: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A replica's view of one group. ``leader``: a replica's name; empty if unknown."""

    group: int
    leader: str
    is_leader: bool
    term: int
    applied: int
    healthy: bool
    ids: int = 0
    batches: int = 0
    batch_mean: float = 0.0
    commit_ms_p50: float = 0.0
    commit_ms_p99: float = 0.0
    writable: bool = True  # false while the disk is full
    bytes: int = 0  # memory that the ids take
    overloaded: int = 0  # requests refused because too many were waiting
    checked: Checked | None = None  # the state's hash at the last check: equal on all replicas for equal entries
    alarms: tuple[str, ...] = ()  # for display, one line each: the problem, and what to do

    @classmethod
    def of(cls, group: int, state: GroupState, **more: Any) -> GroupFacts:
        leader = state.leader or ""
        return cls(
            group, leader, state.is_leader, state.term, state.applied, state.healthy, writable=state.writable, **more
        )


@dataclass(frozen=True, slots=True)
class Description:
    """A replica's view of itself and of the deployment. ``ranges`` is empty before the first set-up."""

    replica: str
    ranges: tuple[Range, ...]
    groups: Sequence[GroupFacts]
    id_rules: Mapping[str, bytes]  # by join
    clock: ClockFacts
    config: int = 0  # number of the config in ``ranges``: the higher of two is the newer one
    removed: tuple[int, ...] = ()  # shards in ``ranges`` that no longer exist


def pulse_of(described: Iterable[Description], round_trips_s: Mapping[str, float]) -> Pulse:
    """Returns the round trips, and the commit time of the slowest group.

    If two replicas claim to lead a group, the newer term counts.
    """
    leading: dict[int, GroupFacts] = {}
    for description in described:
        for facts in description.groups:
            known = leading.get(facts.group)
            if facts.is_leader and (known is None or facts.term > known.term):
                leading[facts.group] = facts
    commits = [facts.commit_ms_p50 / 1000 for facts in leading.values() if facts.commit_ms_p50 > 0]
    return Pulse(round_trips_s, max(commits, default=None))


OpenOutcome = Opened | Refusal
Answered = Verdicts | Refusal  # to an insert, a clear (without owners) or a look-up: an ``Answer`` for each id
