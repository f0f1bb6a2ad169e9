"""Asks the other replicas what their clocks show, for as long as a replica serves."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from photon.config.tls import Tls
from photon.idregistry import registry_pb2 as pb
from photon.idregistry.client.channels import Channels
from photon.idregistry.core.clock_offsets import Reading
from photon.idregistry.core.outcomes import Refusal
from photon.idregistry.replica.clock_watch import ClockWatch

ASK_SECONDS = 2.0
"""Each peer is asked as often as this."""
PAUSE_SECONDS_MIN = 0.1
"""After the first question that a peer does not answer; then longer and longer."""
TIMEOUT_SECONDS = 2.0


class PeerClocks:
    """Feeds a ClockWatch. ``start`` and ``stop`` it on the replica's event loop."""

    def __init__(self, name: str, watch: ClockWatch, addresses: Mapping[str, str], tls: Tls | None) -> None:
        """``addresses``: of the watch's peers, replica -> host:port."""
        self._name = name
        self._watch = watch
        self._channels = Channels({peer: addresses[peer] for peer in watch.peers}, tls)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._ask(peer), name=f"clock-of-{peer}") for peer in self._watch.peers]
        self._tasks.append(asyncio.create_task(self._say(), name="clock-watch"))

    async def stop(self) -> None:
        """Idempotent."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        await self._channels.close()

    async def _ask(self, peer: str) -> None:
        pause = PAUSE_SECONDS_MIN
        while True:
            connected = self._channels.connected(peer)
            answered = await self._read(peer)
            if answered and not connected:  # the time that connecting took made it inexact
                answered = await self._read(peer)
            pause = ASK_SECONDS if answered else min(2 * pause, ASK_SECONDS)
            await asyncio.sleep(pause)

    async def _read(self, peer: str) -> bool:
        clock = self._watch.time.clock
        asked = clock.monotonic()
        reply = await self._channels.ask(peer, "ReadClock", pb.ReadClockRequest(), timeout=TIMEOUT_SECONDS)
        if isinstance(reply, Refusal):
            return False
        self._watch.read(peer, Reading(reply.now_ns, asked, clock.monotonic()))
        return True

    async def _say(self) -> None:
        while True:
            await asyncio.sleep(ASK_SECONDS)
            self._watch.say(self._name)
