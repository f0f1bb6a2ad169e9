"""A bucket in memory that fails and lists as it is told."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Sequence

from photon.objects.api import Meta, ObjectChanged, ObjectsFailed


class MemoryBucket:
    """See Objects. ``fails`` is asked before each request, and before each page: it returns a failure to raise, or
    ``None``."""

    def __init__(self, fails: Callable[[str], OSError | None] = lambda request: None, page_keys: int = 2) -> None:
        self.data: dict[str, bytes] = {}
        self.hidden: set[str] = set()
        self.asked: list[str] = []
        self._fails = fails
        self._page_keys = page_keys

    def _ask(self, request: str) -> None:
        self.asked.append(request)
        if (failure := self._fails(request)) is not None:
            raise failure

    def _meta(self, key: str) -> Meta:
        return Meta(key, len(self.data[key]), 0, str(hash(self.data[key])))

    def list(self, prefix: str, after: str) -> Iterator[Sequence[Meta]]:
        self._ask(f"list {after}")
        keys = sorted(key for key in self.data if key.startswith(prefix) and key > after and key not in self.hidden)
        for begin in range(0, len(keys), self._page_keys):
            if begin:
                self._ask(f"page {keys[begin]}")
            yield [self._meta(key) for key in keys[begin : begin + self._page_keys] if key in self.data]

    def head(self, key: str) -> Meta:
        self._ask(f"head {key}")
        if key not in self.data:
            raise FileNotFoundError(errno.ENOENT, "no such object", f"s3://bucket/{key}")
        return self._meta(key)

    def read(self, meta: Meta, begin: int, end: int) -> bytes:
        self._ask(f"read {meta.key} {begin} {end}")
        if self._meta(meta.key) != meta:
            raise ObjectsFailed(errno.ESTALE, "has changed since it was listed")
        return self.data[meta.key][begin:end]

    def write(self, key: str, parts: Iterable[bytes]) -> None:
        data = b""
        for number, part in enumerate(parts):
            data += part
            self._ask(f"part {key} {number}")
        self.data[key] = data

    def swap(self, key: str, data: bytes, over: Meta | None) -> Meta:
        self._ask(f"swap {key}")
        there = self._meta(key).etag if key in self.data else None
        if there != (over and over.etag):
            raise ObjectChanged
        self.data[key] = data
        return self._meta(key)

    def delete(self, key: str) -> None:
        self._ask(f"delete {key}")
        self.data.pop(key, None)


def unavailable() -> ObjectsFailed:
    return ObjectsFailed(errno.EIO, "503 Service Unavailable", again=True)
