"""Asks cache nodes: one node, or several for one look-up.

``NodeHealth`` (pure) decides how long to wait for a node and whether to ask it. A look-up that has waited longer than
HEDGE_FACTOR times the p95 of recent answers also goes to the logs, and the first answer counts. This delay is kept
between HEDGE_SECONDS_MIN and _MAX, because a slow node raises its own p95. A node that failed FAILURES_MAX times in a
row is not asked for a while; then a single request tries it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

import grpc

from photon.config.back_off import BackOff
from photon.config.rpc import WireError
from photon.config.tls import Towards, open_channel, unreachable
from photon.eventstore import eventstore_pb2 as pb
from photon.eventstore.cache_nodes import wire
from photon.eventstore.cache_nodes.feeder import OPTIONS
from photon.eventstore.cache_nodes.wire import HASHES_MAX, NodeCounts
from photon.eventstore.found_records import NO_RECORDS, FoundRecords
from photon.eventstore.index import I64, U64

WINDOW = 256  # answers in the p95
RECKONED_EVERY = 16  # answers between two computations of the p95
HEDGE_FACTOR = 2.0
HEDGE_SECONDS_MIN = 0.005
HEDGE_SECONDS_MAX = 0.1
FAILURES_MAX = 3
REST = BackOff(first=0.5, most=5.0)  # pauses while the node keeps failing


class NodeHealth:
    """The hedging delay and back-off of one node. Not thread-safe."""

    def __init__(self) -> None:
        self._took: deque[float] = deque(maxlen=WINDOW)
        self._since = 0
        self._failures = 0
        self._rests = 0
        self._rest_until = 0.0
        self.hedge_s = HEDGE_SECONDS_MAX  # Delay after which the logs are asked, too. Long until there are answers.

    @property
    def resting(self) -> bool:
        """True if the node has failed and has not answered since."""
        return self._rests > 0

    def may_ask(self, now: float) -> bool:
        """True if the node may be asked. While it rests, a single request per rest period may try it."""
        if not self._rests:
            return True
        if now < self._rest_until:
            return False
        self._rest_until = now + REST.delay(self._rests)
        return True

    def answered(self, took_s: float) -> None:
        self._failures = self._rests = 0
        self._took.append(took_s)
        self._since += 1
        if self._since >= RECKONED_EVERY or len(self._took) < RECKONED_EVERY:
            self._since = 0
            p95 = sorted(self._took)[int(0.95 * (len(self._took) - 1))]
            self.hedge_s = min(max(HEDGE_FACTOR * p95, HEDGE_SECONDS_MIN), HEDGE_SECONDS_MAX)

    def failed(self, now: float) -> None:
        self._failures += 1
        if self._failures >= FAILURES_MAX:
            self._rests += 1
            self._rest_until = now + REST.delay(self._rests)


FIND_TIMEOUT_SECONDS = 1.0  # a node without an answer by then has failed; the logs were asked long before
COUNTS_TIMEOUT_SECONDS = 1.0
IN_FLIGHT_MAX = 64  # look-ups under way at one node; beyond it they go to the logs


class NodeClient:
    """One node's look-ups. Create it on the event loop that uses it."""

    def __init__(self, address: str, source: bytes, to: Towards | None, monotonic: Callable[[], float]) -> None:
        self._source = source
        self._tls = to is not None
        self._monotonic = monotonic
        self._channel = open_channel(address, OPTIONS, to)
        self._stub = wire.CACHE.stub(self._channel)
        self._in_flight = 0
        self.pace = NodeHealth()
        self.error = ""  # why the last request failed; empty if it did not

    def may_ask(self) -> bool:
        return self._in_flight < IN_FLIGHT_MAX and self.pace.may_ask(self._monotonic())

    async def find(self, hashes: U64, rows: I64) -> FoundRecords:
        """Returns the node's records under these hashes, for ``rows``; empty if it fails: the logs then answer."""
        began = self._monotonic()
        self._in_flight += 1
        try:
            question = wire.find(self._source, hashes[:HASHES_MAX])
            located = wire.located(await self._stub.Find(question, timeout=FIND_TIMEOUT_SECONDS), rows)
        except (grpc.aio.AioRpcError, WireError) as err:
            self._failed(err)
            return NO_RECORDS
        finally:
            self._in_flight -= 1
        self.pace.answered(self._monotonic() - began)
        self.error = ""
        return located

    async def counts(self) -> NodeCounts | None:
        try:
            return wire.counts_of(await self._stub.Counts(pb.CacheCountsRequest(), timeout=COUNTS_TIMEOUT_SECONDS))
        except grpc.aio.AioRpcError as err:
            self.error = unreachable(err, tls=self._tls)
            return None

    async def close(self) -> None:
        await self._channel.close(None)

    def _failed(self, err: grpc.aio.AioRpcError | WireError) -> None:
        self.pace.failed(self._monotonic())
        self.error = unreachable(err, tls=self._tls) if isinstance(err, grpc.aio.AioRpcError) else str(err)


class Asked:
    def __init__(self, questions: Sequence[tuple[NodeClient, U64, I64]]) -> None:
        """``questions``: (node, hashes, the row of each hash)."""
        self._tasks = {asyncio.create_task(node.find(hashes, rows)) for node, hashes, rows in questions}
        self.hedge_s = max((node.pace.hedge_s for node, _, _ in questions), default=0.0)

    async def complete(self, timeout: float | None = None) -> bool:
        """Waits until all nodes have answered or failed. False if that takes longer than ``timeout`` seconds."""
        if not self._tasks:
            return True
        return not (await asyncio.wait(self._tasks, timeout=timeout))[1]

    def located(self) -> list[FoundRecords]:
        """Returns the records found, for each node that has answered."""
        return [task.result() for task in self._tasks if task.done() and not task.cancelled()]

    async def leave(self) -> None:
        """Stops waiting. Late answers still count towards the p95."""
        await self.complete()
