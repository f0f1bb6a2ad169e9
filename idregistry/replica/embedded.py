"""Runs the registry inside one process: one replica on a real disk, with batching and Raft, without gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from photon.batch.ids import Ids
from photon.config.clock import Clock, SystemClock
from photon.config.disk import Disk, RealDisk
from photon.config.errors import PhotonError
from photon.config.interval_clock import IntervalClock
from photon.idregistry.api import Pulse
from photon.idregistry.client.messages import refused
from photon.idregistry.client.routing import RoutedRegistry
from photon.idregistry.core.outcomes import Answered, Description, Refusal, SlotClaim, Status, pulse_of
from photon.idregistry.raft.host import RaftHost
from photon.idregistry.replica.clocks import ClockWatch, LoneClock
from photon.idregistry.replica.recovery import RecoveryServer
from photon.idregistry.replica.server import RegistryReplica, ReplicaSettings, host_and_replica

_NAME = "local"
_POLL = 0.005
START_TIMEOUT = 30.0


class RegistryConflict(PhotonError):
    """The registry's directory was created with other settings. ``str()`` names them and says what to do."""


class LocalBackend:
    def __init__(self, replica: RegistryReplica, on_close: Callable[[], None] = lambda: None) -> None:
        self._replica = replica
        self._on_close = on_close
        self._recovery = RecoveryServer(replica)
        self.open_slot = replica.open_slot

    async def describe(self, *, timeout: float) -> Description | Refusal:
        return self._replica.describe()

    async def insert(self, shard: int, caller: int, claim: SlotClaim | None, ids: Ids, *, timeout: float) -> Answered:
        server = self._replica.shard(shard)
        return server if isinstance(server, Refusal) else await server.insert(caller, claim, ids, timeout=timeout)

    async def clear(self, shard: int, ids: Ids, *, timeout: float) -> Answered:
        server = self._replica.shard(shard)
        return server if isinstance(server, Refusal) else await server.clear(ids, timeout=timeout)

    async def look_up(self, shard: int, ids: Ids, *, timeout: float) -> Answered:
        if timeout <= 0:
            return Refusal(Status.UNKNOWN)
        server = self._replica.shard(shard)
        return server if isinstance(server, Refusal) else server.look_up(ids)

    async def pulse(self, *, timeout: float) -> Pulse:
        return pulse_of([self._replica.describe()], {self._replica.name: 0.0})

    async def ask(self, group: int, method: str, request: Any, *, timeout: float) -> Any:
        reply = await self._recovery.answer(request, timeout=timeout)
        return refused(reply) or reply

    async def close(self) -> None:
        await self._replica.stop()
        # The driver's thread may be waiting for the disk.
        await asyncio.get_running_loop().run_in_executor(None, self._on_close)


class EmbeddedRegistry(RoutedRegistry):
    """Implements api.Registry with one replica in this process. Create it with ``open``; ``close`` it at the end."""

    def __init__(self, replica: RegistryReplica, host: RaftHost, clock: Clock) -> None:
        super().__init__(LocalBackend(replica, host.stop), clock)
        self.replica = replica
        self._host = host

    @property
    def healthy(self) -> bool:
        """False once the driver stopped on an error (a failed fsync, a full disk)."""
        return self._host.healthy

    @property
    def failure(self) -> str | None:
        """One line that says why the driver stopped, after which every answer is UNKNOWN; ``None`` if it has not."""
        if self._host.healthy:
            return None
        return f"the registry stopped: {self._host.failure or 'its driver has ended'}; fix it and run this again"

    @classmethod
    async def open(
        cls,
        directory: Path,
        *,
        shards: int = 1,
        id_rules: Mapping[str, bytes] | None = None,
        uncertainty_ns: int = 5_000_000_000,
        retention_ns: int | None = None,
        memory_limit: int | None = None,
        lone: bool = False,
        disk: Disk | None = None,
        clock: Clock | None = None,
    ) -> EmbeddedRegistry:
        """Opens or creates the registry and waits until it serves. ``lone``: its only client is a joiner in this
        process, and its shards never change (see ``LoneClock``).

        Raises RegistryConflict if the directory has other settings; OSError and the driver's errors if the disk
        cannot be read.
        """
        clock = clock or SystemClock()
        settings = ReplicaSettings(
            name=_NAME,
            peers={_NAME: _NAME},
            directory=directory,
            shards=shards,
            retention_s=None if retention_ns is None else retention_ns / 1e9,
            memory_limit=memory_limit,
            id_rules=id_rules or {},
        )
        clocks = (LoneClock if lone else ClockWatch)(IntervalClock(clock, uncertainty_ns))
        host, replica = host_and_replica(settings, disk or RealDisk(), clock, clocks)
        await asyncio.get_running_loop().run_in_executor(None, host.start)
        replica.start()
        registry = cls(replica, host, clock)
        try:
            async with asyncio.timeout(START_TIMEOUT):
                await _serving(replica, host)
        except BaseException:
            await registry.close()
            raise
        return registry


async def _serving(replica: RegistryReplica, host: RaftHost) -> None:
    """Waits until the replica serves. Raises RegistryConflict, or the error that stopped the driver."""
    while not replica.ready:
        if replica.conflict is not None and replica.conflict.done():
            raise RegistryConflict(replica.conflict.result())
        if not host.healthy:
            raise host.failure or RegistryConflict("the registry stopped while it was starting")
        await asyncio.sleep(_POLL)
