"""Events that wake the keeper of watermarks."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from photon.adapters.logs.watching import Watch
from photon.assembly import verifier
from photon.assembly.verifier import _wakes
from photon.verifier.service import VerifiedPipeline


async def test_a_commit_of_the_dispatcher_wakes_it(tmp_path: Path) -> None:
    woken = asyncio.Event()
    end = _wakes(VerifiedPipeline(tmp_path / "state", tmp_path / "output", ()), Watch.AUTO, woken)
    (tmp_path / "state" / "dispatcher.db-wal").write_bytes(b"a commit")
    async with asyncio.timeout(60):
        await woken.wait()
    end()
    end()
    _wakes(VerifiedPipeline(tmp_path / "state", tmp_path / "output", ()), Watch.POLL, woken)()


async def test_who_reads_the_state_wakes_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifier, "COMMIT_S", 0.01)
    monkeypatch.setattr(verifier, "GAP_S", 0.01)
    woken, wal = asyncio.Event(), tmp_path / "state" / "dispatcher.db-wal"
    wal.parent.mkdir()
    wal.touch()
    end = _wakes(VerifiedPipeline(tmp_path / "state", tmp_path / "output", ()), Watch.AUTO, woken)
    wal.chmod(0o600)  # as SQLite assigns its owner when it is opened as root
    await asyncio.sleep(0.1)
    assert not woken.is_set()
    wal.write_bytes(b"a commit")
    async with asyncio.timeout(60):
        await woken.wait()
    end()
