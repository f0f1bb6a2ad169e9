"""Tracks the known objects below a growing prefix, and decides what to list next. Pure.

An object is final once it is listed. New objects mostly come after the last key, so keys after it are listed often.
But they may come anywhere (several writers, a long upload, a listing that showed a later key first), so everything is
listed again from time to time, less often if that takes more pages. An object is known from the first listing that
shows it, regardless of the order of keys.

**Complete.** All objects that existed at ``whole_ns``, the start of the last complete listing, are known. Only a
complete listing removes deleted objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from photon.objects.api import PAGE_KEYS, Meta

NEW_S = 2.0  # interval of listings of keys after the last one
ALL_S = 10.0  # shortest interval of complete listings
# Added per page, so that listings take at most some 1.5 requests a second for any number of objects.
PAGE_S = 1.0
OBJECTS_MAX = 1_000_000  # below one prefix; each takes some 300 bytes of memory


class TooManyObjects(OSError):
    """More than OBJECTS_MAX objects share a prefix. The message says what to do."""


@dataclass(slots=True)
class Pass:
    """One listing: of all keys, or of the keys after ``after``."""

    whole: bool
    after: str
    begun_ns: int
    seen: dict[str, Meta] = field(default_factory=dict)
    pages: int = 0


@dataclass(slots=True)
class Listing:
    known: dict[str, Meta] = field(default_factory=dict)
    whole_ns: int | None = None  # None means that no listing was completed yet
    version: int = 0  # increases with each change of ``known``
    _last: str = ""
    _new_at: float = float("-inf")
    _all_at: float = float("-inf")

    def due_at(self) -> float:
        """When the next listing is due, in monotonic seconds."""
        return min(self._new_at, self._all_at)

    def all_due(self) -> None:
        """Makes a complete listing due next."""
        self._all_at = float("-inf")

    def begin(self, now: float, now_ns: int) -> Pass:
        """Begins the listing that is due."""
        whole = now >= self._all_at
        return Pass(whole, "" if whole else self._last, now_ns)

    def page(self, listing: Pass, page: Sequence[Meta]) -> None:
        """Adds the objects of one page. Raises TooManyObjects."""
        listing.pages += 1
        for meta in page:
            if listing.whole:
                listing.seen[meta.key] = meta
            if self.known.get(meta.key) != meta:
                self.known[meta.key] = meta
                self._last = max(self._last, meta.key)
                self.version += 1
        if len(self.known) > OBJECTS_MAX:
            raise TooManyObjects(0, f"more than {OBJECTS_MAX} objects have this prefix; name a longer prefix")

    def end(self, listing: Pass, now: float) -> None:
        """Records that a listing was completed."""
        self._new_at = now + NEW_S
        if not listing.whole:
            return
        if len(listing.seen) != len(self.known):
            self.known = {key: meta for key, meta in self.known.items() if key in listing.seen}
            self._last = max(self.known, default="")
            self.version += 1
        self.whole_ns = listing.begun_ns
        self._all_at = now + max(ALL_S, PAGE_S * (len(self.known) // PAGE_KEYS))

    def failed(self, now: float) -> None:
        """Records that a listing failed. The objects that it found stay known."""
        self._new_at = now + NEW_S
        self._all_at = max(self._all_at, now + NEW_S)
