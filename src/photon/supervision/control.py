"""The control of a running ``photon up``: line-delimited JSON over a Unix socket in its run directory.

One request a line, one reply a line. Only its owner can use the socket (mode 0600).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from photon.config.decoding import DECODE_ERRORS
from photon.config.errors import PhotonError
from photon.config.versioned_file import decoded
from photon.supervision.states import ServiceState
from photon.supervision.supervisor import Supervisor

SOCKET_NAME = "control.sock"
REQUEST_BYTES = 64 << 10
REPLY_BYTES = 16 << 20
CONNECTIONS_MAX = 16
PATIENCE_S_MAX = 3600.0
IDLE_S = 30.0  # a connection idle for this long is closed

Action = Literal["ps", "down", "restart", "kill", "hold", "release", "pause", "resume", "reload"]


class Changes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Effects of a changed deployment file on the processes, by name."""

    started: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()  # they keep running; their next start uses the new file
    keys: tuple[str, ...] = ()  # keys of the deployment file with changed values


class Request(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="version",
    tag=1,
):
    """The action, and its processes: those named and those of a datacentre."""

    do: Action
    names: tuple[str, ...] = ()
    datacentre: str | None = None
    hold: bool = False  # with kill: the process stays down until release
    dry_run: bool = False  # with reload: only say what would change
    # With hold: seconds from SIGTERM to SIGKILL, instead of the usual time.
    patience_s: Annotated[float, msgspec.Meta(gt=0.0, le=PATIENCE_S_MAX)] | None = None
    # With restart: variables in addition to those of ``photon up``, from then on. `None` keeps the previous ones.
    environment: dict[str, str] | None = None


class Reply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``error``: one line; then nothing was done. ``services``: all processes after the action."""

    error: str = ""
    pid: int = 0  # process id of ``photon up``
    services: list[ServiceState] = []
    changes: Changes | None = None  # what a reload changed


class ControlFailed(PhotonError):
    """The running ``photon up`` failed to carry out the request, or does not answer."""


class NobodyListens(PhotonError):
    """No ``photon up`` runs there, or it is still starting."""


@contextlib.contextmanager
def _short_name(run: Path) -> Iterator[str]:
    """Yields a short name for the socket, as the address of a Unix socket is limited to 108 bytes."""
    directory = os.open(run, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{SOCKET_NAME}"
    finally:
        os.close(directory)


def ask(run: Path, request: Request, timeout: float = 10.0) -> Reply:
    """Asks the ``photon up`` of a run directory. Raises NobodyListens, ControlFailed."""
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        connection.settimeout(timeout)
        try:
            connection.connect(stack.enter_context(_short_name(run)))
        except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
            raise NobodyListens(f"nothing runs in {run}; start it with photon up") from None
        except TimeoutError:
            raise ControlFailed(f"{run}: photon up does not answer within {timeout:g} s; it may be stopped") from None
        try:
            connection.sendall(msgspec.json.encode(request) + b"\n")
            line = _line(connection, time.monotonic() + timeout)
        except TimeoutError:
            raise ControlFailed(f"{run}: photon up does not answer within {timeout:g} s; is it stopped?") from None
        except (ConnectionError, BrokenPipeError):
            raise NobodyListens(f"{run}: photon up ended before it answered") from None
    try:
        reply = msgspec.json.decode(line, type=Reply)
    except msgspec.DecodeError as error:
        raise ControlFailed(
            f"{run}: cannot read the answer of photon up ({error}); it may be another version"
        ) from None
    if reply.error:
        raise ControlFailed(reply.error)
    return reply


def _line(connection: socket.socket, deadline: float) -> bytes:
    received = bytearray()
    while not received.endswith(b"\n"):
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        part = connection.recv(64 << 10)
        if not part:
            raise ConnectionError
        received += part
        if len(received) > REPLY_BYTES:
            raise ControlFailed(f"the answer of photon up is longer than {REPLY_BYTES} bytes")
    return bytes(received)


def act(supervisor: Supervisor, request: Request, down: Callable[[], None]) -> Reply:
    known = supervisor.names()
    chosen = list(request.names)
    if unknown := [name for name in chosen if name not in known]:
        return Reply(error=f"{unknown[0]}: no such process; there are: {', '.join(known)}")
    if request.datacentre is not None:
        of_it = supervisor.names(datacentre=request.datacentre)
        if not of_it:
            return Reply(error=f"datacentre {request.datacentre}: has no processes of its own")
        chosen += [name for name in of_it if name not in chosen]
    match request.do:
        case "ps":
            pass
        case "down":
            down()
        case _ if not chosen:
            return Reply(error=f"{request.do}: name processes or a datacentre")
        case "kill":
            for name in chosen:
                supervisor.kill(name, hold=request.hold)
        case "restart":
            for name in chosen:
                supervisor.restart(name, request.environment)
        case "hold" if request.patience_s is not None:
            for name in chosen:
                supervisor.hold(name, request.patience_s)
        case "hold" | "release" | "pause" | "resume" as action:
            for name in chosen:
                getattr(supervisor, action)(name)
    states = supervisor.states()
    named = states if not chosen else [state for state in states if state.name in chosen]
    return Reply(pid=os.getpid(), services=named)


class ControlServer:
    """Listens in a run directory that this process has locked."""

    def __init__(
        self,
        run: Path,
        supervisor: Supervisor,
        down: Callable[[], None],
        reload: Callable[[bool], Awaitable[Changes]] | None = None,
    ) -> None:
        """``reload(dry_run)`` raises PhotonError if the file cannot be used; nothing has changed then."""
        self._reload = reload
        self._run = run
        self._supervisor = supervisor
        self._down = down
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Starts listening; replaces a socket left by a killed process."""
        (self._run / SOCKET_NAME).unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            os.fchmod(listening.fileno(), 0o600)  # before bind, so that others can never open it
            with _short_name(self._run) as name:
                listening.bind(name)
            listening.setblocking(False)
            self._server = await asyncio.start_unix_server(self._serve, sock=listening, limit=REQUEST_BYTES)
        except BaseException:
            listening.close()
            raise

    async def close(self) -> None:
        """Answers pending requests, then closes."""
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        (self._run / SOCKET_NAME).unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if len(self._connections) > CONNECTIONS_MAX:
                await self._say(writer, Reply(error=f"more than {CONNECTIONS_MAX} at once; try again"))
                return
            while await self._answer(reader, writer):
                pass
        except (ConnectionError, TimeoutError, asyncio.CancelledError):
            pass  # the caller left or slept, or the server closes
        finally:
            self._connections.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        try:
            async with asyncio.timeout(IDLE_S):
                line = await reader.readline()
        except ValueError:
            await self._say(writer, Reply(error=f"a request has at most {REQUEST_BYTES} bytes"))
            return False
        if not line.endswith(b"\n"):
            return False
        try:
            request = decoded(line, Request)
        except DECODE_ERRORS as error:
            await self._say(writer, Reply(error=f"not a request: {error}"))
            return False
        await self._say(writer, await self._done(request))
        return True

    async def _done(self, request: Request) -> Reply:
        if request.do != "reload":
            return act(self._supervisor, request, self._down)
        if self._reload is None:
            return Reply(error="reload: there is no deployment file")
        try:
            changes = await self._reload(request.dry_run)
        except PhotonError as error:
            return Reply(error=f"nothing has changed: {error}")
        except OSError as error:
            return Reply(error=f"nothing has changed: {error.filename}: {error.strerror}")
        return Reply(pid=os.getpid(), services=self._supervisor.states(), changes=changes)

    async def _say(self, writer: asyncio.StreamWriter, reply: Reply) -> None:
        writer.write(msgspec.json.encode(reply) + b"\n")
        async with asyncio.timeout(IDLE_S):
            await writer.drain()
