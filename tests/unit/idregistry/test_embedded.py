"""The registry within one process, on a disk that fails."""

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
