"""What Photon asks of HBase: a small interface, so that it can be simulated and can grow.

Left out as long as nothing needs them: check_and_mutate and explicit timestamps (Percolator-like transactions). Both
exist in the Thrift interface: a method more here and in connection.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from photon.eventstore.file_map import FileMapError, FileMapUnavailable

Cells = Mapping[bytes, bytes]  # column (``family:qualifier``) -> value


class Put(NamedTuple):
    """Cells of one row to write; they replace what those columns had."""

    row: bytes
    cells: Cells


class Region(NamedTuple):
    name: bytes
    start: bytes  # first row key; b"" for the table's first region
    end: bytes  # first row key after it; b"" for the last region


class HBaseUnavailable(FileMapUnavailable):
    """HBase did not answer in time. Whether a write took place is not known; it may be repeated."""


class HBaseRefused(FileMapError):
    """HBase answers, but will not do it: the table is missing, or access is denied."""


class HBase(Protocol):
    """Thread-safe. Each call raises HBaseUnavailable or HBaseRefused."""

    def read(self, table: bytes, rows: Sequence[bytes], columns: Sequence[bytes] | None = None) -> dict[bytes, Cells]:
        """The rows that exist; all their cells, or those of ``columns``. In batches, not by scans."""

    def write(self, table: bytes, puts: Sequence[Put]) -> None:
        """All are acknowledged when it returns; in no particular order."""

    def scan(self, table: bytes, start: bytes, stop: bytes) -> Iterator[tuple[bytes, Cells]]:
        """Rows in [start, stop). Each step is a call of its own; nothing stays open when it is left early."""

    def regions(self, table: bytes) -> list[Region]:
        """The table's regions in the order of their rows. HBaseRefused when there is no such table."""

    def interrupt(self) -> None:
        """From now on a failed call is not tried again: the process is stopping."""

    def close(self) -> None: ...
