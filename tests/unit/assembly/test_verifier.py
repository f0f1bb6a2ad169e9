"""What wakes the keeper of watermarks."""

from __future__ import annotations

import asyncio
from pathlib import Path

from photon.adapters.logs.watching import Watch
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
