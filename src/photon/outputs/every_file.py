"""Every file below an output, whether a manifest names it or not, and the whole lines that can be read of it."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from photon.config.disk import Disk
from photon.outputs.output_places import KINDS

READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class FoundFile:
    kind: str
    name: str
    """Relative to the output, as it stands there."""
    path: Path
    bytes: int
    """Its size as stored."""


def files_below(disk: Disk, output: Path, kinds: Collection[str] = KINDS) -> list[FoundFile]:
    """All files in the directories of these kinds, in the order of their names. Raises OSError."""
    return [
        FoundFile(kind, f"{kind}/{name}", output / kind / name, disk.size(output / kind / name))
        for kind in kinds
        for name in disk.names(output / kind)
    ]


class WholeLines:
    """Iterates blocks of whole lines from the file's begin. ``trouble``: why reading ended early, once it has."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self.trouble = ""
        self._disk, self._path = disk, path

    def __iter__(self) -> Iterator[bytes]:
        rest = b""
        for data in self._data():
            whole = data.rfind(b"\n") + 1
            if whole:
                yield rest + data[:whole]
                rest = b""
            rest += data[whole:]

    def _data(self) -> Iterator[bytes]:
        at, packed = 0, self._path.name.endswith(".gz")
        unpack = zlib.decompressobj(31)
        try:
            while stored := self._disk.read(self._path, at, READ_BYTES):
                at += len(stored)
                if not packed:
                    yield stored
                    continue
                while stored:
                    before = unpack.copy()
                    try:
                        data = unpack.decompress(stored)
                    except zlib.error:  # a wrong checksum hides what this piece holds before it
                        for byte in stored:
                            yield before.decompress(bytes((byte,)))
                        raise
                    yield data
                    stored = unpack.unused_data
                    if unpack.eof:
                        unpack = zlib.decompressobj(31)
        except (OSError, zlib.error) as error:
            self.trouble = str(error)


def whole_lines(disk: Disk, path: Path) -> WholeLines:
    return WholeLines(disk, path)
