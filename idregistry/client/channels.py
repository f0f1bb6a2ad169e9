"""The registry's gRPC services, and one channel per replica that notices a silent network cut and reconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import grpc
import grpc.aio

from photon.config.roles import Role, identity
from photon.config.rpc import UNPROBED, Service, back_off
from photon.config.tls import Tls, open_channel, towards, unreachable
from photon.idregistry import registry_pb2 as pb
from photon.idregistry.core.outcomes import Refusal, Status

MESSAGE_BYTES_MAX = 4 << 20  # largest request or reply; the largest batch of ids takes 720 KiB
REGISTRY = Service(pb.DESCRIPTOR, "Registry", bytes_max=MESSAGE_BYTES_MAX)  # two witnesses have 32 logs as fields
REGISTRY_OPERATOR = Service(pb.DESCRIPTOR, "RegistryOperator", bytes_max=MESSAGE_BYTES_MAX)
# Concurrent requests to one replica. Further ones wait within their time-out, without delaying other replicas.
REQUESTS_OUTSTANDING_MAX = 64
# A connection silent for this time is pinged, and given up after the same time without an answer.
KEEPALIVE_MS = 2_000
RECONNECT_MS_MIN = 100
RECONNECT_MS_MAX = 1_000
# Time limit for one connection attempt, a few round trips: after a cut, reconnects within this plus one back-off.
CONNECT_MS_MAX = 1_000

_OPTIONS = (
    *REGISTRY.sizes,
    *back_off(RECONNECT_MS_MIN, RECONNECT_MS_MAX, CONNECT_MS_MAX),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_MS),
    # in gRPC 1.85 this limits the wait for a ping's answer; the default is a minute
    ("grpc.http2.ping_timeout_ms", KEEPALIVE_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.use_local_subchannel_pool", 1),  # else a process's clients would share a connection and its back-off
    ("grpc.enable_retries", 0),
    *UNPROBED,
)


class Channels:
    """One channel per replica, by replica name. For use on one event loop."""

    def __init__(
        self, addresses: Mapping[str, str], tls: Tls | None = None, here: Mapping[str, object] | None = None
    ) -> None:
        """``addresses``: replica name -> host:port as seen from here.

        ``tls``: ``None`` means plain text. ``here``: servicers of the replicas in this process, by name, called
        without a channel.
        """
        self._tls = tls
        self._addresses = dict(addresses)
        self._here = dict(here or {})
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._stubs: dict[str, Any] = {}
        self._gates = {name: asyncio.Semaphore(REQUESTS_OUTSTANDING_MAX) for name in addresses}

    async def call(self, name: str, method: str, request: Any, *, timeout: float) -> Any:
        """Sends a request; after any failure, returns a Refusal with UNKNOWN. Takes at most ``timeout`` seconds."""
        try:
            async with asyncio.timeout(timeout), self._gates[name]:
                return await self.ask(name, method, request, timeout=timeout)
        except TimeoutError:
            return Refusal(Status.UNKNOWN, f"registry replica {name}: deadline_exceeded")

    async def ask(self, name: str, method: str, request: Any, *, timeout: float) -> Any:
        """Like ``call``, but does not queue behind other requests: for small requests about the replica itself."""
        try:
            return await getattr(self._stub(name), method)(request, timeout=timeout)
        except grpc.aio.AioRpcError as error:
            why = unreachable(error, tls=self._tls is not None)
            return Refusal(Status.UNKNOWN, f"registry replica {name} at {self._addresses[name]}: {why}")

    async def leading(self, group: int, *, timeout: float) -> tuple[str, pb.GroupStatus] | None:
        """Finds a group's leader; returns its name and group status, or ``None`` if no replica claims to lead."""
        asked = (self.ask(name, "Describe", pb.DescribeRequest(), timeout=timeout) for name in self._addresses)
        for name, reply in zip(self._addresses, await asyncio.gather(*asked), strict=True):
            for status in () if isinstance(reply, Refusal) else reply.groups:
                if status.group == group and status.is_leader:
                    return name, status
        return None

    def connected(self, name: str) -> bool:
        """True if the replica is in this process, or its channel is connected."""
        channel = self._channels.get(name)
        return name in self._here or (channel is not None and channel.get_state() is grpc.ChannelConnectivity.READY)

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close(None)
        self._channels.clear()
        self._stubs.clear()

    def _stub(self, name: str) -> Any:
        stub = self._stubs.get(name)
        if stub is None and name in self._here:
            stub = self._stubs[name] = REGISTRY.here(self._here[name])
        if stub is None:
            channel = open_channel(self._addresses[name], _OPTIONS, towards(self._tls, identity(Role.REGISTRY, name)))
            self._channels[name] = channel
            stub = self._stubs[name] = REGISTRY.stub(channel)
        return stub
