"""A prefix as the directory of logs: what is below it, listed by a thread, and its objects opened as files."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b

from photon.config.clock import Clock, SystemClock
from photon.objects.api import Counts, Meta, Objects
from photon.objects.listing import Listing, TooManyObjects
from photon.objects.paths import ObjectPath
from photon.objects.ranges import Chunks, ObjectFile
from photon.objects.retrying import Retrying

FIRST_S = 600.0
"""The first listing may take so long."""
IDLE_S = 60.0
"""The thread ends when nobody has asked for so long."""
MOMENT_S = 0.05
HEADS_MAX = 4096
"""Objects that are remembered though no listing showed them."""


class Bucket:
    """What this process shares of one bucket. Any thread."""

    def __init__(self, inner: Objects) -> None:
        self.counts = Counts()
        self.objects = Retrying(inner, self.counts)
        self.chunks = Chunks(self.objects)
        self.directories: dict[str, ObjectDirectory] = {}  # prefix -> it
        self._heads: OrderedDict[str, Meta] = OrderedDict()

    def meta(self, key: str) -> Meta:
        """As a listing showed it, else by a request. Raises FileNotFoundError, OSError."""
        for directory in list(self.directories.values()):
            if (known := directory.known(key)) is not None:
                return known
        if (known := self._heads.get(key)) is None:
            known = self._heads[key] = self.objects.head(key)
            while len(self._heads) > HEADS_MAX:
                self._heads.popitem(last=False)
        return known


@dataclass(eq=False)
class ObjectDirectory:
    """What is below a prefix of a bucket. Any thread."""

    bucket: Bucket
    prefix: str
    """Ends with ``/``, or is empty."""
    clock: Clock = field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        self._listing = Listing()
        self._lock = threading.Lock()  # around the listing
        self._told = threading.Condition(self._lock)
        self._asked = self.clock.monotonic()
        self._thread: threading.Thread | None = None
        self._error: OSError | None = None
        self._shown: tuple[int, tuple[Meta, ...]] = (-1, ())

    @property
    def whole_ns(self) -> int:
        """All that was there at this moment is known; 0: nothing was listed to its end."""
        return self._listing.whole_ns or 0

    def known(self, key: str) -> Meta | None:
        return self._listing.known.get(key)

    def listed(self) -> tuple[Meta, ...]:
        """What is there as known now, sorted; it waits for the first listing. Raises OSError where that fails."""
        with self._lock:
            self._asked = self.clock.monotonic()
            if self._thread is None:
                self._error = None
                self._thread = threading.Thread(target=self._run, name="photon-listing", daemon=True)
                self._thread.start()
            self._told.wait_for(lambda: self._listing.whole_ns is not None or self._error, FIRST_S)
            unknown = self._listing.whole_ns is None
            if self._error is not None and (unknown or isinstance(self._error, TooManyObjects)):
                raise self._error
            if unknown:
                raise TimeoutError(None, "has not been listed to its end yet")
            if self._shown[0] != self._listing.version:
                known = self._listing.known
                self._shown = self._listing.version, tuple(known[key] for key in sorted(known))
            return self._shown[1]

    def refresh(self) -> None:
        """Lists what is due. Raises OSError."""
        with self._lock:
            listing = self._listing.begin(self.clock.monotonic(), self.clock.now_ns())
        try:
            for page in self.bucket.objects.list(self.prefix, listing.after):
                with self._lock:
                    self._listing.page(listing, page)
        except OSError:
            with self._lock:
                self._listing.failed(self.clock.monotonic())
            raise
        with self._lock:
            self._listing.end(listing, self.clock.monotonic())

    def _run(self) -> None:
        while True:
            error: OSError | None = None
            try:
                self.refresh()
            except OSError as failed:
                error = failed
            with self._lock:
                self._error = error
                self._told.notify_all()
                if self.clock.monotonic() - self._asked > IDLE_S:
                    self._thread = None
                    return
                pause = max(self._listing.due_at() - self.clock.monotonic(), MOMENT_S)
            time.sleep(pause)


_buckets: dict[str, Bucket] = {}
_opening = threading.Lock()


def _obstore(url: str) -> Objects:
    from photon.objects.client import ObstoreBucket

    return ObstoreBucket(url)


opener: Callable[[str], Objects] = _obstore
"""Opens a bucket by its URL."""


def bucket_of(path: ObjectPath) -> Bucket:
    """One for all of this process. Raises UsageError."""
    with _opening:
        bucket = _buckets.get(path.bucket)
        if bucket is None:
            bucket = _buckets[path.bucket] = Bucket(opener(path.bucket))
        return bucket


def directory_of(path: ObjectPath) -> ObjectDirectory:
    """One for all of this process. Raises UsageError."""
    bucket, prefix = bucket_of(path), f"{path.key}/" if path.key else ""
    with _opening:
        found = bucket.directories.get(prefix)
        if found is None:
            found = bucket.directories[prefix] = ObjectDirectory(bucket, prefix)
        return found


def file_key(path: ObjectPath, meta: Meta) -> tuple[int, int]:
    """In place of device and inode: other bytes under the name have another one."""
    return _number(path.bucket), _number(f"{meta.key}\0{meta.etag}")


def _number(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def open_object(path: ObjectPath, *, places: bool = False) -> ObjectFile:
    """``places``: it is not read from begin to end. Raises FileNotFoundError, OSError, UsageError."""
    bucket = bucket_of(path)
    meta = bucket.meta(path.key)
    return ObjectFile(bucket.chunks, meta, file_key(path, meta), places=places)


def counts() -> dict[str, int]:
    """Of all buckets of this process, by ``Counts.KINDS``."""
    all_of_them = [bucket.counts.of for bucket in list(_buckets.values())]
    return {kind: sum(each[kind] for each in all_of_them) for kind in Counts.KINDS}
