"""Waiting events: their files, which never change, and the driver's index of the open rows. Pure.

A row is retried when its key arrives, when the primary logs have been read far enough to decide it, and periodically,
since the notice of a key may be lost (paper, section 3.2.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

import msgspec
import numpy as np
import xxhash

from photon.batch.columns import I64, U64, Mask, RowIndexes, split_digests, take_digests
from photon.batch.events import Events
from photon.batch.files import LogFile
from photon.config.clock import NS_PER_S
from photon.dispatcher.retry import Patience
from photon.spark.pipeline.journal import Rest

AGAIN_S = 5.0  # an event that was tried in vain for another reason than a missing primary is tried again then
# When an event without a primary event is retried in any case, if the event store reports arrivals, and if not.
FOLLOWED_S, NOT_FOLLOWED_S = 300.0, 5.0
ROW_BYTES = 200  # overhead of an event counted against ``limits.retry_store``, as in the retry store


class WaitingFile(msgspec.Struct, frozen=True, array_like=True, tag_field="version", tag=2):
    """``waiting/FILE``, in MessagePack: columns of events, little-endian."""

    files: list[tuple[str, bytes]]  # path and header
    file_index: bytes  # u4
    offsets: bytes  # i8
    times: bytes  # i8
    digests: bytes
    keys: list[bytes]
    ids: list[bytes]
    records: list[bytes]
    first_read: bytes  # i8: ns, when each was first read
    again: bytes  # i8: ns, when each is retried in any case; 0 if it waits only for its primary event
    generations: bytes  # u4


def encode_waiting(events: Events, first_read_ns: I64, again_ns: I64) -> bytes:
    return msgspec.msgpack.encode(
        WaitingFile(
            [(file.path, file.header) for file in events.files],
            events.file_index.astype("<u4").tobytes(),
            events.offsets.astype("<i8").tobytes(),
            events.times.astype("<i8").tobytes(),
            events.digests,
            list(events.keys),
            list(events.ids),
            list(events.records),
            first_read_ns.astype("<i8").tobytes(),
            again_ns.astype("<i8").tobytes(),
            events.generations.astype("<u4").tobytes(),
        )
    )


def events_of(file: WaitingFile) -> Events:
    """Converts the columns to events; ``as_of`` is not set."""
    return Events(
        files=[LogFile(*each) for each in file.files],
        file_index=np.frombuffer(file.file_index, "<u4"),
        offsets=np.frombuffer(file.offsets, "<i8"),
        times=np.frombuffer(file.times, "<i8"),
        digests=file.digests,
        keys=file.keys,
        ids=file.ids,
        records=file.records,
        as_of=np.zeros(len(file.ids), np.int64),
        generations=np.frombuffer(file.generations, "<u4"),
    )


def first_read_of(file: WaitingFile) -> I64:
    return np.frombuffer(file.first_read, "<i8")


@dataclass(slots=True)
class _Rows:
    """The open rows of one file, as columns."""

    rows: RowIndexes
    hashes: U64  # of their keys
    first_ns: I64
    times: I64
    trigger_ns: I64  # retried once the primary logs are read past this
    again_ns: I64  # retried at this time
    sizes: I64  # of their records, and ``ROW_BYTES`` each
    given_up: dict[int, bytes]  # row -> digest, for ids that the registry gave up


@dataclass(slots=True)
class WaitingIndex:
    """The open rows of all waiting files, at 56 bytes each."""

    patience: Patience
    random: Callable[[], float]
    followed: bool = False  # True if the event store reports arrivals
    files: dict[str, _Rows] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(len(each.rows) for each in self.files.values())

    @property
    def size(self) -> int:
        """Bytes that count against ``limits.retry_store``."""
        return sum(int(each.sizes.sum()) for each in self.files.values())

    def add(self, name: str, file: WaitingFile, rows: Sequence[int], read_past_ns: int, now_ns: int) -> None:
        """Adds rows that were tried when the primary logs had been read up to ``read_past_ns``."""
        index = np.array(rows, np.intp)
        keys, first, times = file.keys, first_read_of(file)[index], np.frombuffer(file.times, "<i8")[index]
        again = np.frombuffer(file.again, "<i8")[index]
        self.files[name] = _Rows(
            index,
            hashes_of([keys[row] for row in rows]),
            first,
            times,
            self._triggers(first, times, read_past_ns),
            np.where(again > 0, again, self._later(len(index), now_ns)),
            np.array([ROW_BYTES + len(file.records[row]) for row in rows], np.int64),
            _given_up(file, index),
        )

    def tried(self, name: str, rows: Sequence[int], read_past_ns: int, now_ns: int) -> None:
        """Notes that these rows were tried again without a verdict."""
        known = self.files[name]
        at = np.searchsorted(known.rows, np.array(rows, np.intp))
        known.trigger_ns[at] = self._triggers(known.first_ns[at], known.times[at], read_past_ns)
        known.again_ns[at] = self._later(len(at), now_ns)

    def retain(self, name: str, rows: Sequence[int]) -> None:
        """Keeps only these rows of the file; the others are settled."""
        known = self.files[name]
        at = np.searchsorted(known.rows, np.array(rows, np.intp))
        if not len(at):
            del self.files[name]
        elif len(at) < len(known.rows):
            self.files[name] = _Rows(
                known.rows[at],
                known.hashes[at],
                known.first_ns[at],
                known.times[at],
                known.trigger_ns[at],
                known.again_ns[at],
                known.sizes[at],
                {row: known.given_up[row] for row in known.given_up.keys() & set(rows)},
            )

    def open_rows(self, name: str) -> list[int]:
        return self.files[name].rows.tolist() if name in self.files else []

    def wake(self, hashes: U64) -> None:
        """Makes the rows of newly arrived keys due until they are tried."""
        for each in self.files.values():
            each.again_ns[np.isin(each.hashes, hashes)] = 0

    def due(self, read_past_ns: int, now_ns: int, most: int) -> list[Rest]:
        """Returns rows to try now, file by file, until there are at least ``most``: files with a woken or a triggered
        row come first, then those due for longest, so that each file has its turn."""
        due: list[tuple[int, str, Mask]] = []
        for name, each in self.files.items():
            decided = each.trigger_ns <= read_past_ns
            pays = decided | (each.again_ns <= now_ns)
            if pays.any():  # 0 also for a row that was woken
                due.append((0 if decided.any() else int(each.again_ns.min()), name, pays))
        found: list[Rest] = []
        count = 0
        for _, name, pays in sorted(due, key=itemgetter(0)):
            rows = self.files[name].rows[pays].tolist()
            found.append(Rest(name, rows))
            count += len(rows)
            if count >= most:
                break
        return found

    def is_any_untried(self) -> bool:
        """True if a row has not been tried since the primary logs were read past the time it was first read."""
        return any(bool((each.trigger_ns == each.first_ns).any()) for each in self.files.values())

    def given_up(self) -> frozenset[bytes]:
        """Returns the digests of open rows whose ids the registry gave up."""
        return frozenset(digest for each in self.files.values() for digest in each.given_up.values())

    def times(self) -> I64:
        """Returns the event times of the open rows."""
        return np.concatenate([np.empty(0, np.int64), *(each.times for each in self.files.values())])

    def oldest(self, most: int) -> list[tuple[str, int, int, int]]:
        """Returns at most ``most`` rows of the file with the longest-waiting event: file, row, when it was first
        read, and when it is retried at the latest (ns)."""
        name = min(self.files, key=lambda each: int(self.files[each].first_ns.min()), default=None)
        if name is None:
            return []
        each = self.files[name]
        at = np.argsort(each.first_ns, kind="stable")[:most]
        columns = (each.rows[at].tolist(), each.first_ns[at].tolist(), each.again_ns[at].tolist())
        return [(name, *row) for row in zip(*columns, strict=True)]

    def keys(self, read: Callable[[str], WaitingFile]) -> list[bytes]:
        """Returns the keys of the open rows."""
        return [key for name, each in self.files.items() for key in _keys_at(read(name), each.rows)]

    def _later(self, rows: int, now_ns: int) -> I64:
        """Returns retry times, spread so that events read together are not always retried together."""
        bound = (FOLLOWED_S if self.followed else NOT_FOLLOWED_S) * NS_PER_S
        return np.array([now_ns + int(bound * (0.5 + 0.5 * self.random())) for _ in range(rows)], np.int64)

    def _triggers(self, first: I64, times: I64, read_past_ns: int) -> I64:
        return _by_age(
            self.patience, first, times, lambda *age: self.patience.trigger_ns(age[0], read_past_ns, age[1])
        )


def hashes_of(keys: Iterable[bytes]) -> U64:
    return np.array([xxhash.xxh3_64_intdigest(key) for key in keys], np.uint64)


def _given_up(file: WaitingFile, rows: RowIndexes) -> dict[int, bytes]:
    again = rows[np.frombuffer(file.generations, "<u4")[rows] > 0].tolist()
    return dict(zip(again, split_digests(take_digests(file.digests, np.array(again, np.intp))), strict=True))


def _keys_at(file: WaitingFile, rows: RowIndexes) -> list[bytes]:
    return [file.keys[row] for row in rows.tolist()]


def as_of(patience: Patience, first_read_ns: I64, times: I64, read_past_ns: int) -> I64:
    """Returns for each event the time as of which to look it up. If the primary logs are read past that time by both
    clocks, a miss makes the event unmatched; otherwise see ``dispatcher.two_clocks.ask_for_final``."""
    final = _by_age(patience, first_read_ns, times, patience.final_as_of_ns)
    return np.where(final <= read_past_ns, final, patience.at_first_ns)


def _by_age(patience: Patience, first: I64, times: I64, of: Callable[[int, int], int]) -> I64:
    """Applies ``of`` to the first reading and time of each event, once for each distinct pair. If times are
    irrelevant, it is called once for all events read together."""
    if not patience.whole_sets:
        values, rows = np.unique(first, return_inverse=True)
        return np.array([of(each, 0) for each in values.tolist()], np.int64)[rows]
    ages = list(zip(first.tolist(), times.tolist(), strict=True))
    made = {age: of(*age) for age in set(ages)}
    return np.array([made[age] for age in ages], np.int64)
