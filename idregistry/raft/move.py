"""A journal on its way to its next segment: written slice by slice beside the live one, which goes on meanwhile.

First come the entries that were alive when it began, then whatever was appended to the live segment since, in the
same order. When nothing is left, the new one is whole and durable, and takes the old one's place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from photon.config.disk import AppendFile, Disk

SLICE_BYTES = 1 << 20


class Move:
    """Not thread-safe. After an OSError it must be closed, and begun anew."""

    def __init__(
        self, path: Path, disk: Disk, header: bytes, alive: Iterator[bytes], frame: Callable[[int, int, bytes], bytes]
    ) -> None:
        """``path``: the temporary file. ``alive``: payloads. ``frame`` (number, durable bytes, payload): a frame."""
        self._path = path
        self._disk = disk
        self._header = header
        self._alive = alive
        self._frame = frame
        self._later: deque[bytes] = deque()
        self._file: AppendFile | None = None
        self.frames = 0
        """Written so far."""

    def add(self, payload: bytes) -> None:
        """What was appended to the live segment."""
        self._later.append(payload)

    def step(self) -> int | None:
        """Writes and syncs a slice; bytes of the file once it is whole. Raises OSError."""
        file = self._file
        parts: list[bytes] = []
        if file is None:
            if self._disk.exists(self._path):
                self._disk.remove(self._path)
            file = self._file = self._disk.append(self._path)
            parts.append(self._header)
        durable, size = file.size, 0
        ended = False
        while size < SLICE_BYTES:
            payload = next(self._alive, None)
            # What was alive is vouched for by the header's seal, what came later by how much was durable before it.
            if payload is not None:
                parts.append(self._frame(self.frames, 0, payload))
            elif self._later:
                parts.append(self._frame(self.frames, durable, self._later.popleft()))
            else:
                ended = True
                break
            self.frames += 1
            size += len(parts[-1])
        file.write(*parts)
        file.sync()
        if not ended:
            return None
        size = file.size
        self.close()
        return size

    def close(self) -> None:
        """Lets go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
