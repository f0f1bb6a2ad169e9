"""An operator's view of a registry: one inspection per replica, and conclusions from all of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from photon.idregistry import registry_pb2 as pb
from photon.idregistry.core.shard_snapshot import NO_BOUNDARY


@dataclass(frozen=True, slots=True)
class Inspection:
    """One replica's answer. ``reply`` is ``None`` if it did not answer; ``why`` says why."""

    name: str
    reply: pb.InspectReply | None
    why: str
    round_trip_s: float
    clock_ahead_s: float  # how far its clock is ahead of the operator's, within half a round trip

    def group(self, number: int) -> pb.GroupInspection | None:
        if self.reply is None:
            return None
        return next((each for each in self.reply.groups if each.group == number), None)


def leader_of(found: Iterable[Inspection], group: int) -> str:
    """Returns a group's leader; if two replicas claim to lead, the one with the newer term.

    The name is empty if no replica leads.
    """
    leading = [
        (facts.term, each.name)
        for each in found
        if (facts := each.group(group)) is not None and facts.is_leader and facts.healthy
    ]
    return max(leading)[1] if leading else ""


def groups_of(found: Iterable[Inspection]) -> list[int]:
    return sorted({facts.group for each in found if each.reply is not None for facts in each.reply.groups})


@dataclass(frozen=True, slots=True)
class ReplicaLag:
    """A replica's progress in a group. ``behind`` is ``None`` if it does not answer or lacks the group."""

    replica: str
    applied: int
    behind: int | None  # number of entries committed but not applied on this replica


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One group over all replicas. Figures are the leader's; without a leader, the most up-to-date
    replica's."""

    group: int
    leader: str
    term: int
    applied: int
    lags: tuple[ReplicaLag, ...]
    ids: int
    bytes: int
    boundary_ns: int | None
    closed: bool
    batch_mean: float
    commit_ms_p50: float
    commit_ms_p99: float
    alarms: tuple[str, ...]


def group_rows(found: Mapping[str, Inspection]) -> list[GroupRow]:
    return [_row(found, group) for group in groups_of(found.values())]


def _row(found: Mapping[str, Inspection], group: int) -> GroupRow:
    leader = leader_of(found.values(), group)
    known = {name: facts for name, each in found.items() if (facts := each.group(group)) is not None}
    shown = known[leader] if leader else max(known.values(), key=lambda facts: facts.applied)
    committed = max(facts.committed for facts in known.values())
    lags = tuple(
        ReplicaLag(name, known[name].applied, max(committed - known[name].applied, 0))
        if name in known
        else ReplicaLag(name, 0, None)
        for name in found
    )
    alarms = [f"{name}: {alarm}" for name, facts in known.items() for alarm in _alarms(facts)]
    names = ("term", "applied", "ids", "bytes", "closed", "batch_mean", "commit_ms_p50", "commit_ms_p99")
    return GroupRow(
        group=group,
        leader=leader,
        lags=lags,
        boundary_ns=None if shown.boundary_ns == NO_BOUNDARY else shown.boundary_ns,
        alarms=tuple(alarms),
        **{name: getattr(shown, name) for name in names},
    )


def _alarms(facts: pb.GroupInspection) -> list[str]:
    said = [] if facts.healthy else ["stopped on an error"]
    if not facts.writable and not facts.alarms:
        said.append("the disk is full: read-only")
    return [*said, *facts.alarms]


def epoch_of(found: Mapping[str, Inspection]) -> int:
    """Returns the highest epoch of any replica; 0 if none answers."""
    return max((each.reply.epoch for each in found.values() if each.reply is not None), default=0)
