"""Photon's interface to HBase: kept small, so that it can be simulated.

Left out because nothing needs them yet: check_and_mutate and explicit timestamps (Percolator-like transactions). Both
exist in the Thrift interface: each needs one more method here and in connection.py.
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
        """Returns the existing rows, with all cells or those of ``columns``. Reads in batches, not by scans."""

    def write(self, table: bytes, puts: Sequence[Put]) -> None:
        """Writes in no particular order; returns once all puts are acknowledged."""

    def scan(self, table: bytes, start: bytes, stop: bytes, rows: int = SCAN_ROWS) -> Iterator[tuple[bytes, Cells]]:
        """Yields the rows in [start, stop), ``rows`` per call; nothing stays open if iteration stops early."""

    def regions(self, table: bytes) -> list[Region]:
        """The table's regions in the order of their rows. Raises HBaseRefused if there is no such table."""

    def interrupt(self) -> None:
        """From now on a failed call is not retried: the process is stopping."""

    def close(self) -> None: ...
