"""A batch of foreign events in columns, used from the log to the output line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from photon.batch.columns import I64, U32, RowIndexes, split_digests, take_digests
from photon.batch.files import LogFile, intern_files


class ForeignEvent(NamedTuple):
    """One row of a batch."""

    event_id: bytes
    digest: bytes
    event_time_ns: int
    key: bytes
    record: bytes  # without its line end
    file: LogFile
    offset: int
    # If its primary event is ABSENT as of this time, the event is unmatched. NEVER_NS: only once the primary logs are
    # permanently complete; WAIT_NS (``joiner.api``): never.
    unmatched_as_of_ns: int
    generation: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """n foreign events in columns, one row per event. Columns never change."""

    files: Sequence[LogFile]
    file_index: U32
    offsets: I64
    times: I64  # event times, ns UTC
    digests: bytes  # n x 16
    keys: Sequence[bytes]
    ids: Sequence[bytes]
    records: Sequence[bytes]  # without their line ends
    as_of: I64  # ForeignEvent.unmatched_as_of_ns
    generations: U32

    def __len__(self) -> int:
        return len(self.ids)

    @staticmethod
    def of(rows: Iterable[ForeignEvent]) -> Events:
        """Makes columns from single events."""
        columns = tuple(zip(*rows, strict=True)) or ((),) * len(ForeignEvent._fields)
        ids, digests, times, keys, records, of_file, offsets, as_of, generations = columns
        files, file_index = intern_files(of_file)
        return Events(
            files=files,
            file_index=file_index,
            offsets=np.array(offsets, np.int64),
            times=np.array(times, np.int64),
            digests=b"".join(digests),
            keys=keys,
            ids=ids,
            records=records,
            as_of=np.array(as_of, np.int64),
            generations=np.array(generations, np.uint32),
        )

    @staticmethod
    def concat(parts: Sequence[Events]) -> Events:
        """Concatenates the rows of all parts, in order."""
        if len(parts) == 1:
            return parts[0]
        bases = np.cumsum([0, *(len(part.files) for part in parts)])[:-1].tolist()
        indexes = [part.file_index + np.uint32(base) for part, base in zip(parts, bases, strict=True)]
        return Events(
            files=[file for part in parts for file in part.files],
            file_index=np.concatenate([np.empty(0, np.uint32), *indexes]),
            offsets=np.concatenate([np.empty(0, np.int64), *(part.offsets for part in parts)]),
            times=np.concatenate([np.empty(0, np.int64), *(part.times for part in parts)]),
            digests=b"".join(part.digests for part in parts),
            keys=[key for part in parts for key in part.keys],
            ids=[each for part in parts for each in part.ids],
            records=[record for part in parts for record in part.records],
            as_of=np.concatenate([np.empty(0, np.int64), *(part.as_of for part in parts)]),
            generations=np.concatenate([np.empty(0, np.uint32), *(part.generations for part in parts)]),
        )

    def of_file(self) -> list[LogFile]:
        """Returns the file of each row."""
        files = self.files
        return [files[at] for at in self.file_index.tolist()]

    def take(self, index: RowIndexes) -> Events:
        """Returns the rows at ``index``, in the order of ``index``."""
        rows = index.tolist()
        return Events(
            files=self.files,
            file_index=self.file_index[index],
            offsets=self.offsets[index],
            times=self.times[index],
            digests=take_digests(self.digests, index),
            keys=[self.keys[row] for row in rows],
            ids=[self.ids[row] for row in rows],
            records=[self.records[row] for row in rows],
            as_of=self.as_of[index],
            generations=self.generations[index],
        )

    def rows(self) -> list[ForeignEvent]:
        """Returns the rows as single events, for display and for code that reads only a few."""
        return list(
            map(
                ForeignEvent,
                self.ids,
                split_digests(self.digests),
                self.times.tolist(),
                self.keys,
                self.records,
                self.of_file(),
                self.offsets.tolist(),
                self.as_of.tolist(),
                self.generations.tolist(),
            )
        )

    def row(self, at: int) -> ForeignEvent:
        """Returns one row as an event."""
        return self.take(np.array([at], np.intp)).rows()[0]

    def sizes(self) -> I64:
        """Returns the bytes that each row's id, key and record take together."""
        n = len(self)
        ids, keys, records = (
            np.fromiter(map(len, column), np.int64, n) for column in (self.ids, self.keys, self.records)
        )
        return ids + keys + records

    def parts(self, events_max: int, bytes_max: int) -> list[Events]:
        """Splits the events into parts of up to ``events_max`` rows and ``bytes_max`` bytes, at least one row."""
        n = len(self)
        ends = np.cumsum(self.sizes())
        parts = []
        begin = 0
        while begin < n:
            before = int(ends[begin - 1]) if begin else 0
            end = int(np.searchsorted(ends, before + bytes_max, side="right"))
            end = min(max(end, begin + 1), begin + events_max)
            parts.append(self if end - begin == n else self.take(np.arange(begin, end)))
            begin = end
        return parts
