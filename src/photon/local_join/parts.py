"""The parts of ``photon join``: dispatcher, joiner, registry and verifier, wired to its event store.

They call each other directly instead of through gRPC.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass

from photon.adapters.contract import Adapter
from photon.adapters.logs.api import Block
from photon.assembly.engines import DispatcherPlan, joiner_engine, open_dispatcher
from photon.assembly.registry import rule_hash
from photon.assembly.samples import Samples
from photon.config.clock import Clock
from photon.config.disk import Disk
from photon.config.errors import UsageError
from photon.config.settings import Settings
from photon.config.stopping import first, unless_stopped, until
from photon.dispatcher.database import read_reached
from photon.dispatcher.engine import DispatcherEngine
from photon.dispatcher.errors import StateError
from photon.dispatcher.ledger import Verdict
from photon.dispatcher.undecided import read_undecided
from photon.fleet.ledger import VERDICTS, ledger_file
from photon.idregistry.api import Digester, Registry, Slot
from photon.idregistry.replica.embedded import EmbeddedRegistry, RegistryConflict
from photon.joiner.engine import JoinerEngine
from photon.joiner.slot.identity import OutOfStep
from photon.joiner.slot.slot import Ages
from photon.local_join.options import JoinFailed, JoinOptions
from photon.local_join.site import DATACENTRE, SLOT, Site, refused
from photon.local_join.status import Status
from photon.local_join.store import RunningStore
from photon.outputs.identity import ID_BYTES, identify
from photon.outputs.log.copier import Copier
from photon.outputs.output_places import PublishedEnd
from photon.outputs.topic_relay import TopicUnreachable
from photon.verifier.verifier import Verifier
from photon.verifier.watermark import SlotShown
from photon.verifier.watermark_keeper import PERIOD_S, OnlyTimes, WatermarkKeeper, within_ns

SHOW_S = 0.2
SETTLE_S = 60.0
"""Longest time until registered records are durable in the output, at the end."""


@dataclass(slots=True)
class Parts:
    registry: Registry
    store: RunningStore
    joiner: JoinerEngine
    verifier: Verifier
    watermarks: WatermarkKeeper
    dispatcher: DispatcherEngine


@contextlib.asynccontextmanager
async def open_parts(
    options: JoinOptions,
    join: str,
    settings: Settings,
    adapter: Adapter,
    running: RunningStore,
    site: Site,
    disk: Disk,
    clock: Clock,
    stop: asyncio.Event,
    samples: Samples,
) -> AsyncIterator[Parts]:
    """Starts the parts in order, and closes them in reverse. Raises Stopped."""

    async def begun(blocks: Sequence[Block]) -> bool:
        return await samples.keep(samples.began("foreign", blocks), stop)

    store, digester = running.store, Digester(site.key(disk), join)
    identify(disk, site.state, secrets.token_hex(ID_BYTES), "join")
    async with contextlib.AsyncExitStack() as stack:
        rules = {join: rule_hash(adapter, digester)}
        registry = await stack.enter_async_context(_open_registry(rules, site, settings, disk, clock))
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
        watermarks = _watermarks(join, settings, joiner, site, disk, clock, timed=adapter.has_foreign_time)
        stack.callback(watermarks.close)
        verifier = Verifier(
            disk, site.slot.state, site.output, digester, registry, findings=OnlyTimes(watermarks.published)
        )
        plan = DispatcherPlan(
            join=join,
            datacentre=DATACENTRE,
            foreign=options.foreign,
            output=site.output,
            state=site.state,
            once=options.once,
            keep_pending=options.keep_pending,
            guessed_ids=options.config is None and options.words.id is None and _has_id(settings, join),
        )
        dispatcher = stack.enter_context(
            open_dispatcher(
                settings, plan, adapter, digester,
                joiners=[joiner], progress=store.progress, registry=registry, disk=disk, clock=clock,
                waking=store, begun=begun,
                reached=lambda: joiner.shell.store.redo_end,
            )
        )  # fmt: skip
        yield Parts(registry, running, joiner, verifier, watermarks, dispatcher)


@contextlib.asynccontextmanager
async def _open_registry(
    id_rules: Mapping[str, bytes], site: Site, settings: Settings, disk: Disk, clock: Clock
) -> AsyncIterator[Registry]:
    """The registry of a site; closed at the end. Raises UsageError."""
    try:
        local = await EmbeddedRegistry.open(
            site.registry("local"),
            shards=settings.registry.shards,
            id_rules=id_rules,
            uncertainty_ns=int(settings.clock.uncertainty * 1e9),
            retention_ns=None if settings.registry.retention is None else int(settings.registry.retention * 1e9),
            memory_limit=settings.registry.memory_limit,
            lone=True,
            disk=disk,
            clock=clock,
        )
    except RegistryConflict as conflict:
        raise UsageError(f"{site.output}: {conflict}") from None
    try:
        yield local
    finally:
        await local.close()


def _has_id(settings: Settings, join: str) -> bool:
    return "id" in (settings.join[join].foreign or {})


def _watermarks(
    join: str, settings: Settings, joiner: JoinerEngine, site: Site, disk: Disk, clock: Clock, *, timed: bool
) -> WatermarkKeeper:
    async def slots() -> list[SlotShown]:
        return [SlotShown(SLOT, joiner.shell.oldest_unshown_ns)]

    keeper = WatermarkKeeper(
        disk, clock, site.state, within_ns(settings, join),
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
            if (failure := parts.store.failure() or local) is not None:
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
    primary = await parts.store.store.progress()
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
