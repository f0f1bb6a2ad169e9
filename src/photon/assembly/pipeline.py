"""``photon serve pipeline``: event store, joiners, verifier and dispatcher of one datacentre in one process, with the
registry's replicas that are set to run with them.

They are the services that otherwise run separately, each with its server at its own address, so callers see no
difference. Within the process the dispatcher calls its joiners, the joiners the event store, and all of them the
replica, without a socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from photon.assembly.dispatcher import serve_dispatcher
from photon.assembly.eventstore import serve_store
from photon.assembly.joiner import serve_joiner
from photon.assembly.registry import serve_replica
from photon.assembly.room import Room, Serve
from photon.assembly.verifier import serve_verifier
from photon.config.errors import UsageError


async def serve_stages(stages: Sequence[Sequence[Serve]], stop: asyncio.Event) -> list[object]:
    """Starts each stage once all of the previous one serve, and ends them in reverse order: at ``stop``, or when one
    of them ends. Returns their results in order; raises the first failure."""
    started: list[tuple[asyncio.Event, list[asyncio.Future[Any]]]] = []
    stopping = asyncio.create_task(stop.wait())
    try:
        for stage in stages:
            end, ups = asyncio.Event(), [asyncio.Event() for _ in stage]
            tasks: list[asyncio.Future[Any]]
            tasks = [asyncio.ensure_future(serve(end, up.set)) for serve, up in zip(stage, ups, strict=True)]
            started.append((end, tasks))
            serving = asyncio.create_task(_all_set(ups))
            running = [task for _, those in started for task in those]
            await asyncio.wait((serving, stopping, *running), return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():
                serving.cancel()
                break
        else:
            await asyncio.wait((stopping, *running), return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        for end, tasks in reversed(started):
            end.set()
            await asyncio.wait(tasks)
    return [task.result() for _, tasks in started for task in tasks]


async def _all_set(events: Sequence[asyncio.Event]) -> None:
    for event in events:
        await event.wait()


async def serve_pipeline(room: Room) -> bool:
    """Returns True if its slots were left empty. Raises PhotonError when a service cannot go on."""
    name, pipeline = room.datacentre, room.pipeline
    if pipeline.dispatchers > 1 or not pipeline.joiners:
        which = "several dispatchers" if pipeline.dispatchers > 1 else "no joiner of its own"
        raise UsageError(f"datacentre {name} has {which}: start each service by itself")

    def part(serve: Callable[[Room], Awaitable[object]], member: str | None = None) -> Serve:
        return lambda stop, up: serve(replace(room, stop=stop, member=member, alone=False, up=up))

    voting = room.settings.registry.replicas.items()
    replicas = [part(serve_replica, each) for each, its in voting if its.together and its.datacentre == name]
    slots = [part(serve_joiner, slot) for slot in pipeline.joiners]
    stages = [[*replicas, part(serve_store)], [*slots, part(serve_verifier)], [part(serve_dispatcher)]]
    return all(result is not False for result in await serve_stages(stages, room.stop))
