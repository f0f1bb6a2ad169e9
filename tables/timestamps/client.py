"""Timestamps from the registry's replicas, for the threads of one process: one request is under way at a time.

Callers that come meanwhile wait for the next one, which takes for all of them. A number is asked for after its caller
came, never ahead: a start timestamp that was taken before would not show what has been committed since.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from photon.config.errors import PhotonError
from photon.config.roles import Role, identity
from photon.config.rpc import Service, back_off
from photon.tables.timestamps import timestamps_pb2 as pb

if TYPE_CHECKING:
    from photon.config.tls import Tls

CALL_SECONDS = 3.0
WAIT_SECONDS = 20.0
"""An election takes about a second; after so long the caller is given up."""
PAUSE_SECONDS = 0.05
COUNT_MAX = 1_000_000
"""Timestamps of one request."""
TIMESTAMPS = Service(pb.DESCRIPTOR, "Timestamps", bytes_max=4096)

_OPTIONS = (
    *back_off(100, 1_000, 1_000),
    ("grpc.keepalive_time_ms", 2_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
)


class OracleUnavailable(PhotonError):
    """No replica gives timestamps now. One line."""


class RegistryTimestamps:
    """Thread-safe; ``close`` it."""

    def __init__(self, addresses: Mapping[str, str], tls: Tls | None = None, wait: float = WAIT_SECONDS) -> None:
        """``addresses``: replica -> host:port. ``tls`` None: plain text."""
        self._addresses = dict(addresses)
        self._names = sorted(addresses)
        self._tls = tls
        self._wait = wait
        self._asked = self._names[0]
        self._stubs: dict[str, tuple[Any, Any]] = {}
        self._condition = threading.Condition()
        self._waiting: list[tuple[Future[int], int]] = []
        self._closed = False
        self.requests = 0
        """Sent to the oracle so far."""
        self._thread = threading.Thread(target=self._run, name="timestamps", daemon=True)
        self._thread.start()

    def take(self, count: int = 1) -> int:
        """The first of ``count`` numbers, larger than any that somebody got before this call. Raises
        OracleUnavailable."""
        if not 1 <= count <= COUNT_MAX:
            raise ValueError(f"count = {count}: must be within 1 and {COUNT_MAX}")
        found: Future[int] = Future()
        with self._condition:
            if self._closed:
                raise OracleUnavailable("the oracle's client is closed")
            self._waiting.append((found, count))
            self._condition.notify()
        return found.result()

    def close(self) -> None:
        with self._condition:
            self._closed = True
            self._condition.notify()
        self._thread.join()
        for channel, _ in self._stubs.values():
            channel.close()

    # -- the asking thread ---------------------------------------------------------------------------------------
    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._waiting and not self._closed:
                    self._condition.wait()
                batch = self._next_batch()
            if not batch:
                return
            try:
                first = self._take(sum(count for _, count in batch))
            except Exception as error:
                for found, _ in batch:
                    found.set_exception(error)
                continue
            for found, count in batch:
                found.set_result(first)
                first += count

    def _next_batch(self) -> list[tuple[Future[int], int]]:
        """Whoever waits, up to COUNT_MAX timestamps; the lock is held."""
        total = 0
        for row, (_, count) in enumerate(self._waiting):
            total += count
            if total > COUNT_MAX:
                batch, self._waiting = self._waiting[:row], self._waiting[row:]
                return batch
        batch, self._waiting = self._waiting, []
        return batch

    def _take(self, count: int) -> int:
        deadline = time.monotonic() + self._wait
        request = pb.TakeRequest(count=count)
        while True:
            first, problem, leader = self._ask(request)
            if first:
                return first
            self._asked = leader if leader in self._addresses else self._after(self._names)
            if self._closed or time.monotonic() + PAUSE_SECONDS > deadline:
                raise OracleUnavailable(f"no timestamps from the registry: {problem}")
            time.sleep(PAUSE_SECONDS)

    def _after(self, names: Sequence[str]) -> str:
        return names[(names.index(self._asked) + 1) % len(names)]

    def _ask(self, request: Any) -> tuple[int, str, str]:
        """(first or 0, what is wrong, who leads)."""
        import grpc

        from photon.config.tls import unreachable

        name = self._asked
        self.requests += 1
        try:
            reply = self._stub(name).Take(request, timeout=CALL_SECONDS)
        except grpc.RpcError as error:
            known: Any = error
            if known.code() is grpc.StatusCode.UNIMPLEMENTED:
                return 0, f"replica {name} has no oracle: add [tables] to its file and restart it", ""
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
