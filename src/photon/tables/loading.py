"""Loads a stream of records into tables, exactly once: the transaction that writes the results also writes the
cursor."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from photon.tables.api import StoreFailed, TablesError
from photon.tables.surroundings import Patience, Surroundings

CURSORS = "photon-cursors"  # the table of cursors: a row for each load name
AT_ONCE = 100  # records in a transaction


class LoadedElsewhere(TablesError):
    """Another program is loading under the same name."""


class Source(Protocol):
    """A source of records in batches, such as ``photon.library.Output``."""

    def batches(
        self, *, cursor: bytes | None = None, follow: bool = False, lines: int | None = None
    ) -> Iterable[Any]:
        """Yields the batches after ``cursor``: objects with ``records()`` and the cursor after them, ``cursor`` (text
        as bytes)."""
        ...


@contextmanager
def alone(around: Surroundings, name: str) -> Iterator[None]:
    """Keeps other programs from loading under ``name`` during the block: they fail at their start. Raises
    LoadedElsewhere, StoreFailed."""
    if not _locked(around, name):
        host, _, process = (around.locks.holder(CURSORS, name) or around.liveness.token).partition("/")
        who = f"process {process.partition('/')[0]} on {host}"
        raise LoadedElsewhere(f"{name}: {who} is already loading under this name; stop it, or use another name")
    ended = threading.Event()
    renewing = threading.Thread(target=_renew, args=(around, name, ended), name="loading", daemon=True)
    renewing.start()
    try:
        yield
    finally:
        ended.set()
        renewing.join()
        with suppress(StoreFailed):  # the lock then ends with this program, or its age
            around.locks.release(CURSORS, [name])


def _locked(around: Surroundings, name: str) -> bool:
    patience = Patience(around)
    while True:
        try:
            return bool(around.locks.acquire(CURSORS, [name], 1))
        except StoreFailed:
            if not patience.wait():
                raise


def _renew(around: Surroundings, name: str, ended: threading.Event) -> None:
    while not ended.wait(around.limits.lock_age_s / 3):
        with suppress(StoreFailed):
            around.locks.renew(CURSORS, [name])


def load(
    run: Callable[..., Any],
    source: Source,
    work: Callable[..., object],
    *,
    name: str = "load",
    at_once: int = AT_ONCE,
    follow: bool = False,
) -> int:
    """Runs ``work(transaction, record)`` for each record after the cursor ``name``, with ``at_once`` records per
    transaction. ``run``: ``Tables.run``. Returns the number of records. A killed program continues after its last
    commit.

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
        raise LoadedElsewhere(f"{name}: another program is loading under this name; stop it, or use another name")
    for record in records:
        work(transaction, record)
    row.set("cursor", after)
