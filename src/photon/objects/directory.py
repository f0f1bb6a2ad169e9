"""Presents a prefix as a directory of logs: a thread lists its objects, and they are opened as files."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b

from photon.config.clock import Clock, SystemClock
from photon.objects.api import Counts, Meta, Objects
from photon.objects.listing import Listing, TooManyObjects
from photon.objects.paths import ObjectPath
from photon.objects.ranges import Chunks, ObjectFile, patience
from photon.objects.retrying import Retrying

FIRST_S = 600.0  # the first listing may take this long
IDLE_S = 60.0  # the listing thread ends after this time without a request
FAILING_S = 30.0  # while listings fail, ``listed`` returns the last one for this long; then it raises the error
MOMENT_S = 0.05


class Bucket:
    """One bucket, shared by all its users in this process. Thread-safe."""

    def __init__(self, inner: Objects) -> None:
        self.counts = Counts()
        self.objects = Retrying(inner, self.counts)
        self.chunks = Chunks(self.objects)
        self.directories: dict[str, ObjectDirectory] = {}  # by prefix

    def meta(self, key: str) -> Meta:
        """Returns an object's Meta, from a listing or by a request. Raises FileNotFoundError, OSError."""
        for directory in list(self.directories.values()):
            if (known := directory.known(key)) is not None:
                return known
        return self.objects.head(key)


@dataclass(eq=False)
class ObjectDirectory:
    """The objects below a prefix of a bucket. Thread-safe."""

    bucket: Bucket
    prefix: str  # ends with ``/``, or is empty
    clock: Clock = field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        self._listing = Listing()
        self._lock = threading.Lock()  # guards the listing
        self._told = threading.Condition(self._lock)
        self._asked = self.clock.monotonic()
        self._thread: threading.Thread | None = None
        self._begun = 0.0  # start of the thread; this and the next three are monotonic seconds
        self._failing = 0.0  # when listings began to fail
        self._since = 0.0  # only listings that began after this are returned
        self._whole = float("-inf")  # start of the last complete listing
        self._error: OSError | None = None
        self._shown: tuple[int, tuple[Meta, ...]] = (-1, ())

    @property
    def whole_ns(self) -> int:
        """The time as of which all objects are known; 0 if no listing was completed."""
        return self._listing.whole_ns or 0

    def known(self, key: str) -> Meta | None:
        return self._listing.known.get(key)

    def version(self) -> int:
        """Returns a number that changes with the result of ``listed``. Raises the same errors."""
        self.listed()
        return self._shown[0]

    def renew(self) -> None:
        """Makes ``listed`` return only listings made after this call."""
        with self._lock:
            self._renew()

    def _renew(self) -> None:
        self._since = self.clock.monotonic()
        self._listing.all_due()

    def listed(self) -> tuple[Meta, ...]:
        """Returns the known objects, sorted. Waits for the first listing, and for a new one after IDLE_S without
        requests. Raises OSError if it fails, BlockingIOError if it is in progress and the caller should retry."""
        with self._lock:
            self._asked = self.clock.monotonic()
            if self._thread is None:
                self._error, self._begun = None, self._asked
                self._renew()
                self._thread = threading.Thread(target=self._run, name="photon-listing", daemon=True)
                self._thread.start()
            hurried = patience.until is not None
            self._told.wait_for(lambda: self._fresh or self._error, patience.left_s() if hurried else FIRST_S)
            if (error := self._error) is not None:
                failing_s = self.clock.monotonic() - self._failing
                if not self._fresh or isinstance(error, TooManyObjects) or failing_s >= FAILING_S:
                    raise error
            elif not self._fresh:
                if hurried and self.clock.monotonic() - self._begun < FIRST_S:
                    raise BlockingIOError(errno.EAGAIN, "is being listed")
                raise TimeoutError(errno.ETIMEDOUT, "has not been listed completely yet")
            if self._shown[0] != self._listing.version:
                known = self._listing.known
                self._shown = self._listing.version, tuple(known[key] for key in sorted(known))
            return self._shown[1]

    @property
    def _fresh(self) -> bool:
        return self._whole >= self._since

    def refresh(self) -> None:
        """Makes the listing that is due. Raises OSError."""
        with self._lock:
            begun = self.clock.monotonic()
            listing = self._listing.begin(begun, self.clock.now_ns())
        try:
            for page in self.bucket.objects.list(self.prefix, listing.after):
                with self._lock:
                    self._listing.page(listing, page)
        except Exception:
            with self._lock:
                self._listing.failed(self.clock.monotonic())
            raise
        with self._lock:
            self._listing.end(listing, self.clock.monotonic())
            self._whole = begun if listing.whole else self._whole
            if not self._fresh:
                self._listing.all_due()

    def _run(self) -> None:
        while True:
            error: OSError | None = None
            try:
                self.refresh()
            except OSError as failed:
                error = failed
            except (
                Exception
            ) as failed:  # includes errors of the client itself, which would otherwise stop listing unnoticed
                error = OSError(errno.EIO, f"{type(failed).__name__}: {failed}")
            with self._lock:
                if error is not None and self._error is None:
                    self._failing = self.clock.monotonic()
                self._error = error
                self._told.notify_all()
                if (self._fresh or error) and self.clock.monotonic() - self._asked > IDLE_S:
                    self._thread = None
                    return
                pause = max(self._listing.due_at() - self.clock.monotonic(), MOMENT_S)
            time.sleep(pause)


_buckets: dict[str, Bucket] = {}
_opening = threading.Lock()


def _obstore(url: str) -> Objects:
    from photon.objects.client import ObstoreBucket

    return ObstoreBucket(url)


opener: Callable[[str], Objects] = _obstore  # opens a bucket by its URL


def bucket_of(path: ObjectPath) -> Bucket:
    """Returns the process's shared bucket. Raises UsageError."""
    with _opening:
        bucket = _buckets.get(path.bucket)
        if bucket is None:
            bucket = _buckets[path.bucket] = Bucket(opener(path.bucket))
        return bucket


def directory_of(path: ObjectPath) -> ObjectDirectory:
    """Returns the directory of a prefix, shared by the whole process. Raises UsageError."""
    bucket, prefix = bucket_of(path), f"{path.key}/" if path.key else ""
    with _opening:
        found = bucket.directories.get(prefix)
        if found is None:
            found = bucket.directories[prefix] = ObjectDirectory(bucket, prefix)
        return found


def file_key(path: ObjectPath, meta: Meta) -> tuple[int, int]:
    """Returns a substitute for device and inode, which changes if the object under a name is replaced."""
    return _number(path.bucket), _number(f"{meta.key}\0{meta.etag or (meta.size, meta.modified_ns)}")


def _number(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def open_object(path: ObjectPath, *, places: bool = False) -> ObjectFile:
    """Opens an object. ``places``: reads will not be sequential. Raises FileNotFoundError, OSError, UsageError."""
    return opened(path, bucket_of(path).meta(path.key), places=places)


def opened(path: ObjectPath, meta: Meta, *, places: bool = False) -> ObjectFile:
    """Like ``open_object``, for an object whose Meta is known."""
    return ObjectFile(bucket_of(path).chunks, meta, file_key(path, meta), places=places)


def counts() -> dict[str, int]:
    """Returns the counts over all buckets of this process, by ``Counts.KINDS``."""
    all_of_them = [bucket.counts.of for bucket in list(_buckets.values())]
    return {kind: sum(each[kind] for each in all_of_them) for kind in Counts.KINDS}
