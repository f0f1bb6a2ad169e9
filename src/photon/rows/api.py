"""The interface of all stores of rows with conditional changes, modelled on Bigtable (OSDI 2006).

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

EVER = 2**62  # greater than every version
NOW = 0  # a version that means the store's own clock, or none; later writes replace earlier ones
ALL = 2**31 - 1  # a number of versions that means all
Families = Mapping[bytes, int]  # family -> versions kept of each column: 1 or ALL
Groups = Sequence[Families]  # each group's families are stored together, as they are read and written together


class RowsFailed(PhotonError):
    """The store did not answer or cannot be used. Any part of the request may have been done."""


class TableMissing(RowsFailed):
    """HBase has no such table, or denies access to it."""


class Cell(msgspec.Struct, frozen=True, order=True, array_like=True, gc=False):
    column: bytes
    version: int
    value: bytes


class Read(NamedTuple):
    """Requests a row's cells with versions up to ``upto``: each column's newest; with ``every``, all."""

    row: bytes
    columns: Sequence[bytes]  # columns of one group; a single byte means all columns of a family
    upto: int = EVER
    every: bool = False


class Put(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Cells to write, regardless of the row's content."""

    row: bytes
    cells: Sequence[Cell] | None  # ``None`` removes the row; only in ``commit`` of an atomic store


class Change(NamedTuple):
    """A compare-and-set: writes ``cells`` atomically if the column of ``cells[0]`` currently holds ``expected``
    (``None``: does not exist). That column's family must keep one version."""

    row: bytes
    cells: Sequence[Cell]
    expected: bytes | None


class Delete(NamedTuple):
    """Removes the cells of a column with versions up to ``upto``; ``EVER`` means all versions."""

    row: bytes
    column: bytes | None  # ``None`` means all columns of the row
    upto: int = EVER


Answer = bool | RowsFailed  # True: done; False: refused, and never done; RowsFailed: may be done now, later, or never


class Rows(Protocol):
    """A store of rows, safe for many threads and processes. Acknowledged changes are as durable as the store."""

    atomic: bool  # True if ``commit`` is one step

    @property
    def round_trips(self) -> int: ...  # number of round trips to servers

    def create(self) -> bool:
        """Creates HBase's table. Returns False if it, or a store's file at its opening, already existed. Raises
        RowsFailed."""
        ...

    def read(self, reads: Sequence[Read]) -> list[list[Cell]]:
        """Returns the cells for each read, in no order; in one round trip if the store can. Raises RowsFailed."""
        ...

    def scan(
        self, begin: bytes, end: bytes | None, columns: Sequence[bytes], limit: int, *, upto: int = EVER,
        every: bool = False,
    ) -> list[tuple[bytes, list[Cell]]]:  # fmt: skip
        """Returns, in order, up to ``limit`` rows in [``begin``, ``end``) (``None`` means no end) that have such
        cells, each with the cells that ``read`` would return. If it returns fewer, there are no more. The cost
        depends on the number of cells in these families. Raises RowsFailed."""
        ...

    def change(self, changes: Sequence[Change]) -> list[Answer]:
        """Makes independent changes, concurrently, in any order; returns their answers. Never raises RowsFailed."""
        ...

    def decide(self, changes: Sequence[Change], *, wait: bool = True) -> list[Answer]:
        """Makes the first change; the others start only after it was done, and are refused if it was not. Without
        ``wait``, only the first is answered; the others may be done before the call returns, later, or never.
        Never raises RowsFailed."""
        ...

    def commit(self, change: Change, puts: Sequence[Put]) -> bool:
        """Makes the change and, if it succeeds, the puts: in one step if ``atomic``, otherwise the change first. If
        the answer is lost, a read finds the outcome, so the first cell must have a value that its column never had
        before. False means that nothing was written. Raises RowsFailed."""
        ...

    def put(self, puts: Sequence[Put]) -> None:
        """Writes durably, in no particular order. Raises RowsFailed."""
        ...

    def delete(self, deletes: Sequence[Delete]) -> None:
        """Deletes cells.

        May also hide a cell that is written later, if its version is not above ``upto``. Raises RowsFailed.
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
        """Reads a row's newest cells and makes all changes that ``changes`` derives from them, or none, in one
        atomic step. Raises errors from ``changes``; then nothing was done."""
        ...


def behind(prefix: bytes) -> bytes:
    """Returns the exclusive end of the rows with a prefix. The prefix's last byte must not be 255."""
    return prefix[:-1] + bytes([prefix[-1] + 1])
