"""Operators who change the shards, one target after the other, and abandon some changes in the middle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

from photon.config.clock import NS_PER_S
from photon.idregistry.client.grpc_client import RegistryClient
from photon.idregistry.core import commands as c
from photon.idregistry.core import shard_changes
from photon.idregistry.core.commands import CONFIG_GROUP
from photon.idregistry.core.resharding import Action, Ask, Resharding, Stage
from photon.idregistry.core.shard_changes import Changes
from photon.idregistry.replica.shard_keeper import problems
from tests.simulation.world import settings
from tests.simulation.world.process import Process
from tests.simulation.world.replica import leader, propose, replicas, shard_machines
from tests.simulation.world.truth import EPOCH_NS

if TYPE_CHECKING:
    from tests.simulation.world.replica import RaftWorld

TARGETS = ((), (3,), (1,), (3, 2), (2, 4, 1), (4, 1))
LEADS_S = (2.0, 8.0, 15.0)  # events of up to S ahead may already be entered: shards mostly refuse shorter leads


class Resharder:
    """``targets``: the wanted numbers of shards, one after the other."""

    def __init__(
        self, client: RegistryClient, random: Random, targets: list[int], leads: tuple[float, ...], timeout: float
    ) -> None:
        self._client = client
        self._random = random
        self._targets = targets
        self._leads = leads
        self._timeout = timeout

    async def work(self, pause: tuple[float, float], tell: Callable[[str], None]) -> None:
        targets = self._targets
        while targets:
            await asyncio.sleep(self._random.uniform(*pause))
            status = await self._ask(Ask(Action.STATUS), tell)
            if status is None or not status.ranges:
                continue
            change = status.change
            if len(status.ranges[-1].shards) == targets[0] and _ended(status):
                del targets[0]
                continue
            if change is not None and change.stage is Stage.PREPARING:
                if self._random.random() < 0.05:
                    tell("the operator gives up")
                    await self._ask(Ask(Action.ABORT, config=change.config), tell)
                continue
            plan = await self._ask(Ask(Action.PLAN, shards=targets[0], lead_s=self._lead()), tell)
            if plan is None or plan.change is None:
                continue
            assert plan.change.stage is Stage.PLANNED
            assert plan.why_not_sooner
            ask = Ask(Action.APPLY, shards=targets[0], lead_s=self._lead(), config=plan.change.config)
            await self._ask(ask, tell)

    def _lead(self) -> float:
        return self._random.choice(self._leads)

    async def _ask(self, ask: Ask, tell: Callable[[str], None]) -> Resharding | None:
        outcome = await self._client.reshard(ask, timeout=self._timeout)
        if not isinstance(outcome, Resharding):
            tell(f"{ask.action.name.lower()}: {outcome.status.name} {outcome.reason}")
            return None
        if ask.action is Action.APPLY:
            tell(f"{self._targets[0]} shards are asked for: {outcome.change}")
        return outcome


def _ended(status: Resharding) -> bool:
    return status.change is None or status.change.stage in (Stage.ACTIVATED, Stage.ABORTED)


class ReshardingOperator(Process):
    """Resumes where it was killed."""

    world: RaftWorld

    async def run(self) -> None:
        world = self.world
        await asyncio.sleep(self.random.uniform(*world.changes_begin_s))
        client = RegistryClient(dict.fromkeys(world.replicas, "simulated"), clock=self.clock)
        client._grpc._channels._stub = self.stub  # type: ignore[method-assign]
        resharder = Resharder(client, self.random, world.targets, LEADS_S, settings.STORE_TIMEOUT_S)
        await resharder.work(world.changes_looked_at_s, world.say)
        await asyncio.Event().wait()


def changes(world: RaftWorld) -> Changes | None:
    """Changes known to the furthest replica."""
    known = [each.machines.config.changes for each in replicas(world) if each.machines.config.changes.ranges]
    return max(known, key=lambda each: (each.decided, len(each.removed)), default=None)


# -- faults and checks -----------------------------------------------------------------------------------------------
def hasty_intent(world: RaftWorld) -> None:
    """A change whose start was chosen by a clock that is wrong by seconds, without looking at the shards."""
    known, random = changes(world), world.random
    if known is None or leader(world, CONFIG_GROUP) is None or not world.targets:
        return
    starts = EPOCH_NS + int((world.loop.now + random.uniform(-1.0, 12.0)) * NS_PER_S)
    wanted = shard_changes.new_shards(known, random.choice((1, 2, 3, 4)))
    world.say("a hasty change of the shards is intended")
    propose(world, CONFIG_GROUP, c.Intend(known.decided + 1, starts, wanted))


def changing(world: RaftWorld) -> str:
    """No change is wanted or under way, and every shard has heard of the last one."""
    if world.targets and not world.apart:  # the leader's clock may be wrong: then it plans none
        return f"shards are to change to {world.targets}"
    known = changes(world)
    if known is None or known.pending is not None:
        return "a change of the shards is under way"
    world.counts["changes"] = known.decided - 1
    for replica in replicas(world):
        for number in known.live:
            machine = replica.machines.shards.get(number)
            if machine is None or machine.sharding.standing.decided != known.decided:
                return f"{replica.name}: shard {number} has not heard of change {known.decided}"
    return ""


def misplaced(world: RaftWorld) -> list[str]:
    """Contents of a replica that disagree with the config."""

    found = []

    async def collect() -> None:
        for each in replicas(world):
            server = each.server
            found.extend([f"{each.name}: {why}" for why in await problems(server.config, server._shards)])

    work = collect()
    with suppress(StopIteration):
        while True:
            work.send(None)  # it yields to others now and then
    return found


def unremoved(world: RaftWorld) -> str:
    """A shard that no events go to any more, and that is empty except for what the boundary removes, is removed."""
    known, now_ns = changes(world), EPOCH_NS + int(world.loop.now * NS_PER_S)
    if known is None or world.retention_ns is None or world.apart:
        return ""
    for machine in shard_machines(world):
        number = machine.sharding.number
        if number in known.named or number not in known.live or known.until(number) > now_ns:
            continue
        if not len(machine.reopened_page(b"").times):
            return f"shard {number} is not removed"
    return ""


def held_twice(world: RaftWorld) -> list[str]:
    """Ids that two shards hold."""
    found = []
    machines = shard_machines(world)
    for event_id in world.truth.events:
        digest = world.digester.digest(event_id)
        holders = [machine.sharding.number for machine in machines if machine._table.get(digest) is not None]
        if len(holders) > 1:
            found.append(f"twice: {event_id!r} was accepted by shards {holders}")
    return found
