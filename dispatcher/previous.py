"""A previous good copy of the dispatcher's state, used when the state itself is damaged.

A copy is one moment of the whole state, taken while the dispatcher runs. Restoring it is as if all transactions since
had been lost in a power cut: logs are read again from their positions then, ids that got a verdict since are
recognised, counts and exported lines go back with the positions. The damaged state is kept next to it.

Only a dispatcher that has its state alone does this: among several workers one cannot know what others hold. States
above ``COPY_BYTES_MAX`` (millions of events wait) are not copied.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from photon.config.structured import get_logger
from photon.dispatcher.database import lock_state
from photon.dispatcher.errors import DamagedState
from photon.dispatcher.state import State

COPY_S = 30.0  # between two copies
COPY_BYTES_MAX = 64 << 20
PREVIOUS, DAMAGED = ".previous", ".damaged"  # suffixes of the state's name

log = get_logger("photon.dispatcher")


def beside(path: Path, what: str) -> Path:
    """Returns the file of that purpose next to a state."""
    return path.with_name(path.name + what)


def open_or_restore(path: Path, *, rule: bytes) -> State:
    """Opens the state; if it is damaged, restores its previous copy first. Raises StateError."""
    try:
        if path.exists() and path.stat().st_size == 0 and beside(path, PREVIOUS).exists():
            raise DamagedState(str(path), "is empty", "restore it from a backup, or move it and its copy away")
        return State(path, rule=rule)
    except DamagedState as damage:
        if not _restore(path):
            raise
        log.warning(
            "the previous copy of the state is gone on with; what was read since is read again", why=str(damage)
        )
    return State(path, rule=rule)


def _restore(path: Path) -> bool:
    """Returns False if there is no copy. The damaged state is kept as ``.damaged``."""
    previous, fresh = beside(path, PREVIOUS), beside(path, PREVIOUS + ".tmp")
    if not previous.exists() or not _is_good(previous):
        return False
    lock = lock_state(path)
    try:
        fresh.write_bytes(previous.read_bytes())  # the copy stays, until the next one is good
        with closing(sqlite3.connect(fresh)) as db:
            db.execute("PRAGMA journal_mode=WAL")  # like all states: readers need not undo anything
        _sync(fresh)
        for tail in ("-wal", "-shm"):  # of the damaged state: none of its transactions may get into the copy
            with suppress(FileNotFoundError):
                os.replace(beside(path, tail), beside(path, DAMAGED + tail))
        beside(path, DAMAGED).unlink(missing_ok=True)
        os.link(path, beside(path, DAMAGED))
        os.replace(fresh, path)
        _sync(path.parent)
    finally:
        os.close(lock)
    return True


def copy_state(path: Path) -> bool:
    """Copies a state in use. Returns True if there is a new copy. Raises OSError, sqlite3.Error."""
    if not path.exists() or path.stat().st_size > COPY_BYTES_MAX:
        return False
    fresh = beside(path, PREVIOUS + ".tmp")
    fresh.unlink(missing_ok=True)
    used = f"{path.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(used, uri=True)) as source, closing(sqlite3.connect(fresh)) as target:
        source.backup(target)  # one read transaction
        target.execute("PRAGMA journal_mode=DELETE")
    if not _is_good(fresh):
        fresh.unlink()
        return False
    _sync(fresh)
    os.replace(fresh, beside(path, PREVIOUS))
    _sync(path.parent)
    return True


@contextmanager
def copied(path: Path, every_s: float = COPY_S) -> Iterator[None]:
    """Takes copies periodically, in its own thread. A failure is reported, and retried."""
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(every_s):
            try:
                copy_state(path)
            except (OSError, sqlite3.Error) as error:
                log.warning("the state could not be copied; the copy before is kept", path=str(path), why=str(error))

    thread = threading.Thread(target=run, name="state-copies", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _is_good(path: Path) -> bool:
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            return bool(db.execute("PRAGMA quick_check(1)").fetchone() == ("ok",))
    except sqlite3.Error:
        return False


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
