"""A process that has imported what services need, and becomes a service by forking: ten times cheaper than a fresh
start.

Android and Chromium use this word. The zygote is its own process, started before anything else: it imports at the
same time as its supervisor, or is a copy of it. It has no threads, connections or event loop when it is copied. A
copy is reparented to the supervisor (which is its subreaper): exit codes arrive as from any child, and a dying
zygote takes nobody with it; later starts then execute the program itself."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Protocol

import msgspec

REPLY_S = 30.0  # a zygote that takes longer to import is given up
MESSAGE_BYTES = 128 << 10  # largest request or reply; a longer command line is executed in a new interpreter
_PR_SET_CHILD_SUBREAPER = 36

COMMON = (
    "photon.adapters.logs.inotify",
    "photon.cli.main",
    "photon.cli.serve",
    "photon.config.loader",
    "photon.config.log",
    "photon.config.runtime",
    "photon.assembly.registry",
    "photon.assembly.telemetry",
    "photon.config.audit",
    "grpc._channel",  # imported by grpc for its first connection,
    "grpc.experimental",  # imported at its first call
)
# Modules that services of all kinds import.
ALL = (
    *COMMON,
    "photon.assembly.eventstore",
    "photon.eventstore.catalog",
    "photon.eventstore.embedded_file_map",
    "photon.eventstore.process",
    "photon.idregistry.replica.process",
    "photon.idregistry.raft.wire",
    "numpy.ma",  # imported by numpy when it first compares values
    "photon.dispatcher.process",
    "photon.assembly.copies",
    "photon.assembly.engines",
    "photon.assembly.datacentre",
    "photon.eventstore.client",
    "photon.fleet.explain.service",
    "photon.joiner.client",
    "photon.joiner.copies.client",
    "photon.joiner.process",
)


class Child(Protocol):
    """A child as a supervisor uses it; ``asyncio.subprocess.Process`` is one."""

    @property
    def pid(self) -> int:
        """Process id; no other process gets it while ``returncode`` is `None`."""
        ...

    @property
    def returncode(self) -> int | None:
        """Exit code, or minus the signal's number. `None` while it lives."""
        ...

    async def wait(self) -> int: ...

    def kill(self) -> None: ...


async def begin(arguments: Sequence[str], log: BinaryIO, environment: Mapping[str, str]) -> Child:
    """Executes ``photon ARGUMENTS``; its standard input ends with this process. ``environment``: variables in
    addition to our own.

    Raises OSError.
    """
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "photon",
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=log,
        stderr=log,
        env={**os.environ, **environment} if environment else None,
        start_new_session=True,  # Ctrl-C reaches the supervisor alone, which then stops them in order
    )


def begin_piped(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Like ``begin``, for a caller that reads its outputs; in the same session."""
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env={**os.environ, **environment})


class ZygoteGone(OSError):
    """The zygote makes no more copies, or never did."""


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request to become ``photon ARGUMENTS``; two descriptors come with it: standard input, and the log."""

    arguments: list[str]
    ended: str = ""  # how its predecessor ended, see ``photon.adapters.crumbs``


class Reply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``pid``: 0 if no copy could be made; ``problem`` says why."""

    pid: int = 0
    problem: str = ""


class ForkedChild:
    """A copy of the zygote, adopted by this process. ``lifeline``: our end of its standard input."""

    def __init__(self, pid: int, lifeline: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._lifeline = lifeline
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._descriptor = os.pidfd_open(pid)
        self._loop.add_reader(self._descriptor, self._reap)

    def _reap(self) -> None:
        self._loop.remove_reader(self._descriptor)
        _, status = os.waitpid(self.pid, 0)
        self.returncode = os.waitstatus_to_exitcode(status)
        for descriptor in (self._descriptor, self._lifeline):
            os.close(descriptor)
        self._ended.set()

    async def wait(self) -> int:
        """Waits until the process has ended. Returns its exit code, or minus the signal's number."""
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def kill(self) -> None:
        if self.returncode is None:
            signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)


class ZygoteProcess(Protocol):
    @property
    def pid(self) -> int: ...

    def kill(self) -> None: ...

    def wait(self) -> int: ...


@dataclass(slots=True)
class _Copy:
    """A zygote that is a copy of this process, which waits for it before it ends."""

    pid: int

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        return os.waitpid(self.pid, 0)[1]


class Zygote:
    """The supervisor's side of a zygote. Requests one start at a time."""

    def __init__(self, process: ZygoteProcess, requests: socket.socket) -> None:
        self._process = process
        self._requests = requests
        self._turn = asyncio.Lock()

    def on_another_loop(self) -> Zygote:
        """Returns the same zygote for the next event loop."""
        return Zygote(self._process, self._requests)

    async def begin(self, arguments: Sequence[str], log: BinaryIO, ended: str = "") -> Child:
        """Makes a copy that becomes ``photon ARGUMENTS``; its standard input ends with this process. ``ended``: how
        its predecessor ended, if there was one. Raises ZygoteGone."""
        data = msgspec.json.encode(Request(list(arguments), ended))
        theirs, ours = os.pipe()
        try:
            async with self._turn:
                reply = await asyncio.to_thread(self._ask, data, [theirs, log.fileno()])
            return ForkedChild(reply.pid, ours)
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)

    def _ask(self, data: bytes, descriptors: list[int]) -> Reply:
        try:
            socket.send_fds(self._requests, [data], descriptors)
            reply = msgspec.json.decode(self._requests.recv(MESSAGE_BYTES), type=Reply)
        except (OSError, msgspec.DecodeError) as error:
            raise ZygoteGone(f"the zygote does not answer: {error}") from None
        if reply.pid <= 0:
            raise ZygoteGone(f"the zygote cannot fork: {reply.problem}")
        return reply

    def close(self) -> None:
        """Ends the zygote, not its copies."""
        self._requests.close()
        self._process.kill()  # kill, as nothing is lost and it may be importing
        self._process.wait()


@contextlib.contextmanager
def zygote(modules: Sequence[str] | None) -> Iterator[Zygote | None]:
    """A zygote that starts importing these modules. ``modules`` `None`: a copy of this process, which must have no
    other thread. Yields `None` if there can be no zygote (not Linux, a sandbox, other threads)."""
    if (modules is None and threading.active_count() > 1) or not (_can_watch() and adopt_orphans(True)):
        yield None
        return
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        ours.settimeout(REPLY_S)
        made = Zygote(_copied(ours, theirs) if modules is None else _executed(modules, theirs), ours)
    try:
        yield made
    finally:
        made.close()
        adopt_orphans(False)


def _executed(modules: Sequence[str], requests: socket.socket) -> ZygoteProcess:
    return subprocess.Popen(
        [sys.executable, "-m", "photon.supervision.zygote_main", str(requests.fileno()), *modules],
        pass_fds=[requests.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,  # the service that needs a broken module reports it
        start_new_session=True,
    )


def _copied(ours: socket.socket, theirs: socket.socket) -> ZygoteProcess:
    from photon.supervision.zygote_main import become

    for written in (sys.stdout, sys.stderr):
        written.flush()
    if (pid := os.fork()) == 0:
        ours.close()  # else it would not notice that its supervisor is gone
        become(theirs)
    return _Copy(pid)


def _can_watch() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return True


def adopt_orphans(wanted: bool) -> bool:
    """Makes this process the parent of orphaned descendants from now on. False if the system cannot."""
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0) == 0)
