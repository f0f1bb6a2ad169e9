"""photon join ended at odd moments: while it waits for its registry, and by kill -9; and its leftovers."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import socket
import time
from pathlib import Path

import pytest

from photon.cli.errors import DONE, FAILED
from photon.cli.join import _verdict
from photon.eventstore.engine import EventStoreEngine
from photon.idregistry.replica.embedded import EmbeddedRegistry
from photon.joiner.engine import JoinerEngine
from photon.local_join.join import run
from photon.local_join.options import JoinFailed, JoinOptions
from photon.local_join.status import Status
from photon.local_join.store import socket_address
from tests.integration.commands import alive, children, until
from tests.integration.join_logs import Logs
from tests.integration.test_join_command import caught_up


async def test_stopped_while_the_registry_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = Logs(tmp_path, clicks=20)
    logs.write()
    stop, waits = asyncio.Event(), asyncio.Event()

    async def for_ever(*_: object) -> None:
        waits.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as patched:
        patched.setattr(JoinerEngine, "start", for_ever)
        options = JoinOptions(logs.primary, logs.foreign, logs.output, logs.config, once=True)
        joining = asyncio.create_task(run(options, stop=stop, show=lambda _: None, say=lambda _: None))
        await asyncio.wait_for(waits.wait(), 60)
        began = time.monotonic()
        stop.set()
        result = await asyncio.wait_for(joining, 30)
    assert (result.stopped, result.ledger["read"]) == (True, 0)
    assert time.monotonic() - began < 20
    logs.finish()


async def test_once_interrupted_does_not_say_that_all_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = Logs(tmp_path, clicks=20)
    logs.write()
    stop = asyncio.Event()
    options = JoinOptions(logs.primary, logs.foreign, logs.output, logs.config, once=True)
    with monkeypatch.context() as patched:
        patched.setattr(EventStoreEngine, "start", lambda _: None)  # without it no event gets a verdict
        result = await run(options, stop=stop, show=lambda _: stop.set(), say=lambda _: None)
    assert result.stopped
    assert _verdict(result, options, 0) == (
        FAILED,
        "interrupted before every event had a verdict; run this again to continue",
    )
    assert _verdict(result, dataclasses.replace(options, once=False), 100)[0] == DONE
    logs.finish()


async def test_a_registry_that_has_stopped_ends_the_join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = Logs(tmp_path, clicks=20)
    logs.write()
    shown: list[Status] = []
    options = JoinOptions(logs.primary, logs.foreign, logs.output, logs.config, once=True)
    with monkeypatch.context() as patched:
        patched.setattr(EventStoreEngine, "start", lambda _: None)  # it would end by itself otherwise
        failure = property(lambda _: "the registry stopped: no space is left" if shown else None)
        patched.setattr(EmbeddedRegistry, "failure", failure)
        with pytest.raises(JoinFailed, match="the registry stopped: no space is left"):
            await run(options, stop=asyncio.Event(), show=shown.append, say=lambda _: None)
    logs.finish()


def test_kill_9_leaves_nothing_outside_the_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "tmp"
    elsewhere.mkdir()
    monkeypatch.setenv("TMPDIR", str(elsewhere))
    deep = tmp_path / ("d" * 100) / ("e" * 100)  # longer than the limit for a socket's path
    deep.mkdir(parents=True)
    logs = Logs(deep)
    logs.write(0.5)
    with logs.following() as following:
        caught_up(logs)
        assert len(list((logs.output / ".photon").glob("*.socket"))) == 1
        orphans = children(following.process.pid)
        assert orphans
        following.kill()
    assert list(elsewhere.iterdir()) == []
    until(lambda: not any(map(alive, orphans)), 30, "the event store ends with its parent")
    logs.finish()
    assert list((logs.output / ".photon").glob("*.socket")) == []
    assert list(elsewhere.iterdir()) == []


def test_a_file_system_without_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other").touch()
    with socket_address(tmp_path, "store") as address:
        assert address.startswith(f"unix:/proc/{os.getpid()}/fd/")
        assert len(address) < 60
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(address.removeprefix("unix:"))
        assert sorted(path.name for path in tmp_path.iterdir()) == ["other", f"store-{os.getpid()}.socket"]
    monkeypatch.setattr("photon.local_join.store._works", lambda _: False)
    with socket_address(tmp_path, "store") as address:
        directory = Path(address.removeprefix("unix:")).parent
        assert directory.is_dir()
        assert tmp_path not in directory.parents
    assert not directory.exists()
