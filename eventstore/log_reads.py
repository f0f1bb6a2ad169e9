"""Reads several logs concurrently: a slow log delays neither other logs nor look-ups that need no log.

Each log has a queue and at most one thread. Places queued for a log while it is read are read together in its next
pass, in the order of offsets, for all callers. A batch waits for a limited time: places not read by then are
unavailable, and the client asks again. A read in progress still finishes, so the next pass finds a compressed log
inflated that far.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from photon.eventstore.file_map import MappedLog
from photon.eventstore.found_records import FoundRecords, ReadResults
from photon.eventstore.index import I64
from photon.eventstore.logs_store import LogsEventStore
from photon.eventstore.places_to_read import PlacesToRead, PlaceToRead

READ_THREADS = 4
PATIENCE_SECONDS = 5.0  # the wait of a batch for its logs; less than a client's wait for its answer


class _Batch:
    def __init__(self, wanted: PlacesToRead, logs: int, loop: asyncio.AbstractEventLoop) -> None:
        self.wanted = wanted
        self.reads = ReadResults(len(wanted))
        self.abandoned = False
        self.done = asyncio.Event()
        self._left = logs
        self._lock = threading.Lock()
        self._loop = loop

    def log_done(self) -> None:
        """Counts one of the logs as read. Thread-safe."""
        with self._lock:
            self._left -= 1
            last = self._left == 0
        if last and not self.abandoned:
            with contextlib.suppress(RuntimeError):  # the loop was closed a moment ago
                self._loop.call_soon_threadsafe(self.done.set)


_Job = tuple[_Batch, I64]  # a batch, and the indexes of its places in one log


class LogReads:
    def __init__(
        self, logs: LogsEventStore, *, threads: int = READ_THREADS, patience: float = PATIENCE_SECONDS
    ) -> None:
        """``patience``: seconds that a look-up waits."""
        self._logs = logs
        self._patience = patience
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="log-read")
        self._lock = threading.Lock()  # around the queues
        self._queues: dict[int, deque[_Job]] = {}  # log number -> jobs; exists while a thread has the log
        self._closed = False

    async def read(self, wanted: PlacesToRead | Sequence[PlaceToRead]) -> ReadResults:
        """Reads these places. Places that could not be read in time are unavailable too."""
        places = wanted if isinstance(wanted, PlacesToRead) else PlacesToRead.of(wanted)
        logs = places.by_log()
        batch = _Batch(places, len(logs), asyncio.get_running_loop())
        for log, indexes in logs:
            self._queue(log, (batch, indexes))
        try:
            async with asyncio.timeout(self._patience):
                await batch.done.wait()
        except TimeoutError:
            pass
        finally:
            batch.abandoned = True
        return batch.reads

    def _queue(self, log: MappedLog, job: _Job) -> None:
        with self._lock:
            if self._closed:
                job[0].log_done()
                return
            queue = self._queues.get(log.number)
            if queue is not None:
                queue.append(job)
                return
            self._queues[log.number] = deque([job])
            self._pool.submit(self._pass, log)

    def _pass(self, log: MappedLog) -> None:
        """Reads everything queued for one log. Other logs are served before its next pass."""
        number = log.number
        with self._lock:
            jobs = list(self._queues[number])
            self._queues[number].clear()
        try:
            self._read(log, [job for job in jobs if not job[0].abandoned])
        finally:
            for batch, _ in jobs:
                batch.log_done()
            with self._lock:
                if self._queues[number] and not self._closed:
                    self._pool.submit(self._pass, log)
                else:
                    del self._queues[number]

    def _read(self, log: MappedLog, jobs: Sequence[_Job]) -> None:
        if not jobs:
            return

        def tell(found: FoundRecords, not_there: I64) -> None:
            first = 0
            for batch, indexes in jobs:
                end = first + len(indexes)
                its = found.take(np.flatnonzero((first <= found.rows) & (found.rows < end)))
                gone = not_there[(first <= not_there) & (not_there < end)]
                batch.reads.tell(its.moved(indexes, first), indexes[gone - first])
                first = end

        def stopped() -> bool:
            return self._closed or all(batch.abandoned for batch, _ in jobs)

        if len(jobs) == 1:
            ((batch, indexes),) = jobs
            self._logs.read_log(log, batch.wanted, indexes, batch.reads.tell, stopped)
        else:
            wanted = PlacesToRead.joined([batch.wanted.taken(indexes) for batch, indexes in jobs])
            self._logs.read_log(log, wanted, np.arange(len(wanted)), tell, stopped)

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._pool.shutdown(wait=True)
