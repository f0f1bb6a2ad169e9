"""One compressed day of a deployment that is kept from day to day: load, faults, observations, a verdict.

Two datacentres and a third region, 100 ms apart, five replicas of the registry, two joiners and a cache node in each
datacentre. After a day everything ends in order, and the next one starts it again on the same state; its verdict
covers everything ever written. A day that was interrupted, or found wrong, is left as it is, and a new deployment is
begun.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.measure import cpu_s
from bench.results import machine
from bench.service_level.rows import DAY, SINCE_START, Grown, Row, binned, steps
from bench.service_level.shape import faults, pace
from photon import __version__
from photon.config import runtime
from photon.config.loader import load as load_settings
from photon.config.tls import OPERATOR
from photon.fleet.access import tls_of
from photon.fleet.numbers import Numbers
from photon.fleet.polling import Gatherer
from photon.fleet.processes import processes
from photon.lab.chaos import site
from photon.lab.chaos.api import ChaosFailed, Do, Step, Target
from photon.lab.chaos.processes import ProcessesTarget
from photon.lab.chaos.report import Report, Seen
from photon.lab.chaos.run import QUERIES_PER_CLICK, UNDONE, Options, Run
from photon.lab.chaos.scenario import Scenario
from photon.lab.chaos.site import Site, Wanted
from photon.lab.chaos.topology import topology_of
from photon.lab.chaos.traffic import Traffic
from photon.lab.chaos.watch import Processes, Watch, Watching
from photon.lab.demo.feed import Logs
from photon.lab.demo.generator import Disorder, Generator, Truth
from photon.lab.latency import Follower

Say = Callable[[str], None]
POINTS = 120
"""Recorded moments of a day."""
DAYS_MAX = 8
"""Maximum for one deployment: written lines are kept, and their truth is held in memory."""
SHARDS = (4, 2)
"""A deployment begins with two; each day changes their number."""
ASK_S = 1.0
RETURN_S = 30.0
"""Time around a datacentre's absence that is kept in detail."""
DISORDER = Disorder(late_by=1.0, query_delay=0.4)
NOTE = "days.json"


@dataclass(frozen=True, slots=True)
class Written:
    """A stream: the parameters that produce it."""

    seed: int
    rate: int
    seconds: float
    epoch_us: int
    whole: bool
    """Completely written, and found correct."""

    def generator(self, truth: Truth) -> Generator:
        """Its truth is added to ``truth``."""
        generator = Generator(
            self.seed,
            clicks=int(self.rate * self.seconds),
            seconds=self.seconds,
            queries_per_click=QUERIES_PER_CLICK,
            disorder=DISORDER,
            epoch_us=self.epoch_us,
            pace=pace(self.seconds),
        )
        generator.truth = truth
        return generator


class Kept:
    """The deployment below a directory, and the streams written into it."""

    def __init__(self, root: Path) -> None:
        """The last one if it may continue; otherwise a new one, after complete old ones are deleted."""
        root.mkdir(parents=True, exist_ok=True)
        before = sorted(root.glob("[0-9]*"))
        self.directory = before[-1] if before else root / "000"
        self.days = self._read(self.directory)
        if before and not self._goes_on():
            whole = [each for each in before if (days := self._read(each)) and all(day.whole for day in days)]
            self.directory, self.days = root / f"{int(before[-1].name) + 1:03d}", []
            for each in whole:
                shutil.rmtree(each)
        self.file = self.directory / "photon.toml"

    def _goes_on(self) -> bool:
        return 0 < len(self.days) < DAYS_MAX and all(day.whole for day in self.days)

    @staticmethod
    def _read(directory: Path) -> list[Written]:
        with suppress(FileNotFoundError):
            return [Written(**each) for each in json.loads((directory / NOTE).read_text())]
        return []

    def site(self) -> Site:
        """Created if there is none."""
        if not self.days:
            return site.made(self.directory, Wanted(caches=1))
        return Site(self.file, load_settings(self.file, environment=os.environ), self.directory / "run")

    def note(self, day: Written) -> None:
        """Replaces its earlier note, atomically."""
        self.days = [*(each for each in self.days if each.epoch_us != day.epoch_us), day]
        new = self.directory / f"{NOTE}.new"
        new.write_text(json.dumps([{name: getattr(each, name) for name in Written.__slots__} for each in self.days]))
        new.replace(self.directory / NOTE)

    def truth(self) -> Truth:
        """Truth of everything written."""
        truth = Truth()
        for day in self.days:
            for _ in day.generator(truth).rounds():
                pass
        return truth


@dataclass(frozen=True, slots=True)
class Moment:
    """Counts since the day's beginning, and gauges."""

    at_s: float
    wall_ns: int
    offered: int
    joined: Mapping[str, int]
    wasted: Mapping[str, int]
    grown: Mapping[str, float]
    ids: Mapping[str, float]
    memory_mib: float
    """Memory of the largest process."""
    own_s: float
    busy_s: float
    """Processor seconds of the deployment, and of the whole machine."""


def busy_s() -> float:
    """Processor seconds of the machine since its start, all cores."""
    user, nice, system, _, _, irq, soft = map(int, Path("/proc/stat").read_text().split()[1:8])
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")


class Sampling(Watch):
    """Also asks all processes for their metrics, ``POINTS`` times a day."""

    def __init__(
        self, where: Site, target: Target, follower: Follower, truth: Truth, every_s: float, say: Say
    ) -> None:
        super().__init__(where, target, follower)
        self.follower, self._truth, self._every_s, self._say = follower, truth, every_s, say
        self._asked = [each for each in processes(where.settings) if each.address and each.kind != "wan"]
        self._gatherer = Gatherer(tls_of(where.settings, where.file.parent, OPERATOR), ASK_S, details=False)
        self._grown = Grown()
        self._cpu: dict[int, float] = {}
        self._own_s = 0.0
        self._before = self._offered()
        self.moments: list[Moment] = []

    def start(self) -> None:
        super().start()
        self._tasks.append(asyncio.create_task(self._moments()))

    async def close(self) -> None:
        await super().close()
        await self._gatherer.close()

    def _offered(self) -> int:
        return len(self._truth.joined) + len(self._truth.unmatched)

    async def _moments(self) -> None:
        while not all(self.seen.values()):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        for number in itertools.count():
            await asyncio.sleep(max(0.0, number * self._every_s - self.now_s()))
            numbers = Numbers(await self._gatherer.gather(self._asked))
            self._grown.take(numbers)
            await self._cpu_of_all()
            last = {name: seen[-1] if seen else Seen(0.0, False, 0, 0, 0) for name, seen in self.seen.items()}
            self.moments.append(
                Moment(
                    round(self.now_s(), 2), time.time_ns(), self._offered() - self._before,
                    {name: kinds["joined"] for name, kinds in self.follower.lines.items()},
                    {name: each.wasted for name, each in last.items()},
                    dict(self._grown.total),
                    {shard: ids for shard, ids in numbers.by("shard", "photon_registry_ids").items() if shard != "0"},
                    max((samples[-1].memory for samples in self.lives.values()), default=0) / 2**20,
                    self._own_s, busy_s(),
                )
            )  # fmt: skip
            if number % 8 == 0:
                now = self.moments[-1]
                joined = sum(now.joined.values()) - sum(self.moments[0].joined.values())
                self._say(f"{now.at_s:6.0f} s  offered {now.offered:,}, joined {joined:,}")

    async def _cpu_of_all(self) -> None:
        with suppress(ChaosFailed):
            for process in (await self._target.processes()).values():
                if process.pid is not None:
                    now = cpu_s([process.pid])
                    self._own_s += max(0.0, now - self._cpu.get(process.pid, 0.0 if self.moments else now))
                    self._cpu[process.pid] = now


class _Around(Processes):
    def __init__(self, where: Site, target: Target, watch: Callable[[Follower], Sampling]) -> None:
        super().__init__(where, target, spark=False)
        self._watch = watch

    def watch(self, follower: Follower | None) -> Watching:
        assert follower is not None
        self.seen = self._watch(follower)
        return self.seen


def run(root: Path, *, minutes: float, rate: int, say: Say) -> Row:
    """Runs a day to its end and returns its findings. Raises PhotonError."""
    kept = Kept(root)
    truth, found = kept.truth(), kept.site()
    load = os.getloadavg()[0]
    say(f"day {len(kept.days) + 1} in {kept.directory}")
    with site.up(found, say):
        row = runtime.run(_day(kept, found, truth, rate, minutes * 60, say))
    return {**row, "load": [round(load, 1), round(os.getloadavg()[0], 1)]}


async def _day(kept: Kept, found: Site, truth: Truth, rate: int, seconds: float, say: Say) -> dict[str, Any]:
    number, topology = len(kept.days), topology_of(found.settings)
    seed = time.time_ns() // 1_000_000_000
    plan = faults(seed, seconds, topology, SHARDS[number % len(SHARDS)])
    target = ProcessesTarget(found.file, found.settings, found.run, topology, own_logs=True, library=None)
    around = _Around(found, target, lambda follower: Sampling(found, target, follower, truth, seconds / POINTS, say))

    def traffic(logs: Mapping[str, Logs]) -> Traffic:
        kept.note(day := Written(seed, rate, seconds, time.time_ns() // 1000, whole=False))
        return Traffic(day.generator(truth), logs, stream=f"{number:03d}-")

    try:
        scenario = Scenario("day", "a compressed day", seconds, rate, True, tuple(plan))
        options = Options(scenario, seed, kept.directory / f"day-{number:03d}", rate)
        report = await Run(options, around, target, topology, say, traffic).run()
    finally:
        await target.close()
    day = kept.days[-1]
    row = row_of(day, plan, report, around.seen, number)
    kept.note(replace(day, whole=not row["problems"]))
    return row


def row_of(day: Written, plan: Sequence[Step], report: Report, seen: Sampling, number: int) -> dict[str, Any]:
    """Recorded part of a day."""
    moments = seen.moments
    names = list(moments[0].joined)
    ids = sorted({shard for each in moments for shard in each.ids}, key=int)
    latency, wall_s = report.latency, moments[-1].at_s - moments[0].at_s
    own = (moments[-1].own_s - moments[0].own_s) / wall_s
    columns: dict[str, Any] = {
        "at": [each.at_s for each in moments[1:]],
        "offered": steps([each.offered for each in moments]),
        **{f"joined {name}": steps([each.joined[name] for each in moments]) for name in names},
        **{f"wasted {name}": steps([each.wasted[name] for each in moments]) for name in names},
        **{name: steps([each.grown[name] for each in moments]) for name in SINCE_START},
        **{f"ids {shard}": [round(each.ids.get(shard, 0)) for each in moments[1:]] for shard in ids},
        **binned([each.wall_ns for each in moments], seen.follower.verdicts),
    }
    joined = sum(each.joined for each in seen.follower.verdicts)
    total = joined + latency.outstanding
    return {
        "kind": DAY, "id": f"{day.epoch_us // 1_000_000}", "began": began_of(day.epoch_us), "photon": __version__,
        "machine": machine(), "seed": day.seed, "minutes": day.seconds / 60, "rate": day.rate, "day": number + 1,
        "events": total, "within": {limit: round(share * total) for limit, share in latency.within.items()},
        "p50_p99_max_ms": [latency.overall.p50_ms, latency.overall.p99_ms, latency.overall.max_ms],
        "during": latency.during.count, "during_p50_p99_max_ms":
            [latency.during.p50_ms, latency.during.p99_ms, latency.during.max_ms],
        "outstanding": latency.outstanding, "settle_s": report.settle_s,
        "problems": problems(report.problems, len(plan)),
        "undone": [each.removeprefix(UNDONE) for each in report.problems if each.startswith(UNDONE)],
        "growing": [use.name for use in report.growing],
        "memory_mib": round(max(each.memory_mib for each in moments)),
        "own_cores": round(own, 2),
        "other_cores": round((moments[-1].busy_s - moments[0].busy_s) / wall_s - own, 2),
        "faults": [[step.at_s, step.for_s, step.do, step.words()] for step in plan],
        "columns": columns, "away": [_away(seen.seen, step) for step in plan if step.do is Do.AWAY],
    }  # fmt: skip


def problems(said: Sequence[str], faults: int) -> list[str]:
    """Broken invariants. A day on which few faults could be done says nothing about them."""
    found = [each for each in said if not each.startswith(UNDONE)]
    undone = len(said) - len(found)
    return found if 2 * undone <= faults else [*found, f"{undone} of {faults} faults could not be done"]


def began_of(epoch_us: int) -> str:
    """Formatted for people."""
    return datetime.fromtimestamp(epoch_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M")


def _away(seen: Mapping[str, Sequence[Seen]], step: Step) -> dict[str, Any]:
    """Lines by which the returned datacentre is behind the furthest one, over the seconds since its return."""
    [lost] = step.target
    behind = [
        (round(each[0].at_s - step.end_s, 1), max(one.read for one in each) - mine.read)
        for each, mine in zip(zip(*seen.values(), strict=False), seen[lost], strict=False)
        if step.at_s - RETURN_S <= each[0].at_s <= step.end_s + RETURN_S
    ]
    return {"datacentre": lost, "at": [at for at, _ in behind], "behind": [lines for _, lines in behind]}
