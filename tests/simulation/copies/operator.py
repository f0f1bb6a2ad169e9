"""The operator who retires a lost slot against its copy: in steps, restarted wherever it was killed (rule 14)."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import numpy as np

from photon.idregistry.api import Answer
from photon.idregistry.core.outcomes import Refusal
from photon.operations.slots import sealing
from tests.simulation.copies.keeper import KEPT
from tests.simulation.world.disk import PowerOff
from tests.simulation.world.registry import Call, SimulatedRegistry
from tests.simulation.world.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.copies.process import CopySite
    from tests.simulation.copies.world import CopyWorld

ALL = 1 << 24


class Operator:
    """Operator of one retirement, on the keeper's machine."""

    def __init__(self, world: CopyWorld, site: CopySite) -> None:
        self._world = world
        self.site = site
        self._registry = SimulatedRegistry(world.network, site.slot)
        self._work: Coroutine[Any, Any, None] | None = None
        self._call: Call | None = None
        self.done = False
        self.reopened = 0

    def act(self) -> None:
        """One step; now and then it is killed."""
        if self.done:
            return
        if self._work is None:
            self._work = self._retire()
        elif self._world.faults and self._world.random.random() < 0.05:
            self._end("killed")
            return
        try:
            if self._call is not None:
                if not self._world.network.settled(self._call):
                    return
                self._world.network.finish(self._call)
            self._call = self._work.send(None)
        except StopIteration:
            self._work, self._call = None, None
            self.done = True
        except sealing.CopyRefused as refused:
            raise Violation(f"{self.site.name}: the copy cannot be published: {refused}") from refused
        except PowerOff:
            self.site.keeper.stop(power=False)
            self._end("killed by what its disk did")
        except OSError:
            self.site.keeper.stop(power=False)
            self._end("ended by its disk")

    def _end(self, why: str) -> None:
        self._world.say(f"retiring {self.site.slot.name} is {why}")
        if self._work is not None:
            self._work.close()
        self._work = self._call = None

    async def _retire(self) -> None:
        world, site = self._world, self.site
        for shard in range(len(world.model.shards)):
            world.model.fences[shard].add(site.slot.name)
            await self._registry.scan_owned(shard, site.slot.name, ALL, limit=1, timeout=1)
        world.say(f"{site.slot.name} is fenced")
        disk = site.keeper.disk
        if not disk.exists(KEPT / "copy.json"):
            world.say("there is no copy")
            world.gone(site)
        else:
            await self._seal()
        for shard in range(len(world.model.shards)):
            await self._reopen(shard)
        world.say(f"{site.slot.name} is retired, {self.reopened} ids were given up")

    async def _seal(self) -> None:
        """Seals the copy by the production steps."""
        world, site = self._world, self.site
        disk = site.keeper.disk
        if world.copy_variant.seals:
            sealing.seal(disk, KEPT, site.keeper.of)
        copy = sealing.find_kept(disk, KEPT, site.slot.name)
        sealing.measure(disk, copy, ())
        sealing.make_durable(disk, copy)
        if world.copy_variant.clears:
            await sealing.clear_copy(disk, copy, world.digester, self._cleared, lambda ids: None)
        sealing.publish(disk, KEPT, site.slot.name, copy, KEPT)
        world.say(f"the copy of {site.slot.name} is sealed: {copy.lengths}")
        world.published(site)

    async def _cleared(self, digests: bytes, times: Any, tokens: Any) -> Any:
        while True:
            answers = await self._registry.clear(digests, times, tokens, timeout=1)
            if not np.any(answers == Answer.UNKNOWN):
                return answers

    async def _reopen(self, shard: int) -> None:
        while True:
            page = await self._registry.scan_owned(shard, self.site.slot.name, ALL, limit=2, timeout=1)
            if isinstance(page, Refusal):
                continue
            if not len(page):
                return
            answers = await self._registry.reopen(
                page.digests, page.times, page.tokens, page.generations, retired=True, timeout=1
            )
            self.reopened += int(np.count_nonzero(answers == Answer.REOPENED))
