"""What a dispatcher is made of where it is one of several workers, and where it is alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from photon.adapters.logs.follower import Follower
from photon.adapters.logs.shared import SharedFollower
from photon.config.clock import Clock
from photon.config.disk import Disk
from photon.dispatcher.database import lock_worker
from photon.dispatcher.errors import WorkerFenced
from photon.dispatcher.exports import Exports
from photon.dispatcher.holdings import Holdings, Terms
from photon.dispatcher.previous import PREVIOUS, beside, open_or_restore
from photon.dispatcher.shared_state import SharedState
from photon.dispatcher.state import State


@dataclass(frozen=True, slots=True)
class Worker:
    """One of several dispatchers that share a state."""

    name: str
    terms: Terms = field(default_factory=Terms)


@contextmanager
def open_state(path: Path, rule: bytes, worker: Worker | None, now_ns: int) -> Iterator[State]:
    """Closed at the end; a worker that ends in order leaves its logs to the others at once. Raises StateError."""
    if worker is None:
        alone = open_or_restore(path, rule=rule)
        try:
            yield alone
        finally:
            alone.close()
        return
    state = SharedState(path, worker.name, rule=rule, now_ns=now_ns)
    try:
        beside(path, PREVIOUS).unlink(missing_ok=True)  # it does not know what workers will have exported
        yield state
        with suppress(WorkerFenced):  # then they have them
            state.leave()
    finally:
        state.close()


def follower_for(state: State) -> Callable[..., Follower]:
    """A worker begins with none of the logs; one that is alone reads also the parts that workers left unread."""
    if isinstance(state, SharedState):
        return partial(SharedFollower, held=True)
    parts = state.parts()
    return partial(SharedFollower, parts=parts) if parts else Follower


def open_exports(
    output: Path, disk: Disk, state: State, warn: Callable[[str], None], published: Path | None = None
) -> Exports:
    """A dispatcher that is alone writes out also what workers left to export. Raises OSError, StateError."""
    if not isinstance(state, SharedState):
        for worker in state.outbox_of_others():
            Exports(output, disk, state, warn=warn, worker=worker, published=published).close()
    return Exports(output, disk, state, warn=warn, worker=state.worker, published=published)


def holdings_for(
    worker: Worker | None, state: State, follower: Follower, clock: Clock, exports: Callable[[str], Exports]
) -> Holdings | None:
    """None where it is alone. ``exports``: opens those of another worker."""
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

    return Holdings(state, follower, clock, worker.terms, adopt_exports=adopt)
