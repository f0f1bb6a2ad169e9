"""Server-side batching (paper, section 2.2.1): what has queued at a shard's leader becomes one Raft entry.

Pure: requests, outcomes and the time in; commands and replies out. Handlers only queue; a few entries are in flight
at a time, so while they are being committed the next one fills, and nobody waits for a whole commit before his own.
Conflicts inside a batch are resolved where it is applied (rows are judged in order), so every replica resolves them
alike.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from photon.idregistry.api import U8
from photon.idregistry.commands import MAX_ENTRY_IDS, Batch, ClearColumns, Columns
from photon.idregistry.outcomes import OwnerColumns
from photon.idregistry.state_machine import BatchAnswers

QUEUED_IDS_MAX = 262_144
"""Waiting at one shard: about 12 MB. Beyond it requests are answered OVERLOADED."""
QUEUED_REQUESTS_MAX = 8_192
ENTRIES_IN_FLIGHT = 2
_LATENCIES_KEPT = 512

T = TypeVar("T")
"""Whatever names a request to the caller, an asyncio future for instance."""


@dataclass(frozen=True, slots=True, eq=False)
class Waiting(Generic[T]):
    """A request in the queue."""

    ticket: T
    columns: Columns | ClearColumns
    caller: int  # of an insert
    deadline: float  # monotonic seconds: not proposed after it
    config: int = 0
    """Of the shards, that the ids were looked for by; an entry has one."""


@dataclass(frozen=True, slots=True)
class Entry(Generic[T]):
    """What goes into one Raft entry."""

    inserts: Sequence[Waiting[T]]
    clears: Sequence[Waiting[T]]
    taken_at: float

    def command(self) -> Batch:
        """The entry's command."""
        columns = [each.columns for each in self.inserts if isinstance(each.columns, Columns)]
        cleared = [each.columns for each in self.clears]
        generations = b""
        if any(each.generations for each in columns):
            generations = b"".join(each.generations or bytes(4 * len(each)) for each in columns)
        return Batch(
            callers=[(each.caller, len(each.columns)) for each in self.inserts],
            digests=b"".join(each.digests for each in columns),
            times=b"".join(each.times for each in columns),
            tokens=b"".join(each.tokens for each in columns),
            kinds=b"".join(each.kinds for each in columns),
            tags=b"".join(each.tags for each in columns),
            generations=generations,
            clear_digests=b"".join(each.digests for each in cleared),
            clear_times=b"".join(each.times for each in cleared),
            clear_tokens=b"".join(each.tokens for each in cleared),
            config=max((each.config for each in self.inserts), default=0),
        )

    def split(self, answers: BatchAnswers) -> list[tuple[T, OwnerColumns | U8]]:
        """Each request's own rows."""
        out: list[tuple[T, OwnerColumns | U8]] = []
        start = 0
        for each in self.inserts:
            end = start + len(each.columns)
            out.append((each.ticket, answers.inserts.rows(start, end)))
            start = end
        start = 0
        for each in self.clears:
            end = start + len(each.columns)
            out.append((each.ticket, answers.clears[start:end]))
            start = end
        return out

    @property
    def tickets(self) -> list[T]:
        return [each.ticket for each in (*self.inserts, *self.clears)]


class Batcher(Generic[T]):
    """One shard's queue and its counters."""

    def __init__(self) -> None:
        self._queue: deque[Waiting[T]] = deque()
        self._queued_ids = 0
        self._in_flight = 0
        self._latencies_ms: deque[float] = deque(maxlen=_LATENCIES_KEPT)
        self.batches = 0
        self.ids = 0
        self.overloaded = 0

    @property
    def queued_ids(self) -> int:
        return self._queued_ids

    @property
    def may_take(self) -> bool:
        """Another entry may go out."""
        return bool(self._queue) and self._in_flight < ENTRIES_IN_FLIGHT

    def offer(self, request: Waiting[T]) -> bool:
        """Queues a request; False: the queue is full. A request has 1 to MAX_ENTRY_IDS rows."""
        n = len(request.columns)
        if not 1 <= n <= MAX_ENTRY_IDS:
            raise ValueError(f"a request has 1 to {MAX_ENTRY_IDS} ids, not {n}")
        if self._queued_ids + n > QUEUED_IDS_MAX or len(self._queue) >= QUEUED_REQUESTS_MAX:
            self.overloaded += 1
            return False
        self._queue.append(request)
        self._queued_ids += n
        return True

    def take(self, now: float) -> tuple[Entry[T] | None, list[T]]:
        """(the next entry, tickets of requests that waited beyond their deadline and were not proposed).

        No entry while ENTRIES_IN_FLIGHT are or nothing waits. The caller must ``finish`` an entry.
        """
        if self._in_flight >= ENTRIES_IN_FLIGHT:
            return None, []
        inserts: list[Waiting[T]] = []
        clears: list[Waiting[T]] = []
        expired: list[T] = []
        ids = 0
        while self._queue and ids + len(self._queue[0].columns) <= MAX_ENTRY_IDS:
            if inserts and self._queue[0].config != inserts[0].config and isinstance(self._queue[0].columns, Columns):
                break
            request = self._queue.popleft()
            n = len(request.columns)
            self._queued_ids -= n
            if request.deadline <= now:
                expired.append(request.ticket)
                continue
            ids += n
            (inserts if isinstance(request.columns, Columns) else clears).append(request)
        if not ids:
            return None, expired
        self._in_flight += 1
        return Entry(inserts, clears, now), expired

    def finish(self, entry: Entry[T], now: float, *, applied: bool) -> None:
        """An entry in flight has an outcome."""
        self._in_flight -= 1
        if applied:
            self.batches += 1
            self.ids += sum(len(each.columns) for each in (*entry.inserts, *entry.clears))
            self._latencies_ms.append(1000 * (now - entry.taken_at))

    def drain(self) -> list[T]:
        """Empties the queue: this replica does not lead any more."""
        tickets = [request.ticket for request in self._queue]
        self._queue.clear()
        self._queued_ids = 0
        return tickets

    def commit_ms(self, quantile: float) -> float:
        """Of the last entries; 0 when there was none."""
        ordered = sorted(self._latencies_ms)
        return ordered[min(int(quantile * len(ordered)), len(ordered) - 1)] if ordered else 0.0
