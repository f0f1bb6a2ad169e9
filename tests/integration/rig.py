"""A deployment with a live stream and faults on demand; afterwards everything is compared with the truth."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from photon.config.tls import WAN, towards
from photon.lab.demo.check import check, ledger_problems
from photon.lab.demo.deployment import REPLICAS, DemoDeployment, Shape
from photon.lab.demo.feed import Feed, Logs
from photon.lab.demo.generator import Disorder, Generator, Line
from photon.lab.demo.observe import Observer
from photon.lab.onlooker import alarms_in
from photon.lab.wan.client import WanClient, WanError
from photon.lab.wan.links import Fault
from tests.integration.supervised import supervised

CLICKS_A_SECOND = 20 if os.environ.get("PHOTON_FULL") else 8
STEP_S = 0.5  # events in such bursts go through in fewer batches, which dominate the processes' cost
READY_S = 90.0
SETTLE_S = 150.0
REGIONS = tuple(REPLICAS.values())


class Rig:
    """Real processes, a feed, and faults. Make it on the event loop on which it is used."""

    def __init__(
        self,
        directory: Path,
        seed: int,
        *,
        seconds: float,
        shape: Shape,
        prompt: bool = False,
        copies: bool = True,
    ) -> None:
        """``prompt``: event times are arrival times, not earlier by the duration of the start; ``copies``: see
        ``supervised``."""
        self.random = random.Random(seed)
        self.seconds = seconds
        self._seed = seed
        self._prompt = prompt
        self._copies = copies
        self._forgotten: set[Path] = set()
        self.demo = DemoDeployment(directory, shape)
        self.wan = WanClient(self.demo.wan, towards(self.demo.tls, WAN))
        self._draw()

    def _draw(self) -> None:
        """Draws the stream, its event times from now on."""
        self._epoch_us = time.time_ns() // 1000
        self.generator = self._generator()
        self._lines = sorted(self.generator.lines(), key=lambda line: line.at_us)
        places = {n: Logs(p.primary, p.foreign) for n, p in self.demo.places.items()}
        self.feed = Feed(self._lines, places, step_s=STEP_S)
        self.observer = Observer(self.demo, self.feed)

    def _generator(self) -> Generator:
        clicks, disorder = int(self.seconds * CLICKS_A_SECOND), Disorder(late_by=1.0, query_delay=0.4)
        return Generator(
            self._seed, clicks=clicks, seconds=self.seconds, queries_per_click=3, disorder=disorder,
            epoch_us=self._epoch_us,
        )  # fmt: skip

    def end_feed(self) -> None:
        """Nothing new begins; lines already begun arrive."""
        now_us = self._lines[min(self.feed.written, len(self._lines) - 1)].at_us
        self.generator, lines = self._generator(), list[Line]()
        for begins, of_round in self.generator.rounds():
            lines += of_round
            if begins > now_us:
                break
        self._lines[:] = sorted(lines, key=lambda line: line.at_us)  # the written part is the beginning of both

    async def run(self, drill: Callable[[Rig], Awaitable[None]]) -> None:
        """Starts all, feeds, runs the drill, heals, waits until all is settled, stops, and verifies."""
        async with self.started():
            if self._prompt:
                await self.observer.close()
                self._draw()
            feeding = asyncio.create_task(self.feed.run())
            await drill(self)
            if self.demo.deployment.routes:
                await self._heal()
            await feeding
            await self.settled()
        self.verify()

    @asynccontextmanager
    async def started(self) -> AsyncIterator[None]:
        """All processes are up, and end afterwards."""
        async with AsyncExitStack() as ending:
            ending.push_async_callback(self.wan.close)
            ending.push_async_callback(lambda: self.observer.close())
            self.supervisor = await ending.enter_async_context(supervised(self.demo.deployment, copies=self._copies))
            await self.supervisor.start(self.demo.deployment.services())
            await self.supervisor.ready(READY_S)
            yield

    async def _heal(self) -> None:
        """The proxy may be among the killed processes that are coming back."""
        async with asyncio.timeout(READY_S):
            while True:
                try:
                    return await self.wan.heal()
                except WanError:
                    await asyncio.sleep(0.1)

    def verify(self) -> None:
        """Every click exactly once over both datacentres, contents right, ledgers in agreement with the truth, and no
        verifier objects."""
        outputs = [place.output for place in self.demo.places.values()]
        problems = check(outputs, self.generator.truth, self._forgotten).problems
        problems += ledger_problems(self.observer.ledgers(), self.generator.truth)
        problems += alarms_in(self.demo.deployment.settings, self.demo.deployment.file.parent)
        assert not problems, problems

    async def settled(self) -> None:
        """Waits until every record has its verdict."""
        deadline = time.monotonic() + SETTLE_S
        while not self.observer.settled(self.generator.truth.lines):
            assert time.monotonic() < deadline, (
                f"not settled: {self.observer.ledgers()}, {self.generator.truth.lines}"
            )
            await asyncio.sleep(0.2)

    async def _gone(self, names: list[str]) -> None:
        while any(self.supervisor.pid(name) is not None for name in names):  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    # -- what may happen --------------------------------------------------------------------------------------------
    async def pause(self, least: float, most: float) -> None:
        """Lets a random time pass."""
        await asyncio.sleep(self.random.uniform(least, most))

    async def kill(self, name: str) -> None:
        """kill -9; the supervisor restarts it. A second replica only once all are up: two may not be down."""
        if name.startswith("registry"):
            await self.supervisor.ready(READY_S)
        print(f"kill -9 {name} {self.supervisor.kill(name)}")

    async def lose(self, datacentres: list[str], seconds: float) -> None:
        """kill -9 of whole datacentres, their registry replicas included; nothing arrives there until they return."""
        names = [name for each in datacentres for name in self.supervisor.names(datacentre=each)]
        print(f"kill -9 {names} for {seconds:.1f} s")
        for each in datacentres:
            self.feed.copies[each].held = True
        for name in names:
            self.supervisor.kill(name, hold=True)
        await asyncio.sleep(seconds)
        for each in datacentres:
            self.feed.copies[each].held = False
        for name in names:
            self.supervisor.release(name)

    async def freeze(self, name: str, seconds: float) -> None:
        """SIGSTOP, and SIGCONT later."""
        print(f"SIGSTOP {name} for {seconds:.1f} s")
        self.supervisor.pause(name)
        try:
            await asyncio.sleep(seconds)
        finally:
            self.supervisor.resume(name)

    async def cut(self, source: str, destination: str, seconds: float, fault: Fault, *, both: bool) -> None:
        """Cuts the link between two regions."""
        print(f"cut {source} -> {destination} ({fault.name}, both ways: {both}) for {seconds:.1f} s")
        await self.wan.cut(source, destination, fault=fault, both=both)
        await asyncio.sleep(seconds)
        await self.wan.heal()

    async def kill_each_kind(self, within_s: float | None = None) -> None:
        """kill -9 of every process except two replicas, in random order at random moments; ``None`` means while
        events come."""
        names = [service.name for service in self.demo.deployment.services()]
        replicas = [name for name in names if name.startswith("registry")]
        victims = [self.random.choice(replicas), *(name for name in names if name not in replicas)]
        self.random.shuffle(victims)
        for victim in victims:
            await self.pause(0.0, (within_s or 1.2 * self.seconds) / len(victims))
            await self.kill(victim)

    async def forget(self, datacentre: str) -> None:
        """Its dispatcher's and its event store's state is gone: both start from scratch. Slots stay."""
        names = [f"dispatcher {datacentre}", f"eventstore {datacentre}"]
        print(f"state of {names} deleted")
        for name in names:
            self.supervisor.kill(name, hold=True)
        await self._gone(names)
        place = self.demo.places[datacentre]
        self._forgotten.add(place.output)
        for found in place.state.glob("dispatcher*"):
            found.unlink()
        shutil.rmtree(place.state / "eventstore")
        for name in names:
            self.supervisor.release(name)
