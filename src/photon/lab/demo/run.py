"""The demo: a live stream into the logs of two datacentres; one is killed and returns; then everything is
verified."""

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

Ledgers = Mapping[str, Mapping[str, int]]  # datacentre -> its totals
READY_S = 60.0
SETTLE_S = 120.0  # maximum time after the last line until each click must have its verdict
KILL_AT, RETURN_AT = 0.35, 0.5  # kill and return of a datacentre, as shares of the stream's time
OBSERVE_S = 0.25
BACK_BYTES = 64 << 10  # a datacentre is at the head of its logs again with less than this unread


@dataclass(frozen=True, slots=True)
class Phase:
    name: str
    seconds: float
    made: Mapping[str, int]  # datacentre -> number of clicks that it joined or declared unmatched
    wasted: int  # joins that another datacentre had made meanwhile

    @property
    def total(self) -> int:
        return sum(self.made.values())

    def share(self, datacentre: str) -> float:
        return self.made[datacentre] / self.total if self.total else 0.0

    @property
    def wasted_share(self) -> float:
        """Wasted joins as a share of all verdicts made."""
        return self.wasted / self.total if self.total else 0.0


class Phases:
    def __init__(self, begun: Ledgers, at_s: float) -> None:
        self._before = begun
        self._at_s = at_s
        self.done: list[Phase] = []

    def end(self, name: str, now: Ledgers, at_s: float) -> None:
        before = self._before
        made = {dc: _made(ledger) - _made(before[dc]) for dc, ledger in now.items()}
        # The uncommitted counts of a killed dispatcher are missing afterwards.
        wasted = sum(max(0, ledger["wasted"] - before[dc]["wasted"]) for dc, ledger in now.items())
        self.done.append(Phase(name, at_s - self._at_s, made, wasted))
        self._before, self._at_s = now, at_s


def _made(ledger: Mapping[str, int]) -> int:
    return ledger["joined"] + ledger["unmatched"]


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The duration and volume of a demo. With ``kill``, a datacentre is killed and restarted."""

    directory: Path
    seconds: float = 20.0
    rate: int = 500  # clicks a second; there are ten times as many queries
    seed: int = 1
    kill: bool = True


@dataclass(slots=True)
class Report:
    ledgers: dict[str, dict[str, int]]
    problems: list[str]
    phases: list[Phase] = field(default_factory=list)
    killed: str = ""  # description of the killed processes; empty: none
    catch_up: str = ""
    latencies_ms: tuple[float, float, float] = (0.0, 0.0, 0.0)
    lines: int = 0
    clicks: int = 0
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        """True if every click occurs exactly once over both datacentres, with correct contents, and the ledgers
        balance and add up."""
        return not self.problems


class DemoFailed(PhotonError):
    """The demo could not complete."""


async def run(
    options: DemoOptions,
    *,
    say: Callable[[str], None],
    show: Callable[[Observation], None],
    zygote: Zygote | None = None,
) -> Report:
    """Runs the demo. ``say`` receives messages; ``show`` the current state, several times a second. ``zygote``: the
    process from which the others are forked."""
    return await _Run(options, say, show, zygote).run()


class _Run:
    """The stream and the drill: a whole datacentre with its registry replica is killed, and later restarted."""

    def __init__(
        self,
        options: DemoOptions,
        say: Callable[[str], None],
        show: Callable[[Observation], None],
        zygote: Zygote | None,
    ) -> None:
        self._began = time.monotonic()
        self._options, self._say, self._show = options, say, show
        generator = Generator(
            options.seed,
            clicks=max(1, int(options.seconds * options.rate)),
            seconds=options.seconds,
            disorder=Disorder(),
            epoch_us=time.time_ns() // 1000,
        )
        lines = sorted(generator.lines(), key=lambda line: line.at_us)
        self._truth = generator.truth
        self._demo = DemoDeployment(options.directory, Shape(joiners=1, together=True))
        self._feed = Feed(lines, {name: place.logs for name, place in self._demo.places.items()})
        self._supervisor = Supervisor(zygote=zygote)
        self._observer = Observer(self._demo, self._feed)
        self._report = Report({}, [], lines=len(lines), clicks=self._truth.lines)

    async def run(self) -> Report:
        demo, report = self._demo, self._report
        services = demo.deployment.services()
        self._say(
            f"starting {len(services)} processes: one each for {' and '.join(demo.places)}; "
            f"{len(demo.replicas)} registry replicas; a proxy, 30 ms between regions"
        )
        try:
            await self._supervisor.start(services)
            await self._supervisor.ready(READY_S)
            up_s = time.monotonic() - self._began
            self._say(f"all up after {up_s:.1f} s; {report.lines:,} lines follow in {self._options.seconds:g} s")
            await self._stream()
        finally:
            await self._observer.close()
            await self._supervisor.stop()
        self._say("verifying the outputs against the generator's truth")
        findings = check([place.output for place in demo.places.values()], self._truth)
        alarms = alarms_in(demo.deployment.settings, demo.deployment.file.parent)
        report.problems = [*findings.problems, *ledger_problems(report.ledgers, self._truth), *alarms]
        report.latencies_ms = percentiles(self._observer.latencies.all_ms)
        report.seconds = time.monotonic() - self._began
        return report

    async def _stream(self) -> None:
        phases = Phases(await self._observer.totals(), time.monotonic())
        self._report.phases = phases.done
        feeding = asyncio.create_task(self._feed.run())
        watching = asyncio.create_task(self._watch())
        try:
            if self._options.kill:
                await self._drill(phases, time.monotonic())
            await feeding
            self._say("all lines written; waiting until each click has its verdict")
            await self._settled()
            self._report.ledgers = self._observer.ledgers()
            last = "both up again" if self._options.kill else "both up"
            phases.end(last, await self._observer.totals(), time.monotonic())
            self._observer.latencies.follow()
        finally:
            for task in (feeding, watching):
                task.cancel()
            await asyncio.gather(feeding, watching, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            self._show(await self._observer.observe())
            await asyncio.sleep(OBSERVE_S)

    async def _drill(self, phases: Phases, began: float) -> None:
        await self._until(began, KILL_AT)
        victim, leads = await self._victim()
        names = self._supervisor.names(datacentre=victim)
        phases.end("both up", await self._observer.totals(), time.monotonic())
        self._feed.copies[victim].held = True
        for name in names:
            self._supervisor.kill(name, hold=True)
        count = "both" if len(names) == 2 else f"all {len(names)}"
        killed = f"{count} processes of {victim}" + (", the registry's leader among them" if leads else "")
        self._report.killed = killed
        self._say(f"kill -9 {killed}; no lines arrive there")
        await self._until(began, RETURN_AT)
        read_before = self._observer.ledgers()[victim]["read"]
        phases.end(f"{victim} down", await self._observer.totals(), time.monotonic())
        self._feed.copies[victim].held = False
        for name in names:
            self._supervisor.release(name)
        self._say(f"{victim} returns: its processes start, and its logs arrive again")
        self._report.catch_up = await self._caught_up(victim, read_before)
        self._say(self._report.catch_up)
        phases.end(f"{victim} catching up", await self._observer.totals(), time.monotonic())

    async def _until(self, began: float, share: float) -> None:
        await asyncio.sleep(max(0.0, began + share * self._options.seconds - time.monotonic()))

    async def _victim(self) -> tuple[str, bool]:
        """Returns the datacentre to kill, and True if it has the registry's leader. Odd seeds prefer the leader's."""
        leading = REPLICAS.get(await self._observer.leader() or "")
        chosen = random.Random(self._options.seed).choice(DATACENTRES)
        if self._options.seed % 2 and leading in self._demo.places:
            chosen = leading
        return chosen, chosen == leading

    async def _caught_up(self, victim: str, read_before: int) -> str:
        began = time.monotonic()
        while True:
            seen = (await self._observer.observe()).datacentres[victim]
            took, caught = time.monotonic() - began, seen.ledger["read"] - read_before
            if seen.up and caught > 0 and seen.lag_bytes < BACK_BYTES:
                return f"{victim} at the head of its logs again after {took:.1f} s: {caught:,} clicks read"
            if took > SETTLE_S:
                raise self._failed(f"{victim} has not caught up {SETTLE_S:g} s after its return")
            await asyncio.sleep(OBSERVE_S)

    async def _settled(self) -> None:
        deadline = time.monotonic() + SETTLE_S
        while not self._observer.settled(self._truth.lines):
            if time.monotonic() > deadline:
                what = f"not every click has its verdict {SETTLE_S:g} s after the last of {self._truth.lines} lines"
                raise self._failed(f"{what}: {self._observer.ledgers()}")
            await asyncio.sleep(OBSERVE_S)

    def _failed(self, what: str) -> DemoFailed:
        logs = self._demo.deployment.run / "logs"
        return DemoFailed(f"{what}; the processes' logs are in {logs} (keep them with --keep DIR)")
