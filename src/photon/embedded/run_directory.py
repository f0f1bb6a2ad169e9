"""Where ``photon up`` keeps what belongs to a run: logs, routes of the proxy, lock, control socket.

Nothing of it must survive: state lies where the deployment file says.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from photon.adapters.logs.mounts import read_type
from photon.config.errors import PhotonError, UsageError
from photon.config.settings import Settings
from photon.embedded.deployment import routes_needed, routes_of
from photon.embedded.ports import free_ports
from photon.fleet.processes import listening
from photon.joiner.slot.lock import LOCK_NAME, NETWORK_FILE_SYSTEMS
from photon.wan.api import Route
from photon.wan.routes import RoutesError, host_and_port, read_routes

DEFAULT_NAME = ".photon-run"
LOG_NAME = "up.log"
"""What ``photon up --detach`` itself says, in ``logs``."""
LOCK_WAIT_S = 1.0
"""For a predecessor that is just ending, and for those that only look whether it is taken."""
POLL_S = 0.05


class RunBusy(PhotonError):
    """A ``photon up`` lives in this run directory."""


def run_directory(file: Path, named: Path | None) -> Path:
    """The directory named, else ``.photon-run`` beside the deployment file; absolute."""
    return Path(os.path.abspath(named if named is not None else file.parent / DEFAULT_NAME))


@contextlib.contextmanager
def locked(run: Path) -> Iterator[None]:
    """Makes the directory and holds its lock; one process a directory. Raises RunBusy, UsageError."""
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
        with contextlib.suppress(OSError):  # a full disk: for people only
            os.pwrite(descriptor, f"pid {os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def is_locked(run: Path) -> bool:
    """Whether a ``photon up`` lives there. Holds the lock for an instant itself, shared."""
    try:
        descriptor = os.open(run / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        return not _taken(descriptor, fcntl.LOCK_SH, 0.0)
    finally:
        os.close(descriptor)


def busy(run: Path) -> RunBusy:
    """Names who holds the lock."""
    try:
        holder = (run / LOCK_NAME).read_text(errors="replace")[:100].strip()
    except OSError:
        holder = ""
    return RunBusy(
        f"photon up ({holder or 'pid unknown'}) runs in {run} already; photon ps shows it, photon down ends it, "
        "--run names another directory"
    )


def wait_unlocked(run: Path, timeout: float) -> bool:
    """Waits until no ``photon up`` lives there."""
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


def kept_routes(
    settings: Settings,
    file: Path,
    *,
    draw: Callable[[int], list[int]] = free_ports,
    is_free: Callable[[str], bool] | None = None,
) -> tuple[Route, ...]:
    """The proxy's routes: on the ports of ``file`` as far as they are there and still free, the others newly drawn.

    ``draw(n)``: n ports that are free now; ``is_free(host:port)``. A file that cannot be read counts as none.
    """
    is_free = is_free or can_listen
    old: list[Route] = []
    with contextlib.suppress(RoutesError):
        old = read_routes(file)
    named = (address.rpartition(":")[2] for address in listening(settings))  # of a page it may be anything
    taken = {int(port) for port in named if port.isdecimal()}
    kept = {_ends(r): r.listen for r in old if is_free(r.listen) and host_and_port(r.listen)[1] not in taken}
    taken |= {host_and_port(listen)[1] for listen in kept.values()}
    count = routes_needed(settings)
    fresh = iter([port for port in draw(count + len(taken)) if port not in taken] if count else [])
    routes = routes_of(settings, [next(fresh) for _ in range(count)])
    return tuple(dataclasses.replace(r, listen=kept.get(_ends(r), r.listen)) for r in routes)


def can_listen(address: str) -> bool:
    """Whether nobody listens at host:port now."""
    with socket.socket() as each:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of the run before may linger
        try:
            each.bind(host_and_port(address))
        except OSError:
            return False
        return True


def _ends(route: Route) -> tuple[str, str, str]:
    return route.source, route.destination, route.target
