"""``photon serve dispatcher``: runs a pipeline's dispatcher, or one of several that share its logs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

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
from photon.dispatcher.partitions import Partition, partition_named
from photon.dispatcher.status import details_of, reads
from photon.objects.costs import put_costs

if TYPE_CHECKING:
    import grpc.aio

    from photon.adapters.logs.api import Block
    from photon.assembly.engines import DispatcherPlan
    from photon.assembly.room import Room
    from photon.dispatcher.engine import DispatcherEngine
    from photon.fleet.explain.service import Explainer
    from photon.idregistry.client.routing import RoutedRegistry
    from photon.idregistry.core.outcomes import Refusal
    from photon.idregistry.core.scans import Traced

PULSE_S = 2.0
TRACE_S = 3.0  # how long to wait for the registry when a user asks about one id

log = get_logger(__name__)


def partition_of_member(pipeline: Pipeline, datacentre: str, member: str | None) -> Partition:
    """Returns the share of the logs that the dispatcher ``member`` reads. Raises UsageError."""
    partition = partition_named(member or "")
    if partition is None or partition.count != pipeline.dispatchers:
        known = ", ".join(pipeline.dispatcher_names()) or "only one, which has no name"
        raise UsageError(
            f"dispatcher {member or ''}: not one of datacentre {datacentre}; there are: {known}".replace(" :", ":")
        )
    return partition


async def serve_dispatcher(
    room: Room,
    *,
    read_from: str = "beginning",
    address: str | None = None,
) -> None:
    """Runs one dispatcher. ``read_from``: beginning, end, or a moment. ``address``: public address of its status;
    default: the address in the file."""
    from photon.assembly.engines import DispatcherPlan, open_dispatcher
    from photon.dispatcher.discovery import Discovery, Found, FoundHere
    from photon.dispatcher.joiner_set import JoinerSet
    from photon.dispatcher.lookups import LookUpPolicy
    from photon.dispatcher.process import serve

    settings, name, pipeline, alone = room.settings, room.datacentre, room.pipeline, room.alone
    partition = partition_of_member(pipeline, name, room.member)
    listen = pipeline.at("dispatcher")[partition.number - 1]
    if room.listen is not None or address is not None:
        listen, _ = listening_place(room.listen, address or listen, "a dispatcher")
    join = pipeline.join
    tls = room.tls()
    plan = DispatcherPlan(
        join=join,
        datacentre=name,
        foreign=room.logs("foreign"),
        output=room.output,
        state=room.state,
        once=alone is not None and alone.once,
        keep_pending=alone is not None and alone.keep_pending,
        guessed_ids=alone is not None and alone.guessed_ids,
        look_ups=LookUpPolicy.BACKLOG if alone is None else LookUpPolicy.NEVER,
        shared_with=settings.beside(name),
        partition=partition,
        watch=Watch(pipeline.watch),
    )
    async with contextlib.AsyncExitStack() as closing:
        registry = await closing.enter_async_context(room.registry(tls))
        store = event_store(room, tls, closing)
        to_joiners = towards(tls, identity(Role.DATACENTRE, name))

        def connect(address: str) -> Found:
            near = room.near.joiners.get(address)
            if near is not None:
                return FoundHere(near)
            from photon.joiner.client import JoinerClient

            return JoinerClient(address, join, to_joiners)

        def discovery() -> Discovery:
            slots = partial(registry.recovery.list_slots, timeout=LIST_S)
            return Discovery(JoinerSet(name), slots, connect, room.clock)

        samples = samples_of(room, registry)

        async def begun(blocks: Sequence[Block]) -> bool:
            return await samples.keep(samples.began("foreign", blocks), room.stop)

        check_directory(plan.foreign)
        own_name = named("dispatcher", name, partition.name)
        if await admitted(room, registry, samples) and await unmatched(room, registry, own_name).begin(room.stop):
            _begin(room, plan, read_from)
            near = [] if alone is None else room.near.joiners.values()
            joiners = [opened for each in near if (opened := each.opened) is not None]
            with open_dispatcher(
                settings, plan, room.adapter(partition.named("dispatcher")), room.digester,
                progress=store.progress, registry=registry, disk=room.disk, clock=room.clock,
                measure=lambda: _commit_s(registry), waking=store, begun=begun, joiners=joiners,
                discovery=None if joiners else discovery(),
                reached=(lambda: joiners[0].shell.store.redo_end) if joiners else None,
            ) as engine:  # fmt: skip
                log.info("dispatcher serves", datacentre=name, join=join, partition=partition.name or None)
                if alone is None and not room.adapter().has_foreign_time:
                    log.warning(WITHOUT_TIME, join=join)

                def explained(server: grpc.aio.Server) -> None:
                    from photon.fleet.explain.service import EXPLAIN, ExplainService

                    EXPLAIN.add(server, ExplainService(_explainer(room, plan, engine, registry)))

                async with room.answering("dispatcher", listen, _metrics(room, plan, engine), tls, explained):
                    room.near.dispatcher = engine
                    room.up()
                    try:
                        await serve(engine, room.stop)
                        room.near.dispatched = engine.status(conflicts=True)
                    finally:
                        room.near.dispatcher = None


def _begin(room: Room, plan: DispatcherPlan, read_from: str) -> None:
    """Moves the start of reading to ``read_from``, unless it is ``beginning``. Raises UsageError."""
    from photon.config.units import moment_ns
    from photon.dispatcher.process import Places
    from photon.dispatcher.skipping import Place, begin

    if read_from == "beginning":
        return
    try:
        place = Place.END if read_from == "end" else moment_ns(read_from, time.time_ns())
    except ValueError as error:
        raise UsageError(f"--read-from {read_from}: not 'beginning', 'end' or a time: {error}") from None
    configured, record_max = room.settings.join[plan.join], room.settings.limits.record
    skips = begin(
        Places(plan.foreign, plan.output, plan.state, configured.foreign_files, record_max, partition=plan.partition),
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


async def _commit_s(registry: RoutedRegistry) -> float | None:
    pulse = await registry.pulse(timeout=PULSE_S)
    if pulse.commit_s is None:
        return None
    return pulse.commit_s + max(pulse.round_trips_s.values(), default=0.0)


def _explainer(room: Room, plan: DispatcherPlan, engine: DispatcherEngine, registry: RoutedRegistry) -> Explainer:
    from photon.fleet.explain.dispatchers import foreign_logs
    from photon.fleet.explain.service import of_dispatcher

    logs = foreign_logs(room.settings, room.base, room.datacentre, plan.foreign, plan.state)
    digester = room.digester

    async def trace(event_id: bytes, time_ns: int) -> Traced | Refusal:
        return await registry.recovery.trace(digester.digest(event_id), time_ns, timeout=TRACE_S)

    return of_dispatcher(engine, plan.state, plan.output, logs, plan.partition.name, trace)


def _metrics(room: Room, plan: DispatcherPlan, engine: DispatcherEngine) -> ProcessMetrics:
    code = code_of(room.adapter())
    return ProcessMetrics(
        [
            reads(plan.join, lambda: engine, room.clock, retry_limit=room.settings.limits.retry_store),
            free_space({"state": plan.state, "output": plan.output}),
            put_costs,
        ],
        lambda: details_of(plan.join, engine, room.clock) | {"adapter": code},
    )
