"""A batch's primary records, in columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from photon.batch.columns import I64, U32, RowIndexes
from photon.batch.files import LogFile, intern_files


class PrimaryRecord(NamedTuple):
    """A primary event's record and its place in the log."""

    record: bytes  # without its line end
    file: LogFile
    offset: int  # uncompressed bytes


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """n primary records, one row per record."""

    files: Sequence[LogFile]
    file_index: U32
    offsets: I64
    records: Sequence[bytes]  # without their line ends

    def __len__(self) -> int:
        return len(self.records)

    @staticmethod
    def of(rows: Sequence[PrimaryRecord]) -> Records:
        """Makes columns from single records."""
        records, of_file, offsets = tuple(zip(*rows, strict=True)) or ((), (), ())
        files, file_index = intern_files(of_file)
        return Records(files, file_index, np.array(offsets, np.int64), records)

    def row(self, at: int) -> PrimaryRecord:
        """Returns one row as a record."""
        return PrimaryRecord(self.records[at], self.files[self.file_index[at]], int(self.offsets[at]))

    def of_file(self) -> list[LogFile]:
        """Returns the file of each row."""
        files = self.files
        return [files[at] for at in self.file_index.tolist()]

    @staticmethod
    def concat(parts: Sequence[Records]) -> Records:
        """Concatenates records, in order."""
        if len(parts) == 1:
            return parts[0]
        files: list[LogFile] = []
        shifted = []
        for part in parts:
            shifted.append(part.file_index + np.uint32(len(files)))
            files += part.files
        return Records(
            files,
            np.concatenate([np.empty(0, np.uint32), *shifted]),
            np.concatenate([np.empty(0, np.int64), *(part.offsets for part in parts)]),
            [record for part in parts for record in part.records],
        )

    def take(self, index: RowIndexes) -> Records:
        """Returns the rows at ``index``, in the order of ``index``."""
        return Records(
            self.files, self.file_index[index], self.offsets[index], [self.records[row] for row in index.tolist()]
        )

    def rows(self) -> list[PrimaryRecord]:
        """Returns the rows as single records."""
        return list(map(PrimaryRecord, self.records, self.of_file(), self.offsets.tolist()))


NO_RECORDS = Records.of(())
