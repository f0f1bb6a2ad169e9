"""The foundations of tables: a store of rows, timestamps, and errors.

Names of tables, rows and columns are text; rows are ordered by code point, which is the order of their UTF-8 bytes. A
store knows nothing of transactions: metas and versions are opaque bytes to it (``cell.py`` has their encoding).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from photon.config.errors import PhotonError, UsageError


# -- errors
# ------------------------------------------------------------------------------------------------------------
class TablesError(PhotonError):
    """An error of tables; one line."""


class Conflict(TablesError):
    """Another client has written, or is about to write, a cell of this transaction. Nothing of the transaction was
    done, nor will be: begin again (``retrying``)."""


class OutcomeUnknown(TablesError):
    """The store stopped answering at the commit: readers will decide whether it is done. All of the transaction is
    done, or nothing."""


class TooOld(TablesError):
    """The transaction began before the safe point: versions that it would need may be gone. Begin again."""


class StoreFailed(TablesError):
    """The store or the oracle did not answer. It is not known which part of the request was done."""


class BadName(UsageError):
    """A name or value that tables cannot hold."""


# -- the store -------------------------------------------------------------------------------------------------------
class Cell(NamedTuple):
    """The place of a value."""

    table: str
    row: str
    column: str


class Read(NamedTuple):
    """A request for columns of a row."""

    table: str
    row: str
    columns: Sequence[str] | None  # None means all columns of the row
    upto: int  # read the newest version at or before this timestamp


class Held(NamedTuple):
    """The content of a column. A column may have a meta and no version (yet), never the reverse."""

    meta: bytes | None
    commit: int = 0  # the timestamp of ``version``
    version: bytes | None = None  # the newest at or before ``upto``; None means there is none


NOTHING = Held(None)
EVER = 2**62  # above every timestamp
RowRead = Mapping[str, Held]  # column -> its content; empty columns may be left out


class Mutation(NamedTuple):
    """One conditional change of one row: if the meta of ``cell`` is ``expected`` (``None`` means absent), all the
    rest is written, in one step; otherwise nothing is."""

    cell: Cell
    expected: bytes | None
    meta: bytes
    version: bytes | None = None
    commit: int = 0  # timestamp of ``version``, if there is one
    notify: int = 0  # if not 0: start timestamp of the notification to write for ``cell``


class Notification(NamedTuple):
    """The transaction that began at ``start`` locked ``column`` of a row: observers may have to run."""

    table: str
    row: str
    column: str
    start: int


class Claims(Protocol):
    """A note on each row about the client working on it (``locks.py``). All raise StoreFailed."""

    def claims(self, table: str, rows: Sequence[str]) -> list[bytes | None]: ...

    def claim(self, table: str, rows: Sequence[str], claim: bytes) -> None: ...

    def unclaim(self, table: str, rows: Sequence[str]) -> None: ...


class RowStore(Claims, Protocol):
    """A sorted map of rows, each read and changed atomically. Safe for many threads and processes.

    Acknowledged changes survive any crash that the store survives. All methods raise StoreFailed if the store does
    not answer, except ``mutate`` and ``decide``.
    """

    @property
    def round_trips(self) -> int: ...  # to servers, so far

    def read(self, reads: Sequence[Read]) -> list[RowRead]:
        """One answer for each read, each a row at one moment; in one round trip if the store can. Several reads may
        be of several moments."""
        ...

    def mutate(self, mutations: Sequence[Mutation], *, first_decides: bool = False) -> list[bool | None]:
        """One answer for each mutation: done, refused (it was not done and never will be), or ``None``, meaning
        unknown: it may be done now, later, or never. They run concurrently, in any order, each by itself.

        ``first_decides``: the first is completed before any other begins, and the others begin only if it was done;
        otherwise they are answered as refused. Never raises StoreFailed.
        """
        ...

    def decide(self, mutations: Sequence[Mutation]) -> bool | None:
        """The answer to the first, as ``mutate`` with ``first_decides``. Does not wait for the others: they are done
        before the call returns, or later, or never. Never raises StoreFailed."""
        ...

    def flush(self) -> None:
        """Waits until the deferred mutations of ``decide`` are finished."""
        ...

    def scan(
        self, table: str, begin: str, end: str | None, columns: Sequence[str] | None, upto: int, limit: int
    ) -> list[tuple[str, RowRead]]:
        """Up to ``limit`` rows from ``begin`` on, before ``end`` (``None`` means the table's), in order, that hold
        anything in ``columns`` (``None`` means any). Fewer than ``limit`` means there are no more. Each row is read
        as by ``read``."""
        ...

    def versions(self, cell: Cell, after: int) -> list[tuple[int, bytes]]:
        """All versions of a cell with timestamps above ``after``, with their timestamps, in any order. Rarely
        used."""
        ...

    def dirty(self, table: str, begin: str, limit: int) -> list[Notification]:
        """Up to ``limit`` notifications of rows from ``begin`` on, ordered by row, column, start. The cost depends on
        the number of notifications, not of cells."""
        ...

    def notify(self, notifications: Sequence[Notification]) -> None:
        """Writes notifications, regardless of the cells' content."""
        ...

    def forget(self, notifications: Sequence[Notification]) -> None:
        """Removes exactly these. A notification written later with another start timestamp stays, even with a lower
        one (in HBase: one qualifier for each, or deletes of exact versions)."""
        ...

    def collect(self, table: str, safe_point: int, begin: str, limit: int) -> tuple[int, str | None]:
        """In up to ``limit`` rows from ``begin`` on: removes the versions of each column that are older than its
        newest one at or before ``safe_point``. Returns their number, and the row to continue at (``None`` means
        done)."""
        ...

    def tables(self) -> list[str]:
        """Names of the non-empty tables, without the system's (``SYSTEM``)."""
        ...

    def close(self) -> None:
        """Call after ``flush``."""
        ...


# The table with the tables' own data, in metas without versions (``system.py``). Every store has it.
SYSTEM = "photon-system"


# -- timestamps ------------------------------------------------------------------------------------------------------
class Oracle(Protocol):
    """Hands out timestamps from 1 on, each once. A timestamp requested after another was received is higher, over all
    clients, restarts and leaders. Safe for many threads."""

    round_trips: int  # to servers, so far

    def timestamp(self) -> int:
        """Raises StoreFailed."""
        ...

    def close(self) -> None: ...


class Liveness(Protocol):
    """Tells which clients are alive. A client's token is in its locks."""

    token: str  # this client's: printable ASCII without spaces, at most 100 characters

    def dead(self, token: str) -> bool:
        """True if the client is certainly dead. False means it may be alive."""
        ...
