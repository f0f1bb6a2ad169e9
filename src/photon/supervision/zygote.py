"""A process that has imported the modules that services need, and becomes a service by forking: ten times cheaper
than a fresh start.

Android and Chromium use the same word. The zygote is a separate process, started before anything else: it imports
while its supervisor does, or it is a copy of the supervisor. When it is copied, it has no threads, connections or
event loop. The supervisor is the subreaper, so each copy becomes its child: exit codes arrive as from any child. If
the zygote dies, the copies live on, and later starts execute the program itself.
"""

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

REPLY_S = 30.0  # seconds to wait for the zygote, which may still be importing
MESSAGE_BYTES = 128 << 10  # maximum size of a request or reply; longer command lines start a new interpreter
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
    "grpc._channel",  # imported by grpc at its first connection,
    "grpc.experimental",  # imported by grpc at its first call
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
    """A child process as seen by a supervisor; ``asyncio.subprocess.Process`` is one."""

    @property
    def pid(self) -> int:
        """Process id; no other process gets it while ``returncode`` is `None`."""
        ...

    @property
    def returncode(self) -> int | None:
        """Exit code, or minus the signal's number; `None` while the process lives."""
        ...

    async def wait(self) -> int: ...

    def kill(self) -> None: ...


async def begin(arguments: Sequence[str], log: BinaryIO, environment: Mapping[str, str]) -> Child:
    """Executes ``photon ARGUMENTS``, whose standard input closes when this process ends. ``environment``: variables
    in addition to this process's own.

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
        start_new_session=True,  # Ctrl-C reaches only the supervisor, which then stops its processes in order
    )


def begin_piped(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Like ``begin``, but for a caller that reads the output, and in the same session."""
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env={**os.environ, **environment})


class ZygoteGone(OSError):
    """Raised if the zygote cannot make copies (any more)."""


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request to become ``photon ARGUMENTS``, sent with two descriptors: standard input, and the log."""

    arguments: list[str]
    ended: str = ""  # how its predecessor ended, see ``photon.adapters.crumbs``


class Reply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``pid``: 0 if no copy could be made; then ``problem`` says why."""

    pid: int = 0
    problem: str = ""


class ForkedChild:
    """A copy of the zygote, adopted by this process. ``lifeline``: our end of the copy's standard input."""

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
    """A zygote that was forked from this process. This process waits for its end."""

    pid: int

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        return os.waitpid(self.pid, 0)[1]


class Zygote:
    """The supervisor's side of a zygote. Requests one copy at a time."""

    def __init__(self, process: ZygoteProcess, requests: socket.socket) -> None:
        self._process = process
        self._requests = requests
        self._turn = asyncio.Lock()

    def on_another_loop(self) -> Zygote:
        """Returns the same zygote for use on the next event loop."""
        return Zygote(self._process, self._requests)

    async def begin(self, arguments: Sequence[str], log: BinaryIO, ended: str = "") -> Child:
        """Forks a copy that becomes ``photon ARGUMENTS``, whose standard input closes when this process ends.
        ``ended``: how its predecessor ended, if there was one. Raises ZygoteGone."""
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
        """Kills the zygote, but not its copies."""
        self._requests.close()
        self._process.kill()  # SIGKILL: nothing is lost, and it may be importing
        self._process.wait()


@contextlib.contextmanager
def zygote(modules: Sequence[str] | None) -> Iterator[Zygote | None]:
    """Starts a zygote that imports these modules. If ``modules`` is `None`, it is forked from this process, which
    must have no other threads. Yields `None` if there can be no zygote (not Linux, a sandbox, other threads)."""
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
        stderr=subprocess.DEVNULL,  # a broken module is reported by the service that needs it
        start_new_session=True,
    )


def _copied(ours: socket.socket, theirs: socket.socket) -> ZygoteProcess:
    from photon.supervision.zygote_main import become

    for written in (sys.stdout, sys.stderr):
        written.flush()
    if (pid := os.fork()) == 0:
        ours.close()  # otherwise it would not notice that its supervisor is gone
        become(theirs)
    return _Copy(pid)


def _can_watch() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return True


def adopt_orphans(wanted: bool) -> bool:
    """Makes this process the parent of its orphaned descendants from now on. Returns False if the system cannot do
    that."""
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0) == 0)
