"""Server-side batching (paper, section 2.2.1): the queue of a shard's leader becomes one Raft entry.

Pure: takes requests, outcomes and the time; returns commands and replies. Handlers only queue requests. A few entries
are in flight at a time: the next one fills while they are committed, and no request waits for a whole earlier commit.
Conflicts inside a batch are resolved when it is applied, row by row in order, so every replica resolves them in the
same way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from photon.batch.ids import Ids
from photon.batch.verdicts import Verdicts
from photon.idregistry.core.commands import MAX_ENTRY_IDS, Batch
from photon.idregistry.core.state_machine import BatchAnswers

QUEUED_IDS_MAX = 262_144  # Ids waiting at one shard: about 12 MB. Beyond it requests are answered OVERLOADED.
QUEUED_REQUESTS_MAX = 8_192
ENTRIES_IN_FLIGHT = 2
_LATENCIES_KEPT = 512

T = TypeVar("T")  # the caller's handle for a request, for instance an asyncio future


@dataclass(frozen=True, slots=True, eq=False)
class Waiting(Generic[T]):
    ticket: T
    ids: Ids
    caller: int  # the inserting incarnation; 0 for a clear
    deadline: float  # monotonic seconds; after this the request is not proposed
    config: int  # the config under which other shards were searched for the ids; the same for a whole entry


@dataclass(frozen=True, slots=True)
class Entry(Generic[T]):
    """The requests of one Raft entry."""

    inserts: Sequence[Waiting[T]]
    clears: Sequence[Waiting[T]]
    taken_at: float

    def command(self) -> Batch:
        return Batch.of(
            callers=[(each.caller, len(each.ids)) for each in self.inserts],
            inserts=[each.ids for each in self.inserts],
            clears=[each.ids for each in self.clears],
            config=max(each.config for each in (*self.inserts, *self.clears)),
        )

    def split(self, answers: BatchAnswers) -> Iterator[tuple[T, Verdicts]]:
        for requests, verdicts in ((self.inserts, answers.inserts), (self.clears, answers.clears)):
            end = 0
            for each in requests:
                start, end = end, end + len(each.ids)
                yield each.ticket, verdicts if len(requests) == 1 else verdicts.take(slice(start, end))

    @property
    def tickets(self) -> list[T]:
        return [each.ticket for each in (*self.inserts, *self.clears)]


class Batcher(Generic[T]):
    """One shard's queue and its counters."""

    def __init__(self) -> None:
        self._queue: deque[Waiting[T]] = deque()
        self.queued_ids = 0
        self._in_flight = 0
        self._latencies_ms: deque[float] = deque(maxlen=_LATENCIES_KEPT)
        self.batches = 0
        self.ids = 0
        self.overloaded = 0

    @property
    def may_take(self) -> bool:
        return bool(self._queue) and self._in_flight < ENTRIES_IN_FLIGHT

    def offer(self, request: Waiting[T]) -> bool:
        """Queues a request of 1 to MAX_ENTRY_IDS rows; False if the queue is full."""
        n = len(request.ids)
        if not 1 <= n <= MAX_ENTRY_IDS:
            raise ValueError(f"a request has 1 to {MAX_ENTRY_IDS} ids, not {n}")
        if self.queued_ids + n > QUEUED_IDS_MAX or len(self._queue) >= QUEUED_REQUESTS_MAX:
            self.overloaded += 1
            return False
        self._queue.append(request)
        self.queued_ids += n
        return True

    def take(self, now: float) -> tuple[Entry[T] | None, list[T]]:
        """Returns (the next entry, tickets of requests whose deadline passed before they were proposed).

        The entry is ``None`` if ENTRIES_IN_FLIGHT are in flight or nothing waits. The caller must ``finish`` it.
        """
        if self._in_flight >= ENTRIES_IN_FLIGHT:
            return None, []
        inserts: list[Waiting[T]] = []
        clears: list[Waiting[T]] = []
        expired: list[T] = []
        ids = config = 0
        while self._queue and ids + len(self._queue[0].ids) <= MAX_ENTRY_IDS:
            request = self._queue[0]
            if ids and request.config != config:
                break
            config = request.config
            self._queue.popleft()
            n = len(request.ids)
            self.queued_ids -= n
            if request.deadline <= now:
                expired.append(request.ticket)
                continue
            ids += n
            (inserts if request.caller else clears).append(request)
        if not ids:
            return None, expired
        self._in_flight += 1
        return Entry(inserts, clears, now), expired

    def finish(self, entry: Entry[T], now: float, *, applied: bool) -> None:
        self._in_flight -= 1
        if applied:
            self.batches += 1
            self.ids += sum(len(each.ids) for each in (*entry.inserts, *entry.clears))
            self._latencies_ms.append(1000 * (now - entry.taken_at))

    def drain(self) -> list[T]:
        """Empties the queue, when this replica no longer leads; returns the requests' tickets."""
        tickets = [request.ticket for request in self._queue]
        self._queue.clear()
        self.queued_ids = 0
        return tickets

    def commit_ms(self, quantile: float) -> float:
        ordered = sorted(self._latencies_ms)
        return ordered[min(int(quantile * len(ordered)), len(ordered) - 1)] if ordered else 0.0


RESUME_SHARE = 0.95  # inserts are accepted again when the ids take less than this share of the limit


class MemoryLimit:
    """The limit on the memory that the ids of all shards of one replica take."""

    def __init__(self, limit: int | None = None) -> None:
        """``limit``: bytes of rows and indexes; ``None`` means no limit."""
        if limit is not None and limit < 1:
            raise ValueError(f"memory limit {limit} is not positive")
        self.limit = limit
        self.used = 0  # bytes, at the last update
        self.reached = False

    def update(self, used: int) -> bool:
        """Compares the bytes that the ids take now with the limit; returns True if ``reached`` changed."""
        self.used = used
        if self.limit is None:
            return False
        before = self.reached
        self.reached = used >= (self.limit * RESUME_SHARE if before else self.limit)
        return self.reached != before

    @property
    def reason(self) -> str:
        """The reason for refusals and the alarm; empty below the limit."""
        if not self.reached:
            return ""
        return (
            f"the registry's ids take {self.used:,} bytes, but registry.memory_limit is {self.limit:,}: no further "
            "ids are accepted until some are collected; check that ids are cleared and that registry.retention is "
            "set"
        )
