"""Random access to a log of length-delimited messages: pages of its lines (see ``adapters.logs.varint_source``)."""

from __future__ import annotations

from pathlib import Path

from photon.adapters.logs.reader import open_source
from photon.adapters.logs.varint_source import VarintSource
from photon.eventstore.pages import PagedBytes, Pages


class VarintBytes(PagedBytes):
    """Its lines; the messages may be compressed."""

    def __init__(self, path: Path, pages: Pages, number: int) -> None:
        super().__init__(pages, number)
        self._source = VarintSource(open_source(path))

    def read(self, offset: int, length: int) -> bytes:
        return self.read_pages(offset, length)

    def _inflated(self, offset: int) -> bytes:
        return self._source.read(offset, self._page_bytes)

    def unlinked(self) -> bool:
        return self._source.unlinked()

    def close(self) -> None:
        self._source.close()
