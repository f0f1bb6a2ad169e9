"""Gets timestamps from the registry's replicas, for the threads of one process."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from photon.config.roles import Role, identity
from photon.config.rpc import Service, back_off
from photon.tables.api import StoreFailed
from photon.tables.oracle import BatchedOracle
from photon.tables.timestamps import timestamps_pb2 as pb

if TYPE_CHECKING:
    from photon.config.tls import Tls

TIMESTAMPS = Service(pb.DESCRIPTOR, "Timestamps", bytes_max=4096)
CALL_SECONDS = 3.0
WAIT_SECONDS = 20.0  # an election takes about a second; after this time the caller gets an error
PAUSE_SECONDS = 0.05

_OPTIONS = (
    *TIMESTAMPS.sizes,
    *back_off(100, 1_000, 1_000),
    ("grpc.keepalive_time_ms", 2_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
)


class RegistryOracle(BatchedOracle):
    """An ``Oracle`` with at most one request in flight. Call ``close`` at the end."""

    def __init__(self, addresses: Mapping[str, str], tls: Tls | None = None, wait: float = WAIT_SECONDS) -> None:
        """``addresses``: each replica's host:port. Without ``tls``, connections are not encrypted."""
        super().__init__(self._take, self._close)
        self._addresses = dict(addresses)
        self._names = sorted(addresses)
        self._asked = self._names[0]
        self._tls = tls
        self._wait = wait
        self._stubs: dict[str, tuple[Any, Any]] = {}
        self._stopping = threading.Event()

    def _close(self) -> None:
        self._stopping.set()
        for channel, _ in self._stubs.values():
            channel.close()

    def _take(self, count: int) -> int:
        deadline = time.monotonic() + self._wait
        request = pb.TakeRequest(count=count)
        while True:
            first, problem, leader = self._call(request)
            if first:
                return first
            following = self._names[(self._names.index(self._asked) + 1) % len(self._names)]
            self._asked = leader if leader in self._addresses else following
            if time.monotonic() + PAUSE_SECONDS > deadline or self._stopping.wait(PAUSE_SECONDS):
                raise StoreFailed(f"no timestamps from the registry: {problem}")

    def _call(self, request: pb.TakeRequest) -> tuple[int, str, str]:
        """Makes one request. Returns (first or 0, the error, the leader)."""
        import grpc

        from photon.config.tls import unreachable

        name = self._asked
        self.round_trips += 1
        try:
            reply = self._stub(name).Take(request, timeout=CALL_SECONDS)
        except grpc.RpcError as error:
            known: Any = error
            if known.code() is grpc.StatusCode.UNIMPLEMENTED:
                return 0, f"replica {name} has no oracle; restart it with a file that has tables.thrift", ""
            said = unreachable(known, tls=self._tls is not None)
            return 0, f"replica {name} at {self._addresses[name]}: {said}", ""
        return reply.first, f"replica {name}: {reply.reason}", reply.leader_hint

    def _stub(self, name: str) -> Any:
        if name not in self._stubs:
            from photon.config.tls import open_blocking_channel, towards

            to = towards(self._tls, identity(Role.REGISTRY, name))
            channel = open_blocking_channel(self._addresses[name], _OPTIONS, to)
            self._stubs[name] = (channel, TIMESTAMPS.stub(channel))
        return self._stubs[name][1]
