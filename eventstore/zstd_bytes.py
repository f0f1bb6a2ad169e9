"""Random access to a Zstandard file: pages of its content in the LRU that all compressed logs share.

Zstandard's state cannot be copied as gzip's can: reading back begins at the nearest frame that was met before. Files
of many frames are cheap to enter anywhere, a file of one frame is read again from its start.
"""

from __future__ import annotations

from pathlib import Path

from photon.adapters.logs.zstd_source import ZstdSource
from photon.eventstore.pages import PagedBytes, Pages


class ZstdBytes(PagedBytes):
    """A Zstandard file of one or several frames; where it is damaged, as much as the follower gave out."""

    def __init__(self, path: Path, pages: Pages, number: int) -> None:
        super().__init__(pages, number)
        self._source = ZstdSource(path)

    def read(self, offset: int, length: int) -> bytes:
        return self.read_pages(offset, length)

    def _inflated(self, offset: int) -> bytes:
        return self._source.read(offset, self._page_bytes)

    def unlinked(self) -> bool:
        return self._source.unlinked()

    def close(self) -> None:
        self._source.close()
