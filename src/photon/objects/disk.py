"""A disk whose paths may be URLs: it reads objects like files, and writes them as a whole."""

from __future__ import annotations

import errno
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from photon.config.disk import AppendFile, RealDisk
from photon.objects.api import Meta, ObjectChanged
from photon.objects.directory import bucket_of, open_object, opened
from photon.objects.paths import ObjectPath
from photon.objects.ranges import ObjectFile

T = TypeVar("T")
OPEN_MAX = 1024  # most objects whose size and ETag are remembered


class UrlDisk(RealDisk):
    """Like RealDisk, but paths may be URLs. It assumes that an object does not change; reading an overwritten one
    raises FileNotFoundError once, and the next read looks it up again. One caller at a time."""

    def __init__(self) -> None:
        self._open: OrderedDict[ObjectPath, ObjectFile] = OrderedDict()
        self._listed: dict[ObjectPath, dict[str, Meta]] = {}

    def _of(self, path: ObjectPath, call: Callable[[ObjectFile], T]) -> T:
        if (file := self._open.pop(path, None)) is None:
            listed = self._listed.get(path.parent, {}).get(path.name)
            file = open_object(path) if listed is None else opened(path, listed)
        try:
            found = call(file)
        except OSError as error:
            if error.errno == errno.ESTALE:
                self._forget(path)
                raise FileNotFoundError(errno.ENOENT, "was replaced", str(path)) from None
            raise
        self._keep(path, file)
        return found

    def _keep(self, path: ObjectPath, file: ObjectFile) -> None:
        self._open[path] = file
        if len(self._open) > OPEN_MAX:
            self._open.popitem(last=False)

    def _forget(self, path: ObjectPath) -> ObjectFile | None:
        self._listed.get(path.parent, {}).pop(path.name, None)
        return self._open.pop(path, None)

    def read(self, path: Path, offset: int = 0, length: int | None = None) -> bytes:
        """Reads like RealDisk; also raises OSError if a store does not answer."""
        if not isinstance(path, ObjectPath):
            return super().read(path, offset, length)
        return self._of(path, lambda file: file.read(offset, file.size() - offset if length is None else length))

    def size(self, path: Path) -> int:
        if not isinstance(path, ObjectPath):
            return super().size(path)
        return self._of(path, ObjectFile.size)

    def exists(self, path: Path) -> bool:
        if not isinstance(path, ObjectPath):
            return super().exists(path)
        try:
            self.size(path)
        except FileNotFoundError:
            return False
        return True

    def names(self, directory: Path) -> Sequence[str]:
        if not isinstance(directory, ObjectPath):
            return super().names(directory)
        prefix, names = f"{directory.key}/" if directory.key else "", set[str]()
        found = self._listed[directory] = {}
        for page in bucket_of(directory).objects.list(prefix, ""):
            for meta in page:
                name, slash, _ = meta.key[len(prefix) :].partition("/")
                names.add(name)
                if not slash:
                    found[name] = meta
        return sorted(names)

    def append(self, path: Path) -> AppendFile:
        """Opens a file for appending. An object starts empty, and replaces the existing one when it is synced."""
        return _Upload(path, self) if isinstance(path, ObjectPath) else super().append(path)

    def replace(self, path: Path, data: bytes) -> None:
        """Replaces a file's content; for an object, only if it is unchanged since it was last read or written, or
        is new. Raises ObjectChanged."""
        if not isinstance(path, ObjectPath):
            super().replace(path, data)
            return
        objects, met = bucket_of(path).objects, self._forget(path)
        try:
            meta = objects.swap(path.key, data, None if met is None else met.meta)
        except ObjectChanged:
            meta = objects.head(path.key)
            if meta.size != len(data) or (data and objects.read(meta, 0, meta.size) != data):
                raise
            # else: written by an unanswered attempt
        self._keep(path, opened(path, meta))

    def create(self, path: Path, data: bytes) -> bool:
        if not isinstance(path, ObjectPath):
            return super().create(path, data)
        self._forget(path)
        try:
            bucket_of(path).objects.swap(path.key, data, None)
        except ObjectChanged:
            return False
        return True

    def remove(self, path: Path) -> None:
        if not isinstance(path, ObjectPath):
            super().remove(path)
            return
        self._forget(path)
        bucket_of(path).objects.delete(path.key)

    def make_dir(self, directory: Path) -> None:
        if not isinstance(directory, ObjectPath):
            super().make_dir(directory)

    def sync_dir(self, directory: Path) -> None:
        if not isinstance(directory, ObjectPath):
            super().sync_dir(directory)

    def uploaded(self, path: ObjectPath, parts: list[bytes]) -> None:
        self._forget(path)
        bucket_of(path).objects.write(path.key, parts)


class _Upload:
    """Implements AppendFile for an object: collects its parts until ``sync``."""

    def __init__(self, path: ObjectPath, disk: UrlDisk) -> None:
        self._path, self._disk = path, disk
        self._parts: list[bytes] = []

    @property
    def size(self) -> int:
        return sum(map(len, self._parts))

    def write(self, *chunks: bytes) -> None:
        self._parts += chunks

    def sync(self) -> None:
        self._disk.uploaded(self._path, self._parts)

    def close(self) -> None:
        self._parts = []
