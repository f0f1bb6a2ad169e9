"""One replica of the IdRegistry: the config group and every shard, whatever carries the requests.

Facts that concern every shard are committed in the config group as intent; the caretaker of the shard's leader then
proposes them there as entries of their own (design: "all checks happen when the entry is applied").
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import structlog

from photon.config.clock import Clock
from photon.idregistry import commands as c
from photon.idregistry.api import Opened, Slot
from photon.idregistry.config_machine import ConfigMachine
from photon.idregistry.outcomes import (
    ClearOutcome,
    Description,
    GroupFacts,
    InsertOutcome,
    LookUpOutcome,
    OpenOutcome,
    Refusal,
    SlotClaim,
    Status,
)
from photon.idregistry.proposing import proposed
from photon.idregistry.raft.api import Applied, Group, NotLeader, StateMachine
from photon.idregistry.shard_server import PROPOSAL_TIMEOUT, ShardServer
from photon.idregistry.state_machine import ShardMachine

log = structlog.get_logger(__name__)

CONFIG_GROUP = 0
CARETAKER_SECONDS = 1.0
_STARTING_SECONDS = 0.02
BOUNDARY_STEP_NS = 10_000_000_000
"""The boundary moves in steps of at least ten seconds: each is an entry in each shard."""


class Machines:
    """The state machines of one replica, by group number."""

    def __init__(self, shards: Sequence[int]) -> None:
        self.config = ConfigMachine()
        self.shards = {number: ShardMachine() for number in shards}

    def by_group(self) -> dict[int, StateMachine]:
        """For the Raft host."""
        return {CONFIG_GROUP: self.config, **self.shards}


class RegistryReplica:
    """Serves requests on one event loop. ``start`` and ``stop`` on that loop; the Raft host lives outside."""

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
    ) -> None:
        """``uncertainty_ns`` is S.

        ``set_up`` is what the deployment gets at its first start, and is compared with at every later one.
        ``retention_ns`` None: the boundary never moves.
        """
        self.name = name
        self._config_group = groups[CONFIG_GROUP]
        self._config = machines.config
        self._set_up = set_up
        self._clock = clock
        self._uncertainty_ns = uncertainty_ns
        self._retention_ns = retention_ns
        self._groups = groups
        self._shards = {
            number: ShardServer(
                number=number,
                group=groups[number],
                machine=machine,
                config=machines.config,
                clock=clock,
                uncertainty_ns=uncertainty_ns,
            )
            for number, machine in machines.shards.items()
        }
        self._caretaker: asyncio.Task[None] | None = None
        self.conflict: asyncio.Future[str] | None = None
        """Resolves when the deployment was set up otherwise than this replica is configured: it must end."""

    # -- life ---------------------------------------------------------------------------------------------------
    def start(self) -> None:
        """On the event loop that will serve."""
        self.conflict = asyncio.get_running_loop().create_future()
        self._caretaker = asyncio.create_task(self._take_care(), name=f"registry-caretaker-{self.name}")

    async def stop(self) -> None:
        """Idempotent."""
        if self._caretaker is not None:
            self._caretaker.cancel()
            await asyncio.gather(self._caretaker, return_exceptions=True)
            self._caretaker = None

    @property
    def healthy(self) -> bool:
        """False once a group of this replica stopped on an error."""
        return all(group.state().healthy for group in self._groups.values())

    @property
    def ready(self) -> bool:
        """Set up as configured, and every group has a leader.

        A join that is new here waits for a leader of the config group that has it too: until then its own processes
        wait, and all others need not.
        """
        return (
            self._config.ranges == self._set_up.ranges
            and not self._config.conflict(self._set_up)
            and not (self._config.lacks(self._set_up) and self._config_group.state().is_leader)
            and all(group.state().leader for group in self._groups.values())
            and all(server.machine.configured for server in self._shards.values())
        )

    # -- for recovery -------------------------------------------------------------------------------------------
    @property
    def config(self) -> ConfigMachine:
        """As far as it was applied here."""
        return self._config

    @property
    def config_group(self) -> Group:
        return self._config_group

    def shard_server(self, shard: int) -> ShardServer | None:
        """None: this replica has no such shard."""
        return self._shards.get(shard)

    # -- requests -----------------------------------------------------------------------------------------------
    async def open_slot(self, slot: Slot, last: int, nonce: bytes, *, timeout: float) -> OpenOutcome:
        """Compare-and-set in the config group; done when committed there."""
        state = self._config_group.state()
        if not state.is_leader:
            return Refusal(Status.NOT_LEADER, leader=state.leader or "")
        command = c.encode(c.OpenSlot(slot.name, slot.datacentre, last, nonce, slot.address))
        try:
            c.decode_config(command)
        except c.CommandError as error:
            return Refusal(Status.REFUSED, str(error))
        outcome = await proposed(self._config_group, command, timeout=min(timeout, PROPOSAL_TIMEOUT))
        if isinstance(outcome, Applied):
            opened: Opened = outcome.result
            log.info("registry.slot", slot=slot.name, incarnation=opened.incarnation, refused=opened.reason or None)
            return opened
        if isinstance(outcome, NotLeader):
            return Refusal(Status.NOT_LEADER, leader=outcome.leader or "")
        return Refusal(Status.UNKNOWN, "the config group lost its leader or did not commit in time")

    async def insert(
        self, shard: int, caller: int, claim: SlotClaim | None, columns: c.Columns, *, timeout: float
    ) -> InsertOutcome:
        """See ShardServer."""
        server = self._shards.get(shard)
        if server is None:
            return self._no_shard(shard)
        return _checked(columns) or await server.insert(caller, claim, columns, timeout=timeout)

    async def clear(self, shard: int, columns: c.ClearColumns, *, timeout: float) -> ClearOutcome:
        """See ShardServer."""
        server = self._shards.get(shard)
        if server is None:
            return self._no_shard(shard)
        refused = _checked(columns)
        return await server.clear(columns, timeout=timeout) if refused is None else refused

    def look_up(self, shard: int, digests: bytes, times: bytes) -> LookUpOutcome:
        """See ShardServer."""
        server = self._shards.get(shard)
        if server is None:
            return self._no_shard(shard)
        refused = _checked(c.ClearColumns(digests, times, bytes(len(times))))
        return server.look_up(digests, times) if refused is None else refused

    def led(self, shard: int) -> bool:
        """Whether this replica has heard of the shard's leader of late: if not, its look-ups grow stale."""
        group = self._groups.get(shard)
        return group is not None and group.state().leader is not None

    def describe(self) -> Description:
        """What this replica knows."""
        state = self._config_group.state()
        config = GroupFacts(
            CONFIG_GROUP,
            state.leader or "",
            state.is_leader,
            state.term,
            state.applied,
            state.healthy,
        )
        shards = [self._shards[number].facts() for number in sorted(self._shards)]
        return Description(self.name, self._config.ranges, [config, *shards], self._config.id_rules)

    # -- inside -------------------------------------------------------------------------------------------------
    def _no_shard(self, shard: int) -> Refusal:
        return Refusal(Status.WRONG_SHARD, f"replica {self.name} has no shard {shard}")

    async def _take_care(self) -> None:
        """Fast until all is set up, then once a second."""
        while True:
            try:
                settled = await self._care_once()
            except c.CommandError as error:
                log.error("registry.caretaker", reason=str(error))
                settled = True
            await asyncio.sleep(CARETAKER_SECONDS if settled else _STARTING_SECONDS)

    async def _care_once(self) -> bool:
        """Proposes what the config group has and a shard led from here lacks; whether nothing is left to do."""
        reason = self._config.conflict(self._set_up)
        if reason:
            if self.conflict is not None and not self.conflict.done():
                self.conflict.set_result(reason)
            return True
        if self._config.lacks(self._set_up) and self._config_group.state().is_leader:
            await proposed(self._config_group, c.encode(self._set_up), timeout=PROPOSAL_TIMEOUT)
            return False
        if not self._config.ranges:
            return False
        retired = self._config.retired()
        done = await asyncio.gather(*(self._care_for(server, retired) for server in self._shards.values()))
        return all(done) and self.ready

    async def _care_for(self, server: ShardServer, retired: Sequence[str]) -> bool:
        if not server.leads:
            return server.machine.configured
        machine = server.machine
        todo: list[c.ShardCommand] = []
        if not machine.configured:
            todo.append(c.Configure(server.number, self._config.ranges))
        todo += [c.Fence(slot) for slot in retired if not machine.is_fenced(slot)]
        if self._retention_ns is not None:
            boundary = self._clock.now_ns() - self._retention_ns - self._uncertainty_ns
            if boundary >= machine.boundary + BOUNDARY_STEP_NS:
                todo.append(c.Boundary(boundary))
        for command in todo:
            outcome = await server.propose(command)
            if not isinstance(outcome, Applied):
                return False
        return True


def _checked(columns: c.Columns | c.ClearColumns) -> Refusal | None:
    """Sizes and limits of what a caller sent."""
    try:
        columns.check()
    except c.CommandError as error:
        return Refusal(Status.REFUSED, str(error))
    return None
