"""What is seen of a deployment while faults happen: dispatchers, outputs, memory and open files."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from photon.chaos.api import ChaosFailed, Target
from photon.chaos.figures import Seen
from photon.chaos.follow import Follower
from photon.chaos.resources import Sample, read_process
from photon.chaos.site import Site
from photon.chaos.topology import REGISTRY
from photon.config.roles import Role, identity
from photon.config.tls import OPERATOR, towards
from photon.dispatcher.client import DispatcherClient
from photon.embedded.ledger import EMPTY, read_ledger
from photon.embedded.services import tls_of
from photon.idregistry.channels import Channels

SHARD = 1
"""The group whose leader counts as the leader."""
ASK_S = 1.0
FOLLOW_S = 0.1
SEE_S = 0.5
RESOURCES_S = 5.0
SEEN_MAX = 200_000
"""Of a datacentre."""
SAMPLES_MAX = 20_000
"""Of a process."""


class Watching(Protocol):
    """Whoever looks."""

    @property
    def seen(self) -> Mapping[str, Sequence[Seen]]:
        """datacentre -> moments; empty where dispatchers cannot be asked."""

    @property
    def lives(self) -> Mapping[tuple[str, int], Sequence[Sample]]:
        """(process, pid) -> moments."""

    def now_s(self) -> float:
        """Since the run's beginning."""

    def start(self) -> None:
        """Watches from now on."""

    async def close(self) -> None:
        """Ends watching."""

    def failure(self) -> str | None:
        """Why watching ended of itself."""

    async def leader(self) -> str | None:
        """The process that leads the registry's first shard."""

    def ledgers(self) -> dict[str, dict[str, int]]:
        """Of each datacentre whose state is at hand."""


async def sample(target: Target, lives: dict[tuple[str, int], list[Sample]], now_s: float) -> None:
    """Takes up memory and open files of all processes."""
    try:
        processes = await target.processes()
    except ChaosFailed:
        return
    for name, process in processes.items():
        found = None if process.pid is None else read_process(process.pid, now_s)
        if found is not None and process.pid is not None:
            samples = lives.setdefault((name, process.pid), [])
            if len(samples) < SAMPLES_MAX:
                samples.append(found)


class Watch:
    """Make it on the event loop it is used on; ``close`` it."""

    def __init__(self, site: Site, target: Target, follower: Follower | None) -> None:
        """``follower`` None: the outputs are not looked at while it runs."""
        self._site = site
        self._target = target
        self._follower = follower
        self._began = time.monotonic()
        settings = site.settings
        tls = tls_of(settings, site.file.parent, OPERATOR)
        self._dispatchers = {
            name: [
                DispatcherClient(address, towards(tls, identity(Role.DISPATCHER, name)))
                for address in pipeline.dispatcher_addresses()
            ]
            for name, pipeline in settings.datacentre.items()
        }
        self._registry = Channels({name: each.address for name, each in settings.registry.replicas.items()}, tls)
        self.seen: dict[str, list[Seen]] = {name: [] for name in settings.datacentre}
        self.lives: dict[tuple[str, int], list[Sample]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def now_s(self) -> float:
        """Since the run's beginning."""
        return time.monotonic() - self._began

    def start(self) -> None:
        """Watches from now on."""
        self._tasks = [asyncio.create_task(each) for each in (self._follow(), self._see(), self._resources())]

    async def close(self) -> None:
        """Ends watching, and the connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for clients in self._dispatchers.values():
            for client in clients:
                await client.close()
        await self._registry.close()

    def failure(self) -> str | None:
        """Why watching ended of itself."""
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                return f"watching failed: {type(error).__name__}: {error}"
        return None

    async def leader(self) -> str | None:
        """The process that leads the registry's first shard."""
        leading = await self._registry.leading(SHARD, timeout=ASK_S)
        return None if leading is None else f"{REGISTRY}{leading[0]}"

    def ledgers(self) -> dict[str, dict[str, int]]:
        """Of each datacentre, from its dispatcher's database."""
        return {name: read_ledger(place.state) for name, place in self._site.places().items()}

    async def _follow(self) -> None:
        while self._follower is not None:
            await asyncio.to_thread(self._follower.follow)
            await asyncio.sleep(FOLLOW_S)

    async def _see(self) -> None:
        while True:
            now = self.now_s()
            found = await asyncio.gather(*(self._status(name) for name in self._dispatchers))
            for name, seen in zip(self._dispatchers, found, strict=True):
                up, lag, ledger = seen
                if len(self.seen[name]) < SEEN_MAX:
                    self.seen[name].append(Seen(now, up, lag, ledger["read"], ledger["wasted"]))
            await asyncio.sleep(SEE_S)

    async def _status(self, datacentre: str) -> tuple[bool, int, Mapping[str, int]]:
        for client in self._dispatchers[datacentre]:
            status = await client.status(timeout=ASK_S)
            if status is not None:
                return True, max(0, status.bytes_known - status.bytes_read), EMPTY | dict(status.ledger)
        last = self.seen[datacentre][-1] if self.seen[datacentre] else None
        kept = EMPTY | ({} if last is None else {"read": last.read, "wasted": last.wasted})
        return False, 0, kept

    async def _resources(self) -> None:
        while True:
            await sample(self._target, self.lives, self.now_s())
            await asyncio.sleep(RESOURCES_S)
