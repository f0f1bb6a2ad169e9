"""Names of workers of one state: free ones, and the addresses of living workers.

A name belongs to the holder of its lock (``database.lock_worker``). The holder writes the address of its status into
that lock's file; an entry of a dead worker is recognised because nobody holds the lock.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from photon.config.decoding import DECODE_ERRORS
from photon.config.file_lock import is_locked
from photon.config.versioned_file import decoded
from photon.dispatcher.database import lock_worker, worker_lock
from photon.dispatcher.errors import NameTaken, StateError

AUTO = "auto"  # instead of a worker's name: a free one of those below
AUTO_MAX = 64  # workers of one state that are named automatically
NOTE_BYTES_MAX = 1000

T = TypeVar("T")


class Note(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="version", tag=1):
    worker: str
    address: str  # host:port of its status; empty if it has none


@dataclass(frozen=True, slots=True)
class Living:
    name: str
    address: str


def auto_name(number: int) -> str:
    """Returns the name of a worker that was given none.

    No slot can be named ``dispatcher-`` and this, so its exports are its own (``joiner.slot.auto``).
    """
    return f"{AUTO}{number}"


@contextmanager
def under_free_name(
    path: Path, named: Container[str], open_as: Callable[[str], AbstractContextManager[T]]
) -> Iterator[tuple[str, T]]:
    """Opens a worker's resources under the first free name. ``path``: that of the state.

    ``named``: names in the deployment file, which are never taken. Raises StateError if all are in use.
    """
    for number in range(1, AUTO_MAX + 1):
        name = auto_name(number)
        if name in named or not _is_free(path, name):
            continue
        with ExitStack() as stack:
            try:
                opened = stack.enter_context(open_as(name))
            except NameTaken:
                continue  # another one was faster
            yield name, opened
            return
    what = f"has {AUTO_MAX} workers that were started as photon serve dispatcher {AUTO}"
    raise StateError(str(path), what, "stop some of them")


def _is_free(path: Path, name: str) -> bool:
    lock = lock_worker(path, name)
    if lock is None:
        return False
    os.close(lock)
    return True


def note_address(path: Path, worker: str, address: str) -> None:
    """Records where the holder of the name answers for its status; empty: nowhere. Raises OSError."""
    with open(worker_lock(path, worker), "r+b") as file:
        file.write(msgspec.json.encode(Note(worker, address)))
        file.truncate()


def living_workers(path: Path) -> list[Living]:
    """Returns living workers of the state at ``path`` that have recorded an address; none if it is not here."""
    found = []
    for lock in sorted(path.parent.glob(worker_lock(path, "*").name)):
        try:
            with open(lock, "rb") as file:
                note = decoded(file.read(NOTE_BYTES_MAX), Note)
                if note.address and is_locked(lock):
                    found.append(Living(note.worker, note.address))
        except (OSError, *DECODE_ERRORS):
            continue  # a worker that is just starting, or ending
    return found
