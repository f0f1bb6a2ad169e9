"""Replicas behind real grpc.aio servers, over groups of this process, and clients of them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc.aio

from photon.batch.ids import Ids
from photon.idregistry import registry_pb2 as pb
from photon.idregistry.api import Registry, Slot
from photon.idregistry.client.channels import REGISTRY
from photon.idregistry.client.grpc_client import RegistryClient
from photon.idregistry.client.routing import RoutedRegistry
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
    look_ups: Counter[str]
    """Answered so far, by replica."""

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
        deadline = time.monotonic() + 5
        while not all(replica.ready for replica in replicas.values()):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.005)
        yield every
    finally:
        for replica in replicas.values():
            await replica.stop()
        for server in every.servers.values():
            await server.stop(None)


@asynccontextmanager
async def closing(client: RegistryClient) -> AsyncIterator[RegistryClient]:
    try:
        yield client
    finally:
        await client.close()


async def opened(client: RoutedRegistry, slot: Slot = SLOT, nonce: bytes = b"n") -> int:
    answer = await client.open_slot(slot, 0, nonce)
    assert answer is not None
    assert answer.reason == ""
    client.announce(slot, [answer.incarnation])
    return answer.incarnation


async def answers(client: RoutedRegistry, rows: Ids, timeout: float = 5.0) -> list[int]:
    found = await client.insert(rows, timeout=timeout)
    return [int(answer) for answer in found.outcomes]
