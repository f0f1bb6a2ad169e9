"""A replica whose disk is full takes no part, says so, and continues by itself; the others serve meanwhile."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from photon.idregistry.api import Answer, Slot, token_of
from photon.idregistry.client.grpc_client import RegistryClient
from photon.idregistry.core.outcomes import GroupFacts
from tests.integration.commands import soon
from tests.integration.registry_processes import Processes, client_of, insert_known, leader_of, processes, rows

SHARD = 1
_DISK = "12m"


@pytest.fixture
def small_disks(tmp_path: Path) -> Iterator[Path]:
    """A directory in which r1 to r3 are separate file systems."""
    with ExitStack() as stack:
        for name in ("r1", "r2", "r3"):
            directory = tmp_path / name
            directory.mkdir()
            mounted = subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "none", str(directory)], capture_output=True
            )
            if mounted.returncode:
                pytest.skip("needs the right to mount a small file system")
            stack.callback(subprocess.run, ["umount", "--lazy", str(directory)], check=True)
        yield tmp_path


def fill(directory: Path) -> Path:
    """Uses up all remaining room."""
    filler = directory / "filler"
    fd = os.open(filler, os.O_WRONLY | os.O_CREAT)
    try:
        while True:
            os.write(fd, bytes(4096))
    except OSError:
        return filler
    finally:
        os.close(fd)


async def facts(every: Processes, name: str) -> GroupFacts:
    """One replica's facts about itself."""
    client = RegistryClient({name: every.peers[name]})
    try:
        described = await client.describe(timeout=10)
    finally:
        await client.close()
    assert described is not None, every.output(name)
    return next(group for group in described.groups if group.group == SHARD)


async def test_a_full_disk_is_an_alarm_that_passes(small_disks: Path) -> None:
    with processes(small_disks) as every:
        async with client_of(every) as client:
            opened = await client.open_slot(Slot("s", "dc"), 0, os.urandom(16))
            while opened is None:
                opened = await client.open_slot(Slot("s", "dc"), 0, os.urandom(16))
            client.announce(Slot("s", "dc"), [opened.incarnation])
            number = 0

            async def insert() -> bool:
                """Fresh ids, again and again under one token until the answer is known."""
                nonlocal number
                number += 1
                ids = list(range(100 * number, 100 * number + 100))
                asked = rows(ids, [token_of(opened.incarnation, number)] * 100)
                return await insert_known(client, asked, timeout=30) == {Answer.COMMITTED}

            assert await insert()
            full = await leader_of(client, every, SHARD)
            filler = fill(small_disks / full)

            async def read_only() -> bool:
                assert await insert()  # by the leader of that moment
                said = await facts(every, full)
                return not said.writable and any("disk is full" in alarm for alarm in said.alarms)

            await soon(read_only, 40.0, "no alarm")
            assert not (await facts(every, full)).is_leader
            assert "raft.disk_full" in every.output(full)
            filler.unlink()

            async def recovered() -> bool:
                said = await facts(every, full)
                return said.writable and not said.alarms

            await soon(recovered, 40.0, "it did not go on")
            assert await insert()
            every.check()

            async def caught_up() -> bool:
                said = {name: await facts(every, name) for name in every.peers}
                return len({each.ids for each in said.values()}) == 1

            await soon(caught_up, 40.0, "it did not catch up")
