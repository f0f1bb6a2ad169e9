"""What the supervisor says of services that do not come back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from photon.embedded.supervisor import Service, Supervisor


async def test_a_service_that_cannot_be_started_again_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = Supervisor()
    await supervisor.start([Service("store", ("--version",), tmp_path / "logs" / "store.log")])
    try:
        assert supervisor.failure() is None

        async def no_process(*arguments: object, **options: object) -> None:
            raise OSError(24, "Too many open files")

        monkeypatch.setattr(asyncio, "create_subprocess_exec", no_process)
        async with asyncio.timeout(30):
            keeper = supervisor._running["store"].task
            assert keeper is not None
            await asyncio.wait({keeper})
        assert supervisor.failure() == "store cannot be started again: [Errno 24] Too many open files"
    finally:
        await supervisor.stop()
