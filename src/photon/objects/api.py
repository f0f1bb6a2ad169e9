"""What is asked of an object store: four calls, each of which may fail and be made again."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

PAGE_KEYS = 1000  # keys that one request lists: S3's limit
PART_BYTES = 8 << 20  # of a multipart write; at most 10,000 of them make an object


class Meta(NamedTuple):
    """An object as a listing shows it."""

    key: str
    size: int
    modified_ns: int
    etag: str  # Other bytes under one key have another. Empty: the store says none.
    version: str = ""  # the store's own name of these bytes, where it has one


class ObjectsFailed(OSError):
    """``again``: the same request may work later (503, a connection that was cut, a time-out)."""

    def __init__(self, number: int, what: str, *, again: bool = False) -> None:
        super().__init__(number, what)
        self.again = again


class ObjectChanged(ObjectsFailed):
    """Under the key is not what was there. Nothing was written."""

    def __init__(self) -> None:
        super().__init__(errno.EEXIST, "was written by another one meanwhile")


class Objects(Protocol):
    """One bucket. Any thread. All raise ObjectsFailed, FileNotFoundError, PermissionError."""

    def list(self, prefix: str, after: str) -> Iterator[Sequence[Meta]]:
        """What is below a prefix and behind a key, page by page. It may end in the middle with an error; who goes on
        behind the last key of a page misses nothing."""
        ...

    def head(self, key: str) -> Meta: ...

    def read(self, meta: Meta, begin: int, end: int) -> bytes:
        """Bytes ``begin`` to ``end`` of the object that was listed, never of another one under its key (ESTALE)."""
        ...

    def write(self, key: str, parts: Iterable[bytes]) -> None:
        """Under this key all of it appears, at the end, or nothing. ``parts`` is iterated once for each attempt."""
        ...

    def swap(self, key: str, data: bytes, over: Meta | None) -> Meta:
        """Writes over the object that was there and no other one; None: where there was none. Raises ObjectChanged
        too, also where an earlier attempt of this call did write."""
        ...

    def delete(self, key: str) -> None:
        """No error where it is not there."""
        ...


class Counts:
    """Requests and bytes since the start: what object stores bill. Each attempt counts. Any thread."""

    KINDS = ("lists", "reads", "writes", "deletes", "retries", "bytes_read", "bytes_written")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.of = dict.fromkeys(self.KINDS, 0)

    def add(self, kind: str, many: int = 1) -> None:
        with self._lock:
            self.of[kind] += many
