"""The network between simulated processes: delay, loss, requests that come twice or late, cuts in one direction.

``Stub`` stands where a gRPC stub stands in production, so clients, wire formats and servicers are the real ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from tests.simulation.world.loop import OWNER

if TYPE_CHECKING:
    from tests.simulation.world.process import Process
    from tests.simulation.world.world import World

LATE_MOST_S = 12.0  # a delayed request arrives within this time; by then its caller has given up, or is dead


def failed(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    empty = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(code, empty, empty, details=details)


class Context:
    """A servicer's view of a call."""

    def __init__(self, world: World, deadline: float) -> None:
        self._world = world
        self._deadline = deadline

    def time_remaining(self) -> float:
        return max(0.0, self._deadline - self._world.loop.now)

    def auth_context(self) -> dict[str, list[bytes]]:
        """The context of a plain connection."""
        return {}

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        raise failed(code, details)


class Stub:
    """Methods of one service at one process, as a client in ``source`` calls them."""

    def __init__(self, network: Network, source: Process, target: str) -> None:
        self._network = network
        self._source = source
        self._target = target

    def __getattr__(self, method: str) -> Callable[..., Any]:
        async def call(request: Any, *, timeout: float) -> Any:
            return await self._network.call(self._source, self._target, method, request, timeout)

        return call


class Network:
    """Regions are places; ``cut`` holds directed pairs of them between which nothing passes."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.cut: set[tuple[str, str]] = set()
        self.loss = 0.0
        self.doubling = 0.0
        self.late = 0.0
        self.lateness: dict[str, float] = {}  # region -> extra seconds, at most, for requests to it
        self.round_trip: dict[frozenset[str], float] = {}
        self.sent = 0

    def passes(self, source: str, target: str) -> bool:
        """True if a message may pass from region to region now."""
        return (source, target) not in self.cut

    def delay(self, source: str, target: str) -> float:
        """One-way delay in seconds."""
        random = self._world.random
        if source == target:
            return random.uniform(0.0002, 0.002)
        return self.round_trip[frozenset((source, target))] / 2 * random.uniform(1.0, 1.3)

    def _loses(self) -> bool:
        return self.loss > 0 and self._world.random.random() < self.loss

    async def call(self, source: Process, target: str, method: str, request: Any, timeout: float) -> Any:
        """Raises AioRpcError: DEADLINE_EXCEEDED when nothing was heard, UNAVAILABLE when nobody listens."""
        world, loop = self._world, self._world.loop
        reply: asyncio.Future[Any] = loop.create_future()
        call = _Call(self, source, target, method, request, reply, loop.now + timeout)
        random = world.random
        self.sent += 1
        delays = [self.delay(source.region, world.region_of(target))]
        if self.late and random.random() < self.late:
            delays[0] += random.uniform(0.0, LATE_MOST_S)
        if self.lateness:
            delays[0] += random.uniform(0.0, self.lateness.get(source.region, 0.0))
        if self.doubling and random.random() < self.doubling:
            delays.append(delays[0] + random.uniform(0.0, LATE_MOST_S / 2))
        for delay in delays:
            if not self._loses():
                loop.later(delay, call.arrive)
        timer = loop.call_later(timeout, _expire, reply)
        try:
            return await reply
        finally:
            timer.cancel()
            if reply.cancelled() or (reply.done() and reply.exception() is not None):
                loop.later(self.delay(source.region, world.region_of(target)), call.cancel)


class _Call:
    """One call in flight."""

    def __init__(
        self,
        network: Network,
        source: Process,
        target: str,
        method: str,
        request: Any,
        reply: asyncio.Future[Any],
        deadline: float,
    ) -> None:
        self._network = network
        self._world = network._world
        self._source = source
        self._target = target
        self._method = method
        self._request = request
        self._reply = reply
        self._deadline = deadline
        self._handlers: list[asyncio.Task[Any]] = []

    def arrive(self) -> None:
        world = self._world
        if not self._network.passes(self._source.region, world.region_of(self._target)):
            return
        process = world.listening(self._target, self._method)
        if process is None:
            self._answer(None, failed(grpc.StatusCode.UNAVAILABLE, f"{self._target}: connection refused"))
            return
        self._handlers.append(world.loop.spawn(process, self._handle(process)))

    async def _handle(self, process: Process) -> None:
        handler = process.handlers[self._method]
        try:
            result = await handler(self._request, Context(self._world, self._deadline))
        except grpc.aio.AioRpcError as error:
            self._answer(None, error)
        except Exception as error:
            self._world.violated(f"{process.name}: {self._method}: {type(error).__name__}: {error}", error)
        else:
            self._answer(result, None)

    def cancel(self) -> None:
        """The caller has given up: the server cancels the handler when it hears of it."""
        if self._network.passes(self._source.region, self._world.region_of(self._target)):
            for handler in self._handlers:
                handler.cancel()

    def _answer(self, result: Any, error: Exception | None) -> None:
        network, world = self._network, self._world
        here, there = self._source.region, world.region_of(self._target)
        if network._loses():
            return
        world.loop.later(network.delay(there, here), self._heard, result, error)

    def _heard(self, result: Any, error: Exception | None) -> None:
        world = self._world
        if not self._source.alive or not self._network.passes(world.region_of(self._target), self._source.region):
            return
        context = world.loop.outside.copy()
        context.run(OWNER.set, self._source)
        world.loop.call_soon(_resolve, self._reply, result, error, context=context)


def _resolve(reply: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if reply.done():
        return
    if error is None:
        reply.set_result(result)
    else:
        reply.set_exception(error)


def _expire(reply: asyncio.Future[Any]) -> None:
    if not reply.done():
        reply.set_exception(failed(grpc.StatusCode.DEADLINE_EXCEEDED, "no answer in time"))
