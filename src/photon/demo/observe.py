"""What can be seen of the demo from outside: dispatchers, the registry's replicas, outputs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from photon.config.roles import Role, identity
from photon.config.tls import towards
from photon.demo.check import records
from photon.demo.deployment import DemoDeployment, Place
from photon.demo.feed import Feed
from photon.demo.latency import Latencies
from photon.dispatcher.client import DispatcherClient
from photon.embedded.ledger import read_ledger
from photon.idregistry import registry_pb2
from photon.idregistry.channels import Channels

SHARD = 1
"""The group whose leader is shown."""
ASK_S = 0.5


@dataclass(frozen=True, slots=True)
class Seen:
    """One datacentre at one moment."""

    up: bool
    ledger: Mapping[str, int]
    lag_bytes: int
    """Of its logs as far as they are written."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One moment."""

    datacentres: Mapping[str, Seen]
    written: int
    leader: str
    batch_mean: float
    commit_ms_p50: float
    latencies_ms: tuple[float, float, float]


class Observer:
    """Looks at a deployment. Make it on the event loop it is used on; ``close`` it."""

    def __init__(self, demo: DemoDeployment, feed: Feed) -> None:
        self.demo = demo
        self._feed = feed
        tls = demo.deployment.tls
        self._clients = {
            name: DispatcherClient(place.dispatcher, towards(tls, identity(Role.DISPATCHER, name)))
            for name, place in demo.places.items()
        }
        self._registry = Channels(demo.replicas, tls)
        self._last: dict[str, Mapping[str, int]] = {}
        self.latencies = Latencies((place.output / "joined" for place in demo.places.values()), feed.arrived_ns)

    async def close(self) -> None:
        """Ends the connections."""
        for client in self._clients.values():
            await client.close()
        await self._registry.close()

    def ledgers(self) -> dict[str, dict[str, int]]:
        """Of each datacentre, from its dispatcher's database."""
        return {name: read_ledger(place.state) for name, place in self.demo.places.items()}

    async def totals(self) -> dict[str, Mapping[str, int]]:
        """Of each datacentre as its dispatcher says, ahead of its database; they never fall."""
        for name in self.demo.places:
            seen, last = await self._see(name), self._last.get(name, {})
            # A killed dispatcher counts anew what it had not committed: that is not less than before.
            self._last[name] = {count: max(number, last.get(count, 0)) for count, number in seen.ledger.items()}
        return dict(self._last)

    async def observe(self) -> Observation:
        """Now."""
        names = list(self.demo.places)
        leading, seen = await asyncio.gather(
            self._registry.leading(SHARD, timeout=ASK_S), asyncio.gather(*(self._see(name) for name in names))
        )
        name, group = leading or ("", registry_pb2.GroupStatus())
        self.latencies.follow()
        return Observation(
            dict(zip(names, seen, strict=True)),
            self._feed.written,
            name,
            group.batch_mean,
            group.commit_ms_p50,
            self.latencies.recent(),
        )

    async def leader(self) -> str | None:
        """Name of the replica that leads the first shard."""
        leading = await self._registry.leading(SHARD, timeout=ASK_S)
        return leading[0] if leading else None

    def settled(self, lines: int) -> bool:
        """Whether each datacentre has read so many lines, none is pending, and all verdicts are in the outputs."""
        ledgers = self.ledgers()
        if any(ledger["read"] != lines or ledger["pending"] for ledger in ledgers.values()):
            return False
        return all(_written(place, ledgers[name]) for name, place in self.demo.places.items())

    async def _see(self, name: str) -> Seen:
        status = await self._clients[name].status(timeout=ASK_S)
        if status is not None:
            return Seen(True, dict(status.ledger), max(0, status.bytes_known - status.bytes_read))
        place = self.demo.places[name]
        return Seen(False, read_ledger(place.state), 0)


def _written(place: Place, ledger: Mapping[str, int]) -> bool:
    return all(_count(place.output / name) >= ledger[name] for name in ("joined", "unmatched", "rejected"))


def _count(log: Path) -> int:
    return sum(1 for _ in records(log))
