"""The interface to an object store: a few calls, each of which may fail and be repeated."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

PAGE_KEYS = 1000  # most keys that one request lists: S3's limit
PART_BYTES = 8 << 20  # part size of a multipart write; an object has at most 10,000 parts


class Meta(NamedTuple):
    """An object's facts in a listing."""

    key: str
    size: int
    modified_ns: int
    etag: str  # differs for different bytes under one key; empty if the store has none
    version: str = ""  # the store's own version of these bytes, if any


class ObjectsFailed(OSError):
    """A request failed. ``again``: it may work later (503, a lost connection, a time-out)."""

    def __init__(self, number: int, what: str, *, again: bool = False) -> None:
        super().__init__(number, what)
        self.again = again


class ObjectChanged(ObjectsFailed):
    """The object under the key is not the expected one. Nothing was written."""

    def __init__(self) -> None:
        super().__init__(errno.EEXIST, "was written by another process meanwhile")


class Objects(Protocol):
    """One bucket. Thread-safe. All methods raise ObjectsFailed, FileNotFoundError, PermissionError."""

    def list(self, prefix: str, after: str) -> Iterator[Sequence[Meta]]:
        """Lists the objects below a prefix and after a key, page by page. The listing may fail midway; another one
        after the last key of a page misses nothing."""
        ...

    def head(self, key: str) -> Meta: ...

    def read(self, meta: Meta, begin: int, end: int) -> bytes:
        """Reads bytes [``begin``, ``end``) of a listed object. Fails with ESTALE if the object was replaced."""
        ...

    def write(self, key: str, parts: Iterable[bytes]) -> None:
        """Writes an object, which appears as a whole at the end, or not at all. Each attempt iterates over ``parts``
        once."""
        ...

    def swap(self, key: str, data: bytes, over: Meta | None) -> Meta:
        """Overwrites an object if it is still version ``over``; with ``None``, writes it only if there is none.
        Raises ObjectChanged otherwise, even if an earlier attempt of this call made the change."""
        ...

    def delete(self, key: str) -> None:
        """Deletes an object; no error if it does not exist."""
        ...


class Counts:
    """Counts requests and bytes as object stores bill them: each attempt counts. Thread-safe."""

    KINDS = ("lists", "reads", "writes", "deletes", "retries", "bytes_read", "bytes_written")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.of = dict.fromkeys(self.KINDS, 0)

    def add(self, kind: str, many: int = 1) -> None:
        with self._lock:
            self.of[kind] += many
