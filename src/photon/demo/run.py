"""The demo: a live stream into growing logs, joined by real processes that are killed on the way, then verified."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from photon.config.errors import PhotonError
from photon.demo.check import Findings, check
from photon.demo.deployment import DATACENTRE, Deployment
from photon.demo.feed import Feed
from photon.demo.generator import Disorder, Generator
from photon.demo.observe import Observation, Observer, leader
from photon.embedded.status import balances
from photon.embedded.supervisor import Supervisor

READY_S = 60.0
SETTLE_S = 90.0
"""After the last line: until each click must have its verdict."""
UNMATCHED_AFTER_S = 4.0
KILLS = ((0.35, "joiner"), (0.65, "leader"))
"""When, as a share of the stream's time, and whom."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """How long, how much, and whether anything is killed."""

    directory: Path
    seconds: float = 12.0
    rate: int = 500
    """Clicks a second; there are ten times as many queries."""
    seed: int = 1
    kill: bool = True


@dataclass(slots=True)
class Report:
    """How it went."""

    findings: Findings
    ledger: dict[str, int]
    problems: list[str] = field(default_factory=list)
    kills: list[str] = field(default_factory=list)
    latencies_ms: tuple[float, float, float] = (0.0, 0.0, 0.0)
    lines: int = 0
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        """Every click exactly once, contents right, ledger balanced."""
        return not self.problems


class DemoFailed(PhotonError):
    """The demo could not be run to its end."""


async def run(options: DemoOptions, *, say: Callable[[str], None], show: Callable[[Observation], None]) -> Report:
    """Runs the demo. ``say`` is told what happens, ``show`` what it looks like, several times a second."""
    began = time.monotonic()
    generator = Generator(
        options.seed,
        clicks=max(1, int(options.seconds * options.rate)),
        seconds=options.seconds,
        disorder=Disorder(),
        epoch_us=time.time_ns() // 1000,
    )
    lines = sorted(generator.lines(), key=lambda line: line.at_us)
    deployment = Deployment(options.directory, unmatched_after_s=UNMATCHED_AFTER_S)
    deployment.write()
    supervisor = Supervisor()
    say(f"starting {len(deployment.services())} processes: 3 registry replicas, event store, joiner, dispatcher")
    try:
        await supervisor.start(deployment.services())
        await supervisor.ready(READY_S)
        say(f"all up after {time.monotonic() - began:.1f} s; {len(lines):,} lines follow in {options.seconds:g} s")
        feed = Feed(lines, deployment.primary, deployment.foreign)
        observer = Observer(deployment)
        feeding = asyncio.create_task(feed.run())
        kills = asyncio.create_task(_kill(supervisor, deployment, options, say)) if options.kill else None
        watching = asyncio.create_task(_watch(observer, feed, show))
        try:
            await feeding
            killed = await kills if kills else []
            say("all written; waiting until each click has its verdict")
            await _settled(observer, generator.truth.lines)
        finally:
            watching.cancel()
            for task in (feeding, kills):
                if task is not None:
                    task.cancel()
    finally:
        await supervisor.stop()
    findings = check([deployment.output], generator.truth)
    ledger = observer.ledger()
    report = Report(findings, ledger, list(findings.problems), killed, lines=len(lines))
    report.problems += _ledger_problems(ledger, generator)
    report.latencies_ms = observer.latencies(feed)
    report.seconds = time.monotonic() - began
    return report


async def _watch(observer: Observer, feed: Feed, show: Callable[[Observation], None]) -> None:
    while True:
        show(await observer.observe(feed))
        await asyncio.sleep(0.25)


async def _kill(
    supervisor: Supervisor, deployment: Deployment, options: DemoOptions, say: Callable[[str], None]
) -> list[str]:
    """kill -9 of the joiner, then of the replica that leads the first shard."""
    began = time.monotonic()
    killed = []
    for share, whom in KILLS:
        await asyncio.sleep(max(0.0, began + share * options.seconds - time.monotonic()))
        name = f"joiner {DATACENTRE}-1" if whom == "joiner" else f"registry {await leader(deployment)}"
        pid = supervisor.kill(name)
        what = f"{name} (pid {pid})" + (", the leader" if whom == "leader" else "")
        say(f"kill -9 {what}")
        killed.append(what)
    return killed


async def _settled(observer: Observer, lines: int) -> None:
    deadline = time.monotonic() + SETTLE_S
    while True:
        ledger = observer.ledger()
        if ledger["read"] == lines and ledger["pending"] == 0 and await observer.idle():
            return
        if time.monotonic() > deadline:
            raise DemoFailed(
                f"not every click has its verdict {SETTLE_S:g} s after the last line: {ledger} of {lines} lines; "
                "the logs of the processes are in the folder 'logs' of the demo's directory"
            )
        await asyncio.sleep(0.1)


def _ledger_problems(ledger: dict[str, int], generator: Generator) -> list[str]:
    truth = generator.truth
    problems = [] if balances(ledger) else [f"the ledger does not balance: {ledger}"]
    expected = {
        "read": truth.lines,
        "joined": len(truth.joined),
        "unmatched": len(truth.unmatched),
        "rejected": truth.malformed,
        "duplicate": truth.duplicates,
    }
    problems += [
        f"the ledger says {name} {ledger[name]}, the truth is {count}"
        for name, count in expected.items()
        if ledger[name] != count
    ]
    return problems


def default_directory() -> Path:
    """Where the demo keeps its files when none is named."""
    return Path(os.environ.get("TMPDIR", "/tmp")) / f"photon-demo-{os.getpid()}"
