"""``photon serve datacentre``: runs all parts of one datacentre that are not listed in ``apart`` in one process, with
the registry's replicas that are set to run with them.

These are the services that otherwise run separately. They share one server, but each reports its own health. Within
the process, the dispatcher calls its joiner, the joiner calls the event store, and all of them call the replica
directly, without a socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, get_args

from photon.assembly.room import Room, Serve, Up
from photon.config.errors import UsageError
from photon.config.serving import listen_shared
from photon.config.settings import Part
from photon.config.structured import get_logger
from photon.fleet.processes import DATACENTRE, KINDS, coroutine_of

if TYPE_CHECKING:
    from photon.config.serving import SharedServer

log = get_logger(__name__)


async def serve_stages(stages: Sequence[Sequence[Serve]], stop: asyncio.Event, up: Up = lambda: None) -> list[object]:
    """Starts each stage once all services of the previous one serve, then calls ``up``. When ``stop`` is set or a
    service ends, ends all stages in reverse order. Returns the services' results in order; raises the first
    failure."""
    started: list[tuple[asyncio.Event, list[asyncio.Future[Any]]]] = []
    stopping = asyncio.create_task(stop.wait())
    try:
        for stage in filter(None, stages):
            end, ups = asyncio.Event(), [asyncio.Event() for _ in stage]
            tasks: list[asyncio.Future[Any]]
            tasks = [asyncio.ensure_future(serve(end, each.set)) for serve, each in zip(stage, ups, strict=True)]
            started.append((end, tasks))
            serving = asyncio.create_task(_all_set(ups))
            running = [task for _, those in started for task in those]
            await asyncio.wait((serving, stopping, *running), return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():
                serving.cancel()
                break
        else:
            up()
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


async def serve_datacentre(
    room: Room,
    *,
    read_from: str = "beginning",
    accept_damaged_log: bool = False,
    accept_lost_offsets: bool = False,
    own: Mapping[str, Serve] = MappingProxyType({}),
) -> bool:
    """Runs a datacentre's parts in this process. Returns True if its slot was left empty. The options are passed to
    the parts. ``own``: parts that the caller runs itself, by kind. Raises PhotonError if a part cannot continue."""
    name, settings = room.datacentre, room.settings
    inside, voting = settings.inside(name), settings.registry.replicas.items()
    replicas = [each for each, its in voting if its.together and its.datacentre == name]
    if not inside and not replicas:
        raise UsageError(f"datacentre {name}: all its parts are apart; start each with photon serve PART")
    given: dict[str, dict[str, Any]] = {
        "dispatcher": {"read_from": read_from},
        "joiner": {"accept_damaged_log": accept_damaged_log},
        "relay": {"accept_lost_offsets": accept_lost_offsets},
    }
    if apart := [part for part in get_args(Part) if room.pipeline.is_apart(part)]:
        log.info("parts of this datacentre are apart: start each with photon serve", datacentre=name, parts=apart)
    server = None if room.alone is not None else await _listen(room)

    def part(kind: str, member: str | None = None) -> Serve:
        if kind in own:
            return own[kind]
        its = replace(room, member=member, server=server, listen=page_at(room) if kind == "status" else None)
        serve = coroutine_of(kind)
        return lambda stop, up: serve(replace(its, stop=stop, up=up), **given.get(kind, {}))

    def serving() -> None:
        if server is not None:
            tasks.append(asyncio.ensure_future(server.own.serving()))

    tasks: list[asyncio.Future[None]] = []
    first = [part("registry", each) for each in replicas]
    stages = [[part(kind) for kind in kinds if kind in inside or kind in own] for kinds in STAGES]
    try:
        found = await serve_stages([first + stages[0], *stages[1:]], room.stop, serving)
    finally:
        if server is not None:
            await server.own.stop()
        if room.near.connections is not None:
            await room.near.connections.close()
    return all(result is not False for result in found)


async def _listen(room: Room) -> SharedServer:
    from photon.eventstore.columns import EVENT_STORE
    from photon.fleet.explain.service import EXPLAIN
    from photon.joiner.copies.wire import COPIES
    from photon.joiner.wire import JOINER

    services = (EVENT_STORE, JOINER, COPIES, EXPLAIN)  # the parts that limit the size of their messages
    address = room.pipeline.address
    return await listen_shared(address, room.listen or address, KINDS[DATACENTRE].health, services, room.tls())


def page_at(room: Room) -> str | None:
    """Returns the status page's listen address; `None` if the process listens at its public address."""
    port = room.pipeline.page.rpartition(":")[2]
    return None if room.listen is None else f"{room.listen.rpartition(':')[0]}:{port}"


# Stages; each one needs the ones before it.
STAGES = (("status", "copies"), ("eventstore",), ("joiner",), ("verifier",), ("dispatcher", "relay"))
