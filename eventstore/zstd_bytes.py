"""Random access to a Zstandard file: pages of its content in the LRU that all compressed logs share.

Zstandard's state cannot be copied as gzip's can: reading back begins at the nearest frame that was met before. Files
of many frames are cheap to enter anywhere, a file of one frame is read again from its start.
"""

from __future__ import annotations

from pathlib import Path

from cachetools import LRUCache

from photon.adapters.logs.zstd_source import ZstdSource


class ZstdBytes:
    """A Zstandard file of one or several frames; where it is damaged, as much as the follower gave out."""

    def __init__(self, path: Path, pages: LRUCache[tuple[int, int], bytes], number: int, page_bytes: int) -> None:
        self._source = ZstdSource(path)
        self._pages = pages
        self._number = number
        self._page_bytes = page_bytes

    def read(self, offset: int, length: int) -> bytes:
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
        page = self._pages.get((self._number, number))
        if page is None:
            page = self._source.read(number * self._page_bytes, self._page_bytes)
            if len(page) == self._page_bytes:  # the last page of a file may still grow
                self._pages[self._number, number] = page
        return page

    def unlinked(self) -> bool:
        return self._source.unlinked()

    def close(self) -> None:
        self._source.close()
