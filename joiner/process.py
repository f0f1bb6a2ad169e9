"""Runs the joiner as a process, for ``photon serve joiner``, with a slot and an engine for each join."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from photon.config.errors import PhotonError
from photon.config.metrics.disks import free_space
from photon.config.metrics.readings import ProcessMetrics, Readings, Source
from photon.config.serving import Address, HealthyServer, Unheard
from photon.config.stopping import Stopped, end, first, unless_stopped
from photon.config.tls import Tls
from photon.joiner.engine import JoinerEngine
from photon.joiner.slot.identity import SlotRefused
from photon.joiner.slot.output import OutputDamaged
from photon.joiner.slot.redo_log import RedoLogDamaged

if TYPE_CHECKING:
    import grpc.aio

    from photon.joiner.auto_joiner import AutoJoiner

HasSlot: TypeAlias = "JoinerEngine | AutoJoiner"


def reads(join: str, joiner: HasSlot) -> Source:

    def read(into: Readings) -> None:
        engine = joiner.opened
        into.put("photon_joiner_slot_open", engine is not None, join=join)
        if engine is not None:
            _put(into, join, engine)

    return read


def details_of(joiners: Sequence[HasSlot]) -> dict[str, Any]:
    open_ = [engine for each in joiners if (engine := each.opened) is not None]
    copies = [(engine.slot, engine.shell.copies) for engine in open_]
    return {
        "copies": [{"slot": slot, "trouble": its.trouble} for slot, its in copies if its is not None],
        "unmatched_waits": next(filter(None, (engine.withholds() for engine in open_)), ""),
        "unshown": [{"slot": engine.slot, "oldest_unshown_ns": engine.shell.oldest_unshown_ns} for engine in open_],
    }


def _put(into: Readings, join: str, engine: JoinerEngine) -> None:
    labels = {"join": join, "slot": engine.slot}
    stats = engine.stats()
    into.put_all(
        "photon_joiner",
        {
            "refused_batches_total": stats.refused_batches,
            "redone_rows_total": stats.redone,
            "open_ids": stats.open_ids,
            "open_bytes": stats.record_bytes,
            "redo_log_bytes": stats.redo_bytes,
            "redo_log_limit_bytes": engine.redo_limit,
        },
        **labels,
    )
    copies = engine.shell.copies
    if copies is not None:
        values = {"behind_bytes": copies.behind_bytes, "bypassed": copies.fallback, "trouble": bool(copies.trouble)}
        into.put_all("photon_joiner_copy", values, **labels)
    for outcome, count in stats.outcomes.items():
        into.put("photon_joiner_outcomes_total", count, **labels, outcome=outcome.name.lower())
    paths = engine.directories
    free_space({f"state of {engine.slot}": paths.state, f"output of {engine.slot}": paths.output})(into)


STOP_GRACE_S = 5.0


@dataclass(frozen=True, slots=True)
class Served:
    """One join to serve.

    ``beside`` runs in parallel: in a small deployment, a verifier of the slot and the adopter of unused slots.
    """

    join: str
    engine: HasSlot
    beside: Sequence[Callable[[asyncio.Event], Awaitable[None]]] = ()


class JoinerFailed(PhotonError):
    """The process cannot continue. One line: what, where, what to do."""


async def serve(
    joins: Sequence[Served],
    *,
    address: Address | None,
    stop: asyncio.Event,
    ready: Callable[[int], None] = lambda _: None,
    may_open: Callable[[asyncio.Event], Awaitable[bool]] | None = None,
    tls: Tls | None = None,
    also: Callable[[grpc.aio.Server], None] = lambda server: None,
) -> bool:
    """Serves until ``stop`` is set. ``tls``: ``None`` means plain text. ``address``: ``None`` means that only this
    process calls it.

    ``also`` adds further gRPC services.

    ``may_open`` is called once the process listens, before it opens a slot; False or an exception ends the process.

    ``ready(port)`` is called once all slots are open and serve. At the end it answers requests in flight, drains
    slots for a limited time, and releases them. Returns True if no work is left in them. Raises JoinerFailed if it
    cannot start, or if a ``beside`` task fails.
    """
    left: list[str] = []

    async def closed(each: Served) -> None:
        await each.engine.close()
        if each.engine.left:
            left.append(each.join)

    async with AsyncExitStack() as stack:
        for each in joins:
            stack.push_async_callback(closed, each)
        sources = [reads(each.join, each.engine) for each in joins]
        metrics = ProcessMetrics(sources, lambda: details_of([each.engine for each in joins]))
        server = await _listen(joins, address, tls, metrics, also)
        stack.push_async_callback(server.stop, STOP_GRACE_S)
        if (may_open is not None and not await may_open(stop)) or not await _start(joins, stop):
            return True
        await server.serving()
        ready(server.port)
        await _run_beside(joins, stop)
    return not left


async def _listen(
    joins: Sequence[Served],
    address: Address | None,
    tls: Tls | None,
    metrics: ProcessMetrics,
    also: Callable[[grpc.aio.Server], None],
) -> HealthyServer | Unheard:
    if address is None:
        return Unheard()
    from photon.joiner.service import start_server

    return await start_server({each.join: each.engine for each in joins}, address, tls, metrics, also)


async def _start(joins: Sequence[Served], stop: asyncio.Event) -> bool:
    """Opens all slots. Returns False if ``stop`` came first, as the registry may take long."""
    for each in joins:
        try:
            await unless_stopped(stop, each.engine.start())
        except Stopped:
            return False
        except (SlotRefused, RedoLogDamaged, OutputDamaged, ValueError) as error:
            raise JoinerFailed(f"join {each.join}: {error}") from error
        except OSError as error:
            raise JoinerFailed(f"join {each.join}: {error.filename or 'slot'}: {error.strerror or error}") from None
    return True


async def _run_beside(joins: Sequence[Served], stop: asyncio.Event) -> None:
    """Runs the ``beside`` tasks of the joins until ``stop``; the first failure ends them all."""
    tasks = [asyncio.ensure_future(beside(stop)) for each in joins for beside in each.beside]
    try:
        await first(stop, tasks)
        for task in tasks:
            if task.done() and (error := task.exception()) is not None:
                if isinstance(error, (PhotonError, OSError)):
                    raise JoinerFailed(str(error)) from None
                raise error
    finally:
        await end(tasks)
