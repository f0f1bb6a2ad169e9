"""``photon join``: dispatcher, joiner, event store, registry and verifier of one pipeline, wired together here.

The same components as the services run; between them are direct calls in place of gRPC. Everything that must survive
lies in ``OUTPUT/.photon`` (see site.py), so that a kill at any instruction is repaired by running the command again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from photon.adapters.contract import Adapter
from photon.config.clock import Clock, SystemClock
from photon.config.disk import Disk, RealDisk
from photon.config.errors import PhotonError
from photon.config.loader import load
from photon.config.settings import Settings
from photon.dispatcher.engine import DispatcherEngine
from photon.dispatcher.ledger import Verdict
from photon.embedded.adapter import adapter_of, join_named, rule_hash
from photon.embedded.ledger import ledger_file, read_ledger
from photon.embedded.pipeline import DispatcherPlan, joiner_engine, open_dispatcher
from photon.embedded.preview import check_readable, inferred_toml
from photon.embedded.registry import RegistryPlan, open_registry
from photon.embedded.site import DATACENTRE, SLOT, Site
from photon.embedded.sockets import socket_address
from photon.embedded.status import VERDICTS, Status
from photon.embedded.stopping import Stopped, unless_stopped
from photon.embedded.supervisor import Service, Supervisor
from photon.eventstore.client import EventStoreClient
from photon.idregistry.api import Digester, Registry, Slot
from photon.idregistry.embedded import EmbeddedRegistry
from photon.joiner.engine import JoinerEngine
from photon.verifier.verifier import Verifier

SHOW_S = 0.2
SETTLE_S = 60.0
"""For what was registered to be durable in the output, at the end."""


@dataclass(frozen=True, slots=True)
class JoinOptions:
    """What the command was told."""

    primary: Path
    foreign: Path
    output: Path
    config: Path | None = None
    """None: look at the logs and infer it."""
    overrides: tuple[str, ...] = ()
    join: str | None = None
    once: bool = False
    keep_pending: bool = False
    replicas: int = 1
    stages: Path | None = None
    """The event store's process writes its stages beside this file."""


class JoinFailed(PhotonError):
    """A part of the pipeline failed; what was done until then is durable."""


@dataclass(frozen=True, slots=True)
class JoinResult:
    """How a run ended."""

    ledger: dict[str, int]
    rejected: int
    """In this run."""
    unread: tuple[str, ...]
    """A line for each foreign log that was not read to its end."""
    unowned: int
    """Output records whose id the registry does not know as theirs: doubled, or written without a registration."""
    stopped: bool = False
    """By ``stop``, before all had a verdict."""


@dataclass(slots=True)
class _Parts:
    supervisor: Supervisor
    registry: Registry
    store: EventStoreClient
    joiner: JoinerEngine
    verifier: Verifier
    dispatcher: DispatcherEngine


async def run(
    options: JoinOptions, *, stop: asyncio.Event, show: Callable[[Status], None], say: Callable[[str], None]
) -> JoinResult:
    """Runs until everything has a verdict (``once``) or ``stop`` is set. ``say`` is told what a person should know.

    Raises PhotonError.
    """
    site = Site(options.output)
    site.check_logs("primary", options.primary)
    site.check_logs("foreign", options.foreign)
    if options.config is not None:
        _configured(options, options.config)  # before anything is made
    disk, clock = RealDisk(), SystemClock()
    lock = site.take()
    try:
        config = options.config or _inferred(options, site, disk, say)
        settings, name, adapter = _configured(options, config)
        if not ledger_file(site.state).exists():
            check_readable(adapter, options.primary, options.foreign)
        before = read_ledger(site.state)["rejected"]
        async with _parts(options, config, settings, name, adapter, site, disk, clock, stop) as parts:
            stopped = await _work(parts, stop, show)
            unread = parts.dispatcher.status().unread
            if bad := (await parts.store.progress()).bad_records:
                say(
                    f"{bad} primary records cannot be read or name no key; no foreign event is joined with them "
                    f"(the first are named in {_store_log(site)})"
                )
            verified = parts.verifier.total
        ledger = read_ledger(site.state)
        unowned = verified.refused + verified.unreadable
        return JoinResult(ledger, ledger["rejected"] - before, unread, unowned, stopped)
    except Stopped:  # while the parts were starting
        return JoinResult(read_ledger(site.state), 0, (), 0, True)
    finally:
        lock.release()


def _configured(options: JoinOptions, config: Path) -> tuple[Settings, str, Adapter]:
    """Settings, the join's name, its adapter. Raises ConfigError, UsageError, AdapterError."""
    settings = load(config, environment=os.environ, flags=options.overrides)
    name = join_named(settings, options.join)
    return settings, name, adapter_of(settings, name, config.parent)


def _inferred(options: JoinOptions, site: Site, disk: Disk, say: Callable[[str], None]) -> Path:
    """What the logs themselves say, found at the first run and kept since."""
    path = site.state / "inferred.toml"
    if not disk.exists(path):
        toml, why = inferred_toml(options.primary, options.foreign)
        disk.replace(path, toml.encode())
        for line in (*why, f"kept in {path}; correct it there, or name your own with --config"):
            say(line)
    return path


@contextlib.asynccontextmanager
async def _parts(
    options: JoinOptions,
    config: Path,
    settings: Settings,
    name: str,
    adapter: Adapter,
    site: Site,
    disk: Disk,
    clock: Clock,
    stop: asyncio.Event,
) -> AsyncIterator[_Parts]:
    """Starts the parts in order, and closes them in the reverse one. Raises Stopped."""
    digester = Digester(site.key(disk), name)
    async with contextlib.AsyncExitStack() as stack:
        address = stack.enter_context(socket_address(site.state, "eventstore"))
        supervisor = Supervisor()
        stack.push_async_callback(supervisor.stop)
        await supervisor.start([_store_service(options, config, name, site, address)])
        plan = RegistryPlan(options.replicas, {name: rule_hash(adapter, digester)})
        registry = await stack.enter_async_context(
            open_registry(site, settings, plan, supervisor, disk=disk, clock=clock, stop=stop)
        )
        store = EventStoreClient(address, name)
        stack.push_async_callback(store.close)
        joiner = joiner_engine(
            settings, adapter, Slot(SLOT, DATACENTRE), site.slot,
            registry=registry, store=store, disk=disk, clock=clock,
        )  # fmt: skip
        stack.push_async_callback(joiner.close)
        await unless_stopped(stop, joiner.start())  # which waits for the registry as long as it takes
        verifier = Verifier(disk, site.slot.state, site.output, digester, registry)
        dispatcher = stack.enter_context(
            open_dispatcher(
                settings, _dispatcher_plan(options, name, site), adapter, digester,
                joiners=[joiner], progress=store.progress, registry=None, disk=disk, clock=clock,
            )
        )  # fmt: skip
        yield _Parts(supervisor, registry, store, joiner, verifier, dispatcher)


def _store_log(site: Site) -> Path:
    return site.state / "logs" / "eventstore.log"


def _store_service(options: JoinOptions, config: Path, name: str, site: Site, address: str) -> Service:
    """The event store reads primary logs in a process of its own: it has a core to itself that way."""
    arguments = ["eventstore", "serve", "--config", str(config.absolute()), "--join", name, "--stop-with-parent"]
    arguments += ["--primary", str(options.primary.absolute()), "--state", str(site.file_map.absolute())]
    arguments += ["--address", address, *(["--once"] if options.once else [])]
    arguments += ["--may-be-empty"] if options.keep_pending else []
    if options.stages is not None:
        arguments += ["--stages", str(options.stages.absolute().with_suffix(".eventstore.json"))]
    for override in options.overrides:
        arguments += ["--set", override]
    return Service("event store", tuple(arguments), _store_log(site), address)


def _dispatcher_plan(options: JoinOptions, name: str, site: Site) -> DispatcherPlan:
    return DispatcherPlan(
        join=name,
        datacentre=DATACENTRE,
        foreign=options.foreign,
        output=site.output,
        state=site.state,
        once=options.once,
        keep_pending=options.keep_pending,
    )


async def _work(parts: _Parts, stop: asyncio.Event, show: Callable[[Status], None]) -> bool:
    """Whether it was stopped before the dispatcher was done."""
    stopped = False
    began = time.monotonic()
    done = asyncio.Event()
    verifying = asyncio.create_task(parts.verifier.run(done), name="verifier")
    dispatching = asyncio.create_task(parts.dispatcher.run(), name="dispatcher")
    stopping = asyncio.create_task(stop.wait(), name="stop")
    try:
        while not dispatching.done():
            show(await _status(parts, time.monotonic() - began))
            registry = parts.registry
            local = registry.failure if isinstance(registry, EmbeddedRegistry) else None
            if (failure := parts.supervisor.failure() or local) is not None:
                raise JoinFailed(failure)
            if verifying.done():
                verifying.result()
            await asyncio.wait({dispatching, stopping}, timeout=SHOW_S, return_when=asyncio.FIRST_COMPLETED)
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
        stopping.cancel()
        dispatching.cancel()
        await asyncio.gather(dispatching, verifying, stopping, return_exceptions=True)
    await parts.verifier.run_once()
    show(await _status(parts, time.monotonic() - began))
    return stopped


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
        missing_logs=primary.missing_logs,
        missing_keys=primary.missing_keys,
    )
