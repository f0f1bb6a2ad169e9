"""The registry within one process: on a failing disk, and with a reopened slot."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from photon.batch.ids import Ids
from photon.config.disk import AppendFile, RealAppendFile, RealDisk
from photon.idregistry.api import Answer, Slot, token_of
from photon.idregistry.replica.embedded import EmbeddedRegistry


class FailingDisk(RealDisk):
    broken = False

    def append(self, path: Path) -> AppendFile:
        disk = self

        class File(RealAppendFile):
            def sync(self) -> None:
                if disk.broken:
                    raise OSError(5, "Input/output error")
                super().sync()

        return File(path)


async def test_a_failed_sync_is_told(tmp_path: Path) -> None:
    disk = FailingDisk()
    registry = await EmbeddedRegistry.open(tmp_path / "registry", disk=disk)
    try:
        slot = Slot("s", "dc")
        opened = await registry.open_slot(slot, 0, bytes(16))
        registry.announce(slot, [opened.incarnation])
        assert registry.failure is None
        disk.broken = True
        inserts = Ids(
            bytes(16),
            np.zeros(1, np.int64),
            np.array([token_of(opened.incarnation, 1)], np.uint64),
            np.ones(1, np.uint8),
            np.zeros(1, np.uint32),
        )
        assert (await registry.insert(inserts, timeout=0.5)).outcomes.tolist() == [Answer.UNKNOWN]
        assert registry.failure is not None
        assert "Input/output error" in registry.failure
    finally:
        disk.broken = False
        await registry.close()


SLOT = Slot("backfill-1", "east")
IDS = 40


def inserts(first: int, token: int) -> Ids:
    digests = b"".join(bytes([n % 251, 7]) * 8 for n in range(first, first + IDS))
    times = np.full(IDS, 10**18, np.int64)
    kinds = np.ones(IDS, np.uint8)
    return Ids(digests, times, np.full(IDS, token, np.uint64), kinds, np.zeros(IDS, np.uint32))


async def test_inserts_of_earlier_incarnations_are_stale_in_every_shard(tmp_path: Path) -> None:
    registry = await EmbeddedRegistry.open(tmp_path, shards=3)
    try:
        first = await registry.open_slot(SLOT, 0, b"1" * 16)
        registry.announce(SLOT, [first.incarnation])
        old = token_of(first.incarnation, 0)
        assert ((await registry.insert(inserts(0, old), timeout=20)).outcomes == Answer.COMMITTED).all()
        second = await registry.open_slot(SLOT, first.incarnation, b"2" * 16)
        registry.announce(SLOT, [first.incarnation, second.incarnation])
        assert await registry.introduce(timeout=20)
        # Under its original token the batch is unchanged: the newest incarnation may redo it.
        assert ((await registry.insert(inserts(0, old), timeout=20)).outcomes == Answer.COMMITTED).all()
        registry.announce(SLOT, [first.incarnation])  # one that lives on
        answers = await registry.insert(inserts(100, old), timeout=20)
        assert set(answers.outcomes.tolist()) == {Answer.STALE_INCARNATION}
    finally:
        await registry.close()


async def test_nobody_is_introduced_to_a_registry_that_does_not_answer(tmp_path: Path) -> None:
    registry = await EmbeddedRegistry.open(tmp_path)
    await registry.close()
    registry.announce(SLOT, [1])
    assert not await registry.introduce(timeout=0.05)
