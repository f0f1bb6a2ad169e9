"""What waits to be fed to one node, bounded in bytes: the newest stays when it is too much."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

from photon.eventstore.cache_nodes.wire import SEGMENTS_MAX, Piece

QUEUE_BYTES_MAX = 32 << 20
BATCH_BYTES = 4 << 20
"""Taken at a time, or one piece."""
PATIENCE_SECONDS = 1.0
"""The reader waits so long for a node that takes nothing; from then on until it takes something again, not at all."""


class FeedQueue:
    """One thread puts, one takes.

    A node that is merely slower than the reader slows the reader down, so nothing is lost while both work. A node
    that takes nothing costs the reader PATIENCE_SECONDS once; while it is away the oldest pieces are dropped, so that
    it finds the newest QUEUE_BYTES_MAX when it is back.
    """

    def __init__(self, bytes_max: int = QUEUE_BYTES_MAX, patience_s: float = PATIENCE_SECONDS) -> None:
        self._bytes_max = bytes_max
        self._patience_s = patience_s
        self._pieces: deque[Piece] = deque()
        self._changed = threading.Condition()
        self._away = self._closed = False
        self.bytes = 0
        self.dropped_bytes = 0
        """Of pieces that the node was never given."""

    def put(self, piece: Piece) -> None:
        """Adds a piece; see the class for what happens when there is no room."""
        with self._changed:
            if self._over(piece) and not self._changed.wait_for(
                lambda: self._away or not self._over(piece), self._patience_s
            ):
                self._away = True
            while self._pieces and self._over(piece):
                self._drop(self._pieces.popleft())
            if self._closed or piece.size > self._bytes_max:
                self.dropped_bytes += piece.data_bytes
                return
            self._pieces.append(piece)
            self.bytes += piece.size
            self._changed.notify_all()

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
