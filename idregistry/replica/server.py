"""One replica of the IdRegistry: the config group and every shard, independent of the transport.

Facts that concern every shard are committed in the config group as an intent. The caretaker of each shard's leader
then proposes them in the shard as separate entries (design: "all checks happen when the entry is applied").
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from photon.config.clock import Clock, utc
from photon.config.disk import Disk
from photon.config.interval_clock import IntervalClock
from photon.config.structured import get_logger
from photon.config.tls import Tls
from photon.idregistry.api import Opened, Slot
from photon.idregistry.core import commands as c
from photon.idregistry.core.commands import CONFIG_GROUP, NO_TIME
from photon.idregistry.core.config_machine import ConfigMachine
from photon.idregistry.core.outcomes import Description, GroupFacts, OpenOutcome, Refusal, Status
from photon.idregistry.core.sharding import single_range
from photon.idregistry.core.state_machine import ShardMachine
from photon.idregistry.raft.api import Applied, Group, StateMachine
from photon.idregistry.raft.host import RaftHost
from photon.idregistry.raft.identity import KnownGroups, Membership, known_groups, membership
from photon.idregistry.raft.options import RaftOptions
from photon.idregistry.replica.batching import MemoryLimit
from photon.idregistry.replica.clocks import ClockWatch
from photon.idregistry.replica.guests import FIRST_NUMBER, Guest
from photon.idregistry.replica.lead_placement import LeadPlacement
from photon.idregistry.replica.proposing import applied, not_leading, proposed
from photon.idregistry.replica.self_checks import Watch
from photon.idregistry.replica.shard_keeper import ShardKeeper
from photon.idregistry.replica.shard_server import PROPOSAL_TIMEOUT, ShardServer

log = get_logger(__name__)

CARETAKER_SECONDS = 1.0
WATCH_SECONDS = 1.0
_STARTING_SECONDS = 0.02
_CHANGING_SECONDS = 0.1
BOUNDARY_STEP_NS = 10_000_000_000
# The boundary moves in steps of at least ten seconds, and in at most this many over the retention: each step costs an
# entry per shard, which wakes its group in all replicas.
BOUNDARY_STEPS_MAX = 10_000


def shards_to_open(configured: int, known: KnownGroups) -> list[int]:
    """Returns the groups on disk; until the config group is known, also the shards of the first set-up. The caretaker
    opens further shards of the deployment.
    """
    first = () if known.present else range(1, configured + 1)
    found = {*first, *known.present} - {CONFIG_GROUP, *known.removed}
    return sorted(number for number in found if number < FIRST_NUMBER)


class Machines:
    """The state machines of one replica, by group number."""

    def __init__(self, shards: Sequence[int]) -> None:
        self.config = ConfigMachine()
        self.shards = {number: ShardMachine() for number in shards}

    def by_group(self) -> dict[int, StateMachine]:
        return {CONFIG_GROUP: self.config, **self.shards}


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    name: str
    peers: Mapping[str, str]  # every replica, including this one: name -> host:port for peers and clients
    directory: Path
    shards: int
    uncertainty_s: float = 5.0  # S: the bound on clock uncertainty between any two machines of the deployment
    retention_s: float | None = None  # ``None``: the boundary never moves
    # Bytes that the ids may take; above this, inserts are answered OVERLOADED. ``None`` means no limit.
    memory_limit: int | None = None
    # Join -> hash of the rule that derives id, key and time from its records.
    id_rules: Mapping[str, bytes] = field(default_factory=dict)
    bind: str | None = None  # where to listen, if it is not the advertised address
    tls: Tls | None = None  # ``None``: plain text, for clients and between replicas
    epoch: int = 1  # a new directory's membership epoch; replicas of another epoch are ignored
    # Datacentre -> the replicas of its region: if it inserts most of a shard's ids, one of them should lead.
    near: Mapping[str, Sequence[str]] = field(default_factory=dict)
    require_sync: bool = False  # True to refuse a machine without a synchronised clock


def resumed(settings: ReplicaSettings, disk: Disk) -> ReplicaSettings:
    """Returns the settings with the directory's own membership, if it has one. Raises RaftStopped, OSError."""
    found = membership(disk, settings.directory, Membership(settings.epoch, settings.peers))
    return replace(settings, epoch=found.epoch, peers=found.members)


def host_and_replica(
    settings: ReplicaSettings, disk: Disk, clock: Clock, clocks: ClockWatch, guests: Sequence[Guest] = ()
) -> tuple[RaftHost, RegistryReplica]:
    """Creates a Raft host and its replica, without starting them.

    Raises ValueError for an invalid number of shards or name, RaftStopped and OSError for a directory that cannot be
    read.
    """
    set_up = c.SetUp(single_range(settings.shards), dict(settings.id_rules))
    machines = Machines(shards_to_open(settings.shards, known_groups(disk, settings.directory)))
    of_groups = machines.by_group()
    host = RaftHost(
        name=settings.name,
        peers=settings.peers,
        directory=settings.directory,
        machines={**of_groups, **{guest.number: guest.machine for guest in guests}},
        disk=disk,
        clock=clock,
        tls=settings.tls,
        options=RaftOptions(epoch=settings.epoch),
    )
    return host, RegistryReplica(
        name=settings.name,
        groups={number: host.group(number) for number in of_groups},
        machines=machines,
        set_up=set_up,
        clock=clock,
        uncertainty_ns=clocks.time.uncertainty_ns,
        retention_ns=None if settings.retention_s is None else round(settings.retention_s * 1e9),
        memory_limit=settings.memory_limit,
        opener=host,
        clocks=clocks,
        near=settings.near,
    )


class RegistryReplica:
    """Serves requests on one event loop. Call ``start`` and ``stop`` on that loop; start the Raft host separately."""

    def __init__(
        self,
        *,
        name: str,
        groups: Mapping[int, Group],
        machines: Machines,
        set_up: c.SetUp,
        clock: Clock,
        uncertainty_ns: int,
        retention_ns: int | None = None,
        memory_limit: int | None = None,
        opener: RaftHost | None = None,
        clocks: ClockWatch | None = None,
        near: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        """``set_up``: configures the deployment at its first start, and must match it at later ones.

        ``uncertainty_ns``: S. ``opener``: opens groups of further shards; ``None`` means that there can be none.
        ``clocks``: readings of the other replicas' clocks; ``None`` means that there are no others. ``near``:
        datacentre -> nearby replicas, one of which should lead the shards for which the datacentre registers most
        ids. ``retention_ns``: ``None`` means that the boundary never moves. ``memory_limit``: bytes that the ids of
        all shards may take.
        """
        self.name = name
        self.config_group = groups[CONFIG_GROUP]
        self.config = machines.config
        self._set_up = set_up
        self._clock = clock
        self.clocks = clocks or ClockWatch(IntervalClock(clock, uncertainty_ns))
        self._retention_ns = retention_ns
        self.memory = MemoryLimit(memory_limit)
        self._near = near
        self._groups = dict(groups)
        self.machines = machines
        self._shards = {
            number: self._serve(number, groups[number], machine) for number, machine in machines.shards.items()
        }
        self._keeper = ShardKeeper(
            name=name,
            config_group=self.config_group,
            config=machines.config,
            groups=self._groups,
            shards=self._shards,
            serve=self._serve,
            opener=opener,
            clock=clock,
            clocks=self.clocks,
            retention=retention_ns is not None,
        )
        self.reshard, self.resharding = self._keeper.answer, self._keeper.status
        self._watch = Watch(shards=self._shards, memory=self.memory, clock=clock)
        self._tasks: list[asyncio.Task[None]] = []
        self._remembered_told = False
        # Resolves if the deployment's set-up differs from this replica's configuration; the replica must then stop.
        self.conflict: asyncio.Future[str] | None = None

    # -- life ---------------------------------------------------------------------------------------------------
    def start(self) -> None:
        self.conflict = asyncio.get_running_loop().create_future()
        self._tasks = [
            asyncio.create_task(self._take_care(), name=f"registry-caretaker-{self.name}"),
            asyncio.create_task(self._keep_watch(), name=f"registry-watch-{self.name}"),
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    @property
    def healthy(self) -> bool:
        """False once a group of this replica stopped on an error."""
        return all(group.state().healthy for group in self._groups.values())

    @property
    def ready(self) -> bool:
        """True if the deployment is set up as configured, and every group has a leader.

        A join that is new in the configuration waits until the config group's leader has it, too; only the join's
        own processes wait for that.
        """
        return (
            bool(self.config.ranges)
            and not self.config.conflict(self._set_up)
            and not (self.config.lacks(self._set_up) and self.config_group.state().is_leader)
            and bool(self.config_group.state().leader)
            and all(self._serves(number) for number in self._keeper.waited_for)
        )

    # -- requests -----------------------------------------------------------------------------------------------
    def shard(self, shard: int) -> ShardServer | Refusal:
        return self._shards.get(shard) or self._keeper.without_shard(shard)

    async def open_slot(self, slot: Slot, last: int, nonce: bytes, *, timeout: float) -> OpenOutcome:
        """Opens a slot by a compare-and-set in the config group; returns once the entry is committed."""
        refused = not_leading(self.config_group.state())
        if refused is not None:
            return refused
        command = c.encode(c.OpenSlot(slot.name, slot.datacentre, last, nonce, slot.address))
        try:
            c.decode_config(command)
        except c.CommandError as error:
            return Refusal(Status.REFUSED, str(error))
        timeout = min(timeout, PROPOSAL_TIMEOUT)
        opened: OpenOutcome = await applied(self.config_group, command, "the config group", timeout=timeout)
        if isinstance(opened, Opened):
            log.info("registry.slot", slot=slot.name, incarnation=opened.incarnation, refused=opened.reason or None)
        return opened

    def describe(self) -> Description:
        config = GroupFacts.of(CONFIG_GROUP, self.config_group.state())
        shards = [self._shards[number].facts() for number in sorted(self._shards)]
        changes = self.config.changes
        return Description(
            replica=self.name,
            ranges=changes.ranges,
            groups=[config, *shards],
            id_rules=self.config.id_rules,
            config=changes.config,
            clock=self.clocks.facts(),
            removed=changes.removed,
        )

    # -- inside -------------------------------------------------------------------------------------------------
    def _serve(self, number: int, group: Group, machine: ShardMachine) -> ShardServer:
        self.machines.shards[number] = machine
        return ShardServer(
            number=number,
            group=group,
            machine=machine,
            machines=self.machines.shards,
            config=self.config,
            clock=self._clock,
            clocks=self.clocks,
            memory=self.memory,
            leading=LeadPlacement(self.name, self._near),
        )

    def _serves(self, shard: int) -> bool:
        """True if the shard has a leader and is open, or no longer exists."""
        if not self._keeper.is_live(shard):
            return True
        server = self._shards.get(shard)
        return server is not None and server.machine.configured and bool(self._groups[shard].state().leader)

    async def _keep_watch(self) -> None:
        while True:
            try:
                await self._watch.once()
            except Exception:  # no caller depends on it, but it must not end unnoticed
                log.exception("registry.watch")
            await asyncio.sleep(WATCH_SECONDS)

    async def _take_care(self) -> None:
        """Runs the caretaker: often until everything is set up and while shards change, otherwise once a second."""
        while True:
            try:
                settled = await self._care_once()
            except c.CommandError as error:
                log.error("registry.caretaker", reason=str(error))
                settled = True
            if self._keeper.changing:
                settled = False
                pause = _CHANGING_SECONDS
            else:
                pause = _STARTING_SECONDS
            await asyncio.sleep(CARETAKER_SECONDS if settled else pause)

    async def _care_once(self) -> bool:
        """Proposes the config group's facts to shards led from here that lack them; True if nothing is left to do."""
        reason = self.config.conflict(self._set_up)
        if reason:
            if self.conflict is not None and not self.conflict.done():
                self.conflict.set_result(reason)
            return True
        if self.config.lacks(self._set_up) and self.config_group.state().is_leader:
            await proposed(self.config_group, c.encode(self._set_up), timeout=PROPOSAL_TIMEOUT)
            return False
        if not self.config.ranges:
            return False
        self._keeper.open_and_close()
        retired = self.config.retired()
        live = [server for number, server in self._shards.items() if self._keeper.is_live(number)]
        done = await asyncio.gather(
            self._keeper.care_for_changes(), *(self._care_for(server, retired) for server in live)
        )
        return all(done) and self.ready

    async def _care_for(self, server: ShardServer, retired: Sequence[str]) -> bool:
        if not server.leads:
            return server.machine.configured
        server.let_nearer_lead()
        machine = server.machine
        todo = self._keeper.steps(server)
        todo += [c.Fence(slot) for slot in retired if not machine.is_fenced(slot)]
        if not self._remembered_told:
            self._tell_remembered(server)
        if self._retention_ns is not None:
            boundary = self.clocks.not_after_ns(machine.sharding.latest) - self._retention_ns
            step = max(BOUNDARY_STEP_NS, self._retention_ns // BOUNDARY_STEPS_MAX)
            if boundary >= machine.boundary + step and not self.clocks.objection():
                todo.append(c.Boundary(boundary))
        for command in todo:
            outcome = await server.propose(command)
            if not isinstance(outcome, Applied):
                return False
        return True

    def _tell_remembered(self, server: ShardServer) -> None:
        """Warns once if this clock is behind the times that a shard remembers."""
        facts, now = server.machine.sharding, self.clocks.time.read()
        by_boundary = facts.boundary + (self._retention_ns or 0) if facts.boundary > NO_TIME else NO_TIME
        # without the boundary, which ``latest`` includes
        was_ns = max(facts.latest, by_boundary)
        if was_ns > self.clocks.too_new_after_ns() + self.clocks.time.uncertainty_ns:
            self._remembered_told = True
            log.warning(
                "this clock is behind times known to the registry: newer ids wait until it catches up, and ids "
                "below the boundary are late; set the clock if it is slow",
                replica=self.name,
                shard=server.number,
                clock=utc(now.now_ns),
                remembered=utc(was_ns),
            )
