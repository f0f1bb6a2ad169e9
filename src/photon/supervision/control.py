"""The control socket of a running ``photon up``: line-delimited JSON over a Unix socket in its run directory.

Each line is one request or one reply. Only the socket's owner can use it (mode 0600).
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
    """The effects of a changed deployment file: names of processes, and changed keys."""

    started: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()  # still running; they use the new file after their next start
    keys: tuple[str, ...] = ()  # keys in the deployment file whose values changed


class Request(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="version",
    tag=1,
):
    """An action, and the processes to act on: the ones in ``names`` and the ones of ``datacentre``."""

    do: Action
    names: tuple[str, ...] = ()
    datacentre: str | None = None
    hold: bool = False  # with kill: keep the process down until it is released
    dry_run: bool = False  # with reload: only report what would change
    # With hold: seconds from SIGTERM to SIGKILL, instead of the usual time.
    patience_s: Annotated[float, msgspec.Meta(gt=0.0, le=PATIENCE_S_MAX)] | None = None
    # With restart: environment variables in addition to those of ``photon up``. `None` keeps the previous ones.
    environment: dict[str, str] | None = None


class Reply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``error``: one line; if set, nothing was done. ``services``: the processes after the action."""

    error: str = ""
    pid: int = 0  # process id of ``photon up``
    services: list[ServiceState] = []
    changes: Changes | None = None  # the changes made by a reload


class ControlFailed(PhotonError):
    """Raised if the running ``photon up`` cannot carry out the request, or does not answer."""


class NobodyListens(PhotonError):
    """Raised if no ``photon up`` runs in this directory, or it is still starting."""


@contextlib.contextmanager
def _short_name(run: Path) -> Iterator[str]:
    """Yields a short path of the socket, because a Unix socket's address is limited to 108 bytes."""
    directory = os.open(run, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{SOCKET_NAME}"
    finally:
        os.close(directory)


def ask(run: Path, request: Request, timeout: float = 10.0) -> Reply:
    """Sends a request to the ``photon up`` of a run directory. Raises NobodyListens, ControlFailed."""
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        connection.settimeout(timeout)
        try:
            connection.connect(stack.enter_context(_short_name(run)))
        except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
            raise NobodyListens(f"nothing runs in {run}; start it with photon up") from None
        except TimeoutError:
            raise ControlFailed(f"{run}: photon up did not answer within {timeout:g} s; is it suspended?") from None
        try:
            connection.sendall(msgspec.json.encode(request) + b"\n")
            line = _line(connection, time.monotonic() + timeout)
        except TimeoutError:
            raise ControlFailed(f"{run}: photon up did not answer within {timeout:g} s; is it suspended?") from None
        except (ConnectionError, BrokenPipeError):
            raise NobodyListens(f"{run}: photon up stopped before it answered") from None
    try:
        reply = msgspec.json.decode(line, type=Reply)
    except msgspec.DecodeError as error:
        raise ControlFailed(
            f"{run}: cannot read the answer of photon up ({error}); it may have another version"
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
            return Reply(error=f"{request.do}: give processes or a datacentre")
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
    """Listens in a run directory whose lock this process holds."""

    def __init__(
        self,
        run: Path,
        supervisor: Supervisor,
        down: Callable[[], None],
        reload: Callable[[bool], Awaitable[Changes]] | None = None,
    ) -> None:
        """``reload``: called with ``dry_run``. It raises PhotonError if the file cannot be used; then nothing has
        changed."""
        self._reload = reload
        self._run = run
        self._supervisor = supervisor
        self._down = down
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Starts listening. Replaces a socket left behind by a killed process."""
        (self._run / SOCKET_NAME).unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            os.fchmod(listening.fileno(), 0o600)  # before bind, so that other users can never open it
            with _short_name(self._run) as name:
                listening.bind(name)
            listening.setblocking(False)
            self._server = await asyncio.start_unix_server(self._serve, sock=listening, limit=REQUEST_BYTES)
        except BaseException:
            listening.close()
            raise

    async def close(self) -> None:
        """Stops listening and closes all connections."""
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
                await self._say(writer, Reply(error=f"more than {CONNECTIONS_MAX} connections; try again"))
                return
            while await self._answer(reader, writer):
                pass
        except (ConnectionError, TimeoutError, asyncio.CancelledError):
            pass  # the caller is gone or idle, or the server closes
        finally:
            self._connections.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        try:
            async with asyncio.timeout(IDLE_S):
                line = await reader.readline()
        except ValueError:
            await self._say(writer, Reply(error=f"the request is longer than {REQUEST_BYTES} bytes"))
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
