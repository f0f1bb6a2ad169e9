"""What waits to be fed to one node, bounded in bytes: the newest stays when it is too much."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from photon.eventstore.cache_nodes.wire import SEGMENTS_MAX, Piece

QUEUE_BYTES_MAX = 32 << 20
BATCH_BYTES = 4 << 20
"""Taken at a time, or one piece."""
PATIENCE_SECONDS = 1.0
"""The reader waits so long for a node that takes nothing; from then on until it takes something again, not at all."""
WAIT_SHARE = 0.1
"""Of all time, beyond PATIENCE_SECONDS, the reader waits no more than this for a node that is slow."""


class FeedQueue:
    """One thread puts, one takes.

    A node that is a little slower than the reader slows the reader down, by WAIT_SHARE at most; one that is slower
    still, or away, loses the oldest pieces, so that it finds the newest QUEUE_BYTES_MAX. One that takes nothing costs
    the reader PATIENCE_SECONDS once.
    """

    def __init__(
        self,
        bytes_max: int = QUEUE_BYTES_MAX,
        patience_s: float = PATIENCE_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bytes_max = bytes_max
        self._patience_s = patience_s
        self._monotonic = monotonic
        self._credit_s = patience_s  # that the reader may wait now
        self._credit_at = monotonic()
        self._pieces: deque[Piece] = deque()
        self._changed = threading.Condition()
        self._away = self._closed = False
        self.bytes = 0
        self.dropped_bytes = 0
        """Of pieces that the node was never given."""

    def put(self, piece: Piece) -> None:
        """Adds a piece; see the class for what happens when there is no room."""
        with self._changed:
            if self._over(piece) and not self._away:
                self._wait_for_room(piece)
            while self._pieces and self._over(piece):
                self._drop(self._pieces.popleft())
            if self._closed or piece.size > self._bytes_max:
                self.dropped_bytes += piece.data_bytes
                return
            self._pieces.append(piece)
            self.bytes += piece.size
            self._changed.notify_all()

    def _wait_for_room(self, piece: Piece) -> None:
        began = self._monotonic()
        self._credit_s = min(self._patience_s, self._credit_s + WAIT_SHARE * (began - self._credit_at))
        in_time = self._changed.wait_for(lambda: self._away or not self._over(piece), max(0.0, self._credit_s))
        self._credit_at = self._monotonic()
        if in_time:
            self._credit_s -= self._credit_at - began
        else:
            self._away = True
            self._credit_s = 0.0

    def take(self) -> Sequence[Piece]:
        """The oldest pieces; waits for one. Empty: closed."""
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
        """The node does not take what it is given, or takes it again."""
        with self._changed:
            self._away = away
            self._changed.notify_all()

    def lost(self, pieces: Sequence[Piece]) -> None:
        """Taken, and never given to the node."""
        with self._changed:
            self.dropped_bytes += sum(piece.data_bytes for piece in pieces)

    def rest(self, seconds: float) -> None:
        """Waits so long, or until it is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed, seconds)

    def close(self) -> None:
        """Forgets what waits; ``take`` gives nothing more."""
        with self._changed:
            self._closed = True
            while self._pieces:
                self._drop(self._pieces.popleft())
            self._changed.notify_all()

    @property
    def closed(self) -> bool:
        return self._closed

    def _over(self, piece: Piece) -> bool:
        return not self._closed and self.bytes + piece.size > self._bytes_max

    def _drop(self, piece: Piece) -> None:
        self.bytes -= piece.size
        self.dropped_bytes += piece.data_bytes
