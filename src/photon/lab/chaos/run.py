"""A run: writes traffic, applies the planned faults, heals, waits until all is decided, verifies, and reports."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

from photon.config.errors import PhotonError
from photon.fleet.ledger import balances
from photon.lab.chaos.api import ChaosFailed, Do, Step, Target
from photon.lab.chaos.faults import Faults
from photon.lab.chaos.history import History
from photon.lab.chaos.plan import random_plan
from photon.lab.chaos.report import Report, back, latency, uses
from photon.lab.chaos.scenario import Scenario
from photon.lab.chaos.topology import Topology
from photon.lab.chaos.traffic import STEP_S, Traffic
from photon.lab.chaos.watch import Watching
from photon.lab.demo.check import check, ledger_problems
from photon.lab.demo.deployment import Place
from photon.lab.demo.feed import Logs
from photon.lab.demo.generator import Disorder, Generator, Truth
from photon.lab.latency import Follower

SETTLE_S = 300.0  # maximum time after the last line and the heal until each event must have its verdict
UP_S = 180.0
POLL_S = 0.5
QUERIES_PER_CLICK = 2
# In a slow stream each event would be a batch, and the cost per batch would dominate.
EVENTS_A_STEP = 4
NEAR_S = 2.0  # A datacentre is at the head of its logs with less than this much traffic, in seconds, unread.
EVENT_BYTES = 140
UNDONE = "a fault could not be injected: "  # prefix of a problem of the run itself, not of its results
HISTORY_NAME, REPORT_NAME = "history.jsonl", "report.json"


@dataclass(frozen=True, slots=True)
class Options:
    scenario: Scenario
    seed: int
    directory: Path  # the directory of history and report
    rate: int  # foreign events per second; 0: use the existing traffic
    disorder: Disorder = field(default_factory=lambda: Disorder(late_by=1.0, query_delay=0.4))


class Around(Protocol):
    @property
    def name(self) -> str:
        """The deployment's name for the history."""

    def places(self) -> Mapping[str, Place]:
        """Input and output of each datacentre; empty if they are not accessible."""

    def watch(self, follower: Follower | None) -> Watching:
        """Starts to observe the deployment."""

    async def checks(self, directory: Path) -> tuple[list[str], list[str]]:
        """Verifies a settled deployment; returns (problems, names of the checks). Reports go to ``directory``."""


def plan(
    scenario: Scenario, seed: int, topology: Topology, able: frozenset[Do], fillable: Sequence[str] = ()
) -> list[Step]:
    """Makes the schedule: the faults of the scenario, and random ones if it asks for them. Raises WrongScenario."""
    scenario.checked(topology, able)
    steps = list(scenario.steps)
    if scenario.every_s is not None:
        steps += random_plan(
            seed, topology, scenario.seconds, able, fillable, every_s=scenario.every_s, longest_s=scenario.longest_s
        )
    return sorted(steps, key=lambda step: step.at_s)


def partial(steps: Sequence[Step]) -> frozenset[str]:
    """Datacentres whose ledgers cannot match the truth after these steps: they skip events, or read truncated ones
    twice."""
    return frozenset(
        step.target[0] for step in steps if step.do is Do.TRUNCATE or step.options.get("state") == "lost"
    )


def ledgers_against_truth(
    ledgers: Mapping[str, Mapping[str, int]], truth: Truth, partial: frozenset[str]
) -> list[str]:
    """Compares ledgers with the truth; returns the differences. ``partial``: datacentres that skipped events or read
    them twice because of the run. Their ledgers must balance, but the sums prove nothing."""
    if not partial:
        return ledger_problems(ledgers, truth)
    problems = [f"the ledger of {name} does not balance: {dict(ledger)}" for name, ledger in ledgers.items()
                if not balances(ledger)]  # fmt: skip
    for name, ledger in ledgers.items():
        if name not in partial and ledger["read"] != truth.lines:
            problems.append(f"the ledger of {name} has read {ledger['read']:,}, but the truth is {truth.lines:,}")
    return problems


class Run:
    """One run. Create it on the event loop that uses it."""

    def __init__(
        self,
        options: Options,
        around: Around,
        target: Target,
        topology: Topology,
        say: Callable[[str], None],
        traffic: Callable[[Mapping[str, Logs]], Traffic] | None = None,
    ) -> None:
        """``traffic``: makes the traffic from each datacentre's logs when the run begins; ``None`` means as in
        ``options``. The truth of its generator may include earlier events in these logs."""
        self._options = options
        self._around = around
        self._target = target
        self._topology = topology
        self._say = say
        self._make_traffic = traffic or self._by_options
        self._steps = plan(options.scenario, options.seed, topology, target.able, target.fillable)
        self._partial = partial(self._steps)
        self.report = Report(options.scenario.name, options.seed, faults=len(self._steps))
        self.spans: dict[int, tuple[int, int]] = {}  # wall times of each step of the plan
        self._returns: list[tuple[str, float, float]] = []  # datacentre, left, returned

    async def run(self) -> Report:
        """Runs to the end; also writes the history and report files. Raises PhotonError, OSError."""
        options = self._options
        options.directory.mkdir(parents=True, exist_ok=True)
        self.report.load_before = os.getloadavg()[0]
        about = {
            "scenario": options.scenario.name,
            "seed": options.seed,
            "rate": options.rate,
            "seconds": options.scenario.seconds,
            "deployment": self._around.name,
            "plan": [asdict(step) for step in self._steps],
        }
        with History(options.directory / HISTORY_NAME, **about) as history:
            self.report.history = str(history.path)
            self._history = history
            logs = {name: place.logs for name, place in self._around.places().items()}
            self._traffic = self._make_traffic(logs) if options.rate else None
            self._follower = None
            if self._traffic is not None:
                outputs = {name: place.output for name, place in self._around.places().items()}
                self._follower = Follower(outputs, self._traffic.complete_ns, time.time_ns)
                await asyncio.to_thread(self._follower.follow)  # skips lines left by earlier runs
            self._watch = self._around.watch(self._follower)
            self._watch.start()
            try:
                await self._during()
            finally:
                await self._watch.close()
            self._note("verdict", good=self.report.good, problems=self.report.problems)
        return self.report

    def _note(self, what: str, **more: object) -> None:
        self._history.add(self._watch.now_s(), what, **more)

    def _by_options(self, logs: Mapping[str, Logs]) -> Traffic:
        options = self._options
        # Skipped lines include malformed ones, which each datacentre rejects for itself.
        malformed = 0.0 if self._partial else options.disorder.malformed
        generator = Generator(
            options.seed,
            clicks=max(1, int(options.scenario.seconds * options.rate)),
            seconds=options.scenario.seconds,
            queries_per_click=QUERIES_PER_CLICK,
            disorder=Disorder(**{**asdict(options.disorder), "malformed": malformed}),
            epoch_us=time.time_ns() // 1000,
        )
        return Traffic(generator, logs, step_s=max(STEP_S, EVENTS_A_STEP / options.rate))

    async def _during(self) -> None:
        traffic, watch = self._traffic, self._watch
        faults = Faults(self._target, self._topology, watch.leader, traffic)
        seconds = self._options.scenario.seconds
        feeding = asyncio.create_task(traffic.run() if traffic is not None else asyncio.sleep(seconds))
        steps = [asyncio.create_task(self._step(number, step, faults)) for number, step in enumerate(self._steps)]
        try:
            await asyncio.gather(*steps)
            await asyncio.sleep(max(0.0, seconds - watch.now_s()))
        finally:
            for task in steps:
                task.cancel()
            await asyncio.gather(*steps, return_exceptions=True)
            problems = await faults.heal()
            self._note("heal", problems=problems)
            self.report.problems += problems
            if not feeding.done() and problems:
                feeding.cancel()
        self._say("all faults are healed; waiting until every event has a verdict")
        await feeding
        healed_s = watch.now_s()
        await self._until_settled()
        self.report.settle_s = round(watch.now_s() - healed_s, 1)
        self._note("settled", seconds=self.report.settle_s, ledgers=watch.ledgers())
        await self._verify()
        self._figures()

    async def _step(self, number: int, step: Step, faults: Faults) -> None:
        watch = self._watch
        await asyncio.sleep(max(0.0, step.at_s - watch.now_s()))
        begun_s, begun_ns = watch.now_s(), time.time_ns()
        try:
            self._say(f"{begun_s:6.1f} s  {step.words()}")
            what = await faults.begin(number, step)
            self._note("begin", fault=number, do=step.do, to=what)
            self.spans[number] = (begun_ns, time.time_ns())
            # A wrong clock counts from when its process is up with it.
            ends_s = watch.now_s() + step.for_s if step.do is Do.CLOCK else step.end_s
            await asyncio.sleep(max(0.0, ends_s - watch.now_s()))
            await self._end(number, faults)
            ended_s = watch.now_s()
            self._note("end", fault=number, do=step.do, to=what)
            if step.do is Do.AWAY:
                self._returns.append((step.target[0], begun_s, ended_s))
        except (PhotonError, TimeoutError, OSError) as error:
            said = f"{step.words()}: {error or type(error).__name__}"
            self._note("failed", fault=number, do=step.do, error=said)
            self._say(f"{watch.now_s():6.1f} s  {said}")
            self.report.problems.append(f"{UNDONE}{said}")
        finally:
            self.spans[number] = (begun_ns, time.time_ns())

    async def _end(self, number: int, faults: Faults) -> None:
        """Ends a step, with retries: the proxy or another process that it asks may be down for a moment."""
        deadline = time.monotonic() + UP_S
        while True:
            try:
                return await faults.end(number)
            except ChaosFailed as error:
                self._note("again", fault=number, error=str(error))
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(POLL_S)

    async def _until_settled(self) -> None:
        deadline = time.monotonic() + SETTLE_S
        while True:
            why = await self._unsettled()
            if not why:
                return
            if (failure := self._watch.failure()) is not None:
                raise ChaosFailed(failure)
            if time.monotonic() > deadline:
                self.report.problems.append(f"still unsettled {SETTLE_S:g} s after all faults were healed: {why}")
                return
            await asyncio.sleep(POLL_S)

    async def _unsettled(self) -> str:
        """Returns in one line why the deployment is not settled; empty if it is."""
        traffic, follower = self._traffic, self._follower
        known = {*self._topology.processes, "wan"}
        found = await self._target.processes()
        down = [f"{name} is {now.detail}" for name, now in found.items() if name in known and not now.up]
        if down:
            return "; ".join(down)
        ledgers = self._watch.ledgers()
        for name, ledger in ledgers.items():
            if ledger["pending"]:
                return f"{name} has {ledger['pending']} events pending"
            if traffic is not None and name not in self._partial and ledger["read"] != traffic.generator.truth.lines:
                return f"{name} has read {ledger['read']} of {traffic.generator.truth.lines} lines"
        if traffic is None or follower is None:
            return ""
        truth = traffic.generator.truth
        missing = len(truth.joined) + len(truth.unmatched) - follower.events
        if missing > 0:
            return f"{missing} events have no line in any output"
        for name, lines in follower.lines.items():
            if name not in self._partial and lines["rejected"] < ledgers[name]["rejected"]:
                return f"{name} has not written all rejected lines"
        return ""

    async def _verify(self) -> None:
        problems = self.report.problems
        self._say("verifying")
        found, verified = await self._around.checks(self._options.directory)
        problems += found
        if self._traffic is not None:
            truth = self._traffic.generator.truth
            outputs = [place.output for place in self._around.places().values()]
            # The verification shares no code with the writers.
            problems += (await asyncio.to_thread(check, outputs, truth)).problems
            problems += ledgers_against_truth(self._watch.ledgers(), truth, self._partial)
            verified = [*verified, "outputs and ledgers against the generator's truth"]
        self.report.verified = ", ".join(verified)

    def _figures(self) -> None:
        report, options, watch = self.report, self._options, self._watch
        traffic, follower = self._traffic, self._follower
        report.seconds = round(watch.now_s(), 1)
        if traffic is not None and follower is not None:
            truth = traffic.generator.truth
            report.events = len(truth.joined) + len(truth.unmatched)
            outstanding = max(0, report.events - follower.events)
            report.latency = latency(follower.verdicts, list(self.spans.values()), outstanding)
        near = max(4096, int(NEAR_S * options.rate * EVENT_BYTES))
        report.backs = [
            back(name, left, came, watch.seen[name], near) for name, left, came in self._returns if name in watch.seen
        ]
        report.wasted = sum(ledger["wasted"] for ledger in watch.ledgers().values())
        report.uses = uses(watch.lives)
        report.load_after = os.getloadavg()[0]
