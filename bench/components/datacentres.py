"""``make bench-datacentres``: two datacentres and one registry of three replicas, as ``photon up`` would start them.

Three scenes, each with real processes on fresh state; logs are generated before anything is timed.

- catch-up: ``east`` joins a backlog alone; then ``west`` starts from nothing over a copy of the same logs, whose
  events are all registered already. Goal: at least five times the speed of joining.
- backlog: both start on the same backlog at once. Measures how much they join twice, and their combined speed.
- live: a steady feed into both. Goal: below 5 % wasted, and each joins about half (paper, figures 9 and 12).

Absolute figures differ between machines: compare within one run, and quote medians.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.generated_logs import write
from photon.config.loader import load
from photon.dispatcher.database import read_ledger
from photon.dispatcher.errors import StateError
from photon.fleet.counters import EMPTY
from photon.fleet.ledger import ledger_file
from photon.fleet.processes import KINDS
from photon.lab.demo.feed import Feed, Logs
from photon.lab.demo.generator import Disorder, Generator, Line
from photon.supervision.deployment import Deployment
from photon.supervision.health import Health, ask_health
from photon.supervision.ports import free_ports
from photon.supervision.routes import routes_needed, routes_of, write_routes
from photon.supervision.supervisor import Service, Supervisor

NAMES = ("east", "west")
REPLICAS = {"r1": "east", "r2": "west", "r3": "third"}
SAMPLE_S = 0.02
SCENE_S = 120.0  # no scene takes longer
FILES = 20
Scene = Callable[["Site"], Awaitable[dict[str, object]]]


@dataclass(slots=True)
class Progress:
    """Samples of a ledger, from the moment its datacentre was started."""

    samples: list[tuple[float, int]] = field(default_factory=list)  # (seconds, events with a verdict)
    ledger: dict[str, int] = field(default_factory=dict)
    cpu_s: dict[str, float] = field(default_factory=dict)
    served_s: float = 0.0  # when its dispatcher reported that it serves

    @property
    def with_start_up(self) -> float:
        """Events a second, from the start of the processes."""
        took, done = self.samples[-1]
        return done / took

    @property
    def speed(self) -> float:
        """Events a second since its dispatcher began to serve.

        Not since its first commit, because the events behind one slow event are all committed with it.
        """
        took, done = self.samples[-1]
        return done / (took - self.served_s)


class Site:
    """One deployment on this machine, its processes under a supervisor."""

    def __init__(self, root: Path, *, joiners: int, round_trip_s: float) -> None:
        self.root = root
        for name in NAMES:
            for directory in ("queries", "clicks", "output", "state"):
                (root / name / directory).mkdir(parents=True, exist_ok=True)
        (root / "key").write_bytes(b"k" * 32)
        file = root / "photon.toml"
        file.write_text(_toml(joiners, round_trip_s))
        settings = load(file, environment={})
        routes = routes_of(settings, free_ports(routes_needed(settings)) if settings.wan else ())
        self.deployment = Deployment(file, settings, root / "run", routes)
        if routes:
            self.deployment.run.mkdir()
            write_routes(self.deployment.routes_file, routes)
        self.supervisor = Supervisor()

    async def start(self, *datacentres: str) -> None:
        """Starts the pipelines of these datacentres; without any, the shared services."""
        services = self.deployment.services()
        if datacentres:
            chosen = [s for s in services if s.datacentre in datacentres and _noun(s) not in ("registry", "wan")]
        else:
            chosen = [s for s in services if _noun(s) in ("registry", "wan")]
        await self.supervisor.start(chosen)
        if not datacentres:
            await self.supervisor.ready(60)

    def ledger(self, name: str) -> dict[str, int]:
        """Verdict counts of a datacentre's events so far; zeros before it has begun."""
        file = ledger_file(self.root / name / "state")
        if not file.exists():
            return dict(EMPTY)
        try:
            total = read_ledger(file).total
        except StateError:  # is just being created
            return dict(EMPTY)
        return total.as_dict() | total.apart()

    def cpu_s(self, name: str) -> dict[str, float]:
        """CPU seconds of each process that the datacentre needs, since its start."""
        out = {}
        for service in self.deployment.services():
            if service.datacentre == name or _noun(service) == "registry":
                try:
                    pid = self.supervisor.pid(service.name)
                except KeyError:
                    continue
                if pid is not None:
                    parts = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
                    out[service.name] = (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")
        return out

    async def follow(self, names: Sequence[str], clicks: int) -> dict[str, Progress]:
        """Samples the ledgers until each shows that all clicks are decided."""
        began = time.perf_counter()
        out = {name: Progress() for name in names}
        before = {name: self.cpu_s(name) for name in names}
        served = [asyncio.create_task(self._served(name, out[name], began)) for name in names]
        open_ = set(names)
        while open_:
            await asyncio.sleep(SAMPLE_S)
            for name in sorted(open_):
                ledger = self.ledger(name)
                done = ledger["read"] - ledger["pending"]
                took = time.perf_counter() - began
                out[name].samples.append((took, done))
                if done >= clicks:
                    open_.discard(name)
                    out[name].ledger = ledger
                    now = self.cpu_s(name)
                    out[name].cpu_s = {each: s - before[name].get(each, 0.0) for each, s in now.items()}
                elif took > SCENE_S:
                    raise SystemExit(f"{name} is not done after {SCENE_S:g} s: {ledger}; see {self.root / 'run'}")
            if (failure := self.supervisor.failure()) is not None:
                raise SystemExit(failure)
        await asyncio.gather(*served)
        return out

    async def _served(self, name: str, progress: Progress, began: float) -> None:
        address = self.deployment.settings.datacentre[name].at("dispatcher")[0]
        health = KINDS["dispatcher"].health
        while await ask_health(address, health, 1.0) is not Health.SERVING:  # noqa: ASYNC110 -- of another process
            await asyncio.sleep(SAMPLE_S)
        progress.served_s = time.perf_counter() - began

    async def stop(self) -> None:
        await self.supervisor.stop()


def _noun(service: Service) -> str:
    return service.name.split(" ")[0]


def _toml(joiners: int, round_trip_s: float) -> str:
    ports = iter(free_ports(len(REPLICAS) + len(NAMES) * (3 + joiners) + 1))
    text = """\
key_file = "key"
[join.clicks]
unmatched_after = "1h"
identical_copies = true
[join.clicks.primary]
format = "jsonl"
key = "query_id"
[join.clicks.foreign]
format = "jsonl"
key = "query_id"
id = "click_id"
time = { field = "time_us", unit = "us" }
[registry]
shards = 2
tolerate = 1
"""
    if round_trip_s:
        text += f'[wan]\ncontrol = "127.0.0.1:{next(ports)}"\nround_trip = {round_trip_s}\n'
    for name, datacentre in REPLICAS.items():
        text += f'[registry.replicas.{name}]\naddress = "127.0.0.1:{next(ports)}"\ndirectory = "registry/{name}"\n'
        text += f'datacentre = "{datacentre}"\n' if datacentre in NAMES else f'region = "{datacentre}"\n'
    for name in NAMES:
        text += f'[datacentre.{name}]\njoin = "clicks"\nprimary = "{name}/queries"\nforeign = "{name}/clicks"\n'
        text += f'output = "{name}/output"\nstate = "{name}/state"\nstatus = ""\n'
        text += f"joiners = {joiners}\n[datacentre.{name}.apart]\n"
        parts = {each: next(ports) for each in ("eventstore", "verifier", "dispatcher")}
        text += "".join(f'{part} = "127.0.0.1:{port}"\n' for part, port in parts.items())
        text += f"joiner = {[f'127.0.0.1:{next(ports)}' for _ in range(joiners)]}\n"
    return text


# -- scenes -------------------------------------------------------------------------------------------------------
def catch_up(options: argparse.Namespace, backlog: Path, clicks: int) -> dict[str, object]:
    """Runs ``east`` alone to its end, then ``west`` from scratch."""

    async def scene(site: Site) -> dict[str, object]:
        found: dict[str, Progress] = {}
        for name in NAMES:
            await site.start(name)
            found |= await site.follow([name], clicks)
            if name == "east" and not options.keep_east:
                for service in site.deployment.services():
                    if service.datacentre == name and _noun(service) != "registry":
                        site.supervisor.kill(service.name, hold=True)
        joined, caught = found["east"], found["west"]
        if caught.ledger["elsewhere"] + caught.ledger["duplicate"] != clicks:
            raise SystemExit(f"not all of it was done elsewhere: {caught.ledger}")
        return {
            "joining": joined.speed,
            "joining_with_start_up": joined.with_start_up,
            "catch_up": caught.speed,
            "catch_up_with_start_up": caught.with_start_up,
            "ratio": caught.speed / joined.speed,
            "ratio_with_start_up": caught.with_start_up / joined.with_start_up,
            "cpu_s_joining": joined.cpu_s,
            "cpu_s_catch_up": caught.cpu_s,
        }

    return _run(options, scene, backlog)


def both(options: argparse.Namespace, backlog: Path, clicks: int) -> dict[str, object]:
    """Runs both datacentres on the same backlog at once."""

    async def scene(site: Site) -> dict[str, object]:
        await site.start(*NAMES)
        found = await site.follow(NAMES, clicks)
        took = max(each.samples[-1][0] for each in found.values())
        return {"joined_with_start_up": clicks / took, **_shares({n: p.ledger for n, p in found.items()})}

    return _run(options, scene, backlog)


def live(options: argparse.Namespace) -> dict[str, object]:
    """Feeds ``rate`` clicks a second into both datacentres."""
    lines, clicks = _lines(int(options.rate * options.seconds), options, seconds=options.seconds)

    async def scene(site: Site) -> dict[str, object]:
        await site.start(*NAMES)
        await site.supervisor.ready(60)
        logs = {name: Logs(site.root / name / "queries", site.root / name / "clicks") for name in NAMES}
        await Feed(lines, logs).run()
        began = time.perf_counter()
        found = await site.follow(NAMES, clicks)
        shares = _shares({name: progress.ledger for name, progress in found.items()})
        return {"clicks_a_second": clicks / options.seconds, "drained_s": time.perf_counter() - began, **shares}

    return _run(options, scene, None)


def _shares(ledgers: Mapping[str, Mapping[str, int]]) -> dict[str, object]:
    """How the datacentres shared the work. ``wasted``: discarded joins as a share of those registered."""
    joined = {name: ledger["joined"] for name, ledger in ledgers.items()}
    total = sum(joined.values())
    out: dict[str, object] = {f"{name}_share": count / total for name, count in joined.items()}
    out["wasted"] = sum(ledger["wasted"] for ledger in ledgers.values()) / total
    return out


def _run(options: argparse.Namespace, scene: Scene, backlog: Path | None) -> dict[str, object]:
    """Runs one scene on fresh state. The logs are copied beforehand, so that nobody reads an unfinished copy."""
    root = Path(tempfile.mkdtemp(prefix="photon-bench-", dir=options.directory))
    try:
        site = Site(root, joiners=options.joiners, round_trip_s=options.round_trip_ms / 1000)
        for name in NAMES if backlog is not None else ():
            assert backlog is not None
            for side in ("queries", "clicks"):
                shutil.copytree(backlog / side, root / name / side, dirs_exist_ok=True)

        async def whole() -> dict[str, object]:
            try:
                await site.start()
                return await scene(site)
            finally:
                await site.stop()

        return asyncio.run(whole())
    finally:
        if not options.keep:
            shutil.rmtree(root, ignore_errors=True)


def _lines(clicks: int, options: argparse.Namespace, *, seconds: float) -> tuple[list[Line], int]:
    """Returns lines by arrival, and the number of clicks among them. No click waits until its patience ends."""
    disorder = Disorder(unmatched=0.0, malformed=0.0)
    generator = Generator(
        20, clicks=clicks, seconds=seconds, queries_per_click=options.queries, disorder=disorder, keep_truth=False
    )
    lines = sorted(generator.lines(), key=lambda line: line.at_us)
    return lines, sum(not line.primary for line in lines)


# -- what is printed ----------------------------------------------------------------------------------------------
def _table(results: Mapping[str, Sequence[Mapping[str, object]]]) -> None:
    for scene, runs in results.items():
        if not runs:
            continue
        print(f"\n{scene}: median of {len(runs)} run(s)")
        for name, first in runs[0].items():
            if isinstance(first, float):
                values = [float(str(run[name])) for run in runs]
                every = "  ".join(_figure(name, value) for value in values)
                print(f"  {name:<26}{_figure(name, statistics.median(values)):>14}   ({every})")
            elif isinstance(first, Mapping):
                print(f"  {name:<26}" + "  ".join(f"{each} {seconds:.1f}" for each, seconds in first.items()))


def _figure(name: str, value: float) -> str:
    if "share" in name or name == "wasted":
        return f"{value:.2%}"
    return f"{value:.2f}" if "ratio" in name or name.endswith("_s") else f"{value:,.0f}/s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", nargs="*", help="catch-up, backlog, live; all of them when none is named")
    parser.add_argument("--clicks", type=int, default=200_000, help="clicks in the backlog")
    parser.add_argument("--queries", type=int, default=10, help="queries per click")
    parser.add_argument("--joiners", type=int, default=1, help="joiners per datacentre")
    parser.add_argument("--round-trip-ms", type=float, default=0.0, help="round trip between any two regions")
    parser.add_argument("--rate", type=float, default=1000.0, help="live clicks a second")
    parser.add_argument("--seconds", type=float, default=15.0, help="duration of the live feed")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--keep-east", action="store_true", help="catch up next to a running datacentre")
    parser.add_argument("--keep", action="store_true", help="leave the directories")
    parser.add_argument("--directory", type=Path, help="working directory (default: a temporary one)")
    parser.add_argument("--json", type=Path, help="file for all figures")
    options = parser.parse_args()
    scenes = options.scenes or ["catch-up", "backlog", "live"]
    if unknown := set(scenes) - {"catch-up", "backlog", "live"}:
        parser.error(f"no such scene: {', '.join(sorted(unknown))}")
    root = Path(tempfile.mkdtemp(prefix="photon-bench-", dir=options.directory))
    results: dict[str, list[dict[str, object]]] = {scene: [] for scene in scenes}
    try:
        clicks = 0
        if {"catch-up", "backlog"} & set(scenes):
            lines, clicks = _lines(options.clicks, options, seconds=options.clicks / 10)
            written = write(lines, root / "logs", files=FILES)
            size = (written.primary_bytes + written.foreign_bytes) / 2**20
            print(f"backlog: {written.primary_records:,} queries, {clicks:,} clicks, {size:,.0f} MiB a copy")
            del lines
        print(f"{os.cpu_count()} cores, {len(REPLICAS)} registry replicas, {options.joiners} joiner(s) a datacentre, "
              f"{options.round_trip_ms:g} ms between regions", flush=True)  # fmt: skip
        for _ in range(options.runs):
            for scene in scenes:
                if scene == "live":
                    results[scene].append(live(options))
                else:
                    run = catch_up if scene == "catch-up" else both
                    results[scene].append(run(options, root / "logs", clicks))
                print(f"{scene}: {json.dumps(results[scene][-1])}", file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    _table(results)
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
