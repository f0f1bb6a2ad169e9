"""A client's connections in the simulated world: requests and replies travel as messages, late, doubled never, lost.

Everything above it is the production client, everything below the production servicer.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from photon.idregistry.client.channels import Channels
from photon.idregistry.core.outcomes import Refusal, Status
from tests.simulation.world.processes import ProcessLoop

if TYPE_CHECKING:
    from tests.simulation.registry.world import RegistryWorld


class Deadline:
    """In place of the servicer's gRPC context."""

    def __init__(self, world: RegistryWorld, timeout: float) -> None:
        self._world = world
        self._at = world.now + timeout

    def time_remaining(self) -> float:
        return self._at - self._world.now

    def auth_context(self) -> dict[str, list[bytes]]:
        """Plain text."""
        return {}


class SimulatedChannels(Channels):
    """Overrides what would open sockets."""

    def __init__(self, world: RegistryWorld, client: str, loop: ProcessLoop) -> None:
        super().__init__(dict.fromkeys(world.names, "nowhere:1"))
        self._world = world
        self._client = client
        self._loop = loop

    async def ask(self, name: str, method: str, request: Any, *, timeout: float) -> Any:
        world, loop = self._world, self._loop
        future: asyncio.Future[Any] = loop.create_future()

        def answered(reply: Any) -> None:
            if not loop.dead:
                loop.call_soon(_resolve, future, reply)

        def reply_leaves(reply: Any) -> None:
            if not world.is_cut(name, self._client):
                world.later(world.delay(), lambda: answered(reply))

        def arrives() -> None:
            if world.is_cut(self._client, name):
                return
            server = world.servers.get(name)
            if server is None:
                reply_leaves(Refusal(Status.UNKNOWN, f"{name}: unavailable"))
                return
            handler = getattr(server.servicer, method)
            server.loop.start(handler(request, Deadline(world, timeout)), reply_leaves)

        late = world.lateness.get(self._client, 0.0)
        if world.random.random() >= world.loss:
            world.later(world.delay() + (world.random.uniform(0.0, late) if late else 0.0), arrives)
        try:
            async with asyncio.timeout(timeout):
                return await future
        except TimeoutError:
            return Refusal(Status.UNKNOWN, f"registry replica {name}: deadline_exceeded")

    def connected(self, name: str) -> bool:
        return True

    async def close(self) -> None:
        """Nothing is open."""


def _resolve(future: asyncio.Future[Any], reply: Any) -> None:
    if not future.done():
        future.set_result(reply)
