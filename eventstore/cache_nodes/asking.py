"""Asking cache nodes: one node, and a look-up that is spread over several."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import grpc

from photon.config.rpc import WireError
from photon.config.tls import Towards, open_channel, unreachable
from photon.eventstore import eventstore_pb2 as pb
from photon.eventstore.cache_nodes import wire
from photon.eventstore.cache_nodes.feeder import OPTIONS
from photon.eventstore.cache_nodes.node_health import NodeHealth
from photon.eventstore.cache_nodes.wire import HASHES_MAX, NodeCounts
from photon.eventstore.found_records import NO_RECORDS, FoundRecords
from photon.eventstore.index import I64, U64

FIND_TIMEOUT_SECONDS = 1.0
"""A node that has not answered by then has failed; the logs were asked long before."""
COUNTS_TIMEOUT_SECONDS = 1.0
IN_FLIGHT_MAX = 64
"""Look-ups under way at one node; beyond it they go to the logs."""


class NodeAsker:
    """One node's look-ups. Make it on the event loop that it is used on."""

    def __init__(self, address: str, source: bytes, to: Towards | None, monotonic: Callable[[], float]) -> None:
        self._source = source
        self._tls = to is not None
        self._monotonic = monotonic
        self._channel = open_channel(address, OPTIONS, to)
        self._stub = wire.CACHE.stub(self._channel)
        self._in_flight = 0
        self.pace = NodeHealth()
        self.error = ""
        """Why the last request failed; "" when it did not."""

    def may_ask(self) -> bool:
        """Whether a look-up may be sent now."""
        return self._in_flight < IN_FLIGHT_MAX and self.pace.may_ask(self._monotonic())

    async def find(self, hashes: U64, rows: I64) -> FoundRecords:
        """What the node has under these hashes, in the asker's rows. Nothing when it fails: the logs answer."""
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
        """What it says of itself; None when it does not answer."""
        try:
            return wire.counts_of(await self._stub.Counts(pb.CacheCountsRequest(), timeout=COUNTS_TIMEOUT_SECONDS))
        except grpc.aio.AioRpcError as err:
            self.error = unreachable(err, tls=self._tls)
            return None

    async def close(self) -> None:
        """Closes the channel; look-ups under way fail."""
        await self._channel.close(None)

    def _failed(self, err: grpc.aio.AioRpcError | WireError) -> None:
        self.pace.failed(self._monotonic())
        self.error = unreachable(err, tls=self._tls) if isinstance(err, grpc.aio.AioRpcError) else str(err)


class Asked:
    """A look-up under way at several nodes."""

    def __init__(self, questions: Sequence[tuple[NodeAsker, U64, I64]]) -> None:
        """(node, hashes, the rows that they are of)."""
        self._tasks = {asyncio.create_task(node.find(hashes, rows)) for node, hashes, rows in questions}
        self.hedge_s = max((node.pace.hedge_s for node, _, _ in questions), default=0.0)

    async def complete(self, timeout: float | None = None) -> bool:
        """Waits until all nodes have answered or failed; False when that takes longer."""
        if not self._tasks:
            return True
        return not (await asyncio.wait(self._tasks, timeout=timeout))[1]

    def located(self) -> list[FoundRecords]:
        """What each node that has answered has found."""
        return [task.result() for task in self._tasks if task.done() and not task.cancelled()]

    async def leave(self) -> None:
        """Nobody waits for it any more; each node's answer is still heard, for its pace."""
        await self.complete()
