"""A delay line: bytes go in with the time of their arrival and come out, in order, a delay later. Pure."""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass, field

CHUNK_OVERHEAD = 128  # memory overhead of a chunk in bytes, so that small chunks count too
# Up to this much too early counts as on time, as the event loop's timers have steps of a millisecond.
SLACK_S = 0.0005


class End(enum.IntEnum):
    """How one side ended; passed on after its bytes."""

    FINISHED = 1  # it will send no more (FIN)
    BROKEN = 2  # it is gone (RST)


@dataclass(slots=True)
class Taken:
    """The chunks that are due, in order, and the last end after them."""

    chunks: list[bytes] = field(default_factory=list)
    size: int = 0  # bytes in chunks
    end: End | None = None


class DelayLine:
    """Bytes in flight in one direction of one connection.

    A chunk is due at arrival + *current* delay: a lower delay immediately releases bytes, a higher one also delays
    bytes in flight. Bytes never overtake each other.
    """

    __slots__ = ("_floor", "_items", "held")

    def __init__(self) -> None:
        self._items: deque[tuple[float, bytes | End]] = deque()
        self._floor = 0.0
        self.held = 0  # bytes of memory used

    def push(self, what: bytes | End, now: float) -> None:
        """Adds a chunk or an end; ``now`` in seconds never goes back."""
        self._items.append((now, what))
        if not isinstance(what, End):
            self.held += len(what) + CHUNK_OVERHEAD

    def starts(self, now: float) -> None:
        """Makes earlier chunks count as arriving now, as the sender could not have sent them earlier."""
        self._floor = now

    def due_at(self, delay_s: float) -> float | None:
        """Time at which the first chunk is due; ``None`` means the line is empty."""
        return max(self._items[0][0], self._floor) + delay_s if self._items else None

    @property
    def ended(self) -> bool:
        return bool(self._items) and isinstance(self._items[-1][1], End)

    def take(self, now: float, delay_s: float, bytes_max: int) -> Taken:
        """Takes the chunks that are due, up to ``bytes_max``, which the last chunk may exceed; the rest stays."""
        taken = Taken()
        items, latest = self._items, now + SLACK_S - delay_s
        if self._floor > latest:
            return taken
        while items and items[0][0] <= latest and taken.size < bytes_max:
            what = items.popleft()[1]
            if isinstance(what, End):
                taken.end = what
            else:
                taken.chunks.append(what)
                taken.size += len(what)
                self.held -= len(what) + CHUNK_OVERHEAD
        return taken

    def clear(self) -> None:
        """Drops all bytes, as the receiver is gone."""
        self._items.clear()
        self.held = 0
