"""The engine with a real registry in the same process: witness, and the end of a retired slot."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from photon.idregistry.replica.embedded import EmbeddedRegistry
from photon.joiner.engine import JoinerEngine, JoinerLimits
from photon.joiner.shell import ShellLimits
from photon.joiner.slot.identity import SlotRefused
from tests.unit.joiner.helpers import SLOT, Died, FakeStore, engine_at, event

LIMITS = JoinerLimits(
    shell=ShellLimits(insert_timeout_s=5.0, tick_s=0.005, witness_s=0.05), lock_wait_s=0.2, close_s=1.0
)


@pytest.fixture
async def registry(tmp_path: Path) -> AsyncIterator[EmbeddedRegistry]:
    opened = await EmbeddedRegistry.open(tmp_path / "registry", shards=2)
    try:
        yield opened
    finally:
        await opened.close()


async def running(path: Path, registry: EmbeddedRegistry) -> JoinerEngine:
    engine = engine_at(path / "machine", registry, FakeStore({b"k": b"k one"}), limits=LIMITS)
    await engine.start()
    return engine


async def test_the_witness_follows_and_an_older_copy_is_refused(tmp_path: Path, registry: EmbeddedRegistry) -> None:
    engine = await running(tmp_path, registry)
    assert await engine.settle(10.0)
    shutil.copytree(tmp_path / "machine", tmp_path / "older")
    await engine.join([event(b"a", b"k")], timeout=60.0)
    async with asyncio.timeout(20):
        while not (await registry.read_witness(SLOT.name)).witness[0].length:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
    await engine.close()
    (tmp_path / "machine").rename(tmp_path / "newest")
    (tmp_path / "older").rename(tmp_path / "machine")
    with pytest.raises(SlotRefused, match="older copy"):
        await running(tmp_path, registry)
    shutil.rmtree(tmp_path / "machine")
    (tmp_path / "newest").rename(tmp_path / "machine")
    await (await running(tmp_path, registry)).close()


async def fenced_everywhere(registry: EmbeddedRegistry) -> None:
    async with asyncio.timeout(20):
        for shard in await registry.recovery.shards(timeout=60.0):
            while not (await registry.recovery.scan_owned(shard, SLOT.name, 99, timeout=60.0)).fenced:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_a_retired_slot_ends_with_one_line(tmp_path: Path, registry: EmbeddedRegistry) -> None:
    engine = await running(tmp_path, registry)
    await engine.join([event(b"a", b"k")], timeout=60.0)
    assert await engine.settle(10.0)
    assert await registry.recovery.retire_slot(SLOT.name, timeout=60.0) == (1, 2)
    await fenced_everywhere(registry)
    reasons: list[str] = []

    def die(reason: str) -> None:
        reasons.append(reason)
        raise Died(reason)

    engine.shell._die = die  # type: ignore[assignment]
    joining = asyncio.create_task(engine.join([event(b"b", b"k")], timeout=60.0))
    async with asyncio.timeout(20):
        while not reasons:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
    joining.cancel()
    assert "this slot was retired (FENCED)" in reasons[0]
    assert "\n" not in reasons[0]
    await engine.shell.close()
    engine._lock.release()
    with pytest.raises(SlotRefused, match=r"slot s0 was retired: use another name"):
        await running(tmp_path, registry)
