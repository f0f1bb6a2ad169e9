"""The proxy: listens on every route and forwards connections. The I/O shell around Tunnel and LinkTable."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Sequence
from functools import partial

from photon.config.clock import Clock, SystemClock
from photon.config.serving import CannotListen
from photon.config.structured import get_logger
from photon.lab.wan.links import Change, DirectionNow, LinkTable
from photon.lab.wan.tunnel import Abort, Close, Connect, Finish, Side, Tunnel, Write
from photon.supervision.ports import host_and_port
from photon.supervision.routes import Route

CONNECTIONS_MAX = 4096  # open at once through one proxy; more are reset
CONNECT_S = 10.0  # time-out of the proxy's own connection to a target, which is near
BACKLOG = 1024  # accepted by the kernel but not yet by us, per route
WRITE_BUFFER_MAX = 1 << 20  # bytes that a transport takes before it reports that it is full
STOP_S = 5.0  # time limit for open connections to end when the proxy stops
LINGER_0 = struct.pack("ii", 1, 0)  # struct linger: closing sends RST and drops unsent bytes
_LOG = get_logger()


class Proxy:
    def __init__(
        self,
        routes: Sequence[Route],
        *,
        delay_s: float = 0.0,
        clock: Clock | None = None,
        connections_max: int = CONNECTIONS_MAX,
    ) -> None:
        """``delay_s``: one-way delay of every direction at the start. Call start() next."""
        self.clock: Clock = clock or SystemClock()
        self.table = LinkTable(routes, delay_s)
        self._routes = routes
        self._max = connections_max
        self._servers: list[asyncio.Server] = []
        self._open: set[_Connection] = set()
        self._full = self._stopped = False
        self._unreachable: set[Route] = set()
        self._empty = asyncio.Event()

    async def start(self) -> None:
        """Listens on every route, or on none and raises CannotListen."""
        loop = asyncio.get_running_loop()
        for route in self._routes:
            host, port = host_and_port(route.listen)
            try:
                self._servers.append(
                    await loop.create_server(partial(_ClientEnd, self, route), host, port, backlog=BACKLOG)
                )
            except OSError as error:
                await self.stop()
                why = error.strerror or error
                raise CannotListen(f"{route.listen}: the proxy cannot listen there: {why}; is it in use?") from None

    def port(self, route: int) -> int:
        """The actual port of the n-th route, which may be configured as 0."""
        return int(self._servers[route].sockets[0].getsockname()[1])

    def set(self, changes: Sequence[Change]) -> str:
        """Applies changes like LinkTable.apply; they affect open connections at once."""
        error = self.table.apply(changes)
        if not error:
            for connection in list(self._open):
                connection.run()
        return error

    def directions(self) -> list[DirectionNow]:
        return self.table.now()

    @property
    def held(self) -> int:
        return sum(connection.tunnel.held for connection in self._open)

    async def stop(self) -> None:
        """Stops listening and resets open connections."""
        self._stopped = True  # a connection that was accepted just before begins after this
        for server in self._servers:
            server.close()
        for connection in list(self._open):
            connection.abort()
        with contextlib.suppress(TimeoutError):
            while self._open:
                self._empty.clear()
                async with asyncio.timeout(STOP_S):
                    await self._empty.wait()

    def begin(self, route: Route, transport: asyncio.Transport) -> _Connection | None:
        """Begins a client's connection; returns ``None`` (and resets it) if that is not allowed."""
        forth = self.table.link(route.source, route.destination)
        full = len(self._open) >= self._max
        if full is not self._full:
            self._full = full
            _LOG.warning("connections are refused: too many are open" if full else "connections are accepted again")
        if full or self._stopped or not forth.welcomes:
            reset(transport)
            return None
        back = self.table.link(route.destination, route.source)
        connection = _Connection(self, route, Tunnel(forth, back, self.clock.monotonic()), transport)
        self._open.add(connection)
        return connection

    def ended(self, connection: _Connection) -> None:
        self._open.discard(connection)
        self._empty.set()

    def reached(self, route: Route, why_not: str) -> None:
        """Notes whether a target could be reached; logs changes."""
        if bool(why_not) is not (route in self._unreachable):
            log = _LOG.bind(target=route.target, source=route.source, destination=route.destination)
            if why_not:
                self._unreachable.add(route)
                log.warning("target cannot be reached", error=why_not)
            else:
                self._unreachable.discard(route)
                log.info("target can be reached again")


def reset(transport: asyncio.Transport) -> None:
    if (sock := transport.get_extra_info("socket")) is not None:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_0)
    transport.abort()


class _Connection:
    def __init__(self, proxy: Proxy, route: Route, tunnel: Tunnel, client: asyncio.Transport) -> None:
        self._proxy = proxy
        self._route = route
        self.tunnel = tunnel
        self._transports: list[asyncio.Transport | None] = [client, None]
        self._finished = [False, False]  # FIN received: nothing left to read or pause
        self._paused = [False, False]
        self._connecting: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._running = False

    def now(self) -> float:
        return self._proxy.clock.monotonic()

    def made(self, side: Side, transport: asyncio.Transport) -> None:
        transport.set_write_buffer_limits(high=WRITE_BUFFER_MAX)
        if self.tunnel.done:
            reset(transport)
            return
        self._transports[side] = transport
        if side is Side.TARGET:
            self.tunnel.connected()
        self.run()

    def received(self, side: Side, data: bytes) -> None:
        self.tunnel.data(side, data, self.now())
        self.run()

    def finished(self, side: Side) -> None:
        self._finished[side] = True
        self.tunnel.finished(side, self.now())
        self.run()

    def lost(self, side: Side) -> None:
        self._transports[side] = None
        self.tunnel.lost(side, self.now())
        self.run()

    def abort(self) -> None:
        for side in Side:
            self.tunnel.lost(side, self.now())
            if (transport := self._transports[side]) is not None:
                reset(transport)
        self.run()

    def run(self) -> None:
        if self._running:  # a transport called back during a write to it: the loop below continues
            return
        self._running = True
        try:
            while actions := self.tunnel.step(self.now()):
                for action in actions:
                    self._do(action)
        finally:
            self._running = False
        if self.tunnel.done:
            self._end()
        else:
            self._flow()
            self._arm()

    def _do(self, action: Connect | Write | Finish | Abort | Close) -> None:
        if isinstance(action, Connect):
            self._connecting = self._loop.create_task(self._connect(), name=f"connect {self._route.target}")
            return
        transport = self._transports[action.side]
        if transport is None or transport.is_closing():
            return
        if isinstance(action, Write):
            transport.writelines(action.chunks)
        elif isinstance(action, Finish):
            transport.write_eof()
        elif isinstance(action, Abort):
            reset(transport)
        else:
            transport.close()

    async def _connect(self) -> None:
        host, port = host_and_port(self._route.target)
        why_not = ""
        try:
            async with asyncio.timeout(CONNECT_S):
                await self._loop.create_connection(partial(_End, self, Side.TARGET), host, port)
        except TimeoutError:
            why_not = f"no answer in {CONNECT_S:g} s"
        except (OSError, UnicodeError) as error:
            why_not = getattr(error, "strerror", None) or str(error)
        self._proxy.reached(self._route, why_not)
        self._connecting = None
        if why_not and self._transports[Side.TARGET] is None:
            self.lost(Side.TARGET)

    def _flow(self) -> None:
        """Reads from each side while there is room."""
        for side in Side:
            transport = self._transports[side]
            reads = self.tunnel.reads(side)
            if transport is None or self._finished[side] or transport.is_closing() or reads is not self._paused[side]:
                continue
            self._paused[side] = not reads
            if reads:
                transport.resume_reading()
            else:
                transport.pause_reading()

    def _arm(self) -> None:
        wake = self.tunnel.wake_at()
        if wake is None or (self._timer is not None and self._timer_at <= wake):
            return  # an early timer finds nothing due and arms the next
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = wake
        self._timer = self._loop.call_later(max(0.0, wake - self.now()), self._woken)

    def _woken(self) -> None:
        self._timer = None
        self.run()

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if self._transports == [None, None]:
            self._proxy.ended(self)


class _End(asyncio.Protocol):
    def __init__(self, connection: _Connection, side: Side) -> None:
        self._connection: _Connection | None = connection
        self._side = side

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        assert self._connection is not None
        self._connection.made(self._side, transport)

    def data_received(self, data: bytes) -> None:
        if self._connection is not None:
            self._connection.received(self._side, data)

    def eof_received(self) -> bool:
        if self._connection is not None:
            self._connection.finished(self._side)
        return True  # the other direction may continue

    def connection_lost(self, exc: Exception | None) -> None:
        if self._connection is not None:
            self._connection.lost(self._side)

    def pause_writing(self) -> None:
        if self._connection is not None:
            self._connection.tunnel.blocked(self._side, True)

    def resume_writing(self) -> None:
        if self._connection is not None:
            self._connection.tunnel.blocked(self._side, False)
            self._connection.run()


class _ClientEnd(_End):
    """The client's transport, from the moment it is accepted."""

    def __init__(self, proxy: Proxy, route: Route) -> None:
        self._proxy = proxy
        self._route = route
        self._connection = None
        self._side = Side.CLIENT

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._connection = self._proxy.begin(self._route, transport)
        if self._connection is not None:
            self._connection.made(Side.CLIENT, transport)
