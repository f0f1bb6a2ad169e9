"""What a program holds in its hands: ``Tables``, its transactions and snapshots, tables and rows.

    tables = Tables.open("clicks.db")
    with tables.transaction() as t:
        row = t.table("campaigns").row("c1")
        row.set("clicks", (row.get("clicks") or 0) + 1)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from photon.tables.api import Oracle, RowStore

Result = TypeVar("Result")


class Tables:
    """Tables in one store, with timestamps from one oracle. Safe for many threads; a transaction is one thread's."""

    @classmethod
    def open(cls, place: str) -> Tables:
        """A path: SQLite, made where it is not there. ``*.toml``: as the deployment file says. ``:memory:``: in
        memory, gone with the process. Raises UsageError, ConfigError, StoreFailed."""
        raise NotImplementedError

    def __init__(self, store: RowStore, oracle: Oracle, **surroundings: Any) -> None: ...

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """Commits at the end of the block unless that raises. Raises Conflict, OutcomeUnknown, TooOld, StoreFailed."""
        raise NotImplementedError

    @contextmanager
    def snapshot(self) -> Iterator[Any]:
        """All tables at one moment, read only."""
        raise NotImplementedError

    def run(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """``work(transaction, *arguments)`` in a transaction of its own, again with a new one after a Conflict, with
        back-off. Raises Conflict if that happened too often, OutcomeUnknown, what ``work`` raises."""
        raise NotImplementedError

    def load(self, batches: Any, work: Callable[..., object], *, name: str = "load") -> int:
        """``work(transaction, record)`` for each record of an output exactly once: the cursor of ``name`` is a cell
        of the same transaction. Returns how many."""
        raise NotImplementedError

    def collect(self, keep_s: float) -> int:
        """Versions that no transaction can read that began within the last ``keep_s`` seconds are removed."""
        raise NotImplementedError

    def close(self) -> None: ...


class Row(Protocol):
    """A row in a transaction or snapshot. Values are what JSON can say, but null: str, int, float, bool, list, dict."""

    key: str

    def get(self, column: str) -> Any:
        """None: there is no value."""
        ...

    def set(self, column: str, value: Any) -> None: ...

    def delete(self, column: str) -> None: ...
