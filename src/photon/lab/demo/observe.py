"""Observes the demo from outside: dispatchers, the registry's replicas, outputs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from photon.fleet.ledger import read_ledger
from photon.fleet.numbers import counts_of
from photon.lab.demo.check import records
from photon.lab.demo.deployment import DemoDeployment
from photon.lab.demo.feed import Feed
from photon.lab.latency import Latencies
from photon.lab.onlooker import SHARD, Onlooker, lag_bytes

ASK_S = 0.5


@dataclass(frozen=True, slots=True)
class Seen:
    up: bool
    ledger: Mapping[str, int]
    lag_bytes: int  # unread bytes of its logs, as written so far


@dataclass(frozen=True, slots=True)
class Observation:
    datacentres: Mapping[str, Seen]
    written: int
    leader: str
    batch_mean: float
    commit_ms_p50: float
    latencies_ms: tuple[float, float, float]


class Observer:
    """Observes a deployment. Create it on the event loop that uses it, and ``close`` it."""

    def __init__(self, demo: DemoDeployment, feed: Feed) -> None:
        self.demo = demo
        self._feed = feed
        self._onlooker = Onlooker(demo.deployment.settings, demo.deployment.tls, ASK_S)
        self._last: dict[str, Mapping[str, int]] = {}
        self.latencies = Latencies((place.output / "joined" for place in demo.places.values()), feed.arrived_ns)

    async def close(self) -> None:
        await self._onlooker.close()

    def ledgers(self) -> dict[str, dict[str, int]]:
        return {name: read_ledger(place.state) for name, place in self.demo.places.items()}

    async def totals(self) -> dict[str, Mapping[str, int]]:
        """Totals of each dispatcher, including those not yet in its database; they never decrease."""
        for name in self.demo.places:
            seen, last = await self._see(name), self._last.get(name, {})
            # A killed dispatcher recounts its uncommitted lines, so that totals must not decrease.
            self._last[name] = {count: max(number, last.get(count, 0)) for count, number in seen.ledger.items()}
        return dict(self._last)

    async def observe(self) -> Observation:
        names = list(self.demo.places)
        leading, seen = await asyncio.gather(
            self._onlooker.leader(), asyncio.gather(*(self._see(name) for name in names))
        )
        leader, batch_mean, commit_s = "", 0.0, 0.0
        if leading is not None:
            leader, now = leading[0].name, leading[1]
            entries, ids = (
                now.sum(f"photon_registry_{name}_total", shard=SHARD) for name in ("entries", "entry_ids")
            )
            batch_mean = ids / entries if entries else 0.0
            commit_s = now.sum("photon_registry_commit_p50_seconds", shard=SHARD)
        self.latencies.follow()
        return Observation(
            dict(zip(names, seen, strict=True)), self._feed.written, leader, batch_mean, commit_s * 1000,
            self.latencies.recent(),
        )  # fmt: skip

    async def leader(self) -> str | None:
        leading = await self._onlooker.leader()
        return leading[0].name if leading else None

    def settled(self, lines: int) -> bool:
        """True if each datacentre has read ``lines`` lines, none is pending, and all verdicts are in the outputs."""
        ledgers = self.ledgers()
        if any(ledger["read"] != lines or ledger["pending"] for ledger in ledgers.values()):
            return False
        return all(
            sum(1 for _ in records(place.output / verdict)) >= ledgers[name][verdict]
            for name, place in self.demo.places.items()
            for verdict in ("joined", "unmatched", "rejected")
        )

    async def _see(self, name: str) -> Seen:
        heard = await self._onlooker.dispatchers(name)
        if heard:
            return Seen(True, counts_of(heard), lag_bytes(heard))
        return Seen(False, read_ledger(self.demo.places[name].state), 0)
