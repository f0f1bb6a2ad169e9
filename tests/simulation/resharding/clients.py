"""Callers with configs of any age and events of any time; operators who change shards and retire slots meanwhile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np

from photon.idregistry.api import Answer
from photon.idregistry.client.grpc_client import RegistryClient
from photon.idregistry.core import commands as c
from photon.idregistry.raft.api import Applied
from photon.idregistry.replica.proposing import proposed
from tests.simulation.registry.channels import SimulatedChannels
from tests.simulation.registry.clients import IDS_PER_SECOND, Batch, Client, Operator, time_given, time_of
from tests.simulation.world import resharding
from tests.simulation.world.processes import ProcessLoop

if TYPE_CHECKING:
    from tests.simulation.resharding.world import ReshardingWorld

HOUR_IDS = 3_600 * IDS_PER_SECOND


class StaleClient(Client):
    """A joiner that now and then goes by a config of long ago, and whose events are now and then hours ahead."""

    world: ReshardingWorld

    def _draw(self, number: int) -> Batch:
        batch = super()._draw(number)
        random = self.world.random
        if random.random() < 0.3:
            ahead = random.choice((5, 15, 30, HOUR_IDS - 5, HOUR_IDS))
            new = sorted({each + ahead for each in batch.numbers} - {*batch.numbers})
            batch.numbers += new
            batch.times += [time_given(self.world, each) for each in new]
            batch.generations += [0] * len(new)
            batch.open |= set(range(len(batch.numbers)))
        return batch

    async def _insert(self, batch: Batch, rows: list[int]) -> bool:
        world = self.world
        if world.descriptions and world.random.random() < 0.3 and not world.calm:
            self.registry._description = world.random.choice(world.descriptions)
        known = len(world.history.asked)
        go_on = await super()._insert(batch, rows)
        # Too new is the dispatcher's: it comes again with another batch.
        for row, asked in zip(rows, world.history.asked[known:], strict=False):
            if asked.answer == Answer.TOO_NEW:
                batch.open.discard(row)
        found = self.registry._description
        if found is not None and all(found.config != each.config for each in world.descriptions):
            world.descriptions.append(found)
        return go_on


class Retirement(Operator):
    """As the registry's, in whichever shards there are once the intent stands."""

    world: ReshardingWorld

    async def _retire(self) -> None:
        world, name = self.world, self.client.name
        await self._until_applied(0, c.RetireSlot(name))
        shards = world.shards
        for shard in shards:
            await self._until_applied(shard, c.Fence(name))
        world.tell(f"{name} is fenced everywhere: {shards}")
        world.history.fenced[name] = world.now
        for shard in shards:
            for digest, number, token, generation in world.owned_by(shard, name):
                columns = (np.array([time_of(world, number)], "<i8"), np.array([token], "<u8"))
                await self._until_applied(
                    shard,
                    c.Reopen(digest, *(x.tobytes() for x in columns), np.array([generation], "<u4").tobytes()),
                )
                world.reopened[digest] = generation + 1

    async def _until_applied(self, group: int, command: c.ShardCommand | c.ConfigCommand) -> None:
        world = self.world
        while group not in world.removed():
            await asyncio.sleep(0.05)
            for name in world.names:
                host = world.nodes[name].host
                if host is not None and group in host.numbers and host.group(group).state().is_leader:
                    outcome = await proposed(host.group(group), c.encode(command), timeout=1.0)
                    if isinstance(outcome, Applied):
                        return


class Resharder:
    """An operator with targets, one after the other; some changes it gives up in the middle."""

    def __init__(self, world: ReshardingWorld, targets: list[int]) -> None:
        self.world = world
        self.targets = targets
        self.loop = ProcessLoop(world)

    def start(self) -> None:
        world = self.world
        client = RegistryClient(dict.fromkeys(world.names, "nowhere:1"), clock=world.clock)
        client._grpc._channels = SimulatedChannels(world, "operator", self.loop)
        driver = resharding.Resharder(client, world.random, self.targets, (0.0, 0.1, 0.3, 0.6, 1.5), 1.0)
        self.loop.start(driver.work((0.05, 0.4), world.tell))
