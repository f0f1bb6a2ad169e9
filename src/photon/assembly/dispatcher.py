"""``photon serve dispatcher``: one pipeline's dispatcher, or one of several workers that share its state."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from photon.adapters.loader import code_of
from photon.adapters.logs.discovery import check_directory
from photon.adapters.logs.watching import Watch
from photon.adapters.times import WITHOUT_TIME
from photon.assembly.eventstore import event_store
from photon.assembly.joiner import LIST_S, listening_place
from photon.assembly.registry import admitted, samples_of
from photon.assembly.verdict_rule import named, unmatched
from photon.config.errors import UsageError
from photon.config.metrics.disks import free_space
from photon.config.metrics.readings import ProcessMetrics
from photon.config.roles import Role, identity
from photon.config.settings import Pipeline
from photon.config.structured import get_logger
from photon.config.tls import towards
from photon.dispatcher.database import STATE_NAME
from photon.dispatcher.status import details_of, reads
from photon.dispatcher.worker_names import AUTO, living_workers, note_address, under_free_name
from photon.objects.costs import put_costs

if TYPE_CHECKING:
    from photon.adapters.logs.api import Block
    from photon.assembly.engines import DispatcherPlan
    from photon.assembly.room import Room
    from photon.dispatcher.engine import DispatcherEngine
    from photon.fleet.explain.service import Explainer
    from photon.idregistry.client.grpc_client import RegistryClient
    from photon.idregistry.core.outcomes import Refusal
    from photon.idregistry.core.scans import Traced

PULSE_S = 2.0
TRACE_S = 3.0
"""Longest wait for the registry when a person asks about one id."""

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerPlace:
    """A dispatcher's name in its pipeline, and the address of its status."""

    name: str | None
    """`None` for the only one; ``auto`` for one of several, under a free name."""
    listen: str | None
    """`None` if it answers nobody."""
    reached: str
    """host:port; empty if it answers nobody."""


def worker_place(
    pipeline: Pipeline, datacentre: str, worker: str | None, *, listen: str | None = None, address: str | None = None
) -> WorkerPlace:
    """Derives it from the worker's name, ``--listen`` and ``--address``. Raises UsageError."""
    if worker == AUTO:
        own = None
    elif not pipeline.dispatchers:
        if worker is not None:
            raise UsageError(
                f"dispatcher {worker}: datacentre {datacentre} has one dispatcher; for several, list each as "
                f"[datacentre.{datacentre}.dispatchers.{worker}], or start each as photon serve dispatcher {AUTO}"
            )
        own = pipeline.dispatcher
    else:
        if worker is None and len(pipeline.dispatchers) == 1:
            worker = next(iter(pipeline.dispatchers))
        if worker not in pipeline.dispatchers:
            known = ", ".join(sorted(pipeline.dispatchers))
            raise UsageError(f"dispatcher {worker}: not one of datacentre {datacentre}; there are: {known}")
        own = pipeline.dispatchers[worker].address
    if listen is None and address is None:
        return WorkerPlace(worker, own, own or "")
    where, reached = listening_place(listen, address or own, "a dispatcher")
    return WorkerPlace(worker, where, reached)


async def serve_dispatcher(
    room: Room,
    *,
    read_from: str = "beginning",
    address: str | None = None,
) -> None:
    """``read_from``: beginning, end, or a moment. ``address``: where others reach its status, if not the file's
    address."""
    from photon.assembly.engines import DispatcherPlan, open_dispatcher
    from photon.dispatcher.discovery import Discovery, Found, FoundHere
    from photon.dispatcher.joiner_set import JoinerSet
    from photon.dispatcher.lookups import LookUpPolicy
    from photon.fleet.explain.service import EXPLAIN, ExplainService
    from photon.joiner.client import JoinerClient

    settings, name, pipeline = room.settings, room.datacentre, room.pipeline
    place = worker_place(pipeline, name, room.member, listen=room.listen, address=address)
    join = pipeline.join
    tls = room.tls(Role.DISPATCHER)
    plan = DispatcherPlan(
        join=join,
        datacentre=name,
        foreign=room.logs("foreign"),
        output=room.output,
        state=room.state,
        look_ups=LookUpPolicy.BACKLOG,
        shared_with=settings.beside(name),
        worker=place.name,
        watch=Watch(pipeline.watch),
    )
    async with contextlib.AsyncExitStack() as closing:
        registry = await closing.enter_async_context(room.registry(tls))
        store = event_store(room, tls, closing)
        to_joiners = towards(tls, identity(Role.JOINER, name))

        def connect(address: str) -> Found:
            near = room.near.joiners.get(address)
            return JoinerClient(address, join, to_joiners) if near is None else FoundHere(near)

        def discovery() -> Discovery:
            slots = partial(registry.recovery.list_slots, timeout=LIST_S)
            return Discovery(JoinerSet(name), slots, connect, room.clock)

        own, samples = _Own(), samples_of(room, registry)

        async def begun(blocks: Sequence[Block]) -> bool:
            return await samples.keep(samples.began("foreign", blocks), room.stop)

        def open_as(worker: str | None) -> AbstractContextManager[DispatcherEngine]:
            adapter = room.adapter("dispatcher" if worker is None else f"dispatcher-{worker}")
            return open_dispatcher(
                settings, replace(plan, worker=worker), adapter, room.digester, joiners=(),
                progress=store.progress, registry=registry, disk=room.disk, clock=room.clock,
                measure=lambda: _commit_s(registry), discovery=discovery(), waking=store,
                begun=begun,
            )  # fmt: skip

        def begin() -> AbstractContextManager[DispatcherEngine]:
            return _named(open_as, place, plan.state / STATE_NAME, pipeline, own)

        check_directory(plan.foreign)
        own_name = "" if place.name == AUTO else named("dispatcher", name, place.name or "")
        if await admitted(room, registry, samples) and await unmatched(room, registry, own_name).begin(room.stop):
            _begin(room, plan, read_from)
            with Lives(begin) as lives:
                log.info("dispatcher serves", datacentre=name, join=join, worker=place.name)
                if not room.adapter().has_foreign_time:
                    log.warning(WITHOUT_TIME, join=join)
                metrics = _metrics(room, plan, lives, own)
                explaining = ExplainService(_explainer(room, plan, lives, own, registry))
                also = partial(EXPLAIN.add, servicer=explaining)
                async with room.answering("dispatcher", place.listen, metrics, tls, also):
                    room.up()
                    await lives.run(room.stop)


@dataclass(slots=True)
class _Own:
    name: str = ""


@contextlib.contextmanager
def _named(
    open_as: Callable[[str | None], AbstractContextManager[DispatcherEngine]],
    place: WorkerPlace,
    state: Path,
    pipeline: Pipeline,
    own: _Own,
) -> Iterator[DispatcherEngine]:
    """Opens it under its name, or the first free one; a worker records its address."""
    with contextlib.ExitStack() as stack:
        if place.name == AUTO:
            name, engine = stack.enter_context(under_free_name(state, pipeline.dispatchers, open_as))
        else:
            name, engine = place.name or "", stack.enter_context(open_as(place.name))
        if name:
            note_address(state, name, place.reached)
            own.name = name
            log.info("this dispatcher has taken a name", worker=name)
        yield engine


def _begin(room: Room, plan: DispatcherPlan, read_from: str) -> None:
    """Raises UsageError."""
    from photon.config.units import moment_ns
    from photon.dispatcher.process import Places
    from photon.dispatcher.skipping import Place, begin

    if read_from == "beginning":
        return
    if plan.worker is not None:
        raise UsageError("--read-from is for a dispatcher that has its state alone")
    try:
        place = Place.END if read_from == "end" else moment_ns(read_from, time.time_ns())
    except ValueError as error:
        raise UsageError(f"--read-from {read_from}: neither beginning nor end; {error}") from None
    configured, record_max = room.settings.join[plan.join], room.settings.limits.record
    skips = begin(
        Places(plan.foreign, plan.output, plan.state, configured.foreign_files, record_max),
        plan.join,
        room.adapter(),
        room.digester,
        place,
    )
    if skips is not None:
        left_out = sum(skip.skipped for skip in skips.moved)
        log.info("dispatcher begins", read_from=read_from, logs=len(skips.skips), bytes_left_out=left_out)
        for problem in skips.problems:
            log.warning("log file", problem=problem)


async def _commit_s(registry: RegistryClient) -> float | None:
    pulse = await registry.pulse(timeout=PULSE_S)
    if pulse.commit_s is None:
        return None
    return pulse.commit_s + max(pulse.round_trips_s.values(), default=0.0)


class Lives:
    """An engine, replaced each time that it is taken for dead; nothing of its memory is kept."""

    def __init__(self, begin: Callable[[], AbstractContextManager[DispatcherEngine]]) -> None:
        self._begin = begin
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Lives:
        self._engine = self._open.enter_context(self._begin())
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def engine(self) -> DispatcherEngine:
        return self._engine

    async def run(self, stop: asyncio.Event) -> None:
        from photon.dispatcher.errors import WorkerFenced
        from photon.dispatcher.process import serve

        while True:
            try:
                return await serve(self._engine, stop)
            except WorkerFenced as fenced:
                log.warning("the dispatcher starts again", why=str(fenced))
            if stop.is_set():
                return None
            self._open.close()
            self._engine = self._open.enter_context(self._begin())


def _explainer(room: Room, plan: DispatcherPlan, lives: Lives, own: _Own, registry: RegistryClient) -> Explainer:
    from photon.fleet.explain.dispatchers import foreign_logs
    from photon.fleet.explain.service import of_dispatcher

    logs = foreign_logs(room.settings, room.base, room.datacentre, plan.foreign, plan.state)
    digester = room.digester

    async def trace(event_id: bytes, time_ns: int) -> Traced | Refusal:
        return await registry.recovery.trace(digester.digest(event_id), time_ns, timeout=TRACE_S)

    return of_dispatcher(lambda: lives.engine, plan.state, plan.output, logs, lambda: own.name, trace)


def _metrics(room: Room, plan: DispatcherPlan, lives: Lives, own: _Own) -> ProcessMetrics:
    code = code_of(room.adapter())

    def details() -> dict[str, Any]:
        said = details_of(plan.join, lives.engine, room.clock)
        said["adapter"] = code
        if own.name:  # so any one of their addresses finds them all
            living = living_workers(plan.state / STATE_NAME)
            said["worker"] = own.name
            said["workers"] = [{"worker": each.name, "address": each.address} for each in living]
        return said

    return ProcessMetrics(
        [
            reads(plan.join, lambda: lives.engine, room.clock, retry_limit=room.settings.limits.retry_store),
            free_space({"state": plan.state, "output": plan.output}),
            put_costs,
        ],
        details,
    )
