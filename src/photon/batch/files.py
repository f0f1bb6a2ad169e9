"""Stores each row's log file as an index into the few files of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from photon.batch.columns import U32


@dataclass(frozen=True, slots=True)
class LogFile:
    """The log file of a record, as known to an adapter."""

    path: str  # relative to its log directory, as found: a compression suffix is not interpreted
    # The file's header record without its line end; empty for formats without one. For Zeek's logs: the header lines
    # in force at the record, separated by ``\n``.
    header: bytes = b""


def intern_files(of_rows: Sequence[LogFile]) -> tuple[tuple[LogFile, ...], U32]:
    """Returns the distinct files, and each row's index into them."""
    objects = list(map(id, of_rows))  # rows of one file share it, and a file's own hash is slow
    known = dict(zip(objects, of_rows, strict=True))
    if len(known) == 1:
        return (of_rows[0],), np.zeros(len(of_rows), np.uint32)
    files: dict[LogFile, int] = {}
    numbers = {each: files.setdefault(file, len(files)) for each, file in known.items()}
    return tuple(files), np.array([numbers[each] for each in objects], np.uint32)
