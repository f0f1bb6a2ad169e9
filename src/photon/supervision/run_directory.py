"""The directory of a ``photon up`` run: logs, routes of the proxy, lock, control socket.

Nothing in it needs to survive; state is in the directories of the deployment file.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from photon.adapters.logs.mounts import read_type
from photon.config.errors import PhotonError, UsageError
from photon.joiner.slot.lock import LOCK_NAME, NETWORK_FILE_SYSTEMS

DEFAULT_NAME = ".photon-run"
LOG_NAME = "up.log"  # own log of ``photon up --detach``, in ``logs``
LOCK_WAIT_S = 1.0  # wait for a predecessor that is ending, and for processes that only check the lock
POLL_S = 0.05


class RunBusy(PhotonError):
    """A ``photon up`` runs in this directory."""


def run_directory(file: Path, named: Path | None) -> Path:
    """The directory named, else ``.photon-run`` next to the deployment file; absolute."""
    return Path(os.path.abspath(named if named is not None else file.parent / DEFAULT_NAME))


@contextlib.contextmanager
def locked(run: Path) -> Iterator[None]:
    """Makes the directory and holds its lock; one process per directory. Raises RunBusy, UsageError."""
    try:
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{run}: cannot be made ({error.strerror}); name a directory with --run") from None
    if (kind := read_type(run)) in NETWORK_FILE_SYSTEMS:
        raise UsageError(f"{run}: is on {kind}, where locks do not hold; name a local directory with --run")
    try:
        descriptor = os.open(run / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise UsageError(f"{run}: {error.strerror}; name a directory that you may write with --run") from None
    try:
        if not _taken(descriptor, fcntl.LOCK_EX, LOCK_WAIT_S):
            raise busy(run)
        os.ftruncate(descriptor, 0)
        with contextlib.suppress(OSError):  # a full disk: the note is only for people
            os.pwrite(descriptor, f"pid {os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def is_locked(run: Path) -> bool:
    """True if a ``photon up`` runs there. Takes the lock itself for an instant, shared."""
    try:
        descriptor = os.open(run / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        return not _taken(descriptor, fcntl.LOCK_SH, 0.0)
    finally:
        os.close(descriptor)


def busy(run: Path) -> RunBusy:
    """The error that names the lock's holder."""
    try:
        holder = (run / LOCK_NAME).read_text(errors="replace")[:100].strip()
    except OSError:
        holder = ""
    return RunBusy(
        f"photon up ({holder or 'pid unknown'}) already runs in {run}; photon status processes shows it, "
        "photon down ends it, --run names another directory"
    )


def wait_unlocked(run: Path, timeout: float) -> bool:
    """Waits until no ``photon up`` runs there."""
    deadline = time.monotonic() + timeout
    while is_locked(run):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def _taken(descriptor: int, kind: int, wait_s: float) -> bool:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_S)
