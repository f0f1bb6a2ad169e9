"""The parts of ``photon join`` in its own process, dispatcher, joiner and verifier, wired to its child processes.

They call each other directly instead of through gRPC.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from photon.adapters.contract import Adapter
from photon.adapters.logs.api import Block
from photon.assembly.engines import DispatcherPlan, joiner_engine, open_dispatcher
from photon.assembly.samples import Samples
from photon.config.clock import Clock
from photon.config.disk import Disk
from photon.config.settings import Settings
from photon.config.stopping import first, unless_stopped, until
from photon.dispatcher.database import read_reached
from photon.dispatcher.engine import DispatcherEngine
from photon.dispatcher.errors import StateError
from photon.dispatcher.ledger import Verdict
from photon.dispatcher.undecided import read_undecided
from photon.eventstore.client import EventStoreClient
from photon.fleet.ledger import VERDICTS, ledger_file
from photon.idregistry.api import Registry, Slot
from photon.idregistry.replica.embedded import EmbeddedRegistry
from photon.joiner.engine import JoinerEngine
from photon.joiner.slot.identity import OutOfStep
from photon.joiner.slot.slot import Ages
from photon.local_join.children import Children, JoinFailed, open_registry, refused
from photon.local_join.site import DATACENTRE, SLOT, Site
from photon.local_join.status import Status
from photon.outputs.log.copier import Copier
from photon.outputs.output_places import PublishedEnd
from photon.outputs.topic_relay import TopicUnreachable
from photon.supervision.supervisor import Supervisor
from photon.verifier.verifier import Verifier
from photon.verifier.watermark import SlotShown
from photon.verifier.watermark_keeper import PERIOD_S, OnlyTimes, WatermarkKeeper, within_ns

SHOW_S = 0.2
SETTLE_S = 60.0
"""Longest time until registered records are durable in the output, at the end."""


@dataclass(slots=True)
class Parts:
    supervisor: Supervisor
    registry: Registry
    store: EventStoreClient
    joiner: JoinerEngine
    verifier: Verifier
    watermarks: WatermarkKeeper
    dispatcher: DispatcherEngine


@contextlib.asynccontextmanager
async def open_parts(
    children: Children,
    settings: Settings,
    adapter: Adapter,
    site: Site,
    disk: Disk,
    clock: Clock,
    stop: asyncio.Event,
    samples: Samples,
) -> AsyncIterator[Parts]:
    """Starts the parts in order, and closes them in reverse. Raises Stopped."""

    async def begun(blocks: Sequence[Block]) -> bool:
        return await samples.keep(samples.began("foreign", blocks), stop)

    options, supervisor = children.options, children.supervisor
    async with contextlib.AsyncExitStack() as stack:
        registry = await stack.enter_async_context(open_registry(children, site, settings, disk, clock))
        store = EventStoreClient(children.store, children.join)
        stack.push_async_callback(store.close)
        joiner = joiner_engine(
            settings, adapter, Slot(SLOT, DATACENTRE), site.slot,
            registry=registry, store=store, disk=disk, clock=clock,
            ages=Ages(own_registry=True, reached=_reached(site)),
        )  # fmt: skip
        stack.push_async_callback(joiner.close)
        try:
            await unless_stopped(stop, joiner.start())  # waits for the registry as long as it takes
        except OutOfStep as other:
            raise refused(site, other) from None
        watermarks = _watermarks(children, settings, joiner, site, disk, clock, timed=adapter.has_foreign_time)
        stack.callback(watermarks.close)
        verifier = Verifier(
            disk, site.slot.state, site.output, children.digester, registry, findings=OnlyTimes(watermarks.published)
        )
        plan = DispatcherPlan(
            join=children.join,
            datacentre=DATACENTRE,
            foreign=options.foreign,
            output=site.output,
            state=site.state,
            once=options.once,
            keep_pending=options.keep_pending,
            guessed_ids=options.config is None and options.words.id is None and _has_id(settings, children.join),
        )
        dispatcher = stack.enter_context(
            open_dispatcher(
                settings, plan, adapter, children.digester,
                joiners=[joiner], progress=store.progress, registry=registry, disk=disk, clock=clock,
                waking=store, begun=begun,
                reached=lambda: joiner.shell.store.redo_end,
            )
        )  # fmt: skip
        yield Parts(supervisor, registry, store, joiner, verifier, watermarks, dispatcher)


def _has_id(settings: Settings, join: str) -> bool:
    return "id" in (settings.join[join].foreign or {})


def _watermarks(
    children: Children, settings: Settings, joiner: JoinerEngine, site: Site, disk: Disk, clock: Clock, *, timed: bool
) -> WatermarkKeeper:
    async def slots() -> list[SlotShown]:
        return [SlotShown(SLOT, joiner.shell.oldest_unshown_ns)]

    keeper = WatermarkKeeper(
        disk, clock, site.state, within_ns(settings, children.join),
        undecided=lambda: read_undecided(ledger_file(site.state)),
        slots=slots,
        cursor=PublishedEnd(disk, site.slot.state.parent).look,
        timed=timed,
    )  # fmt: skip
    keeper.open()
    return keeper


def _reached(site: Site) -> tuple[int, int] | None:
    """`None` if nothing is known, or the state is damaged: the dispatcher itself reports that, or continues from a
    copy."""
    try:
        return read_reached(ledger_file(site.state))
    except StateError:
        return None


async def work(
    parts: Parts,
    stop: asyncio.Event,
    show: Callable[[Status], None],
    say: Callable[[str], None],
    relays: Sequence[Copier] = (),
) -> bool:
    """True if it was stopped before the dispatcher was done. ``relays``: of logs that are topics, or other joins'
    output."""
    stopped = False
    began = time.monotonic()
    done = asyncio.Event()
    verifying = asyncio.create_task(parts.verifier.run(done), name="verifier")
    dispatching = asyncio.create_task(parts.dispatcher.run(), name="dispatcher")
    relaying = asyncio.create_task(_relay(relays, say, done), name="relay")
    sampling = asyncio.create_task(_sample(parts.watermarks, done), name="watermarks")
    try:
        while not dispatching.done():
            show(await _status(parts, time.monotonic() - began))
            registry = parts.registry
            local = registry.failure if isinstance(registry, EmbeddedRegistry) else None
            if (failure := parts.supervisor.failure() or local) is not None:
                raise JoinFailed(failure)
            for each in (verifying, relaying, sampling):
                if each.done():
                    each.result()
            await first(stop, [dispatching], timeout=SHOW_S)
            if stop.is_set() and not dispatching.done():
                stopped = True
                parts.dispatcher.stop()
                await asyncio.wait({dispatching}, timeout=SHOW_S)
        dispatching.result()
        if not await parts.joiner.settle(SETTLE_S):
            raise JoinFailed(
                f"the registry did not answer for {SETTLE_S:g} s; what was logged is written when you run this again"
            )
    finally:
        done.set()
        dispatching.cancel()
        await asyncio.gather(dispatching, verifying, relaying, sampling, return_exceptions=True)
    await parts.verifier.run_once()
    await parts.watermarks.pass_()  # of all verdicts of this run
    show(await _status(parts, time.monotonic() - began))
    return stopped


async def _sample(watermarks: WatermarkKeeper, done: asyncio.Event) -> None:
    while not await until(done, PERIOD_S):
        await watermarks.pass_()


async def _relay(relays: Sequence[Copier], say: Callable[[str], None], done: asyncio.Event) -> None:
    """Copies new records until ``done``. While a topic's brokers are away, everything waits; ``say`` is told once
    when that begins, and once when it is over."""
    away = set[Copier]()
    while not await until(done, SHOW_S):
        for each in relays:
            try:
                await asyncio.to_thread(each.pass_on, time.time_ns())
            except TopicUnreachable as error:
                if each not in away:
                    away.add(each)
                    say(f"{error}; nothing is called unmatched until it is read again")
            else:
                if each in away:
                    away.discard(each)
                    say(f"topic {each.name} is read again")


def _ledger(parts: Parts) -> dict[str, int]:
    seen = parts.dispatcher.status()
    counts = {name: seen.verdicts[Verdict[name.upper()]] for name in VERDICTS}
    return {"read": seen.read, **counts, "pending": seen.pending}


async def _status(parts: Parts, at_s: float) -> Status:
    seen = parts.dispatcher.status()
    primary = await parts.store.progress()
    return Status(
        at_s=at_s,
        ledger=_ledger(parts),
        foreign_read=seen.bytes_read,
        foreign_known=seen.bytes_known,
        primary_read=primary.bytes_read,
        primary_known=primary.bytes_known,
        primary_events=primary.events,
        missing_logs=primary.missing_logs,
        missing_keys=primary.missing_keys,
    )
