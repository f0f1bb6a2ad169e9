"""A disk on which paths may be URLs too: objects are read as files are, and nothing is written to them."""

from __future__ import annotations

import errno
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from photon.config.disk import RealDisk
from photon.objects.directory import open_object
from photon.objects.paths import ObjectPath
from photon.objects.ranges import ObjectFile

T = TypeVar("T")
OPEN_MAX = 1024
"""Objects of which it knows size and ETag."""


class UrlDisk(RealDisk):
    """An object is taken to be as it was when it was met first; one that other bytes have replaced is not there
    (FileNotFoundError), and is looked for when it is read next. One caller at a time."""

    def __init__(self) -> None:
        self._open: OrderedDict[ObjectPath, ObjectFile] = OrderedDict()

    def _of(self, path: ObjectPath, call: Callable[[ObjectFile], T]) -> T:
        if (file := self._open.pop(path, None)) is None:
            file = open_object(path)
        try:
            found = call(file)
        except OSError as error:
            if error.errno == errno.ESTALE:
                raise FileNotFoundError(errno.ENOENT, "was replaced", str(path)) from None
            raise
        self._open[path] = file
        if len(self._open) > OPEN_MAX:
            self._open.popitem(last=False)
        return found

    def read(self, path: Path, offset: int = 0, length: int | None = None) -> bytes:
        """As RealDisk; OSError also of a store that does not answer."""
        if not isinstance(path, ObjectPath):
            return super().read(path, offset, length)
        return self._of(path, lambda file: file.read(offset, file.size() - offset if length is None else length))

    def size(self, path: Path) -> int:
        return self._of(path, ObjectFile.size) if isinstance(path, ObjectPath) else super().size(path)

    def exists(self, path: Path) -> bool:
        if not isinstance(path, ObjectPath):
            return super().exists(path)
        try:
            self.size(path)
        except FileNotFoundError:
            return False
        return True

    def names(self, directory: Path) -> Sequence[str]:
        return [] if isinstance(directory, ObjectPath) else super().names(directory)
