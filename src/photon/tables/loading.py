"""A stream of records into tables, exactly once: its cursor is a cell of the transaction that writes what was made of
the records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from photon.tables.api import TablesError

CURSORS = "photon-cursors"  # the table of cursors: a row for each name that something is loaded under
AT_ONCE = 100  # records in a transaction


class LoadedElsewhere(TablesError):
    """Two programs load under one name."""


class Source(Protocol):
    """As ``photon.library.Output``: what follows a cursor, in pieces that each have the cursor after it."""

    def batches(
        self, *, cursor: bytes | None = None, follow: bool = False, lines: int | None = None
    ) -> Iterable[Any]:
        """Of objects with ``records()`` and ``cursor`` (text as bytes)."""
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
    """``work(transaction, record)`` for each record behind the cursor ``name``, ``at_once`` in a transaction by
    ``run`` (``Tables.run``); returns how many. A program that was killed goes on behind its last commit.

    Raises LoadedElsewhere, OutcomeUnknown (start again: the cursor says what is done), what ``work`` and the source
    raise.
    """
    work = getattr(work, "work", work)  # of a function that is @retrying
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
        raise LoadedElsewhere(f"{name}: somebody else loads under this name; end that one, or take another name")
    for record in records:
        work(transaction, record)
    row.set("cursor", after)
