"""Random access to a Zstandard file: pages of its content in the LRU that all compressed logs share.

Zstandard's state cannot be copied as gzip's can, but a file of many frames can be entered at each of them: where they
begin is found without inflating it (zstd_frames.py). A file of one frame is read again from its start.
"""

from __future__ import annotations

import bisect
import os
from pathlib import Path

from photon.adapters.logs.zstd_source import ZstdSource
from photon.eventstore.pages import PAGE_BYTES, PagedBytes, Pages
from photon.eventstore.zstd_frames import Place, frame_begins

PLACES_MAX = 1 << 14
"""Frames of one file whose begins are kept, evenly spread."""


class ZstdBytes(PagedBytes):
    """A Zstandard file of one or several frames; where it is damaged, as much as the follower gave out."""

    def __init__(self, path: Path, pages: Pages, number: int) -> None:
        super().__init__(pages, number, PAGE_BYTES)
        self._source = ZstdSource(path)
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._walk = frame_begins(lambda at, length: os.pread(self._fd, length, at), os.fstat(self._fd).st_size)
        self._walked = False
        self._places: list[Place] = [(0, 0)]
        self._spacing = PAGE_BYTES

    def read(self, offset: int, length: int) -> bytes:
        return self.read_pages(offset, length)

    def _inflated(self, offset: int) -> bytes:
        start, made = self._source.reach
        if not start <= offset <= made:
            self._learn(offset)
            place = self._places[bisect.bisect_right(self._places, (offset, 1 << 62)) - 1]
            if offset < start or place[0] > made:
                self._source.enter(*place)
        return self._source.read(offset, self._page_bytes)

    def _learn(self, offset: int) -> None:
        """Walks on until a frame begins behind ``offset``."""
        while not self._walked and self._places[-1][0] <= offset:
            place = next(self._walk, None)
            if place is None:
                self._walked = True
            elif place[0] >= self._places[-1][0] + self._spacing:
                self._places.append(place)
                if len(self._places) > PLACES_MAX:
                    self._places = self._places[::2]
                    self._spacing *= 2

    def unlinked(self) -> bool:
        return self._source.unlinked()

    def close(self) -> None:
        os.close(self._fd)
        self._source.close()
