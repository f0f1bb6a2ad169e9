"""The demo: a live stream into the logs of two datacentres; one is killed and comes back; then all is verified."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from photon.config.errors import PhotonError
from photon.lab.demo.check import check, ledger_problems
from photon.lab.demo.deployment import DATACENTRES, REPLICAS, DemoDeployment, Shape
from photon.lab.demo.feed import Feed
from photon.lab.demo.generator import Disorder, Generator
from photon.lab.demo.observe import Observation, Observer
from photon.lab.latency import percentiles
from photon.lab.onlooker import alarms_in
from photon.supervision.supervisor import Supervisor
from photon.supervision.zygote import Zygote

Ledgers = Mapping[str, Mapping[str, int]]
"""Datacentre -> its totals."""
READY_S = 60.0
SETTLE_S = 120.0
"""After the last line: until each click must have its verdict."""
KILL_AT, RETURN_AT = 0.35, 0.5
"""When a datacentre is killed and when it comes back, as shares of the stream's time."""
OBSERVE_S = 0.25
BACK_BYTES = 64 << 10
"""A datacentre is at the head of its logs again with less than this unread."""


@dataclass(frozen=True, slots=True)
class Phase:
    name: str
    seconds: float
    made: Mapping[str, int]
    """Datacentre -> clicks joined or called unmatched by it."""
    wasted: int
    """Joins that another datacentre had made meanwhile."""

    @property
    def total(self) -> int:
        return sum(self.made.values())

    def share(self, datacentre: str) -> float:
        return self.made[datacentre] / self.total if self.total else 0.0

    @property
    def wasted_share(self) -> float:
        """Joins made in vain, as a share of all verdicts made."""
        return self.wasted / self.total if self.total else 0.0


class Phases:
    def __init__(self, begun: Ledgers, at_s: float) -> None:
        self._before = begun
        self._at_s = at_s
        self.done: list[Phase] = []

    def end(self, name: str, now: Ledgers, at_s: float) -> None:
        before = self._before
        made = {dc: _made(ledger) - _made(before[dc]) for dc, ledger in now.items()}
        # What a killed dispatcher had counted and not committed is missing afterwards.
        wasted = sum(max(0, ledger["wasted"] - before[dc]["wasted"]) for dc, ledger in now.items())
        self.done.append(Phase(name, at_s - self._at_s, made, wasted))
        self._before, self._at_s = now, at_s


def _made(ledger: Mapping[str, int]) -> int:
    return ledger["joined"] + ledger["unmatched"]


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """How long, how much, and whether anything is killed."""

    directory: Path
    seconds: float = 30.0
    rate: int = 500
    """Clicks a second; there are ten times as many queries."""
    seed: int = 1
    kill: bool = True


@dataclass(slots=True)
class Report:
    ledgers: dict[str, dict[str, int]]
    problems: list[str]
    phases: list[Phase] = field(default_factory=list)
    killed: str = ""
    """What was killed, in words; empty: nothing."""
    catch_up: str = ""
    latencies_ms: tuple[float, float, float] = (0.0, 0.0, 0.0)
    lines: int = 0
    clicks: int = 0
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        """Every click exactly once over both datacentres, contents right, ledgers balanced and their sum right."""
        return not self.problems


class DemoFailed(PhotonError):
    """The demo could not be run to its end."""


async def run(
    options: DemoOptions,
    *,
    say: Callable[[str], None],
    show: Callable[[Observation], None],
    zygote: Zygote | None = None,
) -> Report:
    """Runs the demo. ``say`` gets what happens, ``show`` the present state, several times a second; ``zygote``:
    of whom the processes are copies."""
    began = time.monotonic()
    generator = Generator(
        options.seed,
        clicks=max(1, int(options.seconds * options.rate)),
        seconds=options.seconds,
        disorder=Disorder(),
        epoch_us=time.time_ns() // 1000,
    )
    lines = sorted(generator.lines(), key=lambda line: line.at_us)
    demo = DemoDeployment(options.directory, Shape())
    feed = Feed(lines, {name: place.logs for name, place in demo.places.items()})
    supervisor = Supervisor(zygote=zygote)
    services = demo.deployment.services()
    say(
        f"starting {len(services)} processes: in {' and '.join(demo.places)} each an event store, "
        f"{demo.shape.joiners} joiners, a verifier, a dispatcher; {len(demo.replicas)} registry replicas; "
        "30 ms between regions"
    )
    observer = Observer(demo, feed)
    try:
        await supervisor.start(services)
        await supervisor.ready(READY_S)
        say(f"all up after {time.monotonic() - began:.1f} s; {len(lines):,} lines follow in {options.seconds:g} s")
        report = await _stream(options, demo, feed, supervisor, observer, generator, say, show)
    finally:
        await observer.close()
        await supervisor.stop()
    say("verifying the outputs against the generator's truth")
    findings = check([place.output for place in demo.places.values()], generator.truth)
    alarms = alarms_in(demo.deployment.settings, demo.deployment.file.parent)
    report.problems = [*findings.problems, *ledger_problems(report.ledgers, generator.truth), *alarms]
    report.latencies_ms = percentiles(observer.latencies.all_ms)
    report.lines, report.clicks = len(lines), generator.truth.lines
    report.seconds = time.monotonic() - began
    return report


async def _stream(
    options: DemoOptions,
    demo: DemoDeployment,
    feed: Feed,
    supervisor: Supervisor,
    observer: Observer,
    generator: Generator,
    say: Callable[[str], None],
    show: Callable[[Observation], None],
) -> Report:
    report = Report({}, [])
    phases = Phases(await observer.totals(), time.monotonic())
    feeding = asyncio.create_task(feed.run())
    watching = asyncio.create_task(_watch(observer, show))
    try:
        if options.kill:
            drill = _Drill(options, demo, feed, supervisor, observer, phases, say)
            report.killed, report.catch_up = await drill.run()
        await feeding
        say("all written; waiting until each click has its verdict")
        await _settled(observer, generator.truth.lines)
        report.ledgers = observer.ledgers()
        phases.end("both up again" if options.kill else "both up", await observer.totals(), time.monotonic())
        report.phases = phases.done
        observer.latencies.follow()
    finally:
        for task in (feeding, watching):
            task.cancel()
        await asyncio.gather(feeding, watching, return_exceptions=True)
    return report


class _Drill:
    """kill -9 of one whole datacentre with its registry replica, and its return."""

    def __init__(
        self,
        options: DemoOptions,
        demo: DemoDeployment,
        feed: Feed,
        supervisor: Supervisor,
        observer: Observer,
        phases: Phases,
        say: Callable[[str], None],
    ) -> None:
        self._options = options
        self._demo = demo
        self._feed = feed
        self._supervisor = supervisor
        self._observer = observer
        self._phases = phases
        self._say = say
        self._began = time.monotonic()

    async def run(self) -> tuple[str, str]:
        await self._until(KILL_AT)
        victim, leads = await self._victim()
        names = self._supervisor.names(datacentre=victim)
        self._phases.end("both up", await self._observer.totals(), time.monotonic())
        self._feed.copies[victim].held = True
        for name in names:
            self._supervisor.kill(name, hold=True)
        killed = f"all {len(names)} processes of {victim}" + (", the registry's leader among them" if leads else "")
        self._say(f"kill -9 {killed}; nothing arrives there")
        await self._until(RETURN_AT)
        before = self._observer.ledgers()
        self._phases.end(f"{victim} down", await self._observer.totals(), time.monotonic())
        self._feed.copies[victim].held = False
        for name in names:
            self._supervisor.release(name)
        self._say(f"{victim} comes back: its processes start, its logs arrive")
        return killed, await self._caught_up(victim, before[victim]["read"])

    async def _until(self, share: float) -> None:
        await asyncio.sleep(max(0.0, self._began + share * self._options.seconds - time.monotonic()))

    async def _victim(self) -> tuple[str, bool]:
        """On odd seeds the datacentre with the registry's leader, where it has a pipeline; and whether it leads."""
        leader = await self._observer.leader()
        leading = REPLICAS.get(leader or "")
        chosen = random.Random(self._options.seed).choice(DATACENTRES)
        if self._options.seed % 2 and leading in self._demo.places:
            chosen = leading
        return chosen, chosen == leading

    async def _caught_up(self, victim: str, read_before: int) -> str:
        began = time.monotonic()
        while True:
            seen = (await self._observer.observe()).datacentres[victim]
            if seen.up and seen.ledger["read"] > read_before and seen.lag_bytes < BACK_BYTES:
                break
            if time.monotonic() - began > SETTLE_S:
                raise DemoFailed(f"{victim} has not caught up {SETTLE_S:g} s after its return; {_where(self._demo)}")
            await asyncio.sleep(OBSERVE_S)
        caught = seen.ledger["read"] - read_before
        text = (
            f"{victim} at the head of its logs again after {time.monotonic() - began:.1f} s: {caught:,} clicks read"
        )
        self._say(text)
        self._phases.end(f"{victim} catching up", await self._observer.totals(), time.monotonic())
        return text


async def _watch(observer: Observer, show: Callable[[Observation], None]) -> None:
    while True:
        show(await observer.observe())
        await asyncio.sleep(OBSERVE_S)


async def _settled(observer: Observer, lines: int) -> None:
    deadline = time.monotonic() + SETTLE_S
    while not observer.settled(lines):
        if time.monotonic() > deadline:
            raise DemoFailed(
                f"not every click has its verdict {SETTLE_S:g} s after the last of {lines} lines: "
                f"{observer.ledgers()}; {_where(observer.demo)}"
            )
        await asyncio.sleep(OBSERVE_S)


def _where(demo: DemoDeployment) -> str:
    return f"the processes' logs are in {demo.deployment.run / 'logs'} (keep them with --keep DIR)"
