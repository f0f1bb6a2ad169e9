"""Services that run in one process: the order in which they start and end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from photon.assembly.datacentre import serve_stages
from photon.assembly.room import Room, Serve, Up
from photon.config.loader import load
from photon.config.serving import SharedServer


class Story:
    """Record of the services' actions."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.stop = asyncio.Event()

    def service(self, name: str, *, fails: asyncio.Event | None = None, hangs: bool = False) -> Serve:
        async def serve(end: asyncio.Event, up: Up) -> str:
            self.told.append(f"{name} begins")
            if not hangs:
                await asyncio.sleep(0)
                up()
            if fails is not None:
                await fails.wait()
                raise RuntimeError(name)
            await end.wait()
            await asyncio.sleep(0)
            self.told.append(f"{name} ends")
            return name

        return serve


async def test_each_stage_waits_for_the_one_before_and_ends_before_it() -> None:
    story = Story()
    service = story.service
    running = asyncio.create_task(
        serve_stages([[service("store")], [service("a"), service("b")], [service("dispatcher")]], story.stop)
    )
    while "dispatcher begins" not in story.told:  # noqa: ASYNC110
        await asyncio.sleep(0)
    story.stop.set()
    assert await running == ["store", "a", "b", "dispatcher"]
    begins, ends = story.told[:4], story.told[4:]
    assert begins == ["store begins", "a begins", "b begins", "dispatcher begins"]
    assert ends == ["dispatcher ends", "a ends", "b ends", "store ends"]


async def test_one_that_fails_ends_them_all_and_is_told() -> None:
    story, failing = Story(), asyncio.Event()
    service = story.service
    running = asyncio.create_task(
        serve_stages([[service("store")], [service("joiner", fails=failing)], [service("dispatcher")]], story.stop)
    )
    while "dispatcher begins" not in story.told:  # noqa: ASYNC110
        await asyncio.sleep(0)
    failing.set()
    with pytest.raises(RuntimeError, match="joiner"):
        await running
    assert story.told[-2:] == ["dispatcher ends", "store ends"]


async def test_stopped_while_one_has_not_come_up_the_next_stage_does_not_begin() -> None:
    story = Story()
    service = story.service
    running = asyncio.create_task(serve_stages([[service("store", hangs=True)], [service("joiner")]], story.stop))
    await asyncio.sleep(0.01)
    story.stop.set()
    assert await running == ["store"]
    assert story.told == ["store begins", "store ends"]


async def test_stages_whose_parts_are_all_apart_are_passed_over() -> None:
    story = Story()
    running = asyncio.create_task(serve_stages([[], [story.service("joiner")], []], story.stop))
    await asyncio.sleep(0.01)
    story.stop.set()
    assert await running == ["joiner"]


async def test_parts_of_one_process_share_the_connections_to_the_registry(tmp_path: Path) -> None:
    file = tmp_path / "photon.toml"
    file.write_text('[registry.replicas.r1]\naddress = "127.0.0.1:1"\n')
    shared = Room(load(file, environment={}), tmp_path, asyncio.Event(), server=cast("SharedServer", object()))
    async with shared.registry(None) as one, shared.registry(None) as other:
        assert one is not other, "each announces its own slot"
        assert one._grpc is other._grpc
    assert shared.near.connections is not None
    await shared.near.connections.close()
