"""``photon up`` on a real HBase that is killed while it joins: every click exactly once, and no clock is blamed."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from deploy.hbase.standalone import Standalone
from photon.lab.demo.check import check, ledger_problems, records
from photon.lab.demo.deployment import DemoDeployment, Shape
from photon.lab.demo.feed import Feed, Logs
from photon.lab.demo.generator import Disorder, Generator
from photon.lab.demo.observe import Observer
from tests.integration.commands import photon
from tests.integration.rig import STEP_S

SECONDS = 6.0
WAIT_S = 120.0
SHAPE = Shape(("east",), joiners=1, round_trip_s=None, shards=1, replicas={"r1": "east"}, cache="1B")


class Site:
    """A deployment whose answers come from the map and the logs, and a live stream for it."""

    def __init__(self, directory: Path, hbase: Standalone, table: str) -> None:
        self.demo = DemoDeployment(directory, SHAPE)
        self.file = directory / "photon.toml"
        with self.file.open("a") as file:
            file.write(
                f'\n[datacentre.east.hbase]\nthrift = "127.0.0.1:{hbase.ports.thrift}"\n'
                f'admin = "127.0.0.1:{hbase.ports.admin}"\ntable = "{table}"\n'
            )
        disorder = Disorder(late_by=1.0, query_delay=0.4)
        self.generator = Generator(
            7, clicks=int(80 * SECONDS), seconds=SECONDS, disorder=disorder, epoch_us=time.time_ns() // 1000
        )
        lines = sorted(self.generator.lines(), key=lambda line: line.at_us)
        self.place = self.demo.places["east"]
        self.feed = Feed(lines, {"east": Logs(self.place.primary, self.place.foreign)}, step_s=STEP_S)
        self.observer = Observer(self.demo, self.feed)

    async def run(self, *arguments: str | Path, code: int = 0) -> str:
        result = await asyncio.to_thread(photon, *arguments, timeout=2 * WAIT_S)
        assert result.code == code, result.err
        return result.err

    async def up(self) -> None:
        await self.run("up", self.file, "--detach", "--timeout", str(WAIT_S))

    async def until(self, reached: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not reached():
            assert time.monotonic() < deadline, f"not within {WAIT_S:g} s: {what}"
            await asyncio.sleep(0.1)

    def joined(self) -> int:
        return sum(1 for _ in records(self.place.output / "joined"))

    def settled(self) -> bool:
        return self.observer.settled(self.generator.truth.lines)

    def problems(self) -> list[str]:
        truth = self.generator.truth
        return check([self.place.output], truth).problems + ledger_problems(self.observer.ledgers(), truth)

    def said(self, process: str) -> str:
        log = self.file.parent / ".photon-run" / "logs" / f"{process}.log"
        return log.read_text() if log.exists() else ""


@pytest.fixture
async def site(hbase: Standalone, tmp_path: Path) -> AsyncIterator[Site]:
    site = Site(tmp_path, hbase, f"photon_{tmp_path.name}")
    yield site
    await site.observer.close()
    await site.run("down", site.file)
    if hbase.pid("master") is None:  # only after a failure
        hbase.start()


async def test_hbase_is_killed_while_joining_and_photon_too(hbase: Standalone, site: Site) -> None:
    """First the table is missing; then HBase is killed, and Photon goes on; then Photon is ended while HBase is away,
    and started before it is back."""
    await site.up()
    missing = f"has no table photon_{site.file.parent.name}: create it with photon eventstore init"
    await site.until(lambda: missing in site.said("eventstore-east"), "it says what is missing")
    await site.run("eventstore", "init", "--config", site.file, "--datacentre", "east")
    await site.run("down", site.file)
    await site.up()

    feeding, copy = asyncio.create_task(site.feed.run()), site.feed.copies["east"]
    await site.until(lambda: site.joined() > 50, "it joins")
    copy.held = True
    hbase.stop(signal.SIGKILL)
    away = "the event store cannot answer now"
    await site.until(lambda: away in site.said("dispatcher-east"), "the dispatcher says what is wrong")
    await asyncio.to_thread(hbase.start)

    joined, copy.held = site.joined(), False
    await site.until(lambda: site.joined() > joined + 50, "it joins again")
    hbase.stop(signal.SIGKILL)
    await site.run("down", site.file)
    await site.up()
    await asyncio.to_thread(hbase.start)
    await feeding
    await site.until(site.settled, "every click has its verdict")
    assert site.problems() == []
    assert "clocks" not in site.said("dispatcher-east")
