"""Replicas behind real grpc.aio servers, over groups of this process, and clients of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc.aio
import pytest

from photon.batch.ids import Ids
from photon.config.clock import SystemClock
from photon.idregistry import registry_pb2 as pb
from photon.idregistry.api import Registry, Slot
from photon.idregistry.client.channels import REGISTRY
from photon.idregistry.client.grpc_client import RegistryClient
from photon.idregistry.client.routing import RoutedRegistry
from photon.idregistry.replica.embedded import LocalBackend
from photon.idregistry.replica.server import RegistryReplica
from photon.idregistry.replica.service import SERVER_OPTIONS, Context, RegistryServicer
from tests.unit.idregistry.groups import Cluster

SLOT = Slot("slot", "dc1", "host:1")


@dataclass
class Served:
    """A cluster behind gRPC."""

    cluster: Cluster
    replicas: dict[str, RegistryReplica]
    servers: dict[str, grpc.aio.Server]
    addresses: dict[str, str]
    look_ups: Counter[str]  # answered so far, by replica

    def client(self, *names: str) -> RegistryClient:
        client = RegistryClient({name: self.addresses[name] for name in names or self.addresses})
        as_contract: Registry = client
        assert as_contract is client
        return client

    async def kill(self, name: str) -> None:
        await self.servers.pop(name).stop(None)


class _Counting(RegistryServicer):
    def __init__(self, replica: RegistryReplica, look_ups: Counter[str]) -> None:
        super().__init__(replica)
        self._counts = look_ups

    async def LookUp(self, request: pb.LookUpRequest, context: Context) -> pb.LookUpReply:  # noqa: N802
        self._counts[self._replica.name] += 1
        return await super().LookUp(request, context)


@asynccontextmanager
async def served(cluster: Cluster) -> AsyncIterator[Served]:
    servers, addresses, look_ups = {}, {}, Counter[str]()
    for name in cluster.names:
        servers[name] = grpc.aio.server(options=SERVER_OPTIONS)
        addresses[name] = f"127.0.0.1:{servers[name].add_insecure_port('127.0.0.1:0')}"
    replicas = {name: cluster.replica(name) for name in servers}
    for name, replica in replicas.items():
        REGISTRY.add(servers[name], _Counting(replica, look_ups))
        await servers[name].start()
        replica.start()
    every = Served(cluster, replicas, servers, addresses, look_ups)
    try:
        await until(lambda: all(replica.ready for replica in replicas.values()))
        yield every
    finally:
        for replica in replicas.values():
            await replica.stop()
        for server in every.servers.values():
            await server.stop(None)


@asynccontextmanager
async def closing(client: RoutedRegistry) -> AsyncIterator[Any]:
    try:
        yield client
    finally:
        await client.close()


async def opened(client: RoutedRegistry, slot: Slot = SLOT, nonce: bytes = b"n", last: int = 0) -> int:
    answer = await client.open_slot(slot, last, nonce)
    assert answer.reason == ""
    client.announce(slot, [answer.incarnation])
    return answer.incarnation


async def answers(client: RoutedRegistry, rows: Ids, timeout: float = 60.0) -> list[int]:
    found = await client.insert(rows, timeout=timeout)
    return [int(answer) for answer in found.outcomes]


async def until(holds: Callable[[], bool], patience_s: float = 60.0) -> None:
    async with asyncio.timeout(patience_s):
        while not holds():  # noqa: ASYNC110 - other tasks and threads make it true
            await asyncio.sleep(0.005)


@asynccontextmanager
async def running(cluster: Cluster, name: str = "r1") -> AsyncIterator[RegistryReplica]:
    replica = cluster.replica(name)
    replica.start()
    try:
        await until(lambda: replica.ready or (replica.conflict is not None and replica.conflict.done()))
        yield replica
    finally:
        await replica.stop()


def routed(replica: RegistryReplica) -> RoutedRegistry:
    registry = RoutedRegistry(LocalBackend(replica), SystemClock())
    as_contract: Registry = registry
    assert as_contract is registry
    return registry


@asynccontextmanager
async def local(cluster: Cluster | None = None) -> AsyncIterator[tuple[RoutedRegistry, int, RegistryReplica]]:
    """A registry within the process, and an incarnation that it knows."""
    async with running(cluster or Cluster()) as replica:
        registry = routed(replica)
        yield registry, await opened(registry), replica


both = pytest.mark.parametrize("kind", ["gRPC", "embedded"])


@asynccontextmanager
async def registry(
    kind: str, replicas: int = 1, shards: int = 2, **options: Any
) -> AsyncIterator[tuple[RoutedRegistry, Cluster]]:
    cluster = Cluster(replicas, shards, **options)
    if kind == "gRPC":
        async with served(cluster) as every, closing(every.client()) as client:
            yield client, cluster
    else:
        async with running(cluster) as replica, closing(routed(replica)) as client:
            yield client, cluster
