"""The basic types of tables: requests to a store of rows, interfaces for timestamps, and errors.

The names of tables, rows and columns are text; rows are ordered by code point, which is the order of their UTF-8
bytes. A store (``store.py``) knows nothing of transactions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from photon.config.errors import PhotonError, UsageError


# -- errors
# ------------------------------------------------------------------------------------------------------------
class TablesError(PhotonError):
    """An error of tables. The message is one line."""


class Conflict(TablesError):
    """Another client has written, or is about to write, a cell of this transaction. The transaction had no effect,
    and will have none: begin again (``retrying``)."""


class OutcomeUnknown(TablesError):
    """The store stopped answering during the commit. Later readers decide the outcome: the transaction takes effect
    completely or not at all."""


class TooOld(TablesError):
    """The transaction began before the safe point, so versions that it needs may be gone. Begin again."""


class StoreFailed(TablesError):
    """The store or the oracle did not answer. It is unknown which parts of the request were done."""


class BadName(UsageError):
    """Tables cannot hold this name or value."""


# -- the store -------------------------------------------------------------------------------------------------------
class Cell(NamedTuple):
    """Names a column in a row of a table."""

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
    """A column's content. A column may have a meta without a version, but never a version without a meta."""

    meta: bytes | None
    commit: int = 0  # the timestamp of ``version``
    version: bytes | None = None  # the newest at or before ``upto``; None means that there is none


NOTHING = Held(None)
RowRead = Mapping[str, Held]  # column -> its content; empty columns may be left out


class Mutation(NamedTuple):
    """A conditional change of one row: if the meta of ``cell`` is ``expected`` (``None`` means absent), everything
    else is written in one step; otherwise nothing is."""

    cell: Cell
    expected: bytes | None
    meta: bytes
    version: bytes | None = None
    commit: int = 0  # timestamp of ``version``, if there is one
    notify: int = 0  # start timestamp of the notification to write for ``cell``; 0 for none


class Notification(NamedTuple):
    """The transaction that began at ``start`` locked ``column`` of a row: observers may have to run."""

    table: str
    row: str
    column: str
    start: int


# The table with the tables' own data, in metas without versions (``system.py``).
SYSTEM = "photon-system"
STATE = Cell(SYSTEM, "tables", "state")


# -- timestamps ------------------------------------------------------------------------------------------------------
class Oracle(Protocol):
    """Hands out timestamps, beginning with 1, each once. If a timestamp is requested after another was received, it
    is higher, across all clients, restarts and leaders. Thread-safe."""

    @property
    def round_trips(self) -> int: ...  # to servers, so far

    def timestamp(self) -> int:
        """Returns a new timestamp. Raises StoreFailed."""
        ...

    def close(self) -> None: ...


class Liveness(Protocol):
    """Tells which clients are alive. A client's token is in its locks."""

    token: str  # this client's: printable ASCII without spaces, at most 100 characters

    def dead(self, token: str) -> bool:
        """True if the client is certainly dead; False if it may be alive."""
        ...
