"""Pages of uncompressed bytes of compressed logs, in one LRU over all files: reading nearby twice inflates once."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod

from cachetools import LRUCache

PAGE_BYTES = 1 << 17
PAGES_BYTES_MAX = 64 << 20
"""Kept over all compressed files."""


class Pages:
    """The LRU; the pages used longest ago go first. Thread-safe."""

    def __init__(self, bytes_max: int = PAGES_BYTES_MAX) -> None:
        self._lru: LRUCache[tuple[int, int], bytes] = LRUCache(bytes_max, getsizeof=len)
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Of the pages."""
        return int(self._lru.currsize)

    def get(self, file_number: int, page: int) -> bytes | None:
        """Page ``page`` of the opening of a file with this number."""
        with self._lock:
            return self._lru.get((file_number, page))

    def put(self, file_number: int, page: int, data: bytes) -> None:
        """Keeps it, unless it is larger than all there may be."""
        if len(data) <= self._lru.maxsize:
            with self._lock:
                self._lru[file_number, page] = data


class PagedBytes(ABC):
    """A compressed file read by pages. A subclass inflates them. One caller at a time."""

    def __init__(self, pages: Pages, number: int, page_bytes: int = PAGE_BYTES) -> None:
        """``number`` names this opening of the file in ``pages``."""
        self._pages = pages
        self._number = number
        self._page_bytes = page_bytes

    @abstractmethod
    def _inflated(self, offset: int) -> bytes:
        """A page from ``offset``, less at the end of what is there."""

    def read_pages(self, offset: int, length: int) -> bytes:
        """``length`` bytes from ``offset``, fewer at the end."""
        size = self._page_bytes
        parts = []
        for number in range(offset // size, (offset + length - 1) // size + 1):
            page = self._page(number)
            begin = number * size
            parts.append(page[max(0, offset - begin) : offset + length - begin])
            if len(page) < size:
                break
        return b"".join(parts)

    def _page(self, number: int) -> bytes:
        page = self._pages.get(self._number, number)
        if page is None:
            page = self._inflated(number * self._page_bytes)
            if len(page) == self._page_bytes:  # the last page of a file may still grow
                self._pages.put(self._number, number, page)
        return page
