"""Photon's interface to HBase, kept small so that tests can simulate it.

check_and_mutate and explicit timestamps (for Percolator-like transactions) are omitted, as nothing here needs them.
Thrift has both: each would take one more method here and in connection.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from photon.eventstore.file_map import FileMapError, FileMapUnavailable

SCAN_ROWS = 1000

Cells = Mapping[bytes, bytes]  # column (``family:qualifier``) -> value


class Put(NamedTuple):
    """Cells of one row to write; they replace the content of those columns."""

    row: bytes
    cells: Cells


class Region(NamedTuple):
    name: bytes
    start: bytes  # first row key; b"" for the table's first region
    end: bytes  # first row key after it; b"" for the last region


class HBaseUnavailable(FileMapUnavailable):
    """HBase did not answer in time. The outcome of a write is unknown; it may be repeated."""


class HBaseRefused(FileMapError):
    """HBase answers, but refuses: the table is missing, or access is denied."""


class HBase(Protocol):
    """An HBase cluster. Thread-safe. Each call raises HBaseUnavailable or HBaseRefused."""

    def read(self, table: bytes, rows: Sequence[bytes], columns: Sequence[bytes] | None = None) -> dict[bytes, Cells]:
        """Returns the ``rows`` that exist, with all cells or only ``columns``. Reads in batches, not by scans."""

    def write(self, table: bytes, puts: Sequence[Put]) -> None:
        """Writes the puts in no particular order. Returns once all are acknowledged."""

    def scan(self, table: bytes, start: bytes, stop: bytes, rows: int = SCAN_ROWS) -> Iterator[tuple[bytes, Cells]]:
        """Yields the rows in [start, stop), ``rows`` per call; nothing stays open if iteration stops early."""

    def regions(self, table: bytes) -> list[Region]:
        """Returns the table's regions in row order. Raises HBaseRefused if there is no such table."""

    def interrupt(self) -> None:
        """Stops retries: from now on a failed call raises at once. For a process that stops."""

    def close(self) -> None: ...
