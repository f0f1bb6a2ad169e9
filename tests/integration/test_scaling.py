"""Joiners come and go while events flow, and nothing is restarted; every event exactly once."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import orjson

from photon.config.loader import load
from photon.fleet.ledger import read_ledger
from photon.lab.demo.check import records
from photon.supervision.deployment import Deployment
from photon.supervision.ports import free_ports
from photon.supervision.supervisor import Supervisor
from tests.deployments import deployment, join
from tests.integration.commands import drawn_seed, photon, running
from tests.integration.rig import READY_S

ROUNDS = 10 if os.environ.get("PHOTON_FULL") else 1
LOGS = 24
QUERIES = 200
WAIT_S = 120.0  # much more than needed on a quiet machine
TOP = """\
[clock]
uncertainty = "1s"
[limits]
batch_events = 100
[joiner]
adopt_after = "4s"
"""


def _append(log: Path, lines: str) -> None:
    with open(log, "a") as file:
        file.write(lines)


def _joiners_up(said: dict[str, Any]) -> set[str]:
    return {each["process"] for each in said["processes"] if each["service"] == "joiner" and each["up"]}


class Site:
    """One datacentre that names no joiner."""

    def __init__(self, base: Path, seed: int, stack: ExitStack) -> None:
        self.base = base
        self.random = random.Random(seed)
        self.stack = stack
        self.clicks: list[str] = []
        joined = join('unmatched_after = "2s"', key="query", event_id="click", time="time_us", unit="us")
        self.file = deployment(base, joined, "eventstore", "verifier", top=TOP)
        for name in ("output", "state"):
            (base / name).mkdir()
        lines = (f'{{"query":"q{n}","text":"{n}"}}\n' for n in range(QUERIES))
        (base / "queries" / "q.log").write_text("".join(lines))
        made = Deployment(self.file, load(self.file, environment={}), base / "run")
        self.services = made.services()
        self.supervisor = Supervisor()
        self.processes: list[subprocess.Popen[bytes]] = []

    def joiner(self) -> subprocess.Popen[bytes]:
        """One that finds its place by itself."""
        (port,) = free_ports(1)
        number = len(self.processes)
        process = self.stack.enter_context(
            running(
                "serve", "joiner", "auto", "--config", self.file, "--datacentre", "east",
                "--listen", f"0.0.0.0:{port}", "--address", f"127.0.0.1:{port}",
                log=self.base / f"{number}-joiner.log",
            )
        )  # fmt: skip
        self.processes.append(process)
        return process

    async def feed(self, stop: asyncio.Event) -> None:
        """Clicks in many logs until ``stop``."""
        while not stop.is_set():
            for log in self.random.sample(range(LOGS), 4):
                now_us = time.time_ns() // 1000
                fresh = [f"c{len(self.clicks) + at}" for at in range(30)]
                self.clicks += fresh
                lines = (
                    f'{{"click":"{click}","query":"q{self.random.randrange(QUERIES)}","time_us":{now_us}}}\n'
                    for click in fresh
                )
                _append(self.base / "clicks" / f"{log}.log", "".join(lines))
            await asyncio.sleep(0.2)

    def written(self, since: Counter[str] | None = None) -> Counter[str]:
        """Bytes in the output of each slot, or its growth."""
        found: Counter[str] = Counter()
        for path in (self.base / "output" / "joined").glob("*"):
            found[path.name.rpartition("-")[0]] += path.stat().st_size
        return found if since is None else found - since

    async def until(self, what: str, true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not true():
            assert time.monotonic() < deadline, f"not {what}\n{self.said()}"
            await asyncio.sleep(0.1)

    def said(self) -> str:
        logs = [*self.base.glob("*.log"), *(self.base / "run" / "logs").glob("*")]
        return "\n".join(f"{path.name}: {path.read_text()[-1500:]}" for path in sorted(logs))

    def joiners_shown(self) -> set[str]:
        """By ``photon status``, as up."""
        shown = photon("status", "--config", self.file, "-o", "json")
        (said,) = orjson.loads(shown.out)["datacentres"]
        return _joiners_up(said)

    def joiners_on_top(self) -> set[str]:
        """By ``photon status top``, as up."""
        shown = photon("status", "top", "--config", self.file, "--every", "0.5", "-o", "json")
        return _joiners_up(orjson.loads(shown.out))

    def settled(self) -> bool:
        ledger = read_ledger(self.base / "state")
        if ledger["read"] < len(self.clicks) or ledger["pending"]:
            return False
        return sum(1 for _ in records(self.base / "output" / "joined")) >= len(self.clicks)  # slots left are redone

    def verify(self) -> None:
        ledger = read_ledger(self.base / "state")
        assert ledger["joined"] == ledger["read"] == len(self.clicks), self.said()
        joined = Counter(record["event_id"] for record in records(self.base / "output" / "joined"))
        assert joined == Counter(self.clicks)


async def scaled(site: Site) -> None:
    """First one; then more, then fewer."""
    await site.supervisor.start(site.services)
    first = site.joiner()
    await site.supervisor.ready(READY_S)
    stop = asyncio.Event()
    feeding = asyncio.create_task(site.feed(stop))
    await site.until("joined by one joiner", lambda: set(site.written()) == {"east-auto-1"})

    joiners = [site.joiner() for _ in range(3)]
    names = {f"east-auto-{number}" for number in (1, 2, 3, 4)}
    await site.until("spread over new joiners", lambda: set(site.written()) == names)
    await site.until("all joiners are shown", lambda: site.joiners_shown() == names)
    await site.until("all joiners are on top", lambda: site.joiners_on_top() == names)

    killed, ended = joiners[0], joiners[1]
    killed.kill()
    ended.send_signal(signal.SIGTERM)
    await site.until("ended in order", lambda: ended.poll() == 0)
    before = site.written()
    await site.until("gone on without them", lambda: len(site.written(before)) >= 2)

    again = site.joiner()  # at another port, in an abandoned slot
    before = site.written()
    await site.until("followed to a new address", lambda: len(site.written(before)) >= 3)
    stop.set()
    await feeding
    await site.until("settled", site.settled)
    assert all(each.poll() is None for each in (first, again, joiners[2])), site.said()
    shown = photon("status", "slots", "--config", site.file, "-o", "json")
    listed = {each["slot"]: each for each in orjson.loads(shown.out)["slots"]}
    assert set(listed) == names, listed  # nobody needed a new name
    for process in site.processes:
        process.send_signal(signal.SIGTERM)
    await site.until("all ended", lambda: all(each.poll() is not None for each in site.processes))


async def test_joiners_come_and_go(tmp_path: Path) -> None:
    for round_ in range(ROUNDS):
        base = tmp_path / str(round_)
        base.mkdir()
        with ExitStack() as stack:
            site = Site(base, drawn_seed() + round_, stack)
            try:
                await scaled(site)
            finally:
                await site.supervisor.stop()
            site.verify()


def test_a_free_slot_needs_an_address(tmp_path: Path) -> None:
    with ExitStack() as stack:
        site = Site(tmp_path, 1, stack)
    done = photon("serve", "joiner", "auto", "--config", site.file)
    assert done.code == 2
    assert done.err.startswith("photon: joiner auto needs --address HOST:PORT"), done.err
    done = photon("serve", "joiner", "auto", "--config", site.file, "--listen", "0.0.0.0:7101")
    assert done.code == 2
    assert "stands for all addresses; name a public one with --address" in done.err
