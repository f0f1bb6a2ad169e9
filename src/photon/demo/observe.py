"""What can be seen of the demo from outside: the dispatcher's ledger, the registry's replicas, the output."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import grpc

from photon.demo.check import records
from photon.demo.deployment import Deployment
from photon.demo.feed import Feed
from photon.embedded.ledger import read_ledger
from photon.idregistry import registry_pb2, registry_pb2_grpc

SHARD = 1
"""The group whose leader is shown and killed."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One moment."""

    ledger: dict[str, int]
    written: int
    leader: str
    batch_mean: float
    commit_ms_p50: float


class Observer:
    """Looks at a deployment."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment

    def ledger(self) -> dict[str, int]:
        """The dispatcher's, from its database."""
        return read_ledger(self._deployment.state)

    async def observe(self, feed: Feed) -> Observation:
        """Now."""
        leading = await _leading(self._deployment)
        name, status = leading if leading else ("", registry_pb2.GroupStatus())
        return Observation(self.ledger(), feed.written, name, status.batch_mean, status.commit_ms_p50)

    async def idle(self) -> bool:
        """Whether the output holds as many records as the ledger says."""
        ledger = self.ledger()
        output = self._deployment.output
        return all(
            sum(1 for _ in records(output / name)) >= ledger[name] for name in ("joined", "unmatched", "rejected")
        )

    def latencies(self, feed: Feed) -> tuple[float, float, float]:
        """p50, p90 and p99 in ms, from the write of a click's line to the moment its joined record was made."""
        delays = []
        for record in records(self._deployment.output / "joined"):
            joined_ns = datetime.fromisoformat(record["joined_at"]).timestamp() * 1e9
            delays.append((joined_ns - feed.arrived_ns[record["event_id"]]) / 1e6)
        return percentiles(delays)


def percentiles(values: Iterable[float]) -> tuple[float, float, float]:
    """p50, p90, p99; zeros of too few values."""
    listed = sorted(values)
    if len(listed) < 2:
        return (0.0, 0.0, 0.0)
    cuts = statistics.quantiles(listed, n=100, method="inclusive")
    return (cuts[49], cuts[89], cuts[98])


async def _leading(deployment: Deployment) -> tuple[str, registry_pb2.GroupStatus] | None:
    """The replica that leads the first shard, and what it says of it."""
    for name, address in deployment.replicas.items():
        async with grpc.aio.insecure_channel(address) as channel:
            try:
                stub = registry_pb2_grpc.RegistryStub(channel)  # type: ignore[no-untyped-call]
                described = await stub.Describe(registry_pb2.DescribeRequest(), timeout=0.5)
            except grpc.aio.AioRpcError:
                continue
        for group in described.groups:
            if group.group == SHARD and group.is_leader:
                return name, group
    return None


async def leader(deployment: Deployment) -> str:
    """Name of the replica that leads the first shard; any replica while none does."""
    leading = await _leading(deployment)
    return leading[0] if leading else next(iter(deployment.replicas))
