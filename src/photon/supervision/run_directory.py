"""The directory of a ``photon up`` run: logs, the proxy's routes, lock, control socket.

Nothing in it needs to survive; lasting state is in the directories of the deployment file.
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
LOG_NAME = "up.log"  # log of ``photon up --detach`` itself, in ``logs``
LOCK_WAIT_S = 1.0  # how long to wait for a predecessor that is stopping, or a process that only checks the lock
POLL_S = 0.05


class RunBusy(PhotonError):
    """Raised if a ``photon up`` runs in this directory."""


def run_directory(file: Path, named: Path | None) -> Path:
    """Returns the absolute path of ``named``, or by default of ``.photon-run`` next to the deployment file."""
    return Path(os.path.abspath(named if named is not None else file.parent / DEFAULT_NAME))


@contextlib.contextmanager
def locked(run: Path) -> Iterator[None]:
    """Creates the directory and holds its lock, which only one process can have. Raises RunBusy, UsageError."""
    try:
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{run}: cannot be created ({error.strerror}); choose a directory with --run") from None
    if (kind := read_type(run)) in NETWORK_FILE_SYSTEMS:
        raise UsageError(f"{run}: is on {kind}, where locks are unreliable; choose a local directory with --run")
    try:
        descriptor = os.open(run / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise UsageError(f"{run}: {error.strerror}; choose a directory with --run that you may write") from None
    try:
        if not _taken(descriptor, fcntl.LOCK_EX, LOCK_WAIT_S):
            raise busy(run)
        os.ftruncate(descriptor, 0)
        with contextlib.suppress(OSError):  # a full disk: the note is only used in messages
            os.pwrite(descriptor, f"pid {os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def is_locked(run: Path) -> bool:
    """Returns True if a ``photon up`` runs in this directory. Briefly takes a shared lock itself."""
    try:
        descriptor = os.open(run / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        return not _taken(descriptor, fcntl.LOCK_SH, 0.0)
    finally:
        os.close(descriptor)


def busy(run: Path) -> RunBusy:
    """Returns the error that tells who holds the lock."""
    try:
        holder = (run / LOCK_NAME).read_text(errors="replace")[:100].strip()
    except OSError:
        holder = ""
    return RunBusy(
        f"photon up ({holder or 'pid unknown'}) already runs in {run}; photon status processes shows it, "
        "photon down stops it, --run chooses another directory"
    )


def wait_unlocked(run: Path, timeout: float) -> bool:
    """Waits until no ``photon up`` runs in this directory. Returns False after ``timeout``."""
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
