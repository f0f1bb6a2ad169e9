"""Feeds cache nodes: splits blocks by owning node without parsing records, queues the pieces, and sends them from a
thread per node.

A queue is bounded in bytes; if a node falls behind, the oldest pieces are dropped.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import cast

import grpc
import numpy as np

from photon.adapters.contract import LogFile
from photon.config.hash_ring import HashRing
from photon.config.rpc import back_off
from photon.config.tls import Towards, open_blocking_channel, unreachable
from photon.eventstore.cache_nodes import wire
from photon.eventstore.cache_nodes.wire import FEED_BYTES_MAX, SEGMENTS_MAX, Piece, piece
from photon.eventstore.index import I64, U64

QUEUE_BYTES_MAX = 32 << 20
BATCH_BYTES = 4 << 20  # sent at a time, or one piece
# The reader's longest wait for a node that takes nothing; after that it does not wait until the node takes something
# again.
PATIENCE_SECONDS = 1.0
WAIT_SHARE = 0.1  # beyond PATIENCE_SECONDS, the reader waits at most this share of all time for a slow node
FEED_TIMEOUT_SECONDS = 5.0
RETRY_SECONDS = 0.2
# Refusals that would recur for the same pieces.
FOR_GOOD = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNIMPLEMENTED)
OPTIONS = (*wire.CACHE.sizes, *back_off(100, 1000))


def split_by_owner(
    ring: HashRing, identity: str, file: LogFile, offset: int, data: bytes, hashes: U64, starts: I64
) -> Iterator[tuple[str, Piece]]:
    """Yields (node, the block's records that it owns). ``hashes[i]`` (ascending) is the key hash of the record at
    ``data[starts[i]]``.

    Records keep their order. Lines without a key go with the record before them, or are omitted.
    """
    if not len(hashes):
        return
    offsets = starts.astype(np.uint64) + np.uint64(offset)
    if len(ring) == 1:
        yield ring.nodes[0], piece(identity, file, (data,), hashes, starts, offsets)
        return
    owners = ring.owners(hashes)
    order = np.argsort(starts)  # record j of the block has hashes[order[j]]
    begins = starts[order]
    by_place = owners[order]
    lengths = np.diff(begins, append=len(data))
    # Neighbours with the same owner are cut out together.
    first = np.flatnonzero(np.concatenate(([True], by_place[1:] != by_place[:-1])))
    cuts = [*begins[first].tolist(), len(data)]
    parts = list(map(data.__getitem__, map(slice, cuts, cuts[1:])))
    owners_of_parts = by_place[first]
    new_starts = np.empty(len(order), dtype=np.uint32)  # start of the record of hashes[i] in its owner's data
    for owner, name in enumerate(ring.nodes):
        mine = np.flatnonzero(by_place == owner)
        if not len(mine):
            continue
        its = lengths[mine]
        new_starts[order[mine]] = np.cumsum(its) - its
        rows = np.flatnonzero(owners == owner)  # ascending hashes
        its_parts = list(compress(parts, (owners_of_parts == owner).tolist()))
        yield name, piece(identity, file, its_parts, hashes[rows], new_starts[rows], offsets[rows])


@dataclass(eq=False)
class FeedQueue:
    """The pieces queued for one node. One thread calls ``put``, another ``take``.

    A node slightly slower than the reader slows the reader down, by WAIT_SHARE at most. For a slower or unreachable
    node, the oldest pieces beyond QUEUE_BYTES_MAX are dropped. A node that takes nothing delays the reader once, by
    PATIENCE_SECONDS.
    """

    bytes_max: int = QUEUE_BYTES_MAX
    patience_s: float = PATIENCE_SECONDS
    monotonic: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._credit_s = self.patience_s  # the time that the reader may wait now
        self._credit_at = self.monotonic()
        self._pieces: deque[Piece] = deque()
        self._changed = threading.Condition()
        self._away = self._closed = False
        self.bytes = 0
        self.dropped_bytes = 0  # of pieces that the node never received

    def put(self, piece: Piece) -> None:
        """Adds a piece. If the queue is full, waits or drops pieces, as the class describes."""
        with self._changed:
            if self._over(piece) and not self._away:
                self._wait_for_room(piece)
            while self._pieces and self._over(piece):
                self._drop(self._pieces.popleft())
            if self._closed or piece.size > self.bytes_max:
                self.dropped_bytes += piece.data_bytes
                return
            self._pieces.append(piece)
            self.bytes += piece.size
            self._changed.notify_all()

    def _wait_for_room(self, piece: Piece) -> None:
        began = self.monotonic()
        self._credit_s = min(self.patience_s, self._credit_s + WAIT_SHARE * (began - self._credit_at))
        in_time = self._changed.wait_for(lambda: self._away or not self._over(piece), max(0.0, self._credit_s))
        self._credit_at = self.monotonic()
        if in_time:
            self._credit_s -= self._credit_at - began
        else:
            self._away = True
            self._credit_s = 0.0

    def take(self) -> Sequence[Piece]:
        """Waits for at least one piece, and removes and returns the oldest ones; none once the queue is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._pieces or self._closed)
            batch: list[Piece] = []
            size = 0
            while self._pieces and not self._closed and len(batch) < SEGMENTS_MAX:
                if batch and size + self._pieces[0].size > BATCH_BYTES:
                    break
                piece = self._pieces.popleft()
                size += piece.size
                batch.append(piece)
            self.bytes -= size
            self._changed.notify_all()
            return batch

    def away(self, away: bool) -> None:
        with self._changed:
            self._away = away
            self._changed.notify_all()

    def lost(self, pieces: Sequence[Piece]) -> None:
        with self._changed:
            self.dropped_bytes += sum(piece.data_bytes for piece in pieces)

    def rest(self, seconds: float) -> None:
        """Sleeps ``seconds``, or until the queue is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed, seconds)

    def close(self) -> None:
        """Drops queued pieces; ``take`` then returns nothing."""
        with self._changed:
            self._closed = True
            while self._pieces:
                self._drop(self._pieces.popleft())
            self._changed.notify_all()

    @property
    def closed(self) -> bool:
        return self._closed

    def _over(self, piece: Piece) -> bool:
        return not self._closed and self.bytes + piece.size > self.bytes_max

    def _drop(self, piece: Piece) -> None:
        self.bytes -= piece.size
        self.dropped_bytes += piece.data_bytes


class Feeder:
    """Sends a node's pieces, one feed at a time, so that they arrive in order.

    A feed whose answer is lost is sent again. The node may then hold records twice, which costs memory until eviction
    but changes no answer.
    """

    def __init__(self, address: str, source: bytes, to: Towards | None, name: str) -> None:
        self.queue = FeedQueue()
        self.fed_bytes = 0
        self.error = ""  # why the last feed failed; empty if it did not
        self._source, self._tls = source, to is not None
        self._channel = open_blocking_channel(address, OPTIONS, to)
        self._send = wire.CACHE.stub(self._channel, encoded=True).Feed
        self._thread = threading.Thread(target=self._run, name=f"feed-{name}", daemon=True)
        self._thread.start()

    def put(self, piece: Piece) -> None:
        """Queues a piece. Call it on the reader's thread; may wait like FeedQueue.put."""
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
                call = cast(grpc.Call, err)
                self.error = unreachable(call, tls=self._tls)
                self.queue.away(True)
                self.queue.rest(RETRY_SECONDS)
                if call.code() in FOR_GOOD:
                    break
            else:
                self.error = ""
                self.queue.away(False)
                self.fed_bytes += sum(piece.data_bytes for piece in pieces)
                return
        self.queue.lost(pieces)

    def close(self) -> None:
        """Drops queued pieces. The thread ends after the current feed, at most FEED_TIMEOUT_SECONDS later."""
        self.queue.close()

    def join(self) -> None:
        self._thread.join()
