"""Compares a replica's clock with its peers' clocks, and decides which proposals they permit."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from photon.config.back_off import BackOff
from photon.config.interval_clock import Interval, IntervalClock
from photon.config.structured import get_logger
from photon.config.tls import Tls
from photon.idregistry.core import clock_offsets
from photon.idregistry.core.commands import END_OF_TIME
from photon.idregistry.core.outcomes import Refusal

log = get_logger(__name__)


class ClockWatch:
    """A replica's own clock, and readings of its peers' clocks. Not thread-safe: use on the replica's event loop."""

    def __init__(self, time: IntervalClock, peers: Sequence[str] = (), *, require_sync: bool = False) -> None:
        """``peers``: the other replicas. ``require_sync``: see ``clock.require_sync``."""
        self.time = time
        self._require_sync = require_sync
        self._readings: dict[str, clock_offsets.Reading | None] = dict.fromkeys(peers)
        self._said: tuple[str, str] = ("", "")

    @property
    def peers(self) -> Sequence[str]:
        return list(self._readings)

    def read(self, peer: str, reading: clock_offsets.Reading) -> None:
        """Stores a reading of a peer's clock. Raises KeyError for an unknown peer."""
        if peer not in self._readings:
            raise KeyError(peer)
        self._readings[peer] = reading

    def too_new_after_ns(self) -> int:
        """Returns the time after which event times are TOO_NEW."""
        now, peers = self._now()
        return clock_offsets.too_new_after(now, _middle(peers), self.time.uncertainty_ns)

    def not_after_ns(self, latest_ns: int) -> int:
        """Returns a lower bound on every machine's clock. ``latest_ns``: the newest event time entered."""
        return clock_offsets.not_after(self.time.read(), self.time.uncertainty_ns)

    def objection(self) -> str:
        """Returns the reason why no time-dependent proposal may be made now; empty if it may."""
        return self.facts().objection

    def facts(self) -> clock_offsets.ClockFacts:
        now, peers = self._now()
        middle, uncertainty = _middle(peers), self.time.uncertainty_ns
        why = clock_offsets.objection(now, middle, peers, uncertainty_ns=uncertainty, require_sync=self._require_sync)
        return clock_offsets.ClockFacts(now, clock_offsets.judged(middle, uncertainty), middle, peers, why)

    def say(self, replica: str) -> None:
        facts = self.facts()
        note = _note(facts.now, self.time.uncertainty_ns)
        said = (facts.objection, note)
        if note and note != self._said[1]:
            log.warning("registry.clock", replica=replica, note=note)
        if facts.objection != self._said[0]:
            if facts.objection:
                log.warning("registry.clock", replica=replica, proposes_no_boundary=facts.objection)
            else:
                log.info("registry.clock", replica=replica, agrees=True)
        self._said = said

    def _now(self) -> tuple[Interval, dict[str, clock_offsets.Offset]]:
        now, monotonic = self.time.read(), self.time.clock.monotonic()
        return now, {
            peer: clock_offsets.ANYWHERE if reading is None else clock_offsets.ahead_by(reading, now, monotonic)
            for peer, reading in self._readings.items()
        }


class LoneClock(ClockWatch):
    """The clock of a registry that runs inside its only joiner's process.

    There is no other clock to compare with, so it decides nothing. No id is TOO_NEW: ids in the future would only
    delay changes of the shards, and there are none here. If the clock is ahead of the events, the boundary follows
    the events.
    """

    def too_new_after_ns(self) -> int:
        return END_OF_TIME

    def not_after_ns(self, latest_ns: int) -> int:
        return min(super().not_after_ns(latest_ns), latest_ns)


def _middle(peers: Mapping[str, clock_offsets.Offset]) -> clock_offsets.Offset:
    return clock_offsets.median([clock_offsets.OWN, *peers.values()])


def _note(now: Interval, uncertainty_ns: int) -> str:
    """Returns a problem of this machine's own clock, for the log; empty if there is none."""
    bound = f"S = {uncertainty_ns / 1e9:g} s"
    if not now.synchronised:
        return f"the kernel does not know its clock's error (no time daemon): it is assumed to be within {bound}"
    if now.error_ns > uncertainty_ns:
        return f"the kernel's bound on its clock's error is more than {bound}: check the time daemon"
    return ""


ASK_SECONDS = 5.0  # interval between questions to each peer
PAUSE_SECONDS_MIN = 0.1  # after the first question without an answer; grows with each further one
TIMEOUT_SECONDS = 2.0


class PeerClocks:
    """Reads the peers' clocks for a ClockWatch. ``start`` and ``stop`` it on the replica's event loop."""

    def __init__(self, name: str, watch: ClockWatch, addresses: Mapping[str, str], tls: Tls | None) -> None:
        """``addresses``: replica -> host:port, for all peers of ``watch``."""
        self._name = name
        self._watch = watch
        from photon.idregistry.client.channels import Channels  # a lone replica needs no gRPC

        self._channels = Channels({peer: addresses[peer] for peer in watch.peers}, tls)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._ask(peer), name=f"clock-of-{peer}") for peer in self._watch.peers]
        self._tasks.append(asyncio.create_task(self._say(), name="clock-watch"))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        await self._channels.close()

    async def _ask(self, peer: str) -> None:
        pauses = BackOff(PAUSE_SECONDS_MIN, ASK_SECONDS).pauses()
        while True:
            connected = self._channels.connected(peer)
            answered = await self._read(peer)
            if answered and not connected:  # connecting made the reading inexact
                answered = await self._read(peer)
            await asyncio.sleep(ASK_SECONDS if answered else next(pauses))

    async def _read(self, peer: str) -> bool:
        clock = self._watch.time.clock
        asked = clock.monotonic()
        from photon.idregistry import registry_pb2 as pb

        reply = await self._channels.ask(peer, "ReadClock", pb.ReadClockRequest(), timeout=TIMEOUT_SECONDS)
        if isinstance(reply, Refusal):
            return False
        self._watch.read(peer, clock_offsets.Reading(reply.now_ns, asked, clock.monotonic()))
        return True

    async def _say(self) -> None:
        while True:
            await asyncio.sleep(ASK_SECONDS)
            self._watch.say(self._name)
