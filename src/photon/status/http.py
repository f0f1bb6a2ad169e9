"""A small HTTP/1.1 server for a few fixed paths: GET and HEAD, with limits on connections, bytes and time.

h11 implements the protocol; this module adds sockets and limits. Functions that make answers get only the path, so
nothing else that a caller sends is kept or shown. Only questions also get their query.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import re
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

import h11

from photon.config.errors import UsageError
from photon.config.metrics.readings import Readings
from photon.config.structured import get_logger
from photon.config.tls import CannotListen

# Maximum number of connections. One more replaces the connection that has kept us waiting longest.
CONNECTIONS_MAX = 64
HEADERS_BYTES_MAX = 16 << 10
REQUEST_S = 10.0  # time limit for a request's headers, the next request on a connection, and sending an answer
READ_BYTES = 8 << 10
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Last labels of host names that cannot be registered publicly, such as names of a cluster's services.
PRIVATE_NAMES = ("localhost", "local", "internal", "svc")
_HOST = re.compile(r"\[([^]]*)\](?::\d*)?|([^:]*)(?::\d*)?")
_HEADERS = (
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
)

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    body: bytes
    media_type: str
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


Answers = Callable[[str], Answer | None]  # path -> answer; `None` for an unknown path
# Path -> function that answers a query within its own time limit.
Questions = Mapping[str, Callable[[str], Awaitable[Answer]]]


def plain(text: str, status: int = 200) -> Answer:
    return Answer(f"{text}\n".encode(), "text/plain; charset=utf-8", status)


def serve_metrics(address: str, read: Callable[[Readings], None]) -> None:
    """Serves the metrics of a program without an event loop (``--metrics``), in a thread, at any path but /healthz.
    Raises UsageError."""

    def answer(path: str) -> Answer:
        if path == "/healthz":
            return plain("ok")
        into = Readings()
        read(into)
        return Answer(into.text().encode(), METRICS_TYPE)

    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"--metrics {address}: must be host:port")
    try:
        HttpServer(answer).start_in_thread(address)
    except CannotListen as error:
        raise UsageError(f"--metrics {address}: cannot listen there: {error.__context__}") from None


class HttpServer:
    """An HTTP server for fixed paths. ``listen_http`` creates one."""

    def __init__(self, answers: Answers, questions: Questions | None = None, names: Iterable[str] = ()) -> None:
        """``names``: host names of its addresses, in addition to the host it listens at."""
        self._answers = answers
        self._questions = questions or {}
        self._names = {name.lower() for name in names}
        self._open: set[asyncio.Task[None]] = set()
        self._waiting: dict[asyncio.Task[None], None] = {}  # connections waiting for their client, longest wait first
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self, address: str) -> None:
        """Listens at ``address``, host:port. Port 0 means any free port. Raises CannotListen."""
        host, _, port = address.rpartition(":")
        try:
            self._server = await asyncio.start_server(self._accepted, host.strip("[]") or None, int(port))
        except (OSError, ValueError, OverflowError) as error:
            raise CannotListen(f"{address}: the status page cannot listen there: {error}") from None
        self.port = self._server.sockets[0].getsockname()[1]
        self._names.add(host.lower())

    def start_in_thread(self, address: str) -> None:
        """Starts serving in a thread, for a program without an event loop. Raises CannotListen."""
        loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(self.start(address))
        except CannotListen:
            loop.close()
            raise
        threading.Thread(target=loop.run_forever, name="http", daemon=True).start()

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= CONNECTIONS_MAX:
            slowest = next(iter(self._waiting), None)
            if slowest is None:
                writer.transport.abort()
                return
            del self._waiting[slowest]
            slowest.cancel()
        task = asyncio.create_task(self._serve(reader, writer))
        self._open.add(task)
        self._waiting[task] = None
        task.add_done_callback(self._closed)

    def _closed(self, task: asyncio.Task[None]) -> None:
        self._open.discard(task)
        self._waiting.pop(task, None)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._converse(reader, writer)
            writer.close()
            async with asyncio.timeout(REQUEST_S):
                await writer.wait_closed()
        except (TimeoutError, OSError):
            pass
        finally:
            writer.transport.abort()  # the client may never read the rest

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers requests until the connection is to be closed. Raises TimeoutError, OSError."""
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEADERS_BYTES_MAX)
        try:
            while connection.our_state is h11.IDLE:
                async with asyncio.timeout(REQUEST_S):
                    request = await _request(connection, reader)
                if request is None:
                    return
                answer = await self._answer_or_500(request)
                async with asyncio.timeout(REQUEST_S):
                    writer.write(_sent(connection, request, answer))
                    await writer.drain()
                if connection.states != {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}:
                    return  # the client wants to close the connection
                connection.start_next_cycle()
        except h11.RemoteProtocolError as error:
            with contextlib.suppress(h11.LocalProtocolError):
                writer.write(_refused(connection, error.error_status_hint))

    async def _answer_or_500(self, request: h11.Request) -> Answer:
        """Returns the answer, or a 500 if that fails. Meanwhile the connection does not count as waiting."""
        task = asyncio.current_task()
        assert task is not None
        self._waiting.pop(task, None)
        try:
            return await self._answer(request)
        except Exception:  # a bug in one answer must not end the connection silently
            log.exception("a request could not be answered")
            return plain("internal error; see the log of this process", 500)
        finally:
            self._waiting[task] = None

    async def _answer(self, request: h11.Request) -> Answer:
        host = next((value for name, value in request.headers if name == b"host"), b"").decode("ascii", "replace")
        if not self._is_ours(host):
            return plain(
                "This page answers to an IP address, to a name without dots, and to the host of its address in the "
                'deployment file (status = "HOST:PORT"). A proxy in front of it may also set the header Host.',
                421,
            )
        if request.method not in (b"GET", b"HEAD"):
            return Answer(b"", "text/plain", 405, (("Allow", "GET, HEAD"),))
        path, _, query = request.target.decode("ascii", "replace").partition("?")
        if path in self._questions:
            return await self._questions[path](query)
        return self._answers(path) or plain(
            "not found; there are /, /status.json, /explain.json?id=, /metrics and /healthz", 404
        )

    def _is_ours(self, host: str) -> bool:
        """Returns False if the header ``host`` may be a foreign name that resolves to us (DNS rebinding). A foreign
        web page could then query this one through a user's browser. Browsers never leave the header empty."""
        found = _HOST.fullmatch(host)
        if found is None:
            return False
        name = (found[1] or found[2] or "").lower().removesuffix(".")
        with contextlib.suppress(ValueError):
            ipaddress.ip_address(name)
            return True
        return found[1] is None and (
            "." not in name or name.rpartition(".")[2] in PRIVATE_NAMES or name in self._names
        )


async def _request(connection: h11.Connection, reader: asyncio.StreamReader) -> h11.Request | None:
    """Reads the next request. Drops its body, which may be up to HEADERS_BYTES_MAX long. Returns `None` if the client
    is gone."""
    request: h11.Request | None = None
    dropped = 0
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(READ_BYTES))
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            dropped += len(event.data)
            if dropped > HEADERS_BYTES_MAX:
                raise h11.RemoteProtocolError("requests must not have a body", error_status_hint=413)
        elif isinstance(event, h11.EndOfMessage):
            return request
        else:
            return None


def _sent(connection: h11.Connection, request: h11.Request, answer: Answer) -> bytes:
    headers = [("Content-Type", answer.media_type), ("Content-Length", str(len(answer.body))), *_HEADERS]
    head = connection.send(h11.Response(status_code=answer.status, headers=[*headers, *answer.headers]))
    body = b"" if request.method == b"HEAD" else connection.send(h11.Data(data=answer.body))
    return (head or b"") + (body or b"") + (connection.send(h11.EndOfMessage()) or b"")


def _refused(connection: h11.Connection, status: int) -> bytes:
    headers = [("Content-Length", "0"), ("Connection", "close")]
    head = connection.send(h11.Response(status_code=status, headers=headers))
    return (head or b"") + (connection.send(h11.EndOfMessage()) or b"")
