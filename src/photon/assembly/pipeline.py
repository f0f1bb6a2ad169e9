"""``photon serve pipeline``: event store, joiners, verifier and dispatcher of one datacentre in one process, and the
replicas of the registry that are set to run with them.

They are the services that otherwise run apart, each with its server at its own address, so whoever asks them sees no
difference. Among themselves the dispatcher calls its joiners, these the event store, and all the replica, without a
socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from functools import partial
from pathlib import Path

from photon.assembly.dispatcher import serve_dispatcher
from photon.assembly.eventstore import serve_store, store_place
from photon.assembly.joiner import serve_joiner
from photon.assembly.registry import serve_replica
from photon.assembly.together import Nearby, Serve, Up
from photon.assembly.verifier import serve_verifier
from photon.config.errors import UsageError
from photon.config.settings import Settings
from photon.config.settings_reload import SettingsReload
from photon.fleet.access import pipeline_named


async def serve_stages(stages: Sequence[Sequence[Serve]], stop: asyncio.Event) -> list[object]:
    """Starts each stage once all of the one before serve, and ends them in the reverse order: at ``stop``, or when
    one of them ends. What they return, in their order; raises the first failure."""
    started: list[tuple[asyncio.Event, list[asyncio.Task[object]]]] = []
    stopping = asyncio.create_task(stop.wait())
    try:
        for stage in stages:
            end, ups = asyncio.Event(), [asyncio.Event() for _ in stage]
            tasks = [asyncio.create_task(_awaited(serve(end, up.set))) for serve, up in zip(stage, ups, strict=True)]
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


async def _awaited(work: Awaitable[object]) -> object:
    return await work


async def _all_set(events: Sequence[asyncio.Event]) -> None:
    for event in events:
        await event.wait()


async def serve_pipeline(
    settings: Settings, base: Path, datacentre: str | None, stop: asyncio.Event, again: SettingsReload | None = None
) -> bool:
    """Until ``stop``; whether nothing was left in its slots. Raises PhotonError when a service cannot go on.

    ``again``: as for ``serve_store``.
    """
    name, pipeline = pipeline_named(settings, datacentre)
    if pipeline.dispatchers or not pipeline.joiners:
        which = "several dispatchers" if pipeline.dispatchers else "no joiner of its own"
        raise UsageError(f"datacentre {name} has {which}: start each service by itself")
    near = Nearby()

    def replica(replica: str, end: asyncio.Event, up: Up) -> Awaitable[object]:
        return serve_replica(settings, base, replica, (), end, near=near, up=up)

    def store(end: asyncio.Event, up: Up) -> Awaitable[object]:
        place = store_place(settings, base, name)
        return serve_store(settings, base, place, end, again, near=near, up=up)

    def joiner(slot: str, end: asyncio.Event, up: Up) -> Awaitable[object]:
        return serve_joiner(settings, base, name, slot, end, near=near, up=up)

    def verifier(end: asyncio.Event, up: Up) -> Awaitable[object]:
        return serve_verifier(settings, base, name, end, near=near, up=up)

    def dispatcher(end: asyncio.Event, up: Up) -> Awaitable[object]:
        return serve_dispatcher(settings, base, name, None, end, near=near, up=up)

    voting = settings.registry.replicas.items()
    replicas = [partial(replica, each) for each, its in voting if its.together and its.datacentre == name]
    slots = [partial(joiner, slot) for slot in pipeline.joiners]
    results = await serve_stages([[*replicas, store], [*slots, verifier], [dispatcher]], stop)
    return all(result is not False for result in results)
