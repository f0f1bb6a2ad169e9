"""What tables stand on: a store of rows, timestamps, and what goes wrong.

Names of tables, rows and columns are text; rows are ordered by code point, which is the order of their UTF-8 bytes.
A store knows nothing of transactions: metas and versions are opaque bytes to it (``cell.py`` has their encoding).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from photon.config.errors import PhotonError, UsageError


# -- what goes wrong -------------------------------------------------------------------------------------------------
class TablesError(PhotonError):
    """Of tables; one line."""


class Conflict(TablesError):
    """Somebody else has written, or is about to write, what this transaction writes. Nothing of it was done, nor will
    be: begin again (``retrying``)."""


class OutcomeUnknown(TablesError):
    """The store stopped answering at the commit: whether it is done, readers will decide. Nothing in between: all of
    the transaction or nothing."""


class TooOld(TablesError):
    """The transaction began before the safe point: versions that it would have to read may be gone. Begin again."""


class StoreFailed(TablesError):
    """The store or the oracle did not answer. Of what was asked for, it is not known what was done."""


class BadName(UsageError):
    """A name or value that tables do not hold."""


# -- the store -------------------------------------------------------------------------------------------------------
class Cell(NamedTuple):
    """Where a value lies."""

    table: str
    row: str
    column: str


class Read(NamedTuple):
    """Asks for columns of a row."""

    table: str
    row: str
    columns: Sequence[str] | None  # None means all that the row has
    upto: int  # the newest version at this timestamp or before is wanted


class Held(NamedTuple):
    """What a column holds. There are columns with a meta and no version (yet), never the reverse."""

    meta: bytes | None
    commit: int = 0  # the timestamp of ``version``
    version: bytes | None = None  # The newest at ``upto`` or before. None means there is none.


NOTHING = Held(None)
EVER = 2**62  # above every timestamp
RowRead = Mapping[str, Held]  # column -> what it holds; columns that hold nothing may be left out


class Mutation(NamedTuple):
    """One conditional change of one row: if the meta of ``cell`` is ``expected`` (None: absent), all of the rest is
    written, in one step; else nothing is."""

    cell: Cell
    expected: bytes | None
    meta: bytes
    version: bytes | None = None
    commit: int = 0  # the timestamp to write ``version`` at, if there is one
    notify: int = 0  # if not 0: writes the notification of ``cell`` with this start timestamp


class Notification(NamedTuple):
    """``column`` of a row was locked by the transaction that began at ``start``: observers may have to run."""

    table: str
    row: str
    column: str
    start: int


class Claims(Protocol):
    """A note for each row, of who works on it (``locks.py``). All raise StoreFailed."""

    def claims(self, table: str, rows: Sequence[str]) -> list[bytes | None]: ...

    def claim(self, table: str, rows: Sequence[str], claim: bytes) -> None: ...

    def unclaim(self, table: str, rows: Sequence[str]) -> None: ...


class RowStore(Claims, Protocol):
    """A sorted map of rows, each read and changed atomically. Safe for many threads and processes.

    What was acknowledged stays, through any crash that the store survives. All methods raise StoreFailed where the
    store does not answer, except ``mutate`` and ``decide``.
    """

    @property
    def round_trips(self) -> int: ...  # to servers, so far

    def read(self, reads: Sequence[Read]) -> list[RowRead]:
        """One answer a read, each a row at one moment; in one round trip where the store can. Several reads are of
        several moments."""
        ...

    def mutate(self, mutations: Sequence[Mutation], *, first_decides: bool = False) -> list[bool | None]:
        """One answer a mutation: done, refused (it was not done and never will be), or None: not known; it may be
        done now, later, or never. In any order and at the same time, each for itself.

        ``first_decides``: the first is done before any other is begun, and they are begun only if it was done; else
        the answer to them is refused. Never raises StoreFailed.
        """
        ...

    def decide(self, mutations: Sequence[Mutation]) -> bool | None:
        """The answer to the first, as ``mutate`` with ``first_decides``. The others are not waited for: they are done
        before the call returns, or later, or never. Never raises StoreFailed."""
        ...

    def flush(self) -> None:
        """Waits until nothing is left of what ``decide`` does later."""
        ...

    def scan(
        self, table: str, begin: str, end: str | None, columns: Sequence[str] | None, upto: int, limit: int
    ) -> list[tuple[str, RowRead]]:
        """Up to ``limit`` rows from ``begin`` on, before ``end`` (None: the table's), in order, that hold anything in
        ``columns`` (None: any). Less than ``limit``: there are no more. Each row is read as by ``read``."""
        ...

    def versions(self, cell: Cell, after: int) -> list[tuple[int, bytes]]:
        """All versions of a cell with timestamps above ``after``, with these, in any order. Seldom used."""
        ...

    def dirty(self, table: str, begin: str, limit: int) -> list[Notification]:
        """Up to ``limit`` notifications of rows from ``begin`` on, ordered by row, column, start. Costs what the
        number of notifications costs, not what that of the cells does."""
        ...

    def notify(self, notifications: Sequence[Notification]) -> None:
        """Writes notifications, whatever the cells hold."""
        ...

    def forget(self, notifications: Sequence[Notification]) -> None:
        """Removes exactly these. One that is written later with another start timestamp stays, also if that is a
        lower one (in HBase: a qualifier of its own each, or deletes of exact versions)."""
        ...

    def collect(self, table: str, safe_point: int, begin: str, limit: int) -> tuple[int, str | None]:
        """In up to ``limit`` rows from ``begin`` on: removes of each column the versions that are older than its
        newest one at ``safe_point`` or before. Returns how many, and the row to go on at (None: done)."""
        ...

    def tables(self) -> list[str]:
        """Names of the tables that hold anything, without those of the system (``SYSTEM``)."""
        ...

    def close(self) -> None:
        """After ``flush``."""
        ...


SYSTEM = "photon-system"
"""The table with what tables themselves keep, in metas without versions (``system.py``). A store has it always."""


# -- timestamps ------------------------------------------------------------------------------------------------------
class Oracle(Protocol):
    """Hands out timestamps from 1 on, each once. Any that is asked for after another was received is higher, over all
    clients, restarts and leaders. Safe for many threads."""

    round_trips: int  # to servers, so far

    def timestamp(self) -> int:
        """Raises StoreFailed."""
        ...

    def close(self) -> None: ...


class Liveness(Protocol):
    """Which clients live. A client's token stands in its locks."""

    token: str  # this client's: printable ASCII without spaces, at most 100 characters

    def dead(self, token: str) -> bool:
        """The client surely lives no more. False: it may live."""
        ...
