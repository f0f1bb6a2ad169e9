"""Builds a dispatcher from its parts, and runs it until SIGTERM."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from photon.adapters.contract import Adapter
from photon.adapters.logs.follower import Follower
from photon.adapters.logs.problems import Problem, ProblemKind
from photon.adapters.logs.unended_lines import RestRule
from photon.adapters.logs.watching import Watch, watching
from photon.config.disk import Disk
from photon.config.stopping import end, first
from photon.config.structured import get_logger
from photon.dispatcher.database import STATE_NAME
from photon.dispatcher.engine import DispatcherEngine, Policy, Surroundings
from photon.dispatcher.exports import Exports
from photon.dispatcher.lookups import LookUpPolicy
from photon.dispatcher.moving import settle, settling
from photon.dispatcher.partitions import ALL, Partition, all_of, file_of
from photon.dispatcher.replay.reading import LogFiles
from photon.dispatcher.replay.rereading import Sources
from photon.dispatcher.state import Reached, State
from photon.idregistry.api import Digester
from photon.idregistry.client.routing import RoutedRegistry


@dataclass(frozen=True, slots=True)
class Places:
    foreign: Path  # the foreign log directory
    output: Path  # holds ``rejected/`` and ``late/``
    state: Path  # a directory on a local disk for the databases
    patterns: Sequence[str] = ("**/*",)
    max_record: int = 1 << 20
    watch: Watch = Watch.AUTO
    # Once: an unfinished last line waits until its file was not written to for this time; 0: it does not wait.
    last_line_after_s: float = 0.0
    partition: Partition = ALL


def state_rule(join: str, adapter: Adapter, digester: Digester) -> bytes:
    """Returns a hash of the join, its key and its adapter: a state may be opened only with the same ones.

    With another key every id would be new to the registry, so lines read again would be joined twice.
    """
    return blake2b(join.encode() + b"\0" + digester.fingerprint() + adapter.rule(), digest_size=16).digest()


def open_state(places: Places, rule: bytes, disk: Disk) -> State:
    """Opens the partition's database; first moves the state if the number of partitions has changed.

    Raises StateError, NotOfThisState, PublishedDamaged, OSError.
    """
    path, own = places.state / STATE_NAME, places.partition
    with settling(path):
        settle(disk, path, own.count, places.output, rule)
        others = [file_of(path, each) for each in all_of(own.count) if each != own]
        return State(file_of(path, own), rule=rule, others=others)


@contextmanager
def open_dispatcher(
    places: Places,
    policy: Policy,
    world: Surroundings,
    disk: Disk,
    *,
    report: Callable[[Problem], None] | None = None,
    reached: Reached | None = None,
) -> Iterator[DispatcherEngine]:
    """Yields an engine with its files open.

    ``reached``: the durable end of the only joiner's redo log. Each commit notes it, so that a start can tell which
    of the two is older. Raises LogDirectoryError, StateError, OSError.
    """
    log = get_logger("photon.dispatcher")
    adapter, clock, registry, partition = world.adapter, world.clock, world.registry, places.partition
    with (
        closing(open_state(places, state_rule(world.join, adapter, world.digester), disk)) as state,
        watching(places.foreign, places.watch, log.warning) as watcher,
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
        follower = Follower(
            places.foreign,
            **logs,
            positions=state.positions(),
            report=report or partial(_say_problem, log),
            enter=watcher.enter if watcher is not None else lambda path: None,
            rest=RestRule(places.last_line_after_s, clock.now_ns),
            hurried=True,
            mine=partition.holds if partition.name else None,
        )
        exports = Exports(places.output, disk, state, places.state, warn=log.warning, partition=partition)
        files = LogFiles(places.foreign, **logs)
        alone = policy.options.look_ups is LookUpPolicy.NEVER  # so ids are never given up
        recovery = registry.recovery if isinstance(registry, RoutedRegistry) and not alone else None
        try:
            yield DispatcherEngine(
                world,
                policy,
                follower,
                state,
                exports,
                who=f"dispatcher {partition.name}" if partition.name else "its dispatcher",
                watcher=watcher,
                sources=None if policy.options.once else Sources(files, recovery),
            )
        finally:
            files.close()
            exports.close()
            follower.close()


async def serve(engine: DispatcherEngine, stop: asyncio.Event) -> None:
    """Runs the engine until it is done or ``stop`` is set, then commits all verdicts."""
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
