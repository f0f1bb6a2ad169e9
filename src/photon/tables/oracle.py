"""The timestamp oracle: the replicated state of a Raft group, the leader's logic, and a client with one pending
request.

A committed entry allocates a range of timestamps. The leader answers batches of requests from its range in memory,
but only after confirming that no other leader has allocated since the batch arrived. So a deposed leader hands out
nothing.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from photon.tables.api import StoreFailed

RANGE = 100_000  # minimum number of timestamps in a range
AT_ONCE_MAX = 10_000  # timestamps in one request
WAITING_MAX = 100_000  # waiting requests at a leader; more are refused


class Range(NamedTuple):
    """Timestamps in [``first``, ``end``)."""

    first: int
    end: int


# -- replicated ------------------------------------------------------------------------------------------------------
def allocate(timestamps: int) -> bytes:
    """Returns the command that allocates a range."""
    return b"A1 %d" % timestamps


class OracleMachine:
    """The replicated state: the end of the allocated timestamps. Implements ``StateMachine`` of the Raft host."""

    def __init__(self) -> None:
        self.end = 1

    def apply(self, index: int, command: bytes) -> Range | None:
        """Applies a command. Returns the range of an ``allocate``; ``None`` for any other command."""
        kind, _, number = command.partition(b" ")
        if kind != b"A1" or not number.isdigit():
            return None
        first, self.end = self.end, self.end + int(number)
        return Range(first, self.end)

    def snapshot(self) -> Iterable[bytes]:
        return [b"O1 %d" % self.end]

    def restore(self, chunks: Iterable[bytes]) -> None:
        kind, _, number = b"".join(chunks).partition(b" ")
        if kind != b"O1" or not number.isdigit():
            raise ValueError("not a snapshot of the timestamp oracle that this version reads")
        self.end = int(number)


# -- the leader ------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Allocate:
    """Tells the host to propose ``allocate(timestamps)``, then call ``allocated`` with its result, or ``failed``."""

    timestamps: int


@dataclass(frozen=True, slots=True)
class Confirm:
    """Tells the host to confirm, in a round that begins now, that this replica leads and has applied everything
    committed before; then to call ``confirmed`` with the machine's ``end``, or ``failed``."""


@dataclass(frozen=True, slots=True)
class Answer:
    ticket: int
    first: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """Tells the host to refuse a request: nothing was handed out, and the client may retry, perhaps elsewhere."""

    ticket: int


Action = Allocate | Confirm | Answer | Refuse


class OracleLeader:
    """The logic of a replica that believes it is the leader. Pure. The host chooses tickets, and uses each once."""

    def __init__(self, *, range_size: int = RANGE) -> None:
        self._range_size = range_size
        self._next = self._end = 0  # the rest of its own range
        # (ticket, timestamps) that arrived after the current round began
        self._waiting: deque[tuple[int, int]] = deque()
        self._batch: list[tuple[int, int]] = []  # requests of the current round
        self._busy = False  # a Confirm or Allocate is pending

    def requested(self, ticket: int, timestamps: int) -> list[Action]:
        """Takes a client's request for ``timestamps`` consecutive timestamps."""
        if not 0 < timestamps <= AT_ONCE_MAX or len(self._waiting) >= WAITING_MAX:
            return [Refuse(ticket)]
        self._waiting.append((ticket, timestamps))
        return self._begin()

    def confirmed(self, end: int) -> list[Action]:
        """Notes that this replica led after the batch arrived, and that ``end`` was then the end of the allocated
        timestamps."""
        self._busy = False
        if end != self._end:  # another leader has allocated since, and may have handed out higher ones
            self._next = self._end = 0
        return self._serve()

    def allocated(self, got: Range) -> list[Action]:
        """Notes an allocation, which counts as a confirmation: it was committed after the batch arrived."""
        self._busy = False
        if got.first != self._end:
            self._next = got.first
        self._end = got.end
        return self._serve()

    def failed(self) -> list[Action]:
        """Refuses all requests, because this replica does not lead, or does not know if it does."""
        self._busy = False
        self._next = self._end = 0
        refused: list[Action] = [Refuse(ticket) for ticket, _ in (*self._batch, *self._waiting)]
        self._batch, self._waiting = [], deque()
        return refused

    def _begin(self) -> list[Action]:
        if self._busy or not self._waiting:
            return []
        self._batch, self._waiting = list(self._waiting), deque()
        self._busy = True
        return [self._round()]

    def _round(self) -> Action:
        wanted = sum(timestamps for _, timestamps in self._batch)
        if self._end - self._next < wanted:
            return Allocate(max(self._range_size, wanted))
        return Confirm()

    def _serve(self) -> list[Action]:
        wanted = sum(timestamps for _, timestamps in self._batch)
        if self._end - self._next < wanted:
            self._busy = True
            return [Allocate(max(self._range_size, wanted))]
        actions: list[Action] = []
        for ticket, timestamps in self._batch:
            actions.append(Answer(ticket, self._next))
            self._next += timestamps
        self._batch = []
        return [*actions, *self._begin()]


# -- clients ---------------------------------------------------------------------------------------------------------
class _Ticket:
    __slots__ = ("done", "error", "leads", "value")

    def __init__(self) -> None:
        self.done = threading.Lock()
        self.done.acquire()
        self.leads = False
        self.value = 0
        self.error: BaseException | None = None


class BatchedOracle:
    """An ``Oracle`` that gets timestamps from ``ask(n)``, which returns the first of n consecutive ones, or raises
    StoreFailed.

    At most one request is pending; callers that arrive in the meantime share the next one.
    """

    round_trips = 0

    def __init__(self, ask: Callable[[int], int], close: Callable[[], None] = lambda: None) -> None:
        self._ask = ask
        self.close = close
        self._lock = threading.Lock()
        self._waiting: list[_Ticket] = []
        self._busy = False

    def timestamp(self) -> int:
        with self._lock:
            if not self._busy:
                self._busy = True
                mine = None
            else:
                mine = _Ticket()
                self._waiting.append(mine)
        if mine is not None:
            mine.done.acquire()
            if mine.error is not None:
                raise StoreFailed(str(mine.error) or "the request for timestamps was interrupted") from mine.error
            if not mine.leads:
                return mine.value
        return self._lead()

    def _lead(self) -> int:
        """Makes one request for this caller and all waiting ones, then lets a caller that came later make the next
        one."""
        with self._lock:
            batch, self._waiting = self._waiting[: AT_ONCE_MAX - 1], self._waiting[AT_ONCE_MAX - 1 :]
        try:
            first = self._ask(len(batch) + 1)
        except BaseException as error:  # including Ctrl-C, as the others have no timestamps yet
            for each in batch:
                each.error = error
            raise
        else:
            for n, each in enumerate(batch, 1):
                each.value = first + n
            return first
        finally:
            with self._lock:
                following = self._waiting.pop(0) if self._waiting else None
                self._busy = following is not None
            for each in batch:
                each.done.release()
            if following is not None:
                following.leads = True
                following.done.release()


class MemoryOracle:
    """An ``Oracle`` in memory, for a single process."""

    round_trips = 0

    def __init__(self) -> None:
        self.timestamp: Callable[[], int] = count(1).__next__

    def close(self) -> None: ...
