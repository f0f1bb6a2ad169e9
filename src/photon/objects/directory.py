"""A prefix as the directory of logs: what is below it, listed by a thread, and its objects opened as files."""

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
IDLE_S = 60.0  # the thread ends when nobody has asked for this long
FAILING_S = 30.0  # what was known before listings failed is shown for this long; then who asks hears of it
MOMENT_S = 0.05


class Bucket:
    """What this process shares of one bucket. Any thread."""

    def __init__(self, inner: Objects) -> None:
        self.counts = Counts()
        self.objects = Retrying(inner, self.counts)
        self.chunks = Chunks(self.objects)
        self.directories: dict[str, ObjectDirectory] = {}  # prefix -> it

    def meta(self, key: str) -> Meta:
        """As a listing showed it, else by a request. Raises FileNotFoundError, OSError."""
        for directory in list(self.directories.values()):
            if (known := directory.known(key)) is not None:
                return known
        return self.objects.head(key)


@dataclass(eq=False)
class ObjectDirectory:
    """What is below a prefix of a bucket. Any thread."""

    bucket: Bucket
    prefix: str  # ends with ``/``, or is empty
    clock: Clock = field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        self._listing = Listing()
        self._lock = threading.Lock()  # around the listing
        self._told = threading.Condition(self._lock)
        self._asked = self.clock.monotonic()
        self._thread: threading.Thread | None = None
        self._begun = 0.0  # of the thread; monotonic seconds, as the next three
        self._failing = 0.0  # since when
        self._since = 0.0  # what is shown was listed after this
        self._whole = float("-inf")  # when the last listing of all, which came to its end, began
        self._error: OSError | None = None
        self._shown: tuple[int, tuple[Meta, ...]] = (-1, ())

    @property
    def whole_ns(self) -> int:
        """All that was there at this moment is known; 0: nothing was listed to its end."""
        return self._listing.whole_ns or 0

    def known(self, key: str) -> Meta | None:
        return self._listing.known.get(key)

    def version(self) -> int:
        """Of what ``listed`` shows. Raises as it does."""
        self.listed()
        return self._shown[0]

    def renew(self) -> None:
        """What ``listed`` shows from now on was listed after this call."""
        with self._lock:
            self._renew()

    def _renew(self) -> None:
        self._since = self.clock.monotonic()
        self._listing.all_due()

    def listed(self) -> tuple[Meta, ...]:
        """What is there as known now, sorted; it waits for the first listing, and for that after a time in which
        nobody asked. Raises OSError where that fails, BlockingIOError where it is on its way and the caller is to
        come back."""
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
                raise TimeoutError(errno.ETIMEDOUT, "has not been listed to its end yet")
            if self._shown[0] != self._listing.version:
                known = self._listing.known
                self._shown = self._listing.version, tuple(known[key] for key in sorted(known))
            return self._shown[1]

    @property
    def _fresh(self) -> bool:
        return self._whole >= self._since

    def refresh(self) -> None:
        """Lists what is due. Raises OSError."""
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
            except Exception as failed:  # a client's own: nobody would list any more, and nobody know
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
    return _number(path.bucket), _number(f"{meta.key}\0{meta.etag or (meta.size, meta.modified_ns)}")


def _number(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def open_object(path: ObjectPath, *, places: bool = False) -> ObjectFile:
    """``places``: it is not read from begin to end. Raises FileNotFoundError, OSError, UsageError."""
    return opened(path, bucket_of(path).meta(path.key), places=places)


def opened(path: ObjectPath, meta: Meta, *, places: bool = False) -> ObjectFile:
    """As ``open_object``, of what is known to be there."""
    return ObjectFile(bucket_of(path).chunks, meta, file_key(path, meta), places=places)


def counts() -> dict[str, int]:
    """Of all buckets of this process, by ``Counts.KINDS``."""
    all_of_them = [bucket.counts.of for bucket in list(_buckets.values())]
    return {kind: sum(each[kind] for each in all_of_them) for kind in Counts.KINDS}
