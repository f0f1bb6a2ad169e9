"""Retries requests to object stores, with exponential back-off, full jitter and a limit. The only place that does."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from photon.config.back_off import BackOff
from photon.objects.api import PAGE_KEYS, Counts, Meta, Objects, ObjectsFailed

T = TypeVar("T")
PAUSES = BackOff(first=0.1, most=5.0, floor=0.0)
ATTEMPTS = 8  # per request; some 10 s on average. After that the caller may try later.


class Retrying:
    """Wraps an ``Objects`` and retries its temporary failures. Raises permanent errors at once."""

    def __init__(
        self,
        inner: Objects,
        counts: Counts | None = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
        random: Callable[[], float] = random.random,
    ) -> None:
        self._inner = inner
        self.counts = counts or Counts()
        self._sleep = sleep
        self._random = random

    def _pauses(self) -> Iterator[float]:
        """Yields the seconds to wait before each further attempt."""
        return islice(PAUSES.pauses(self._random), ATTEMPTS - 1)

    def _tried(self, kind: str, call: Callable[[], T]) -> T:
        for pause in self._pauses():
            self.counts.add(kind)
            try:
                return call()
            except ObjectsFailed as error:
                if not error.again:
                    raise
            self.counts.add("retries")
            self._sleep(pause)
        self.counts.add(kind)
        return call()

    def list(self, prefix: str, after: str) -> Iterator[Sequence[Meta]]:
        """Like ``Objects.list``. A retry continues after the last page received; each page gets ATTEMPTS attempts."""
        left = self._pauses()
        while True:
            self.counts.add("lists")
            try:
                for page in self._inner.list(prefix, after):
                    if len(page) == PAGE_KEYS:  # there is another page
                        self.counts.add("lists")
                    yield page
                    if page:
                        after, left = page[-1].key, self._pauses()
                return
            except ObjectsFailed as error:
                pause = next(left, None) if error.again else None
                if pause is None:
                    raise
            self.counts.add("retries")
            self._sleep(pause)

    def head(self, key: str) -> Meta:
        return self._tried("reads", lambda: self._inner.head(key))

    def read(self, meta: Meta, begin: int, end: int) -> bytes:
        data = self._tried("reads", lambda: self._inner.read(meta, begin, end))
        self.counts.add("bytes_read", len(data))
        return data

    def write(self, key: str, parts: Iterable[bytes]) -> None:
        counted = _Counted(parts, self.counts)
        self._tried("writes", lambda: self._inner.write(key, counted))

    def swap(self, key: str, data: bytes, over: Meta | None) -> Meta:
        swapped = self._tried("writes", lambda: self._inner.swap(key, data, over))
        self.counts.add("bytes_written", len(data))
        return swapped

    def delete(self, key: str) -> None:
        self._tried("deletes", lambda: self._inner.delete(key))


class _Counted:
    """Parts that can be iterated again; counts their bytes."""

    def __init__(self, parts: Iterable[bytes], counts: Counts) -> None:
        self._parts = parts
        self._counts = counts

    def __iter__(self) -> Iterator[bytes]:
        for part in self._parts:
            self._counts.add("bytes_written", len(part))
            yield part
