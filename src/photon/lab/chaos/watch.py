"""Observes a deployment of processes or containers during faults, and checks it afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import orjson

from photon.config.tls import OPERATOR
from photon.fleet.access import tls_of
from photon.fleet.ledger import read_ledger
from photon.fleet.numbers import counts_of
from photon.lab.chaos.api import ChaosFailed, Target
from photon.lab.chaos.containers import GENERATOR, ContainersTarget
from photon.lab.chaos.report import Sample, Seen, read_process
from photon.lab.chaos.site import Site
from photon.lab.chaos.subprocesses import run_photon
from photon.lab.demo.deployment import Place
from photon.lab.latency import Follower
from photon.lab.onlooker import Onlooker, alarms_in, lag_bytes

ASK_S = 1.0
FOLLOW_S = 0.1
SEE_S = 0.5
RESOURCES_S = 5.0
SEEN_MAX = 200_000  # limit of remembered events per datacentre
SAMPLES_MAX = 20_000  # limit of samples per process
CONTAINERS_EVERY_S = 10.0
SPARK_S = 1800.0
PROBLEMS_MAX = 50
WAIT_S = 240  # seconds to wait for outstanding events in containers


class Watching:
    """Samples memory and open files of all processes. Create it on the event loop that uses it, and ``close`` it."""

    def __init__(self, target: Target, every_s: float = RESOURCES_S) -> None:
        self._target, self._every_s = target, every_s
        self._began = time.monotonic()
        self._tasks: list[asyncio.Task[None]] = []
        self.seen: dict[str, list[Seen]] = {}  # datacentre -> samples; empty if dispatchers cannot be asked
        self.lives: dict[tuple[str, int], list[Sample]] = {}  # (process, pid) -> samples

    def now_s(self) -> float:
        """Seconds since the start of the run."""
        return time.monotonic() - self._began

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._resources())]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def failure(self) -> str | None:
        """Returns why the observation ended early; ``None`` if it did not."""
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                return f"observing the deployment failed: {type(error).__name__}: {error}"
        return None

    async def leader(self) -> str | None:
        raise NotImplementedError

    def ledgers(self) -> dict[str, dict[str, int]]:
        return {}

    async def _resources(self) -> None:
        while True:
            with contextlib.suppress(ChaosFailed):
                await self._sample()
            await asyncio.sleep(self._every_s)

    async def _sample(self) -> None:
        now_s = self.now_s()
        for name, process in (await self._target.processes()).items():
            found = None if process.pid is None else read_process(process.pid, now_s)
            if found is not None and process.pid is not None:
                samples = self.lives.setdefault((name, process.pid), [])
                if len(samples) < SAMPLES_MAX:
                    samples.append(found)


class Watch(Watching):
    """Watches the processes on this machine, and samples their dispatchers, registry and outputs."""

    def __init__(self, site: Site, target: Target, follower: Follower | None) -> None:
        """``follower``: reads the outputs during the run; ``None`` to leave them unread."""
        super().__init__(target)
        self._site, self._follower = site, follower
        tls = tls_of(site.settings, site.file.parent, OPERATOR)
        self._onlooker = Onlooker(site.settings, tls, ASK_S)
        self.seen = {name: [] for name in site.settings.datacentre}

    def start(self) -> None:
        super().start()
        self._tasks += [asyncio.create_task(each) for each in (self._follow(), self._see())]

    async def close(self) -> None:
        await super().close()
        await self._onlooker.close()

    async def leader(self) -> str | None:
        leading = await self._onlooker.leader()
        return leading[0].label if leading else None

    def ledgers(self) -> dict[str, dict[str, int]]:
        return {name: read_ledger(place.state) for name, place in self._site.places().items()}

    async def _follow(self) -> None:
        while self._follower is not None:
            await asyncio.to_thread(self._follower.follow)
            await asyncio.sleep(FOLLOW_S)

    async def _see(self) -> None:
        while True:
            now_s = self.now_s()
            found = await asyncio.gather(*map(self._onlooker.dispatchers, self.seen))
            for seen, heard in zip(self.seen.values(), found, strict=True):
                last = seen[-1] if seen else Seen(now_s, False, 0, 0, 0)
                if len(seen) >= SEEN_MAX:
                    continue
                if not heard:
                    seen.append(replace(last, at_s=now_s, up=False, lag_bytes=0))
                else:
                    counts = counts_of(heard)
                    seen.append(Seen(now_s, True, lag_bytes(heard), counts["read"], counts["wasted"]))
            await asyncio.sleep(SEE_S)


async def with_spark(site: Site, report: Path, since: str) -> list[str]:
    """Runs ``photon spark verify`` over those hours of the run that can be judged; returns its findings. Raises
    ChaosFailed."""
    arguments = ["spark", "verify", "--config", str(site.file), "--from", since, "--report", str(report)]
    done = await run_photon([*arguments, "-o", "json"], SPARK_S, codes=(0, 3, 4))
    if done.code == 0:
        return []
    found = orjson.loads(done.out)
    if done.code == 4:
        return [f"photon spark verify could not judge: {why}" for why in found["unjudged"]][:PROBLEMS_MAX]
    problems = found.get("problems", found)
    named = problems.items() if isinstance(problems, dict) else [("problems", problems)]
    return [f"photon spark verify: {key}: {value}" for key, value in named][:PROBLEMS_MAX]


class Processes:
    def __init__(self, site: Site, target: Target, *, spark: bool) -> None:
        self._site = site
        self._target = target
        self._spark = spark

    @property
    def name(self) -> str:
        return str(self._site.file)

    def places(self) -> Mapping[str, Place]:
        return self._site.places()

    def watch(self, follower: Follower | None) -> Watching:
        return Watch(self._site, self._target, follower)

    async def checks(self, directory: Path) -> tuple[list[str], list[str]]:
        """Returns the findings of the continuous verifiers, and of ``photon spark verify`` if requested."""
        problems = await asyncio.to_thread(alarms_in, self._site.settings, self._site.file.parent)
        verified = ["the verifiers' alarms"]
        if self._spark:
            problems += await with_spark(self._site, directory / "spark", "2h")
            verified.append("photon spark verify")
        return problems, verified


class Containers:
    """Watches docker-compose containers; their service ``generator`` writes the logs and knows the truth."""

    def __init__(self, project: str, target: ContainersTarget, datacentres: list[str]) -> None:
        self._project = project
        self._target = target
        self._datacentres = datacentres

    @property
    def name(self) -> str:
        return f"containers of {self._project}"

    def places(self) -> Mapping[str, Place]:
        return {}

    def watch(self, follower: Follower | None) -> Watching:
        return ContainersWatch(self._target)

    async def checks(self, directory: Path) -> tuple[list[str], list[str]]:
        """Stops the generator, compares its truth with all outputs, and restarts it."""
        await self._target.service("stop", GENERATOR)
        try:
            command = ["photon", "feed", "check", "--of", "/logs", "--output", "/output", "--output"]
            command += ["/elsewhere/output", "--wait", f"{WAIT_S}s", "-o", "json"]
            said = await self._target.operator(self._datacentres[0], command, codes=(0, 1))
        finally:
            await self._target.service("start", GENERATOR)
        try:
            problems = orjson.loads(said)["problems"]
        except (orjson.JSONDecodeError, KeyError):
            raise ChaosFailed(f"photon feed check did not print the expected JSON: {said[:200]!r}") from None
        return list(map(str, problems)), ["photon feed check"]


class ContainersWatch(Watching):
    def __init__(self, target: ContainersTarget) -> None:
        super().__init__(target, CONTAINERS_EVERY_S)
        self._containers = target

    async def leader(self) -> str | None:
        return await self._containers.leader()
