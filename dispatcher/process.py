"""Builds a dispatcher from explicit parts, and runs it as a process until SIGTERM."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from photon.adapters.contract import Adapter
from photon.adapters.logs.follower import Follower
from photon.adapters.logs.problems import Problem, ProblemKind
from photon.adapters.logs.shared import SharedFollower
from photon.adapters.logs.unended_lines import RestRule
from photon.adapters.logs.watching import Watch, watching
from photon.config.clock import Clock
from photon.config.disk import Disk
from photon.config.stopping import end, first
from photon.config.structured import get_logger
from photon.dispatcher.database import STATE_NAME, lock_worker
from photon.dispatcher.engine import DispatcherEngine, Policy, Surroundings
from photon.dispatcher.errors import WorkerFenced
from photon.dispatcher.exports import Exports
from photon.dispatcher.log_leases import LogLeases, Terms
from photon.dispatcher.lookups import LookUpPolicy
from photon.dispatcher.previous import PREVIOUS, beside, copied, open_or_restore
from photon.dispatcher.replay.reading import LogFiles
from photon.dispatcher.replay.rereading import Sources
from photon.dispatcher.shared_state import SharedState
from photon.dispatcher.state import Reached, State
from photon.idregistry.api import Digester
from photon.idregistry.client.routing import RoutedRegistry


@dataclass(frozen=True, slots=True)
class Worker:
    name: str
    terms: Terms = field(default_factory=Terms)


@contextmanager
def open_state(path: Path, rule: bytes, worker: Worker | None, now_ns: int) -> Iterator[State]:
    """Closes the state at the end; a worker that ends in order frees its logs at once. Raises StateError."""
    if worker is None:
        with closing(open_or_restore(path, rule=rule)) as alone:
            yield alone
        return
    with closing(SharedState(path, worker.name, rule=rule, now_ns=now_ns)) as state:
        beside(path, PREVIOUS).unlink(missing_ok=True)  # it does not know what workers will have exported
        yield state
        with suppress(WorkerFenced):  # then they have them
            state.leave()


def follower_for(state: State) -> Callable[..., Follower]:
    """Returns a follower: a worker's begins with no logs; without workers it also reads parts they left unread."""
    if isinstance(state, SharedState):
        return partial(SharedFollower, held=True)
    parts = state.parts()
    return partial(SharedFollower, parts=parts) if parts else Follower


def open_exports(output: Path, disk: Disk, state: State, published: Path, warn: Callable[[str], None]) -> Exports:
    """A dispatcher without workers also writes out lines that workers left to export. Raises as ``Exports`` does."""
    if not isinstance(state, SharedState):
        for worker in state.outbox_of_others():
            Exports(output, disk, state, published, warn=warn, worker=worker).close()
    return Exports(output, disk, state, published, warn=warn, worker=state.worker)


def log_leases_for(
    worker: Worker | None, state: State, follower: Follower, clock: Clock, exports: Callable[[str], Exports]
) -> LogLeases | None:
    """Returns ``None`` without workers. ``exports`` opens the exports of another worker."""
    if worker is None:
        return None
    assert isinstance(state, SharedState)
    assert isinstance(follower, SharedFollower)

    def adopt(name: str) -> None:
        lock = lock_worker(state.path, name)
        if lock is None:
            return  # it lives; nobody else may write to its files
        try:
            exports(name).close()
        finally:
            os.close(lock)

    return LogLeases(state, follower, clock, worker.terms, adopt_exports=adopt)


@dataclass(frozen=True, slots=True)
class Places:
    foreign: Path  # the foreign log directory
    output: Path  # holds ``rejected/`` and ``late/``
    state: Path  # a directory on a local disk for ``dispatcher.db``
    patterns: Sequence[str] = ("**/*",)
    max_record: int = 1 << 20
    watch: Watch = Watch.AUTO
    # Once: a last line without line end waits until its file was not written to for this time; 0: it does not wait.
    last_line_after_s: float = 0.0


def state_rule(join: str, adapter: Adapter, digester: Digester) -> bytes:
    """Returns the rule a state is bound to.

    With another key every id would be new to the registry, and everything read again would be joined twice.
    """
    return blake2b(join.encode() + b"\0" + digester.fingerprint() + adapter.rule(), digest_size=16).digest()


@contextmanager
def open_dispatcher(
    places: Places,
    policy: Policy,
    world: Surroundings,
    disk: Disk,
    *,
    report: Callable[[Problem], None] | None = None,
    worker: Worker | None = None,
    reached: Reached | None = None,
) -> Iterator[DispatcherEngine]:
    """Yields an engine with its files open. ``worker`` is ``None`` if it has its state alone.

    ``reached``: how far the redo log of its only joiner is durable now. It is noted with each commit, to compare the
    ages of the two later. Raises LogDirectoryError, StateError, OSError.
    """
    log = get_logger("photon.dispatcher")
    adapter, clock, registry = world.adapter, world.clock, world.registry
    with (
        open_state(
            places.state / STATE_NAME, state_rule(world.join, adapter, world.digester), worker, clock.now_ns()
        ) as state,
        watching(places.foreign, places.watch, log.warning) as watcher,
        nullcontext() if policy.options.once or worker is not None else copied(places.state / STATE_NAME),
    ):
        if reached is not None:
            state.reached = reached
        logs: dict[str, Any] = {
            "patterns": places.patterns,
            "has_header": adapter.foreign_has_header,
            "framing": adapter.foreign_framing,
            "links": adapter.foreign_links,
            "max_record": places.max_record,
        }
        follower = follower_for(state)(
            places.foreign,
            **logs,
            positions=state.positions(),
            report=report or partial(_say_problem, log),
            enter=watcher.enter if watcher is not None else lambda path: None,
            rest=RestRule(places.last_line_after_s, clock.now_ns),
            hurried=True,
        )
        exports_of = partial(Exports, places.output, disk, state, places.state, warn=log.warning)
        exports = open_exports(places.output, disk, state, places.state, log.warning)
        files = LogFiles(places.foreign, **logs)
        alone = policy.options.look_ups is LookUpPolicy.NEVER  # and then nobody gives ids up
        recovery = registry.recovery if isinstance(registry, RoutedRegistry) and not alone else None
        try:
            yield DispatcherEngine(
                world,
                policy,
                follower,
                state,
                exports,
                log_leases=log_leases_for(worker, state, follower, clock, lambda name: exports_of(worker=name)),
                watcher=watcher,
                sources=None if policy.options.once else Sources(files, recovery),
            )
        finally:
            files.close()
            exports.close()
            follower.close()


async def serve(engine: DispatcherEngine, stop: asyncio.Event) -> None:
    """Runs the engine until it is done, or ``stop`` is set; then commits all verdicts."""
    running = asyncio.create_task(engine.run())
    try:
        await first(stop, [running])
        engine.stop()
        await running
    finally:
        await end([running])


def _say_problem(log: Any, problem: Problem) -> None:
    todo = {"todo": "make it readable"} if problem.kind is ProblemKind.UNREADABLE else {}
    log.warning("log file", kind=problem.kind.value, problem=str(problem), **todo)
