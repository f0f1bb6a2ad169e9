"""Remembers keys that look-ups missed, and reports those that arrive, so that waiting events are tried again.

Theory of operation. A look-up that does not find a key notes its hash here; the reader compares each block added to
the file map with the noted hashes, and a key in both has *arrived*. Arrivals are numbered and kept in a ring; a
client asks for arrivals after a number (``since``). Numbers are valid within one *epoch*, one start of the store. A
client with a number from another epoch, or from before the ring's start, has missed arrivals: it seeks all its
awaited keys once (``ArrivalNotices.seek``), which notes the keys again.

A block may be read after a look-up asks the map and before its misses are noted here. So the hashes of recent blocks
are kept, and misses are compared with blocks read since their look-up began. If not all of those are kept
(``forgot``), the map is asked once more after the misses are noted.

Correctness does not depend on this. A collision of hashes causes a useless retry. Keys forgotten here (the oldest
ones if there are too many, and keys not requested for an hour or two) are found by back-off.

Cost: 16 bytes per key, in columns; a block is searched as a whole. Any thread may call.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice, takewhile
from typing import NamedTuple

import numpy as np

from photon.eventstore.api import KeyArrivals
from photon.eventstore.index import I64, U64, RunIndex, hash_keys, sorted_run

AWAITED_MAX = 1_000_000
# A key is forgotten if it was not asked for during one to two of these: no back-off is longer than one.
GENERATION_S = 3600.0
RING_KEYS, RING_BYTES = 50_000, 8 << 20  # arrived keys kept for clients, and the limit of their bytes
# of recent blocks: half a second of reading at full speed, and many seconds of normal operation
RECENT_HASHES = 500_000
ALIVE, GONE = np.uint64(1), np.uint64(0)  # stored as location: still sought, or arrived


class AwaitedCounts(NamedTuple):
    sought_keys: int
    sought_dropped: int
    sought_came: int


class _Generation:
    """Hashes noted in one period, each once. A hash's location tells if it is still sought."""

    def __init__(self, begun: float) -> None:
        self.begun = begun
        self.alive = 0
        self._index = RunIndex()

    def __len__(self) -> int:
        return len(self._index)

    def renewed(self, hashes: U64) -> U64:
        """Marks those of ``hashes`` (ascending) that it knows as sought again; returns the others."""
        for run in self._index.asked_runs():
            if len(at := _common(hashes, run.hashes)):
                places = np.searchsorted(run.hashes, hashes[at])
                self.alive += int(np.count_nonzero(run.locations[places] == GONE))
                run.locations[places] = ALIVE
                hashes = np.delete(hashes, at)
        return hashes

    def add(self, hashes: U64) -> None:
        """Adds new hashes, as returned by ``renewed``."""
        self.alive += len(hashes)
        self._index.insert(sorted_run(hashes, np.full(len(hashes), ALIVE)))

    def take(self, hashes: U64) -> U64:
        """Removes and returns those of ``hashes`` that are sought. Argument and result ascend."""
        found = []
        for run in self._index.asked_runs():
            at = _common(run.hashes, hashes)
            at = at[run.locations[at] == ALIVE]
            if len(at):
                run.locations[at] = GONE
                found.append(run.hashes[at])
                self.alive -= len(at)
        if len(self) > 2 * self.alive + 10_000:
            self._index.retain(lambda locations: locations == ALIVE)
        return np.sort(np.concatenate(found)) if found else hashes[:0]


class AwaitedKeys:
    """Keys that look-ups missed, and recent arrivals.

    ``epoch``: a number unique to this start of the store, not 0; ``monotonic``: seconds.
    """

    def __init__(self, epoch: int, monotonic: Callable[[], float], sought_max: int = AWAITED_MAX) -> None:
        self._epoch = epoch
        self._monotonic = monotonic
        self._most = max(1, sought_max // 2)
        self._young = self._old = _Generation(monotonic())
        self._recent: deque[tuple[int, U64]] = deque()
        self._recent_hashes = self._blocks = 0
        self._ring: deque[bytes] = deque()
        self._ring_bytes = self._came = self._dropped = 0
        self._lock = threading.Lock()

    def mark(self) -> int:
        """Returns a mark for ``missed``. Take it before the look-up asks the map."""
        return self._blocks

    def missed(self, keys: Sequence[bytes], mark: int) -> bool:
        """Notes keys that a look-up begun at ``mark`` did not find. True if some have arrived since."""
        hashes = hash_keys(keys)
        with self._lock:
            # Newest first: there are tens of thousands if blocks are small.
            since = [block for _, block in takewhile(lambda recent: recent[0] > mark, reversed(self._recent))]
            ascending = np.unique(hashes)
            came = [ascending[_common(ascending, block)] for block in since]
            self._note(ascending)
            if not any(map(len, came)):
                return False
            return self._has_come(np.unique(np.concatenate(came)), keys, hashes)

    def forgot(self, mark: int) -> bool:
        """True if blocks read since ``mark`` are no longer kept, so that ``missed`` could not compare with them."""
        with self._lock:
            return self._blocks > mark and self._recent[0][0] > mark + 1

    def come(self, keys: Sequence[bytes]) -> None:
        """Reports keys as arrived: they were missed, but are in the map after all."""
        if len(keys):
            with self._lock:
                hashes = hash_keys(keys)
                self._has_come(np.unique(hashes), keys, hashes)

    def read(self, keys: Sequence[bytes], hashes: U64, order: I64) -> bool:
        """Notes keys added to the map. ``hashes``: the ascending hashes of ``keys[order]``.

        True if any was sought.
        """
        if not len(hashes):
            return False
        with self._lock:
            self._blocks += 1
            self._recent.append((self._blocks, hashes))
            self._recent_hashes += len(hashes)
            while self._recent_hashes > RECENT_HASHES and len(self._recent) > 1:
                self._recent_hashes -= len(self._recent.popleft()[1])
            came = self._take(hashes)
            if not len(came):
                return False
            at = order[_common(hashes, came)].tolist()
            self._tell([keys[row] for row in at])
            return True

    def since(self, epoch: int, number: int, most: int = RING_KEYS) -> KeyArrivals:
        """Returns at most ``most`` arrivals after ``number`` of ``epoch``."""
        with self._lock:
            first = self._came - len(self._ring)
            lost = epoch != self._epoch or not first <= number <= self._came
            if lost:
                return KeyArrivals(self._epoch, self._came, [], lost=True)
            keys = list(islice(self._ring, number - first, number - first + most))
            return KeyArrivals(self._epoch, number + len(keys), keys)

    def counts(self) -> AwaitedCounts:
        with self._lock:
            both = self._young.alive + (self._old.alive if self._old is not self._young else 0)
            return AwaitedCounts(both, self._dropped, self._came)

    # -- under the lock --------------------------------------------------------------------------------------------
    def _note(self, hashes: U64) -> None:
        new, now = self._young.renewed(hashes), self._monotonic()
        full = self._young.alive + len(new) > self._most
        if full or now - self._young.begun >= GENERATION_S:
            if full and self._old is not self._young:
                self._dropped += self._old.alive
            self._old, self._young = self._young, _Generation(now)
            new = hashes[: self._most]
        if len(new):
            if self._old is not self._young:
                self._old.take(new)  # they move
            self._young.add(new)

    def _take(self, hashes: U64) -> U64:
        young = self._young.take(hashes)
        if self._old is self._young:
            return young
        old = self._old.take(hashes)
        return np.unique(np.concatenate((young, old))) if len(old) else young

    def _has_come(self, came: U64, keys: Sequence[bytes], hashes: U64) -> bool:
        self._take(came)
        known = dict.fromkeys(key for key, its in zip(keys, np.isin(hashes, came).tolist(), strict=True) if its)
        self._tell(list(known))
        return True

    def _tell(self, keys: Sequence[bytes]) -> None:
        self._ring.extend(keys)
        self._came += len(keys)
        self._ring_bytes += sum(map(len, keys))
        while len(self._ring) > RING_KEYS or self._ring_bytes > RING_BYTES:
            self._ring_bytes -= len(self._ring.popleft())


def _common(one: U64, other: U64) -> I64:
    """Returns the indexes in ``one`` of hashes that are also in ``other``. Both must ascend."""
    if not len(one) or not len(other):
        return np.empty(0, dtype=np.int64)
    if len(one) <= len(other):
        at = np.minimum(np.searchsorted(other, one), len(other) - 1)
        return np.flatnonzero(other[at] == one)
    at = np.minimum(np.searchsorted(one, other), len(one) - 1)
    return np.unique(at[one[at] == other])
