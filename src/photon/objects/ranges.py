"""Fetches ranges of objects with a few threads, ahead of sequential readers, and caches them in bounded memory."""

from __future__ import annotations

import errno
import threading
import time
from collections import OrderedDict
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FetchTimeout
from dataclasses import dataclass, field
from queue import SimpleQueue

from photon.objects.api import Meta, Objects

READ_ON_BYTES = 4 << 20  # size of a fetch for sequential reads
PLACES_BYTES = 256 << 10  # size of a fetch for other reads
KEPT_BYTES = 64 << 20  # most bytes of fetched chunks that are kept per bucket
FETCHES = 8  # concurrent requests
COMING_MAX = 1024
WAIT_S = 60.0
HURRIED_S = 0.05  # an event loop waits at most this long, then retries later (BlockingIOError)

_Chunk = tuple[str, str, int, int]  # key, etag, begin, end


class _Patience(threading.local):
    """Limits how long this thread waits for chunks."""

    until: float | None = None  # monotonic seconds; None means WAIT_S for each

    def left_s(self) -> float:
        return WAIT_S if self.until is None else max(self.until - time.monotonic(), 0.0)


patience = _Patience()


@dataclass(slots=True)
class Chunks:
    """Fetches and caches the chunks of one bucket. Several requests for a chunk share one fetch."""

    objects: Objects
    kept_bytes: int = KEPT_BYTES
    _kept: OrderedDict[_Chunk, bytes] = field(default_factory=OrderedDict)
    _bytes: int = 0
    _coming: dict[_Chunk, Future[bytes]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _asked: SimpleQueue[tuple[_Chunk, Meta, Future[bytes]]] = field(default_factory=SimpleQueue)
    _threads: list[threading.Thread] = field(default_factory=list)

    def ahead(self, meta: Meta, begin: int, end: int) -> None:
        """Starts to fetch a chunk unless it is cached."""
        self.ask(meta, begin, end)

    def get(self, asked: Future[bytes] | bytes, meta: Meta, begin: int, end: int) -> bytes:
        """Waits for a chunk from ``ask``. Raises like ``Objects.read``; BlockingIOError if it takes too long."""
        if isinstance(asked, bytes):
            return asked
        try:
            return asked.result(patience.left_s())
        except FetchTimeout:
            raise BlockingIOError(errno.EAGAIN, "is being fetched") from None
        except Exception:
            with self._lock:  # reported now, and fetched again by the next request
                self._coming.pop((meta.key, meta.etag, begin, end), None)
            raise

    def ask(self, meta: Meta, begin: int, end: int) -> Future[bytes] | bytes:
        """Returns a cached chunk, or starts to fetch it. Keep the result for retries: the cache may drop chunks."""
        chunk = (meta.key, meta.etag, begin, end)
        with self._lock:
            if (kept := self._kept.get(chunk)) is not None:
                self._kept.move_to_end(chunk)
                return kept
            if (coming := self._coming.get(chunk)) is None:
                if len(self._coming) >= COMING_MAX:  # unclaimed failures
                    self._coming = {each: f for each, f in self._coming.items() if not f.done()}
                coming = self._coming[chunk] = Future()
                self._asked.put((chunk, meta, coming))
                if len(self._threads) < min(FETCHES, len(self._coming)):
                    # Daemon threads, unlike concurrent.futures: the process may end while a store does not answer.
                    thread = threading.Thread(target=self._run, name="photon-objects", daemon=True)
                    self._threads.append(thread)
                    thread.start()
            return coming

    def _run(self) -> None:
        while True:
            chunk, meta, coming = self._asked.get()
            try:
                coming.set_result(self._fetch(chunk, meta))
            except BaseException as error:
                coming.set_exception(error)

    def _fetch(self, chunk: _Chunk, meta: Meta) -> bytes:
        data = self.objects.read(meta, chunk[2], chunk[3])
        with self._lock:
            self._coming.pop(chunk, None)
            self._kept[chunk] = data
            self._bytes += len(data)
            while self._bytes > self.kept_bytes and len(self._kept) > 1:
                self._bytes -= len(self._kept.popitem(last=False)[1])
        return data


class ObjectFile:
    """Reads an object like an open file. One caller at a time."""

    def __init__(self, chunks: Chunks, meta: Meta, key: tuple[int, int], *, places: bool = False) -> None:
        """``key``: replaces device and inode. ``places``: reads will not be sequential."""
        self._chunks = chunks
        self.meta = meta
        self.key = key
        self._chunk = PLACES_BYTES if places else READ_ON_BYTES
        self._ahead = not places
        self._awaited: tuple[int, Future[bytes] | bytes] | None = None
        # Chunks of an unfinished read, as a record may be larger than the whole cache.
        self._held: dict[int, bytes] = {}

    def read(self, offset: int, length: int) -> bytes:
        """Returns ``length`` bytes from ``offset``, or fewer at the object's end. Raises OSError."""
        end = min(offset + length, self.meta.size)
        if offset >= end:
            return b""
        first, last = offset // self._chunk, (end - 1) // self._chunk
        wanted = range(first, last + 1)
        self._held = {number: self._held[number] for number in wanted if number in self._held}
        for number in wanted:
            if number not in self._held:
                self._held[number] = self._part(number)
        parts = [self._held.pop(number) for number in wanted]
        if self._ahead and (last + 1) * self._chunk < self.meta.size:
            self._fetch_ahead(last + 1)
        parts[-1] = parts[-1][: end - last * self._chunk]
        parts[0] = parts[0][offset - first * self._chunk :]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _bounds(self, number: int) -> tuple[int, int]:
        return number * self._chunk, min((number + 1) * self._chunk, self.meta.size)

    def _part(self, number: int) -> bytes:
        where = (self.meta, *self._bounds(number))
        before, self._awaited = self._awaited, None
        asked = before[1] if before is not None and before[0] == number else self._chunks.ask(*where)
        try:
            return self._chunks.get(asked, *where)
        except BlockingIOError:
            self._awaited = number, asked
            raise

    def _fetch_ahead(self, number: int) -> None:
        self._chunks.ahead(self.meta, *self._bounds(number))

    def size(self) -> int:
        return self.meta.size

    def unlinked(self) -> bool:
        return False

    def close(self) -> None:
        """Does nothing, as it holds no resources."""
