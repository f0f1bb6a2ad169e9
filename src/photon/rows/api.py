"""Rows with conditional changes: the contract of all stores, after Bigtable (OSDI 2006).

A store is a sorted map of rows; each row has cells, and is read and changed atomically. A cell is a column, a
version and a value. The first byte of a column is its *family*. A family keeps the newest version of each column, or
all of them; the newest is the one with the highest number, regardless of the order of writes. So a write may be
repeated or late without changing the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from photon.config.errors import PhotonError

EVER = 2**62  # above every version
NOW = 0  # as a version: the store's own clock, or none; later writes replace earlier ones
ALL = 2**31 - 1  # as a number of versions: keep all
Families = Mapping[bytes, int]  # family -> versions kept of each column: 1 or ALL
Groups = Sequence[Families]  # families that are kept together, as they are read and written together


class RowsFailed(PhotonError):
    """The store did not answer, or cannot be used. It is unknown which part of the request was done."""


class TableMissing(RowsFailed):
    """HBase has no such table, or denies access to it."""


class Cell(msgspec.Struct, frozen=True, order=True, array_like=True, gc=False):
    column: bytes
    version: int
    value: bytes


class Read(NamedTuple):
    """A request for cells of a row, with versions up to ``upto``: the newest of each column, or all."""

    row: bytes
    columns: Sequence[bytes]  # of one group; one byte means all columns of a family
    upto: int = EVER
    every: bool = False


class Put(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Cells to write, regardless of the row's content."""

    row: bytes
    cells: Sequence[Cell] | None  # ``None`` removes the row; only in ``commit`` of an atomic store


class Change(NamedTuple):
    """Cells to write in one step if the column of the first, in a family of one version, has the value ``expected``
    (``None`` means that it does not exist)."""

    row: bytes
    cells: Sequence[Cell]
    expected: bytes | None


class Delete(NamedTuple):
    """Removes the cells of a column with versions up to ``upto``; all with ``EVER``."""

    row: bytes
    column: bytes | None  # ``None`` means all columns of the row
    upto: int = EVER


Answer = bool | RowsFailed  # True: done; False: refused, and never done; RowsFailed: may be done now, later, or never


class Rows(Protocol):
    """Safe for many threads and processes. Acknowledged changes survive every crash that the store survives."""

    atomic: bool  # ``commit`` is one step

    @property
    def round_trips(self) -> int: ...  # number of round trips to servers

    def create(self) -> bool:
        """Creates HBase's table. False if it already exists, or if the file did when it was opened. Raises
        RowsFailed."""
        ...

    def read(self, reads: Sequence[Read]) -> list[list[Cell]]:
        """The cells for each read, in no particular order; in one round trip if the store can. Raises RowsFailed."""
        ...

    def scan(
        self, begin: bytes, end: bytes | None, columns: Sequence[bytes], limit: int, *, upto: int = EVER,
        every: bool = False,
    ) -> list[tuple[bytes, list[Cell]]]:  # fmt: skip
        """Up to ``limit`` rows from ``begin`` on, before ``end`` (``None`` means the last), in order, that have any
        such cells, each as in ``read``. Fewer than ``limit`` means that there are no more. The cost depends on the
        cells of the families concerned. Raises RowsFailed."""
        ...

    def change(self, changes: Sequence[Change]) -> list[Answer]:
        """Returns an answer for each. Changes run concurrently, in any order, separately. Never raises RowsFailed."""
        ...

    def decide(self, changes: Sequence[Change], *, wait: bool = True) -> list[Answer]:
        """Completes the first before any other begins; the others begin only if it was done, and are refused
        otherwise. Without ``wait`` only the first is answered, and the others are done before the call returns, or
        later, or never. Never raises RowsFailed."""
        ...

    def commit(self, change: Change, puts: Sequence[Put]) -> bool:
        """Does the change, and the puts if it was done: all in one step if ``atomic``, otherwise the change first. If
        the answer is lost, the outcome is found by reading, so the first cell must have a value that its column never
        had. False means that nothing was written. Raises RowsFailed."""
        ...

    def put(self, puts: Sequence[Put]) -> None:
        """Writes durably, in no particular order. Raises RowsFailed."""
        ...

    def delete(self, deletes: Sequence[Delete]) -> None:
        """Deletes cells.

        A cell that is written later may also be hidden if its version is not above ``upto``. Raises RowsFailed.
        """
        ...

    def flush(self) -> None:
        """Waits until the deferred changes of ``decide`` are finished."""
        ...

    def close(self) -> None: ...


class AtomicRows(Rows, Protocol):
    """A store in which several changes can be made in one step."""

    def change_all(
        self, row: bytes, columns: Sequence[bytes], changes: Callable[[list[Cell]], Sequence[Change]]
    ) -> Answer:
        """Does all changes that ``changes`` makes from the newest cells of a row, or none: reading and writing are
        one step. Raises errors from ``changes``, after which nothing was done."""
        ...


def behind(prefix: bytes) -> bytes:
    """Returns the end of the range of rows with this prefix, whose last byte must not be 255."""
    return prefix[:-1] + bytes([prefix[-1] + 1])
