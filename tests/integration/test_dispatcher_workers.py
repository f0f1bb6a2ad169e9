"""Three workers share one state: 200 logs and a huge one, kill -9 and SIGSTOP beyond the lease; exact to the line."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from photon.config.loader import load
from photon.fleet.ledger import read_ledger
from photon.lab.demo.check import records
from photon.lab.demo.deployment import Shape
from photon.supervision.deployment import Deployment
from photon.supervision.supervisor import Watching
from tests.deployments import deployment, join
from tests.integration.commands import drawn_seed, photon
from tests.integration.rig import READY_S, Rig
from tests.integration.supervised import supervised

ROUNDS = 20 if os.environ.get("PHOTON_FULL") else 1
WORKERS = ("w1", "w2", "w3")
LOGS = 200
LINES = 12
"""Of each log."""
HUGE_LINES = 3_000
LEASE_S = 2.0
SETTLE_S = 120.0
QUERIES = 500


@dataclass
class Truth:
    """What the ledger has to say in the end; ``joined`` and ``unmatched``: ids of clicks."""

    joined: set[str] = field(default_factory=set)
    unmatched: set[str] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)


class Clicks:
    """Lines of clicks, some of them twice, without a query, or no clicks at all."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.truth = Truth()
        self._now_us = time.time_ns() // 1000
        self._lines: list[str] = []

    def line(self) -> str:
        random, truth = self.random, self.truth
        truth.counts["read"] += 1
        mood = random.random()
        if mood < 0.01:
            truth.counts["rejected"] += 1
            return f"no click {random.randrange(1 << 40)}"
        if mood < 0.02 and self._lines:
            truth.counts["duplicate"] += 1
            return random.choice(self._lines)
        click = f"c{truth.counts['read']}"
        missing = mood < 0.04
        (truth.unmatched if missing else truth.joined).add(click)
        truth.counts["unmatched" if missing else "joined"] += 1
        query = "nobody" if missing else f"q{random.randrange(QUERIES)}"
        line = f'{{"click":"{click}","query":"{query}","time_us":{self._now_us},"more":"{"x" * 40}"}}'
        self._lines.append(line)
        return line

    def lines(self, count: int) -> bytes:
        return "".join(self.line() + "\n" for _ in range(count)).encode()


def _append(log: Path, data: bytes) -> None:
    with open(log, "ab") as file:
        file.write(data)


class Fleet:
    """A deployment of one datacentre whose dispatcher is three workers."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory = directory
        self.clicks = Clicks(seed)
        self.random = random.Random(seed)
        for name in ("clicks/deep", "output", "state"):
            (directory / name).mkdir(parents=True)
        joined = join('unmatched_after = "2s"', key="query", event_id="click", time="time_us", unit="us")
        services = ("eventstore", "joiners.east-1", *(f"dispatchers.{name}" for name in WORKERS))
        top = f'[clock]\nuncertainty = "1s"\n[dispatcher]\nlease = "{LEASE_S}s"\nsplit = "100KiB"\n'
        self.file = deployment(directory, joined, *services, top=top)
        queries = "".join(f'{{"query":"q{n}","text":"{n}"}}\n' for n in range(QUERIES))
        (directory / "queries" / "q.log").write_text(queries)
        self.deployment = Deployment(self.file, load(self.file, environment={}), directory / "run")

    async def run(self) -> None:
        async with supervised(self.deployment, Watching()) as self.supervisor:
            await self.supervisor.start(self.deployment.services())
            await self.supervisor.ready(READY_S)
            self._put_huge()  # all workers are there: whoever takes it cuts it
            feeding = asyncio.create_task(self._feed())
            await self._drill()
            await feeding
            await self._settled()
        self._verify()

    def _put_huge(self) -> None:
        new = self.directory / "clicks" / "huge.tmp"
        new.write_bytes(self.clicks.lines(HUGE_LINES))
        new.rename(new.with_suffix(".log"))

    async def _feed(self) -> None:
        """All logs grow in a few rounds."""
        names = [f"{'deep/' if n % 2 else ''}{n:03}.log" for n in range(LOGS)]
        for lines in (1, 2, 4, LINES - 7):
            self.random.shuffle(names)
            for at, name in enumerate(names):
                _append(self.directory / "clicks" / name, self.clicks.lines(lines))
                if at % 20 == 0:
                    await asyncio.sleep(0.05)

    async def _drill(self) -> None:
        """One is killed, another stopped for longer than the lease, both at random moments; and once more."""
        for _ in range(2):
            killed, stopped = self.random.sample(WORKERS, 2)
            await asyncio.sleep(self.random.uniform(0.0, 1.0))
            print(f"SIGSTOP {stopped} {self.supervisor.pause(f'dispatcher east {stopped}')}")
            await asyncio.sleep(self.random.uniform(0.0, 1.0))
            print(f"kill -9 {killed} {self.supervisor.kill(f'dispatcher east {killed}')}")
            await asyncio.sleep(LEASE_S * self.random.uniform(1.5, 2.0))
            self.supervisor.resume(f"dispatcher east {stopped}")

    async def _settled(self) -> None:
        deadline = time.monotonic() + SETTLE_S
        expected = self.clicks.truth.counts
        while True:
            ledger = read_ledger(self.directory / "state")
            assert ledger["read"] - ledger["pending"] == sum(
                ledger[name]
                for name in ("joined", "unmatched", "rejected", "duplicate", "late", "elsewhere", "filtered")
            )
            if ledger["read"] >= expected["read"] and not ledger["pending"]:
                return
            assert time.monotonic() < deadline, f"{ledger}, expected {expected}; {self._said()}"
            await asyncio.sleep(0.2)

    def _said(self, last: int = 2000) -> str:
        return "\n".join(path.read_text()[-last:] for path in sorted((self.directory / "run" / "logs").glob("disp*")))

    def _verify(self) -> None:
        truth, output = self.clicks.truth, self.directory / "output"
        ledger = read_ledger(self.directory / "state")
        assert {name: ledger[name] for name in truth.counts} == truth.counts, self._said()
        assert ledger["late"] == ledger["elsewhere"] == ledger["filtered"] == ledger["pending"] == 0
        joined = Counter(record["event_id"] for record in records(output / "joined"))
        unmatched = Counter(record["event_id"] for record in records(output / "unmatched"))
        assert joined == Counter(truth.joined)
        assert unmatched == Counter(truth.unmatched)
        places = Counter((r["source"]["file"], r["source"]["offset"]) for r in records(output / "rejected"))
        assert set(places.values()) == {1}
        assert len(places) == truth.counts["rejected"]
        shown = photon("status", "ledger", "--config", self.file, "--datacentre", "east", "-o", "json")
        assert shown.code == 0, shown.err
        said = self._said(1 << 30)
        assert "is read in parts" in said
        assert "begins anew" in said  # who was stopped found out


@pytest.mark.parametrize("round_", range(ROUNDS))
async def test_every_line_once_whoever_is_killed_or_stands_still(tmp_path: Path, round_: int) -> None:
    await Fleet(tmp_path, drawn_seed()).run()


TWO = Shape(joiners=1, workers=2, round_trip_s=None)
PATIENT = replace(TWO, head_start_s=5.0)
"""No home is so late because it waits for a core: what comes twice all the same was nobody's or both's."""


async def workers_fail(rig: Rig) -> None:
    """Two of four are killed, a third one is stopped beyond its lease."""
    names = [f"dispatcher {datacentre} w{n}" for datacentre in ("east", "west") for n in (1, 2)]
    rig.random.shuffle(names)
    for name in names[:2]:
        await rig.pause(0.0, 1.5)
        await rig.kill(name)
    await rig.freeze(names[2], 5.0)


async def no_trouble(rig: Rig) -> None:
    """All is well."""


async def test_workers_share_with_other_datacentres_as_one_dispatcher(tmp_path: Path) -> None:
    rig = Rig(tmp_path, drawn_seed(), seconds=4.0, shape=PATIENT)
    await rig.run(no_trouble)
    ledgers = rig.observer.ledgers()
    joined = sum(ledger["joined"] for ledger in ledgers.values())
    for ledger in ledgers.values():
        assert ledger["joined"] > 0.25 * joined, ledgers
        assert ledger["wasted"] < 0.1 * joined, ledgers


@pytest.mark.parametrize("round_", range(ROUNDS))
async def test_two_datacentres_whose_workers_fail(tmp_path: Path, round_: int) -> None:
    await Rig(tmp_path, drawn_seed(), seconds=6.0, shape=TWO).run(workers_fail)
