"""The dispatcher's production State over SQLite in memory, with an image kept at each commit.

A process that is killed leaves its last committed image; a power cut may take back transactions that were not synced,
in order, as WAL with synchronous=NORMAL may.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from photon.config.clock import NEVER_NS
from photon.dispatcher import state as dispatcher_state
from photon.dispatcher.database import fill
from photon.dispatcher.ledger import Ledger
from photon.dispatcher.state import Changes, State
from photon.dispatcher.undecided import undecided
from tests.simulation.world.loop import OWNER

if TYPE_CHECKING:
    from tests.simulation.world.process import DispatcherProcess

_EMPTY: list[bytes] = []


class Images:
    """What stands on a dispatcher's disk. ``history`` begins with what is durable and ends with what is there."""

    def __init__(self) -> None:
        self.history: list[bytes] = [_empty()]
        self.wipes = 0
        """So often all was deleted."""

    def committed(self, image: bytes, *, synced: bool) -> None:
        if synced:
            self.history.clear()
        self.history.append(image)

    def lose(self, kept: int) -> None:
        """A power cut: so many transactions since the durable one are left."""
        del self.history[kept + 1 :]
        del self.history[:-1]

    def wipe(self) -> None:
        self.history = [_empty()]
        self.wipes += 1


class SimulatedState(State):
    """Checks at each commit that the ledger balances."""

    def __init__(self, process: DispatcherProcess) -> None:
        self._process = process
        self._images = process.place.images
        super().__init__(Path("dispatcher.db"), rule=b"rule")

    def commit(self, changes: Changes) -> None:
        process = self._process
        self._may_end("before a commit")
        super().commit(changes)
        self._keep(synced=bool(changes.exports))
        ledger: Ledger = self.ledger()
        if ledger.unbalanced or ledger.total.balance:
            process.world.violated(f"{process.name}: the ledger does not balance: {ledger.total}")
        if any("claims" in sql for sql, _ in changes.also):
            self._check_claim()
        self._may_end("after a commit")

    def _check_claim(self) -> None:
        """What is said to have no verdict is what was read and has none; more only until logs are read after a
        start."""
        process, found = self._process, undecided(self._db)
        engine: Any = process.engine
        if found is None or engine is None:
            return
        (reopened,) = self._db.execute("SELECT count(*) FROM reopened WHERE NOT missing").fetchone()
        said, truth = found.before(NEVER_NS) - reopened, engine.status().pending
        if said < truth or (said > truth and engine._claims._before is None):
            process.world.violated(f"{process.name}: {said} events are said to have no verdict, {truth} have none")

    def exported(self, places: Mapping[str, tuple[int, int]], up_to_id: int, worker: str = "") -> None:
        self._may_end("before the outbox is emptied")
        super().exported(places, up_to_id, worker)
        self._keep(synced=False)

    def _keep(self, *, synced: bool) -> None:
        self._images.committed(self._db.serialize(), synced=synced)

    def _may_end(self, where: str) -> None:
        world = self._process.world
        if world.faults and world.random.random() < world.commit_crashes:
            self._process.end(f"killed {where}")


def _empty() -> bytes:
    if not _EMPTY:
        db = sqlite3.connect(":memory:", isolation_level=None)
        fill(db)
        _EMPTY.append(db.serialize())
        db.close()
    return _EMPTY[0]


def open_image(path: Path) -> sqlite3.Connection:
    """In place of ``database.open_database``: the newest image of the process that asks."""
    owner = OWNER.get()
    image: bytes = owner.place.images.history[-1]  # type: ignore[union-attr]
    db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    db.deserialize(image)
    return db


def no_lock(path: Path) -> int:
    """In place of ``database.lock_state``: a descriptor that ``State.close`` may close."""
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


PATCHES = ((dispatcher_state, "open_database", open_image), (dispatcher_state, "lock_state", no_lock))
