"""Loads a stream of records into tables, exactly once: its cursor is a cell of the transaction that writes the
results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from photon.tables.api import TablesError

CURSORS = "photon-cursors"  # the table of cursors: a row for each load name
AT_ONCE = 100  # records in a transaction


class LoadedElsewhere(TablesError):
    """Another program loads under the same name."""


class Source(Protocol):
    """Like ``photon.library.Output``: returns the records after a cursor, in batches with the cursor after each."""

    def batches(
        self, *, cursor: bytes | None = None, follow: bool = False, lines: int | None = None
    ) -> Iterable[Any]:
        """Yields objects with ``records()`` and ``cursor`` (text as bytes)."""
        ...


def load(
    run: Callable[..., Any],
    source: Source,
    work: Callable[..., object],
    *,
    name: str = "load",
    at_once: int = AT_ONCE,
    follow: bool = False,
) -> int:
    """Runs ``work(transaction, record)`` for each record after the cursor ``name``, ``at_once`` in a transaction by
    ``run`` (``Tables.run``); returns their number. A killed program continues after its last commit.

    Raises LoadedElsewhere, OutcomeUnknown (start again, as the cursor tells which records are done), and errors from
    ``work`` and the source.
    """
    work = getattr(work, "work", work)  # for a @retrying function
    cursor = run(lambda transaction: transaction.table(CURSORS).row(name).get("cursor"))
    loaded = 0
    start = None if cursor is None else cursor.encode()
    for batch in source.batches(cursor=start, follow=follow, lines=at_once):
        records, after = batch.records(), batch.cursor.decode()
        run(_step, name, cursor, after, records, work)
        loaded += len(records)
        cursor = after
    return loaded


def _step(
    transaction: Any, name: str, before: str | None, after: str, records: Sequence[Any], work: Callable[..., object]
) -> None:
    row = transaction.table(CURSORS).row(name)
    if row.get("cursor") != before:
        raise LoadedElsewhere(f"{name}: another program loads under this name; stop it, or use another name")
    for record in records:
        work(transaction, record)
    row.set("cursor", after)
