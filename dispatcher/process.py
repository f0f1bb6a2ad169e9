"""Putting a dispatcher together from explicit parts, and running it as a process until SIGTERM."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

from photon.adapters.contract import Adapter
from photon.adapters.envelope import Envelope
from photon.adapters.logs.problems import Problem
from photon.adapters.logs.unended_lines import RestRule
from photon.adapters.logs.watching import Watch, watching
from photon.config.clock import Clock
from photon.config.disk import Disk
from photon.config.stopping import first
from photon.config.structured import get_logger
from photon.dispatcher.database import STATE_NAME
from photon.dispatcher.discovery import Discovery
from photon.dispatcher.engine import DispatcherEngine, Measure, Options
from photon.dispatcher.exports import Exports
from photon.dispatcher.homes import Homes
from photon.dispatcher.limits import Limits
from photon.dispatcher.lookups import LookUpPolicy
from photon.dispatcher.previous import copied
from photon.dispatcher.progress import AskProgress
from photon.dispatcher.replay.reading import LogFiles
from photon.dispatcher.replay.rereading import Sources
from photon.dispatcher.retry import Patience
from photon.dispatcher.state import Reached
from photon.dispatcher.worker import Worker, follower_for, holdings_for, open_exports, open_state
from photon.eventstore.api import ArrivalNotices
from photon.idregistry.api import Digester, Registry
from photon.idregistry.client.routing import RoutedRegistry
from photon.joiner.api import Joiner


@dataclass(frozen=True, slots=True)
class Places:
    """Where a dispatcher reads and writes."""

    foreign: Path
    """The foreign log directory."""
    output: Path
    """``rejected/`` and ``late/`` come below it."""
    state: Path
    """A directory on a local disk; ``dispatcher.db`` comes into it."""
    patterns: Sequence[str] = ("**/*",)
    max_record: int = 1 << 20
    watch: Watch = Watch.AUTO
    last_line_after_s: float = 0.0
    """Once: a last line without line end waits until its file was not written to for so long; 0: it does not."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How a dispatcher behaves."""

    patience: Patience
    limits: Limits = field(default_factory=Limits)
    options: Options = field(default_factory=Options)


def state_rule(join: str, adapter: Adapter, digester: Digester) -> bytes:
    """What a state is bound to: with another key every id would be a new one to the registry, and all that is read
    again would be joined twice.
    """
    return blake2b(join.encode() + b"\0" + digester.fingerprint() + adapter.rule(), digest_size=16).digest()


@contextmanager
def open_dispatcher(
    places: Places,
    policy: Policy,
    *,
    join: str,
    datacentre: str,
    adapter: Adapter,
    digester: Digester,
    joiners: Sequence[Joiner],
    progress: AskProgress,
    registry: Registry | None,
    envelope: Envelope,
    clock: Clock,
    disk: Disk,
    random: Callable[[], float],
    report: Callable[[Problem], None] | None = None,
    homes: Homes | None = None,
    measure: Measure | None = None,
    worker: Worker | None = None,
    discovery: Discovery | None = None,
    waking: ArrivalNotices | None = None,
    reached: Reached | None = None,
) -> Iterator[DispatcherEngine]:
    """An engine with its files open. Joiners and registry stay the caller's. ``worker`` None: it has its state alone.

    ``reached``: how far the redo log of its only joiner is durable now; noted with each commit, for whoever compares
    the ages of the two. ``random``: uniform in [0, 1). Raises LogDirectoryError, StateError, OSError.
    """
    log = get_logger("photon.dispatcher")
    tell = report or (lambda problem: log.warning("log file", kind=problem.kind.value, problem=str(problem)))
    rule = state_rule(join, adapter, digester)
    with (
        open_state(places.state / STATE_NAME, rule, worker, clock.now_ns()) as state,
        watching(places.foreign, places.watch, log.warning) as watcher,
        nullcontext() if policy.options.once or worker is not None else copied(places.state / STATE_NAME),
    ):
        if reached is not None:
            state.reached = reached
        follower = follower_for(state)(
            places.foreign,
            patterns=places.patterns,
            has_header=adapter.foreign_has_header,
            framing=adapter.foreign_framing,
            max_record=places.max_record,
            positions=state.positions(),
            report=tell,
            enter=watcher.enter if watcher is not None else lambda path: None,
            rest=RestRule(places.last_line_after_s, clock.now_ns),
        )
        exports = open_exports(places.output, disk, state, log.warning, places.state)
        files = LogFiles(
            places.foreign,
            places.patterns,
            has_header=adapter.foreign_has_header,
            framing=adapter.foreign_framing,
            max_record=places.max_record,
        )
        alone = policy.options.look_ups is LookUpPolicy.NEVER  # and then nobody gives ids up
        recovery = registry.recovery if isinstance(registry, RoutedRegistry) and not alone else None

        def exports_of(name: str) -> Exports:
            return Exports(places.output, disk, state, warn=log.warning, worker=name, published=places.state)

        try:
            yield DispatcherEngine(
                follower=follower,
                adapter=adapter,
                digester=digester,
                joiners=joiners,
                progress=progress,
                state=state,
                exports=exports,
                envelope=envelope,
                clock=clock,
                random=random,
                datacentre=datacentre,
                patience=policy.patience,
                registry=registry,
                limits=policy.limits,
                options=policy.options,
                homes=homes,
                measure=measure,
                holdings=holdings_for(worker, state, follower, clock, exports_of),
                watcher=watcher,
                sources=None if policy.options.once else Sources(files, recovery),
                discovery=discovery,
                waking=waking,
            )
        finally:
            files.close()
            exports.close()
            follower.close()


async def serve(engine: DispatcherEngine, stop: asyncio.Event) -> None:
    """Runs the engine until it is done, or ``stop`` is set; then what has a verdict is committed."""
    running = asyncio.create_task(engine.run())
    try:
        await first(stop, [running])
        engine.stop()
        await running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
