"""``photon join``: dispatcher, joiner, event store, registry and verifier of one pipeline, wired together here.

The same components as the services run; between them are direct calls in place of gRPC. Everything that must survive
lies in ``OUTPUT/.photon`` (see site.py), so that a kill at any instruction is repaired by running the command again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

from photon.adapters.contract import Adapter
from photon.config.clock import Clock, SystemClock
from photon.config.disk import Disk, RealDisk
from photon.config.errors import PhotonError, UsageError
from photon.config.loader import load
from photon.config.settings import Settings
from photon.dispatcher.engine import DispatcherEngine
from photon.dispatcher.ledger import Verdict
from photon.embedded.adapter import adapter_of, join_named, rule_hash
from photon.embedded.infer import inferred_toml
from photon.embedded.ledger import read_ledger
from photon.embedded.pipeline import DispatcherPlan, eventstore_config, joiner_engine, open_dispatcher, reporter
from photon.embedded.registry import RegistryPlan, open_registry
from photon.embedded.site import DATACENTRE, SLOT, Site
from photon.embedded.status import VERDICTS, Status
from photon.eventstore.engine import EventStoreEngine
from photon.idregistry.api import Digester, Registry, Slot
from photon.joiner.engine import JoinerEngine
from photon.joiner.verifier.verifier import Verifier

SHOW_S = 0.2
SETTLE_S = 60.0
"""For what was registered to be durable in the output, at the end."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class JoinOptions:
    """What the command was told."""

    primary: Path
    foreign: Path
    output: Path
    settings: Settings
    base: Path
    """Adapter paths are relative to it."""
    join: str | None = None
    once: bool = False
    keep_pending: bool = False
    replicas: int = 1
    infer: bool = False
    """There is no configuration: look at the logs."""


class JoinFailed(PhotonError):
    """A part of the pipeline failed; what was done until then is durable."""


@dataclass(slots=True)
class _Parts:
    registry: Registry
    store: EventStoreEngine
    joiner: JoinerEngine
    verifier: Verifier
    dispatcher: DispatcherEngine


async def run(options: JoinOptions, *, stop: asyncio.Event, show: Callable[[Status], None]) -> dict[str, int]:
    """Runs until everything has a verdict (``once``) or ``stop`` is set; the final ledger. Raises PhotonError."""
    for side, directory in (("primary", options.primary), ("foreign", options.foreign)):
        if not directory.is_dir():
            raise UsageError(f"--{side} {directory}: no such directory; name the directory of the {side} logs")
    site = Site(options.output)
    disk, clock = RealDisk(), SystemClock()
    lock = site.take()
    try:
        settings, base = _settings(options, site, disk)
        name = join_named(settings, options.join)
        adapter = adapter_of(settings, name, base)
        async with _parts(options, settings, name, adapter, site, disk, clock) as parts:
            await _work(options, parts, stop, show)
            return read_ledger(site.state)
    finally:
        lock.release()


def _settings(options: JoinOptions, site: Site, disk: Disk) -> tuple[Settings, Path]:
    """The command's, or what was inferred from the logs at the first run and kept since."""
    if not options.infer:
        return options.settings, options.base
    path = site.state / "inferred.toml"
    if not disk.exists(path):
        toml, why = inferred_toml(options.primary, options.foreign)
        disk.replace(path, toml.encode())
        for line in why:
            log.info(line, inferred=str(path))
    inferred = load(path, environment={})
    return Settings(
        join=inferred.join,
        limits=options.settings.limits,
        output=options.settings.output,
        clock=options.settings.clock,
        registry=options.settings.registry,
    ), options.base


@contextlib.asynccontextmanager
async def _parts(
    options: JoinOptions, settings: Settings, name: str, adapter: Adapter, site: Site, disk: Disk, clock: Clock
) -> AsyncIterator[_Parts]:
    """Starts the parts in order, and closes them in the reverse one."""
    key = site.key(disk)
    registry_plan = RegistryPlan(options.replicas, rule_hash(adapter))
    digester = Digester(key, name)
    async with contextlib.AsyncExitStack() as stack:
        stored = eventstore_config(settings, name, options.primary, site.file_map, once=_complete(options))
        store = EventStoreEngine(stored, adapter, clock, disk, reporter("event store"))
        stack.push_async_callback(store.close)
        store.start()
        registry = await stack.enter_async_context(
            open_registry(site, settings, registry_plan, disk=disk, clock=clock)
        )
        slot = Slot(SLOT, DATACENTRE)
        joiner = joiner_engine(
            settings, adapter, slot, site.slot, registry=registry, store=store, disk=disk, clock=clock
        )
        await joiner.start()
        stack.push_async_callback(joiner.close)
        verifier = Verifier(disk, site.slot.state, site.output, digester, registry)
        plan = DispatcherPlan(
            join=name,
            datacentre=DATACENTRE,
            foreign=options.foreign,
            output=site.output,
            state=site.state,
            once=options.once,
            keep_pending=options.keep_pending,
        )

        async def progress() -> int:
            return (await store.progress()).read_past_ns

        dispatcher = stack.enter_context(
            open_dispatcher(
                settings, plan, adapter, digester,
                joiners=[joiner], progress=progress, registry=None, disk=disk, clock=clock,
            )
        )  # fmt: skip
        yield _Parts(registry, store, joiner, verifier, dispatcher)


def _complete(options: JoinOptions) -> bool:
    """Whether the end of the primary logs is the end for ever."""
    return options.once


async def _work(options: JoinOptions, parts: _Parts, stop: asyncio.Event, show: Callable[[Status], None]) -> None:
    began = time.monotonic()
    done = asyncio.Event()
    verifying = asyncio.create_task(parts.verifier.run(done), name="verifier")
    dispatching = asyncio.create_task(parts.dispatcher.run(), name="dispatcher")
    stopping = asyncio.create_task(stop.wait(), name="stop")
    try:
        while not dispatching.done():
            show(await _status(parts, time.monotonic() - began))
            if parts.store.failure:
                raise JoinFailed(parts.store.failure)
            if verifying.done():
                verifying.result()
            await asyncio.wait({dispatching, stopping}, timeout=SHOW_S, return_when=asyncio.FIRST_COMPLETED)
            if stop.is_set():
                parts.dispatcher.stop()
                await asyncio.wait({dispatching}, timeout=SHOW_S)
        dispatching.result()
        if not await parts.joiner.settle(SETTLE_S):
            raise JoinFailed(
                f"the registry did not answer for {SETTLE_S:g} s; what was logged is written when you run this again"
            )
    finally:
        done.set()
        stopping.cancel()
        dispatching.cancel()
        await asyncio.gather(dispatching, verifying, stopping, return_exceptions=True)
    await parts.verifier.run_once()
    show(await _status(parts, time.monotonic() - began))


def _ledger(parts: _Parts) -> dict[str, int]:
    seen = parts.dispatcher.status()
    counts = {name: seen.verdicts[Verdict[name.upper()]] for name in VERDICTS}
    return {"read": seen.read, **counts, "pending": seen.pending}


async def _status(parts: _Parts, at_s: float) -> Status:
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
    )
