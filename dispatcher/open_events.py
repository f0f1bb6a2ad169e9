"""Events in memory without a verdict, in columns: one row each, reused once its event is done. Pure.

Queues, batches and waiting groups refer to events by row number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from photon.batch.columns import F64, I64, U8, U32, Mask, Objects, RowIndexes
from photon.batch.events import Events, ForeignEvent
from photon.batch.files import intern_files
from photon.dispatcher.events import Stretch
from photon.dispatcher.homes import NOBODY
from photon.joiner.api import Outcome

NO_GROUP = 0
UNTRIED = 255  # the outcome of the last attempt if there was none
_ROWS_FIRST = 1024
_OBJECTS = np.dtype([(name, object) for name in ("ids", "keys", "records", "files", "stretch")])
_NOTHING = np.empty(1, _OBJECTS)[0]
_NUMBERS = np.dtype(
    [
        ("digests", "V16"),
        *((name, np.int64) for name in ("times", "offsets", "as_of", "sizes", "first_read_ns", "next_try_ns")),
        *((name, np.int64) for name in ("trigger_ns", "attempts", "failed", "row_id", "group", "left_to")),
        ("placed_at", np.float64),
        ("generations", np.uint32),
        *((name, np.bool_) for name in ("taken", "redispatched", "behind", "settled")),
        ("last", np.uint8),
    ]
)


def rows_of(numbers: Sequence[int]) -> RowIndexes:
    return np.array(numbers, np.intp)


NO_ROWS = rows_of(())


class OpenEvent(NamedTuple):
    event: ForeignEvent
    first_read_ns: int
    attempts: int
    next_try_ns: int
    waits: bool  # waits in memory for its next try
    settled: bool
    left: bool  # left to another datacentre
    last: Outcome | None


class OpenEvents:
    """Open events, in columns. ``add`` sets all columns of a row, ``release`` clears ``taken`` and ``group``.

    | column                  | set later by                        | read by                                      |
    | ----------------------- | ----------------------------------- | -------------------------------------------- |
    | the event's, ``sizes``  |                                     | batches, all parts                           |
    | ``as_of``               | ``Waiting.load``, ``ask_for_final`` | batches                                      |
    | ``stretch``             | ``Committing`` (row)                | ``Counting``, ``Waiting``, ``Queues`` (age)  |
    | ``first_read_ns``       | ``FirstRead.limit``                 | ``NextTries``, ``ask_for_final``, join times |
    | ``attempts``            | ``Intake.redispatch``, ``Waiting``  | ``NextTries``, ``ask_for_final``, ``Homes``  |
    | ``failed``              | ``Waiting``, ``LoadedRows.arrived`` | ``NextTries``, ``Waiting``                   |
    | ``taken``               |                                     | ``Committing.undecided``                     |
    | ``redispatched``        | ``Intake``                          | ``Counting``, ``Waiting``, ``Committing``    |
    | ``behind``              | ``Intake``, ``Waiting.load``        | ``Queues``, ``Waiting``                      |
    | ``last``                | ``Waiting``                         | ``Waiting``, ``Committing.undecided``        |
    | ``row_id``              | ``Waiting.load``, ``Committing``    | ``Waiting``, ``Queues``, ``LoadedRows``      |
    | ``settled``             | ``Waiting``                         | ``Committing``                               |
    | ``group``               | ``WaitingRoom``                     | ``WaitingRoom``, ``Committing``              |
    | ``next_try_ns``         | ``Waiting``, ``Committing``         | retry store                                  |
    | ``trigger_ns``          | ``Waiting``, ``Committing``         | retry store                                  |
    | ``left_to``             | ``Queues``, ``Waiting``             | ``Queues``, ``Homes``                        |
    | ``placed_at``           | ``Queues``                          | ``Homes``                                    |

    ``describe`` reads most of them for display.
    """

    ids: Objects
    keys: Objects
    records: Objects
    files: Objects
    stretch: Objects  # its ``Stretch``; ``None`` for a row of the retry store
    digests: npt.NDArray[np.void]  # 16 bytes
    times: I64
    offsets: I64
    as_of: I64
    generations: U32
    sizes: I64  # bytes of id, key and record
    first_read_ns: I64  # wall clock; patience counts from here
    attempts: I64
    failed: I64  # consecutive recent tries that gave no verdict although a primary event may exist
    taken: Mask  # the row has an event
    redispatched: Mask  # it had a verdict before (``replay.redispatch``)
    behind: Mask  # fresh events have priority
    last: U8  # ``Outcome`` of its last attempt
    row_id: I64  # in the retry store; 0: it belongs to a stretch
    settled: Mask  # it will get no verdict in this run
    group: I64  # the group it waits in for its next try; NO_GROUP if it is in flight or settled
    next_try_ns: I64
    trigger_ns: I64
    left_to: I64  # the datacentre whose head start this attempt waits (or waited) for
    placed_at: F64  # monotonic seconds; for an own event, its turn

    def __init__(self) -> None:
        self._free: list[int] = []
        self.open = 0  # events that may still get a verdict in this run: neither settled nor moving to the store
        self._objects, self._numbers = np.empty(0, _OBJECTS), np.empty(0, _NUMBERS)
        self._name_columns()

    def _name_columns(self) -> None:
        for rows in (self._objects, self._numbers):
            for name in rows.dtype.names or ():
                setattr(self, name, rows[name])

    def _grow(self) -> None:
        old = len(self._objects)
        new = max(2 * old, _ROWS_FIRST)
        self._objects = np.concatenate([self._objects, np.empty(new - old, _OBJECTS)])
        self._numbers = np.concatenate([self._numbers, np.zeros(new - old, _NUMBERS)])
        self._name_columns()
        self._free[:0] = range(new - 1, old - 1, -1)

    def add(self, events: Events, stretch: Stretch | None, first_read_ns: I64 | int) -> RowIndexes:
        count = len(events)
        while len(self._free) < count:
            self._grow()
        rows = rows_of(self._free[-1 : -count - 1 : -1])
        del self._free[len(self._free) - count :]
        objects, numbers = np.empty(count, _OBJECTS), np.zeros(count, _NUMBERS)
        objects["ids"], objects["keys"], objects["records"] = events.ids, events.keys, events.records
        objects["files"] = events.files[0] if len(events.files) == 1 else events.of_file()
        objects["stretch"] = stretch
        numbers["digests"] = np.frombuffer(events.digests, "V16")
        numbers["times"], numbers["offsets"], numbers["as_of"] = events.times, events.offsets, events.as_of
        numbers["generations"], numbers["sizes"] = events.generations, events.sizes()
        numbers["first_read_ns"], numbers["taken"] = first_read_ns, True
        numbers["last"], numbers["left_to"] = UNTRIED, NOBODY
        self._objects[rows], self._numbers[rows] = objects, numbers
        self.open += count
        return rows

    def end(self, rows: RowIndexes) -> None:
        """Frees the rows of open events that got a verdict or became rows of the retry store."""
        self.open -= len(rows)
        self.release(rows)

    def release(self, rows: RowIndexes) -> None:
        """Frees the rows of events that are no longer open."""
        self._objects[rows] = _NOTHING
        self.group[rows], self.taken[rows] = NO_GROUP, False
        self._free += rows.tolist()

    def __len__(self) -> int:
        return len(self.ids) - len(self._free)

    def events(self, rows: RowIndexes) -> Events:
        files, file_index = intern_files(self.files[rows].tolist())
        return Events(
            files=files,
            file_index=file_index,
            offsets=self.offsets[rows],
            times=self.times[rows],
            digests=self.digests[rows].tobytes(),
            keys=self.keys[rows].tolist(),
            ids=self.ids[rows].tolist(),
            records=self.records[rows].tolist(),
            as_of=self.as_of[rows],
            generations=self.generations[rows],
        )

    def of_stretch(self, stretch: Stretch) -> RowIndexes:
        """Returns the rows of a stretch's events without a verdict, in order."""
        rows = np.unique(np.concatenate([NO_ROWS, *stretch.rows]))
        mine = rows[self.stretch[rows] == stretch]
        ordered: RowIndexes = mine[np.argsort(self.offsets[mine])]
        return ordered

    def find(self, event_id: bytes, offset: int) -> RowIndexes:
        """Finds newly read events (not from the retry store) with this id, or at this offset of any log."""
        named = [at for at, each in enumerate(self.ids.tolist()) if each == event_id]
        rows = np.union1d(rows_of(named), np.flatnonzero(self.offsets == offset))
        standing = [each is not None for each in self.stretch[rows].tolist()]
        found: RowIndexes = rows[np.array(standing, np.bool_)]
        return found

    def by_stretch(self, rows: RowIndexes) -> list[tuple[Stretch | None, RowIndexes]]:
        """Groups ``rows`` by stretch. Returns indices into ``rows``."""
        owners: list[Stretch | None] = self.stretch[rows].tolist()
        if not owners:
            return []
        if owners.count(owners[0]) == len(owners):
            return [(owners[0], np.arange(len(owners)))]
        found: dict[int, list[int]] = {}
        for at, owner in enumerate(map(id, owners)):
            found.setdefault(owner, []).append(at)
        return [(owners[some[0]], rows_of(some)) for some in found.values()]

    def counts_as_evidence(self, rows: RowIndexes) -> Mask:
        """Returns a mask of the events whose outcomes say something about the datacentre they are left to: first
        attempts only, since chance decides which datacentre retries first.
        """
        mask: Mask = (self.attempts[rows] == 0) & (self.row_id[rows] == 0)
        return mask

    def clock_went_back(self, now_ns: int) -> None:
        """Moves next tries after ``now_ns`` to ``now_ns``, except for settled events."""
        np.minimum(self.next_try_ns, now_ns, out=self.next_try_ns, where=~self.settled)

    def describe(self, rows: RowIndexes) -> list[OpenEvent]:
        columns = (
            self.first_read_ns[rows],
            self.attempts[rows],
            self.next_try_ns[rows],
            self.group[rows] != NO_GROUP,
            self.settled[rows],
            self.left_to[rows] != NOBODY,
        )
        last = [None if code == UNTRIED else Outcome(code) for code in self.last[rows].tolist()]
        return list(map(OpenEvent, self.events(rows).rows(), *(column.tolist() for column in columns), last))


ROW_BYTES = 200  # counted for each row of the retry store, in addition to its id, key and record


@dataclass(frozen=True, slots=True, eq=False)
class StoredEvents:
    """Rows of the retry store. ``events.as_of`` is not stored; ``Waiting.load`` sets it."""

    row_ids: I64  # 0: not committed yet
    events: Events
    first_read_ns: I64
    attempts: I64
    next_try_ns: I64
    trigger_ns: I64

    def __len__(self) -> int:
        return len(self.row_ids)

    def bytes(self) -> int:
        """The bytes that these rows count for in the store."""
        return int(self.events.sizes().sum()) + ROW_BYTES * len(self)

    @staticmethod
    def of(table: OpenEvents, rows: RowIndexes) -> StoredEvents:
        """Copies open events, some of which may have no row yet."""
        return StoredEvents(
            table.row_id[rows],
            table.events(rows),
            table.first_read_ns[rows],
            table.attempts[rows],
            table.next_try_ns[rows],
            table.trigger_ns[rows],
        )


NOTHING_STORED = StoredEvents.of(OpenEvents(), np.empty(0, np.intp))


class LoadedRows:
    """Rows of the retry store in memory; ``bytes``: their total. ``stored_…``: all rows after the next commit."""

    def __init__(self, table: OpenEvents, stored_rows: int, stored_bytes: int) -> None:
        self._table = table
        self.stored_rows, self.stored_bytes = stored_rows, stored_bytes
        self._bytes: dict[int, int] = {}  # by id in the store
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._bytes)

    def without(self, row_ids: Iterable[int]) -> list[int]:
        return [row_id for row_id in row_ids if row_id not in self._bytes]

    def add(self, rows: RowIndexes) -> None:
        sizes = (self._table.sizes[rows] + ROW_BYTES).tolist()
        self._bytes.update(zip(self._table.row_id[rows].tolist(), sizes, strict=True))
        self.bytes += sum(sizes)

    def arrived(self, row_ids: Sequence[int]) -> None:
        """Notes that the primary events of these rows have arrived: resets the failures of those that are loaded."""
        if loaded := [each for each in row_ids if each in self._bytes]:
            self._table.failed[np.isin(self._table.row_id, loaded)] = 0

    def store(self, rows: RowIndexes) -> None:
        """Adds events that are about to become rows to the store's totals."""
        self.stored_rows += len(rows)
        self.stored_bytes += int(self._table.sizes[rows].sum()) + ROW_BYTES * len(rows)

    def delete(self, row_ids: Sequence[int]) -> int:
        """Removes rows that are about to be deleted from the store. Returns their size in bytes."""
        freed = self.remove(row_ids)
        self.stored_rows -= len(row_ids)
        self.stored_bytes -= freed
        return freed

    def remove(self, row_ids: Iterable[int]) -> int:
        """Removes rows that leave memory. Returns their size in bytes."""
        freed = sum(self._bytes.pop(each, 0) for each in row_ids)
        self.bytes -= freed
        return freed
