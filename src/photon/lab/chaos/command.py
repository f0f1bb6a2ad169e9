"""The commands of ``photon chaos``: a run on its own or an existing deployment, a single manual fault, and heal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
import orjson

from photon.config import runtime
from photon.config.loader import load as load_settings
from photon.config.settings import Settings
from photon.lab.chaos import disks, site
from photon.lab.chaos.api import INSTANT, ChaosFailed, Do, Step, Target, WrongScenario
from photon.lab.chaos.containers import ContainersTarget
from photon.lab.chaos.faults import Faults, heal
from photon.lab.chaos.processes import ProcessesTarget, libfaketime
from photon.lab.chaos.report import Report
from photon.lab.chaos.run import REPORT_NAME, Options, Run, plan
from photon.lab.chaos.scenario import Scenario, by_hand, load
from photon.lab.chaos.site import Site, Wanted
from photon.lab.chaos.topology import Topology, topology_of
from photon.lab.chaos.watch import Containers, ContainersWatch, Processes, Watch, Watching
from photon.lab.demo.deployment import DemoDeployment, Shape
from photon.supervision.run_directory import run_directory

T = TypeVar("T")
RANDOM_EVERY_S, RANDOM_LONGEST_S, RANDOM_SECONDS, RANDOM_RATE = 15.0, 10.0, 180.0, 50
DISK_REPLICA = "r5"  # the replica whose directory is a small file system if random faults may fill one


@dataclass(frozen=True, slots=True)
class Where:
    config: Path
    run: Path | None = None
    project: str | None = None  # the docker-compose project; None for processes under photon up
    compose: Path = Path("docker-compose.yml")


@dataclass(frozen=True, slots=True)
class Wishes:
    scenario: str | None  # None means random faults
    seed: int | None
    minutes: float | None
    rate: int | None
    config: Path | None
    run: Path | None
    own_traffic: bool
    directory: Path | None
    joiners: int
    spark: bool
    project: str | None = None
    compose: Path = Path("docker-compose.yml")


def planned(wishes: Wishes) -> tuple[Scenario, list[Step], int]:
    """Makes the plan without starting anything. Raises UsageError."""
    scenario, seed = _scenario(wishes), _seed(wishes)
    with tempfile.TemporaryDirectory(prefix="photon-chaos-") as made:
        if wishes.config is not None:
            settings = load_settings(wishes.config, environment=os.environ)
        else:
            shape = Shape(joiners=wishes.joiners, replicas=site.REPLICAS)
            settings = DemoDeployment(Path(made), shape).deployment.settings
    able = set(Do)
    if wishes.config is not None or not disks.can_mount():
        able -= set() if any(step.do is Do.DISK for step in scenario.steps) else {Do.DISK}
    fillable = [f"registry {DISK_REPLICA}"] if wishes.config is None and disks.can_mount() else []
    if libfaketime() is None:
        able.discard(Do.CLOCK)
    return scenario, plan(scenario, seed, topology_of(settings), frozenset(able), fillable), seed


def carry_out(wishes: Wishes, say: Callable[[str], None]) -> tuple[Report, Path]:
    """Runs the plan; returns the report and the directory with all its files. Raises PhotonError, OSError."""
    scenario, seed = _scenario(wishes), _seed(wishes)
    say(f"scenario {scenario.name}, seed {seed}")
    directory = (wishes.directory or Path(tempfile.mkdtemp(prefix="photon-chaos-"))).absolute()
    if wishes.config is not None and wishes.project is not None:
        where = Where(wishes.config, None, wishes.project, wishes.compose)
        report = runtime.run(_run_containers(Options(scenario, seed, directory, 0), where, say))
        return _kept(report, directory)
    with contextlib.ExitStack() as stack:
        if wishes.config is not None:
            file = wishes.config.absolute()
            found = Site(file, load_settings(file, environment=os.environ), run_directory(file, wishes.run))
        else:
            wanted = Wanted(joiners=wishes.joiners, disks=_disks(scenario))
            found = stack.enter_context(site.running(directory, wanted, say))
        rate = wishes.rate or scenario.rate
        options = Options(scenario, seed, directory, rate if wishes.own_traffic else 0)
        report = runtime.run(_run(options, found, own_logs=wishes.own_traffic, spark=wishes.spark, say=say))
    return _kept(report, directory)


def _kept(report: Report, directory: Path) -> tuple[Report, Path]:
    (directory / REPORT_NAME).write_bytes(orjson.dumps(as_json(report), option=orjson.OPT_INDENT_2))
    return report, directory


def as_json(report: Report) -> dict[str, object]:
    return {"version": 1, "good": report.good, **asdict(report), "growing": [use.name for use in report.growing]}


def one_fault(
    where: Where, do: str, targets: Sequence[str], lasts: float | None, options: Mapping[str, object]
) -> str:
    """Applies a single manual fault; returns a description. Without ``lasts`` it stays until ``heal_all``. Raises
    PhotonError."""
    kind = Do(do)
    if kind is Do.CLOCK and lasts is None:
        raise WrongScenario("clock: needs --for; after that time the process restarts with the right clock")
    if kind is Do.LOSS and lasts is None:
        raise WrongScenario("loss: needs --for; connections are reset repeatedly while this command runs")
    # A kill without a time is over at once; other faults stay until healed.
    step = by_hand(kind, targets, 0.0 if kind in INSTANT else lasts or (0.0 if kind is Do.KILL else 1.0), **options)

    async def done(target: Target, topology: Topology, watch: Watching) -> str:
        topology.check(step)
        faults = Faults(target, topology, watch.leader, None)
        try:
            what = await faults.begin(0, step)
            if lasts is None:
                return f"{do}: {what}".strip()
            await asyncio.sleep(lasts)
        finally:
            if lasts is not None:
                problems = await faults.heal()
        if problems:
            raise ChaosFailed(problems[0])
        return f"{do}: {what}, healed after {lasts:g} s"

    return _at(where, done)


def heal_all(where: Where) -> list[str]:
    """Reverts faults applied by hand or left by a killed run; returns descriptions. Raises PhotonError."""

    settings = load_settings(where.config, environment=os.environ)

    async def healed(target: Target, topology: Topology, watch: Watching) -> list[str]:
        del watch
        return await heal(target, list(topology.processes), None if settings.wan is None else settings.wan.round_trip)

    left = [f"a killed run left a small file system mounted: run photon down {where.config}, then umount {each}"
            for each in disks.mounted_below(where.config.absolute().parent)]  # fmt: skip
    try:
        said = _at(where, healed)
    except ChaosFailed as error:
        raise ChaosFailed("; ".join([str(error), *left])) from None
    return [*said, *left] or ["there was nothing to heal"]


def _at(where: Where, what: Callable[[Target, Topology, Watching], Awaitable[T]]) -> T:
    file = where.config.absolute()
    settings = load_settings(file, environment=os.environ)

    async def processes() -> T:
        found, topology = Site(file, settings, run_directory(file, where.run)), topology_of(settings)
        target = ProcessesTarget(file, settings, found.run, topology, own_logs=False, library=libfaketime())
        watch = Watch(found, target, None)
        try:
            return await what(target, topology, watch)
        finally:
            await watch.close()
            await target.close()

    async def containers() -> T:
        target = _containers(where, settings)
        return await what(target, await target.topology(), ContainersWatch(target))

    return runtime.run(processes() if where.project is None else containers())


def _containers(where: Where, settings: Settings) -> ContainersTarget:
    compose = ("docker-compose", "-f", str(where.compose))
    return ContainersTarget(where.project or "", compose, settings)


async def _run_containers(options: Options, where: Where, say: Callable[[str], None]) -> Report:
    settings = load_settings(where.config, environment=os.environ)
    target = _containers(where, settings)
    around = Containers(where.project or "", target, list(settings.datacentre))
    return await Run(options, around, target, await target.topology(), say).run()


async def _run(options: Options, found: Site, *, own_logs: bool, spark: bool, say: Callable[[str], None]) -> Report:
    topology = topology_of(found.settings)
    target = ProcessesTarget(
        found.file, found.settings, found.run, topology, own_logs=own_logs, library=libfaketime()
    )
    try:
        return await Run(options, Processes(found, target, spark=spark), target, topology, say).run()
    finally:
        await target.close()


def _scenario(wishes: Wishes) -> Scenario:
    if wishes.scenario is None:
        seconds = RANDOM_SECONDS if wishes.minutes is None else wishes.minutes * 60
        return Scenario("random", "random faults", seconds, RANDOM_RATE, True, (), RANDOM_EVERY_S, RANDOM_LONGEST_S)
    found = load(wishes.scenario)
    if wishes.minutes is None:
        return found
    if found.steps:
        raise WrongScenario(f"--minutes only works with random faults; scenario {found.name} has a fixed duration")
    return msgspec.structs.replace(found, seconds=wishes.minutes * 60)


def _seed(wishes: Wishes) -> int:
    return wishes.seed if wishes.seed is not None else random.SystemRandom().randrange(1 << 30)


def _disks(scenario: Scenario) -> tuple[str, ...]:
    """Returns the replicas that need a small file system. Raises ChaosFailed if none can be mounted."""
    named = {name.removeprefix("registry ") for step in scenario.steps if step.do is Do.DISK for name in step.target}
    if named and not disks.can_mount():
        raise ChaosFailed("disk: mounting a small file system needs root; run this as root")
    if scenario.every_s is not None and disks.can_mount():
        named.add(DISK_REPLICA)
    return tuple(sorted(named & set(site.REPLICAS)))
