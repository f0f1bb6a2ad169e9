"""Answers operators' requests to a replica. Runs on the serving event loop; worker threads read the states."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Mapping
from typing import Any

from photon import __version__
from photon.config.clock import Clock
from photon.config.structured import get_logger
from photon.idregistry import registry_pb2 as pb
from photon.idregistry.client.export_stream import Summer, end, head, part
from photon.idregistry.core import commands as c
from photon.idregistry.core.clock_offsets import Agreement
from photon.idregistry.core.commands import CONFIG_GROUP
from photon.idregistry.core.marked_states import MARK_BYTES_MAX, Marked, Marks
from photon.idregistry.core.outcomes import GroupFacts, Refusal, Status
from photon.idregistry.core.shard_snapshot import NO_BOUNDARY
from photon.idregistry.raft.api import GroupState
from photon.idregistry.raft.host import RaftHost
from photon.idregistry.replica.proposing import applied, not_leading
from photon.idregistry.replica.server import RegistryReplica, ReplicaSettings

log = get_logger(__name__)

# A marked state that nobody fetches is dropped after this time, since changed rows must be copied while it is kept.
MARK_SECONDS = 60.0
TIDY_SECONDS = 5.0
EXPORTS_MAX = 4  # concurrent exports of one replica; further ones are refused
PROPOSAL_SECONDS = 5.0
MEMBERS_MAX = 5
APPLY_SECONDS = 10.0  # longest wait of an export until its mark is applied here
POLL_SECONDS = 0.02
# Fields shared by GroupFacts and GroupInspection.
_INSPECTED = (
    *("group", "leader", "is_leader", "term", "applied", "healthy", "writable", "ids", "bytes"),
    *("batches", "batch_mean", "commit_ms_p50", "commit_ms_p99", "alarms"),
)


class Operator:
    def __init__(self, settings: ReplicaSettings, host: RaftHost, replica: RegistryReplica, clock: Clock) -> None:
        self._settings = settings
        self._host = host
        self._machines = replica.machines
        self._replica = replica
        self._clock = clock
        self._exports = 0
        self._marked_at: dict[int, tuple[bytes, float]] = {}
        self._tidy_after = -float("inf")

    # -- looking ------------------------------------------------------------------------------------------------
    def inspect(self) -> pb.InspectReply:
        usage = shutil.disk_usage(self._settings.directory)
        description = self._replica.describe()
        clock = description.clock
        doubted = clock.objection and clock.agreement is not Agreement.UNCERTAIN
        return pb.InspectReply(
            replica=self._settings.name,
            epoch=self._settings.epoch,
            members=dict(self._settings.peers),
            groups=[found for facts in description.groups if (found := self._group(facts)) is not None],
            clock_ns=self._clock.now_ns(),
            disk_free=usage.free,
            disk_size=usage.total,
            version=__version__,
            alarms=[f"proposes no boundary: {clock.objection}"] if doubted else [],
        )

    def _group(self, facts: GroupFacts) -> pb.GroupInspection | None:
        state, machine = self._state(facts.group), self._machines.shards.get(facts.group)
        if state is None:  # the group was just removed
            return None
        return pb.GroupInspection(
            **{name: getattr(facts, name) for name in _INSPECTED},
            committed=state.committed,
            boundary_ns=NO_BOUNDARY if machine is None else machine.boundary,
            closed=machine is not None and machine.closed,
        )

    # -- entries ------------------------------------------------------------------------------------------------
    async def barrier(self, group: int, mark: bytes) -> tuple[int, int] | Refusal:
        """Commits an entry that changes nothing; returns its (index, term). A replica that has applied it has applied
        every entry acknowledged before.
        """
        if len(mark) > MARK_BYTES_MAX:
            return Refusal(Status.REFUSED, f"mark: has {len(mark)} bytes; at most {MARK_BYTES_MAX} are allowed")
        before = self._state(group)
        outcome = await self._proposed(group, c.encode(c.Barrier(mark)))
        if isinstance(outcome, Refusal):
            return outcome
        after = self._state(group)
        if before is None or after is None or not after.is_leader or before.term != after.term:
            return Refusal(Status.UNKNOWN, f"the leader of group {group} changed; try again")
        return int(outcome), after.term

    def tidy(self) -> None:
        """Drops marked states that nobody fetched. Call at intervals."""
        now = self._clock.monotonic()
        if now < self._tidy_after:
            return
        self._tidy_after = now + TIDY_SECONDS
        for number, marks in self._marks().items():
            mark = marks.mark
            since = self._marked_at.setdefault(number, (mark, now)) if mark else None
            if since is None or since[0] != mark:
                self._marked_at.pop(number, None)
            elif now - since[1] >= MARK_SECONDS:
                marks.take(mark)

    async def open_shard(self, shard: int, boundary_ns: int | None) -> Refusal | None:
        """Opens a restored shard. ``None`` means done."""
        if shard not in self._machines.shards:
            return Refusal(Status.REFUSED, f"replica {self._settings.name} has no shard {shard}")
        outcome = await self._proposed(shard, c.encode(c.OpenShard(boundary_ns)))
        if isinstance(outcome, Refusal):
            return outcome
        return Refusal(Status.REFUSED, outcome) if outcome else None

    async def register_again(self, shard: int, command: c.RegisterAgain) -> bytes | Refusal:
        """Registers ids again in a closed shard; returns one answer per id."""
        server = self._replica.shard(shard)
        if isinstance(server, Refusal):
            return Refusal(Status.REFUSED, server.reason)
        if refused := not_leading(server.group.state()):
            return refused
        try:
            outcome = await server.propose_own(command, timeout=PROPOSAL_SECONDS)
        except c.CommandError as error:
            return Refusal(Status.REFUSED, str(error))
        if isinstance(outcome, str):
            return Refusal(Status.REFUSED, f"shard {shard} {outcome}")
        return outcome if isinstance(outcome, Refusal) else outcome.tobytes()

    def transfer(self, group: int, to: str) -> Refusal | None:
        """Begins to transfer a group's leadership; the caller watches for the new leader. ``None`` means begun."""
        state = self._state(group)
        if state is None:
            return Refusal(Status.REFUSED, f"replica {self._settings.name} has no group {group}")
        if not state.is_leader:
            return Refusal(Status.NOT_LEADER, leader=state.leader or "")
        if to == self._settings.name:
            return Refusal(Status.REFUSED, f"{to} leads group {group} already")
        try:
            self._host.group(group).transfer(to or None)
        except ValueError:
            known = ", ".join(sorted(self._settings.peers))
            return Refusal(Status.REFUSED, f"{to}: there is no such replica; there are: {known}")
        log.info("registry.transfer", replica=self._settings.name, group=group, to=to or None)
        return None

    def follow(self, epoch: int, members: Mapping[str, str]) -> Refusal | None:
        """Records the next membership, which this replica adopts at its next start. ``None`` means done."""
        if len(members) > MEMBERS_MAX:
            return Refusal(Status.REFUSED, f"{len(members)} members; at most {MEMBERS_MAX} are allowed")
        try:
            problem = self._host.follow(epoch, members)
        except OSError as error:
            problem = f"{self._settings.directory}: {error.strerror}"
        if problem:
            return Refusal(Status.REFUSED, problem)
        log.info("registry.membership", replica=self._settings.name, epoch=epoch, members=sorted(members))
        return None

    # -- export -------------------------------------------------------------------------------------------------
    async def export(self, group: int, mark: bytes) -> AsyncIterator[pb.ExportPart]:
        """Streams the state under a mark, which can be fetched once. First waits until this replica has applied it.

        Traffic is not interrupted.
        """
        reason = self._may_export(group)
        marked = None
        if not reason:
            marked = await self._marked(group, mark)
            if marked is None:
                reason = f"has no state of group {group} under this mark, or no longer has it"
        if marked is None:
            yield head(self._settings.name, group, pb.STATUS_REFUSED, f"replica {self._settings.name} {reason}")
            return
        self._exports += 1
        try:
            yield head(self._settings.name, group)
            loop = asyncio.get_running_loop()
            summer = Summer()
            rest = iter(marked.chunks)
            while (chunk := await loop.run_in_executor(None, next, rest, None)) is not None:
                summer.add(chunk)
                yield part(chunk)
            yield end(summer, marked.applied)
        finally:
            self._exports -= 1

    def _may_export(self, group: int) -> str:
        if group not in self._marks():
            return f"has no group {group}"
        return f"has {EXPORTS_MAX} exports in progress: try again later" if self._exports >= EXPORTS_MAX else ""

    async def _marked(self, group: int, mark: bytes) -> Marked | None:
        deadline = self._clock.monotonic() + APPLY_SECONDS
        while self._clock.monotonic() < deadline:
            marks = self._marks().get(group)
            marked = marks.take(mark) if marks is not None and mark else None
            if marked is not None or not mark:
                return marked
            await asyncio.sleep(POLL_SECONDS)
        return None

    # -- inside -------------------------------------------------------------------------------------------------
    def _marks(self) -> dict[int, Marks]:
        shards = {number: machine.marks for number, machine in self._machines.shards.items()}
        return {CONFIG_GROUP: self._machines.config.marks, **shards}

    def _state(self, group: int) -> GroupState | None:
        try:
            return self._host.group(group).state()
        except KeyError:
            return None

    async def _proposed(self, group: int, command: bytes) -> Any:
        state = self._state(group)
        if state is None:
            return Refusal(Status.REFUSED, f"replica {self._settings.name} has no group {group}")
        return not_leading(state) or await applied(
            self._host.group(group), command, f"group {group}", timeout=PROPOSAL_SECONDS
        )
