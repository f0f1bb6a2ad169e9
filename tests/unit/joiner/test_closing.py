"""An orderly stop publishes the joiner's events, waits for the copy, and reports the rest."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from structlog.testing import capture_logs

from photon.config.disk import RealDisk
from photon.joiner.copies.api import CopyAnswer, CopyBytes, CopyOf, Extension
from photon.joiner.copies.kept import KeptCopy
from photon.joiner.copies.shipping import Copying
from photon.joiner.engine import JoinerEngine, JoinerLimits
from photon.joiner.shell import ShellLimits
from photon.outputs import read_slot
from tests.unit.joiner.helpers import FakeRegistry, FakeStore, engine_at, event

SELDOM = ShellLimits(insert_timeout_s=1.0, tick_s=0.005, witness_s=1000.0)  # only a stop extends the witness
LIMITS = JoinerLimits(shell=SELDOM, lock_wait_s=0.2, close_s=10.0)
HURRIED = JoinerLimits(shell=SELDOM, lock_wait_s=0.2, close_s=0.3)


class SlowKeeper:
    """A keeper in this process whose extensions wait until ``goes_on``."""

    def __init__(self, path: Path) -> None:
        self.goes_on = asyncio.Event()
        self._copy = KeptCopy(RealDisk(), path, CopyOf("dc0", "s0"))
        self._copy.load()

    async def open(self, of: CopyOf, incarnation: int, *, timeout: float) -> CopyAnswer | None:
        return self._copy.open(incarnation)

    async def look(self, of: CopyOf, *, timeout: float) -> CopyAnswer | None:
        return self._copy.look()

    async def extend(self, of: CopyOf, extension: Extension, *, timeout: float) -> CopyAnswer | None:
        await self.goes_on.wait()
        self.shown = extension.shown
        return self._copy.extend(extension)

    async def read(self, of: CopyOf, log: int, number: int, offset: int, *, timeout: float) -> CopyBytes | None:
        raise AssertionError("this output lacks nothing")


async def joined(path: Path, registry: FakeRegistry, limits: JoinerLimits, copying: Copying | None) -> JoinerEngine:
    """An engine that has joined an event and published nothing yet."""
    engine = engine_at(path, registry, FakeStore({b"k": b"k one"}), limits=limits, copying=copying)
    await engine.start()
    await engine.join([event(b"a", b"k")], timeout=60.0)
    return engine


def published(path: Path) -> int:
    return sum(file.length for file in read_slot(RealDisk(), path / "state").files)


def written(path: Path) -> int:
    return sum(file.stat().st_size for file in (path / "out" / "joined").iterdir())


async def test_a_stop_tries_the_witness_until_it_answers(tmp_path: Path) -> None:
    registry = FakeRegistry()
    engine = await joined(tmp_path, registry, LIMITS, None)
    registry.unknown_witnesses = 3
    with capture_logs() as said:
        await engine.close()
    assert (engine.left, published(tmp_path)) == (False, written(tmp_path))
    assert said[-1]["event"] == "slot closed: everything accepted is decided and published"


async def test_a_stop_waits_for_the_copy(tmp_path: Path) -> None:
    keeper = SlowKeeper(tmp_path / "copy")
    engine = await joined(tmp_path, FakeRegistry(), LIMITS, Copying(keeper, wait_s=1000.0))
    closing = asyncio.create_task(engine.close())
    await asyncio.sleep(0.3)
    assert (closing.done(), published(tmp_path)) == (False, 0)
    keeper.goes_on.set()
    await closing
    assert (engine.left, published(tmp_path)) == (False, written(tmp_path))
    assert keeper.shown[0].length == written(tmp_path), "readers of the copy see it as well"


async def test_a_stop_says_what_it_leaves(tmp_path: Path) -> None:
    keeper = SlowKeeper(tmp_path / "copy")
    engine = await joined(tmp_path, FakeRegistry(), HURRIED, Copying(keeper, wait_s=1000.0))
    began = time.monotonic()
    with capture_logs() as said:
        await engine.close()
    assert 0.3 <= time.monotonic() - began < 5.0
    assert (engine.left, published(tmp_path)) == (True, 0)
    last, hidden = said[-1], written(tmp_path)
    assert last["event"].startswith("slot closed before everything was published")
    assert (last["undecided"], last["unpublished_bytes"], last["not_copied_bytes"]) == (0, hidden, hidden)
