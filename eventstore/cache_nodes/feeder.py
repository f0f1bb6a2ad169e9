"""Feeds one cache node: a thread with a queue and a connection of its own."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import cast

import grpc

from photon.config.rpc import back_off
from photon.config.tls import Towards, open_blocking_channel
from photon.eventstore.cache_nodes import wire
from photon.eventstore.cache_nodes.feed_queue import FeedQueue
from photon.eventstore.cache_nodes.wire import FEED_BYTES_MAX, Piece

FEED_TIMEOUT_SECONDS = 5.0
RETRY_SECONDS = 0.2
FOR_GOOD = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNIMPLEMENTED)
"""Refusals that the same pieces would meet again."""
OPTIONS = (*wire.CACHE.sizes, *back_off(100, 1000))


class Feeder:
    """One feed is under way at a time, so pieces arrive in their order. One whose answer was lost is sent again: then
    the node has its records twice, which costs memory until they are evicted and changes no answer."""

    def __init__(self, address: str, source: bytes, to: Towards | None, name: str) -> None:
        self.queue = FeedQueue()
        self.fed_bytes = 0
        self.error = ""
        """Why the last feed failed; "" when it did not."""
        self._source = source
        self._channel = open_blocking_channel(address, OPTIONS, to)
        self._send = wire.CACHE.stub(self._channel, encoded=True).Feed
        self._thread = threading.Thread(target=self._run, name=f"feed-{name}", daemon=True)
        self._thread.start()

    def put(self, piece: Piece) -> None:
        """From the reader's thread; see FeedQueue.put."""
        if piece.size > FEED_BYTES_MAX:
            self.queue.lost([piece])
        else:
            self.queue.put(piece)

    def _run(self) -> None:
        try:
            while pieces := self.queue.take():
                self._feed(pieces)
        finally:
            self._channel.close()

    def _feed(self, pieces: Sequence[Piece]) -> None:
        message = wire.feed(self._source, pieces)
        while not self.queue.closed:
            try:
                self._send(message, timeout=FEED_TIMEOUT_SECONDS)
            except grpc.RpcError as err:
                code = cast(grpc.Call, err).code()
                self.error = f"{code.name}: {cast(grpc.Call, err).details()}".splitlines()[0][:200]
                self.queue.away(True)
                self.queue.rest(RETRY_SECONDS)
                if code in FOR_GOOD:
                    break
            else:
                self.error = ""
                self.queue.away(False)
                self.fed_bytes += sum(piece.data_bytes for piece in pieces)
                return
        self.queue.lost(pieces)

    def close(self) -> None:
        """Forgets what waits. The thread ends after the feed that is under way, FEED_TIMEOUT_SECONDS at most."""
        self.queue.close()

    def join(self) -> None:
        """Waits for the thread. After close."""
        self._thread.join()
