"""One compressed day of a deployment that is kept from day to day: load, faults, observations, a verdict.

Two datacentres of one process each and a third region, 100 ms apart, five replicas of the registry. After a day
everything ends in order, and the next one starts it again on the same state; its verdict covers everything ever
written. A day that was interrupted, or found wrong, is left as it is, and a new deployment is begun.
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
from statistics import median
from typing import Any

from bench.measure import cpu_s
from bench.results import BenchmarkFailed, machine
from bench.service_level.rows import DAY, SINCE_START, Grown, Judged, Row, absences, binned, steps
from bench.service_level.shape import faults, pace
from photon import __version__
from photon.config import runtime
from photon.config.loader import load as load_settings
from photon.config.tls import OPERATOR
from photon.fleet.access import tls_of
from photon.fleet.explain.inquiry import Asking, explain
from photon.fleet.explain.question import Question
from photon.fleet.numbers import Numbers
from photon.fleet.polling import Gatherer
from photon.fleet.processes import DATACENTRE, processes
from photon.lab.chaos import site
from photon.lab.chaos.api import ChaosFailed, Do, Step, Target
from photon.lab.chaos.processes import ProcessesTarget
from photon.lab.chaos.report import Report, Seen
from photon.lab.chaos.run import QUERIES_PER_CLICK, UNDONE, Options, Run
from photon.lab.chaos.scenario import Scenario
from photon.lab.chaos.site import Site, Wanted
from photon.lab.chaos.topology import topology_of
from photon.lab.chaos.traffic import Traffic
from photon.lab.chaos.watch import RESOURCES_S, Processes, Watch, Watching
from photon.lab.demo.feed import Logs
from photon.lab.demo.generator import Disorder, Generator, Truth
from photon.lab.latency import Follower, Verdict

Say = Callable[[str], None]
POINTS = 120  # recorded moments of a day
# Events after which a new deployment is begun: written lines are kept, and their truth is held in memory.
EVENTS_MAX = 3_000_000
SHARDS = (4, 2)  # a deployment begins with two; each day changes their number
ASK_S = 1.0
WAITS_S = Wanted().unmatched_after_s
WRITER_LATE_S = WAITS_S / 2  # if the writer stood still longer, an event may rightly be called unmatched
TRACES = 10
EXPLAIN_S = 60.0
BEFORE_NS = 15_000_000_000  # time for which a fault may be felt after its end
RETURN_S = 30.0  # time around a datacentre's absence that is kept in detail
DISORDER = Disorder(late_by=1.0, query_delay=0.4)
NOTE = "days.json"
# Kinds of processes without metrics of their own: those of a datacentre's parts are asked.
NOT_ASKED = ("wan", DATACENTRE)


@dataclass(frozen=True, slots=True)
class Written:
    """The parameters of a stream that was written into the deployment."""

    seed: int
    rate: int
    seconds: float
    epoch_us: int
    whole: bool  # completely written, and found correct

    def generator(self, truth: Truth) -> Generator:
        """Makes the generator of the stream, which adds to ``truth``."""
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
        """Continues the last deployment if possible; otherwise begins a new one and deletes complete old ones."""
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
        events = sum(day.rate * day.seconds for day in self.days)
        return 0 < events < EVENTS_MAX and all(day.whole for day in self.days)

    @staticmethod
    def _read(directory: Path) -> list[Written]:
        with suppress(FileNotFoundError):
            return [Written(**each) for each in json.loads((directory / NOTE).read_text())]
        return []

    def site(self) -> Site:
        """Returns the deployment, creating it if there is none."""
        if not self.days:
            return site.made(self.directory, Wanted(joiners=1, together=True))
        return Site(self.file, load_settings(self.file, environment=os.environ), self.directory / "run")

    def note(self, day: Written) -> None:
        """Atomically replaces the note about a day."""
        self.days = [*(each for each in self.days if each.epoch_us != day.epoch_us), day]
        new = self.directory / f"{NOTE}.new"
        new.write_text(json.dumps([{name: getattr(each, name) for name in Written.__slots__} for each in self.days]))
        new.replace(self.directory / NOTE)

    def truth(self) -> Truth:
        """Returns the truth of everything written into the deployment."""
        truth = Truth()
        for day in self.days:
            for _ in day.generator(truth).rounds():
                pass
        return truth


@dataclass(frozen=True, slots=True)
class Moment:
    """Counts since the beginning of the day, and gauges."""

    at_s: float
    wall_ns: int
    offered: int
    joined: Mapping[str, int]
    wasted: Mapping[str, int]
    grown: Mapping[str, float]
    ids: Mapping[str, float]
    memory_mib: float
    files: int  # memory and open files, each of the process that has most
    own_s: float
    others_s: float  # processor seconds of the deployment, and of all but it and this process


def busy_s() -> float:
    """Processor seconds of the machine since its start, over all cores but without this process."""
    user, nice, system, _, _, irq, soft = map(int, Path("/proc/stat").read_text().split()[1:8])
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK") - time.process_time()


class Sampling(Watch):
    """Watches processes like ``Watch``, and reads the metrics of all of them ``POINTS`` times a day."""

    def __init__(
        self, where: Site, target: Target, follower: Follower, truth: Truth, every_s: float, say: Say
    ) -> None:
        super().__init__(where, target, follower)
        self.follower, self._truth, self._every_s, self._say = follower, truth, every_s, say
        self._asked = [each for each in processes(where.settings) if each.address and each.kind not in NOT_ASKED]
        self._gatherer = Gatherer(tls_of(where.settings, where.file.parent, OPERATOR), ASK_S, details=False)
        self._grown = Grown()
        self._cpu: dict[int, float] = {}
        self._own_s = 0.0
        self._before = self._offered()
        self.began_ns = time.time_ns()  # wall time of second 0
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
            samples = [some[-1] for some in self.lives.values() if some[-1].at_s > self.now_s() - 2 * RESOURCES_S]
            self.moments.append(
                Moment(
                    round(self.now_s(), 2), time.time_ns(), self._offered() - self._before,
                    {name: kinds["joined"] for name, kinds in self.follower.lines.items()},
                    {name: each.wasted for name, each in last.items()},
                    dict(self._grown.total),
                    {shard: ids for shard, ids in numbers.by("shard", "photon_registry_ids").items() if shard != "0"},
                    max((each.memory for each in samples), default=0) / 2**20,
                    max((each.files for each in samples), default=0),
                    self._own_s, busy_s() - self._own_s,
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

    written: list[Traffic] = []

    def traffic(logs: Mapping[str, Logs]) -> Traffic:
        kept.note(day := Written(seed, rate, seconds, time.time_ns() // 1000, whole=False))
        written.append(Traffic(day.generator(truth), logs, stream=f"{number:03d}-"))
        return written[0]

    try:
        scenario = Scenario("day", "a compressed day", seconds, rate, True, tuple(plan))
        options = Options(scenario, seed, kept.directory / f"day-{number:03d}", rate)
        whole = Run(options, around, target, topology, say, traffic)
        report, seen = await whole.run(), around.seen
        check_writer(written[0].late_s)
        spans = [whole.spans[at] for at in range(len(plan))]
        judged = Judged(seen.follower.verdicts, absences(plan, spans, seen.seen, seen.began_ns))
        say(f"the traces of the slowest {TRACES}")
        traces = [await _trace(each, found, plan, spans) for each in judged.slowest(TRACES)]
    finally:
        await target.close()
    day = kept.days[-1]
    row = {**row_of(day, plan, report, seen, number), "late": judged.late(), "slowest": traces}
    kept.note(replace(day, whole=not row["problems"]))
    return row


def check_writer(late_s: float) -> None:
    """Checks that the writer never stalled. ``late_s``: longest time between two writes. Raises BenchmarkFailed."""
    if late_s > WRITER_LATE_S:
        raise BenchmarkFailed(f"not measured: the writer of logs stalled for {late_s:.1f} s; use a quieter machine")


def row_of(day: Written, plan: Sequence[Step], report: Report, seen: Sampling, number: int) -> dict[str, Any]:
    """Makes the row that records a day."""
    moments = seen.moments
    names = list(moments[0].joined)
    ids = sorted({shard for each in moments for shard in each.ids}, key=int)
    latency, wall_s = report.latency, moments[-1].at_s - moments[0].at_s
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
        "memory_mib": _begin_most_end([each.memory_mib for each in moments]),
        "files": _begin_most_end([each.files for each in moments]),
        "own_cores": round((moments[-1].own_s - moments[0].own_s) / wall_s, 2),
        "other_cores": round((moments[-1].others_s - moments[0].others_s) / wall_s, 2),
        "faults": [[step.at_s, step.for_s, step.do, step.words()] for step in plan],
        "columns": columns, "away": [_away(seen.seen, step) for step in plan if step.do is Do.AWAY],
    }  # fmt: skip


def _begin_most_end(values: Sequence[float]) -> list[int]:
    """Returns the median of the first tenth, the maximum, and the median of the last tenth."""
    tenth = max(1, len(values) // 10)
    return [round(each) for each in (median(values[:tenth]), max(values), median(values[-tenth:]))]


async def _trace(
    verdict: Verdict, found: Site, plan: Sequence[Step], spans: Sequence[tuple[int, int]]
) -> dict[str, Any]:
    """Describes a slow event: where it waited, what was wrong meanwhile, and its story from ``photon explain``."""
    base = found.file.parent
    asking = Asking(found.settings, base, tls_of(found.settings, base, OPERATOR), EXPLAIN_S, operator=True)
    story = await explain(asking, Question(verdict.event.encode()))
    return {
        "event": verdict.event, "datacentre": verdict.datacentre,
        "took_s": round((verdict.seen_ns - verdict.written_ns) / 1e9, 2),
        "until_joined_s": round((verdict.made_ns - verdict.written_ns) / 1e9, 2),
        "faults": [
            f"{step.words()} ({(begin - verdict.written_ns) / 1e9:+.1f} s)"
            for step, (begin, end) in zip(plan, spans, strict=True)
            if begin < verdict.seen_ns and end > verdict.written_ns - BEFORE_NS
        ],
        "steps": [f"{each.datacentre} {each.who}: {each.what}" for each in story.steps],
        "missing": story.missing,
    }  # fmt: skip


def problems(said: Sequence[str], faults: int) -> list[str]:
    """Returns broken invariants, and a problem if fewer than half of the faults could be injected."""
    found = [each for each in said if not each.startswith(UNDONE)]
    undone = len(said) - len(found)
    return found if 2 * undone <= faults else [*found, f"{undone} of {faults} faults could not be injected"]


def began_of(epoch_us: int) -> str:
    """Formats the time at which a stream began."""
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
