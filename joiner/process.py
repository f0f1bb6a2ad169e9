"""The joiner as a process, run by ``photon serve joiner``. One slot and engine for each join."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

from photon.config.errors import PhotonError
from photon.config.metrics.disks import free_space
from photon.config.metrics.readings import ProcessMetrics, Readings, Source
from photon.config.rpc import Context, abort, seconds_left
from photon.config.serving import Address, HealthyServer, listen_for
from photon.config.stopping import Stopped, end, first, unless_stopped
from photon.config.tls import Tls
from photon.joiner import joiner_pb2 as pb
from photon.joiner import wire
from photon.joiner.api import Joiner
from photon.joiner.auto_joiner import AutoJoiner
from photon.joiner.engine import JoinerEngine
from photon.joiner.slot.identity import SlotRefused
from photon.joiner.slot.output import OutputDamaged
from photon.joiner.slot.redo_log import RedoLogDamaged

HasSlot = JoinerEngine | AutoJoiner


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


REQUESTS_MAX = 256  # in flight; further ones are refused at once (RESOURCE_EXHAUSTED), and dispatchers retry
TIMEOUT_S = 30.0  # limit of a request, however long its caller would wait
REPLY_MARGIN_S = 0.1  # the engine answers this long before the caller's deadline, so that the answer arrives in time


class JoinerService:
    def __init__(self, joiners: Mapping[str, Joiner]) -> None:
        self._joiners = joiners

    async def Join(self, request: pb.JoinRequest, context: Context) -> pb.JoinReply:  # noqa: N802
        joiner = self._joiners.get(request.join)
        if joiner is None:
            await abort(context, grpc.StatusCode.NOT_FOUND, f"no join named {request.join!r} here")
        events = wire.asked(request)
        timeout = seconds_left(context, default=TIMEOUT_S, margin=REPLY_MARGIN_S, most=TIMEOUT_S)
        return wire.reply(await joiner.join(events, timeout=timeout))


async def start_server(
    joiners: Mapping[str, Joiner],
    address: Address,
    tls: Tls | None = None,
    metrics: ProcessMetrics | None = None,
    also: Callable[[grpc.aio.Server], None] = lambda server: None,
) -> HealthyServer:
    """Listens, but does not serve yet: see config.serving.listen_for.

    ``also`` adds further services. Raises CannotListen.
    """
    return await listen_for(
        address, wire.JOINER, JoinerService(joiners), also=also, requests_max=REQUESTS_MAX, tls=tls, metrics=metrics
    )


STOP_GRACE_S = 5.0


@dataclass(frozen=True, slots=True)
class Served:
    """One join to serve.

    ``beside`` runs while it is served: in a small deployment a verifier of its slot, and the adopter of unused slots.
    """

    join: str
    engine: JoinerEngine | AutoJoiner
    beside: Sequence[Callable[[asyncio.Event], Awaitable[None]]] = ()


class JoinerFailed(PhotonError):
    """The process cannot continue. One line: what, where, what to do."""


async def serve(
    joins: Sequence[Served],
    *,
    address: Address,
    stop: asyncio.Event,
    ready: Callable[[int], None] = lambda _: None,
    may_open: Callable[[asyncio.Event], Awaitable[bool]] | None = None,
    tls: Tls | None = None,
    also: Callable[[grpc.aio.Server], None] = lambda server: None,
) -> bool:
    """Serves until ``stop`` is set; ``tls``: ``None`` means plain text.

    ``also`` adds services besides the joiner's.

    ``may_open`` is asked once the process listens and before it opens a slot; False or an exception ends it.

    ``ready(port)`` is called once all slots are open and serve. At the end requests in flight are answered, slots are
    drained for a limited time and released. Returns True if nothing was left in them. Raises JoinerFailed if it
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
        server = await start_server({each.join: each.engine for each in joins}, address, tls, metrics, also)
        stack.push_async_callback(server.stop, STOP_GRACE_S)
        if (may_open is not None and not await may_open(stop)) or not await _start(joins, stop):
            return True
        await server.serving()
        ready(server.port)
        await _run_beside(joins, stop)
    return not left


async def _start(joins: Sequence[Served], stop: asyncio.Event) -> bool:
    """Opens all slots; False if ``stop`` came first (the registry may take long)."""
    for each in joins:
        try:
            await unless_stopped(stop, each.engine.start())
        except Stopped:
            return False
        except (SlotRefused, RedoLogDamaged, OutputDamaged, ValueError) as error:
            raise JoinerFailed(f"join {each.join}: {error}") from None
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
