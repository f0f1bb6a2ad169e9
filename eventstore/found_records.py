"""Records found for the rows of a batch, in caches or logs, as columns. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from photon.batch.columns import I64, RowIndexes
from photon.batch.files import LogFile
from photon.batch.records import PrimaryRecord, Records


@dataclass(frozen=True, slots=True, eq=False)
class FoundRecords:
    """n records, each with the row it was found for. A row may have several."""

    rows: I64
    identities: Sequence[str]  # one for each of ``records.files``: the identity of the log with that name
    records: Records

    def __len__(self) -> int:
        return len(self.records)

    @staticmethod
    def of(found: Iterable[tuple[int, str, PrimaryRecord]]) -> FoundRecords:
        rows, numbers, offsets, records = list[int](), list[int](), list[int](), list[bytes]()
        logs: dict[tuple[str, LogFile], int] = {}
        for row, identity, (record, file, offset) in found:
            rows.append(row)
            numbers.append(logs.setdefault((identity, file), len(logs)))
            offsets.append(offset)
            records.append(record)
        return FoundRecords.columns(logs, rows, numbers, offsets, records)

    @staticmethod
    def columns(
        logs: Iterable[tuple[str, LogFile]],
        rows: Sequence[int] | I64,
        numbers: Sequence[int],
        offsets: Sequence[int],
        records: Sequence[bytes],
    ) -> FoundRecords:
        """Builds the columns. ``numbers[i]``: index in ``logs`` (identity, file) of the log that has record i."""
        logs = list(logs)
        its = Records([file for _, file in logs], np.array(numbers, np.uint32), np.array(offsets, np.int64), records)
        return FoundRecords(np.array(rows, np.int64), [identity for identity, _ in logs], its)

    def identity(self, at: int) -> str:
        return self.identities[int(self.records.file_index[at])]

    def take(self, index: RowIndexes) -> FoundRecords:
        return FoundRecords(self.rows[index], self.identities, self.records.take(index))

    def moved(self, rows: I64, first: int = 0) -> FoundRecords:
        """Returns the same records with other row numbers: row ``first + i`` becomes ``rows[i]``."""
        return FoundRecords(rows[self.rows - first], self.identities, self.records)

    @staticmethod
    def concat(parts: Sequence[FoundRecords]) -> FoundRecords:
        parts = [part for part in parts if len(part)] or parts[:1]
        if len(parts) == 1:
            return parts[0]
        rows = np.concatenate([np.empty(0, np.int64), *(part.rows for part in parts)])
        identities = [identity for part in parts for identity in part.identities]
        return FoundRecords(rows, identities, Records.concat([part.records for part in parts]))


NO_RECORDS = FoundRecords.of(())


class ReadResults:
    """Collects the results of several threads for n places in logs. Rows are indices of places.

    A place without a result is unavailable.
    """

    def __init__(self, n: int) -> None:
        self._n = n
        self._found: list[FoundRecords] = []
        self._not_there: list[I64] = []

    def __len__(self) -> int:
        return self._n

    def tell(self, found: FoundRecords, not_there: I64) -> None:
        """Adds results for some places: records ``found``, and places (``not_there``) that hold another record."""
        if len(found):
            self._found.append(found)
        if len(not_there):
            self._not_there.append(not_there)

    def told(self) -> tuple[FoundRecords, I64]:
        """Returns the results so far: (records found, places that hold another record)."""
        not_there = np.concatenate(self._not_there) if self._not_there else np.empty(0, np.int64)
        return FoundRecords.concat(self._found[:]) if self._found else NO_RECORDS, not_there
