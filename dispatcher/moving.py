"""Moves the state of a datacentre's dispatchers into a different number of databases.

Each new database is built from the old ones in one transaction: a log's rows and its waiting events go to the log's
new database, counts to the first one, and shared facts to all. The old databases stay unchanged, but lines in their
outboxes are exported first. A single rename decides which databases are valid (``partitions.Number``). So after a
crash at any moment either all old or all new ones are valid; the next start builds again, or removes the old ones
that are left.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from photon.adapters.logs.identity import identity_of, log_name
from photon.config.disk import Disk
from photon.config.file_lock import lock_file
from photon.config.structured import get_logger
from photon.dispatcher.database import TAILS, Transaction, fill, unusable
from photon.dispatcher.errors import StateError
from photon.dispatcher.exports import Exports, log_of
from photon.dispatcher.open_events import ROW_BYTES
from photon.dispatcher.partitions import (
    NUMBER_NAME,
    Number,
    Partition,
    all_of,
    file_of,
    read_number,
    there,
    write_number,
)
from photon.dispatcher.replay.requests import Step
from photon.dispatcher.state import State
from photon.dispatcher.undecided import Counts, decoded, encoded, summed

MOVE_WAIT_S = 600.0  # longest wait for another process that moves the rows
STOP_WAIT_S = 30.0  # longest wait for the dispatchers of the old number to end

log = get_logger("photon.dispatcher")


@contextmanager
def settling(state: Path) -> Iterator[None]:
    """Holds the lock under which the number of dispatchers is settled and databases are opened. Raises StateError."""
    path = state.with_name("dispatchers.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = lock_file(path, wait_s=MOVE_WAIT_S)
    except OSError as error:
        raise StateError(
            str(path), f"cannot be locked ({error.strerror})", "name a directory that is writable"
        ) from None
    if lock is None:
        raise StateError(
            str(path),
            f"is held by another process for more than {MOVE_WAIT_S:.0f} s",
            "stop it, or wait until it ends",
        )
    try:
        yield
    finally:
        os.close(lock)


def settle(disk: Disk, state: Path, count: int, output: Path, rule: bytes) -> None:
    """Moves the state into ``count`` databases. Call it within ``settling``. ``state``: path of a single
    dispatcher's.

    Raises StateError, also while dispatchers of the old number run; NotOfThisState, PublishedDamaged, OSError.
    """
    now = read_number(state)
    if now.moved_from:
        _remove(state, now.moved_from)
        write_number(disk, state, Number(now.dispatchers))
    if not there(state) and (lost := sorted(state.parent.glob("dispatcher-*of*.db"))):
        raise StateError(
            str(state.with_name(NUMBER_NAME)),
            f"does not name {lost[0].name}, and the databases that it names are missing",
            "write the number of dispatchers whose databases these are, or move them away",
        )
    if count == now.dispatchers:
        return
    old = {each: file for each in all_of(now.dispatchers) if (file := file_of(state, each)).exists()}
    _remove(state, count)
    if old:
        log.info("moving the dispatchers' state", dispatchers=count, before=now.dispatchers)
        _move(disk, state, old, count, output, rule)
        write_number(disk, state, Number(count, moved_from=now.dispatchers))
        _remove(state, now.dispatchers)
    write_number(disk, state, Number(count))


def _remove(state: Path, count: int) -> None:
    """Removes databases that are not in force."""
    for partition in all_of(count):
        file = file_of(state, partition)
        for tail in (*reversed(TAILS), ""):
            with suppress(FileNotFoundError):
                file.with_name(file.name + tail).unlink()


def _move(disk: Disk, state: Path, old: Mapping[Partition, Path], count: int, output: Path, rule: bytes) -> None:
    with ExitStack() as stack:
        for partition, file in old.items():
            opened = stack.enter_context(closing(State(file, rule=rule, wait_s=STOP_WAIT_S)))
            with closing(Exports(output, disk, opened, state.parent, warn=log.warning, partition=partition)):
                pass  # all lines are written out
        for partition in all_of(count):
            published = log_of(disk, output, state.parent, partition)
            published.load()
            _build(file_of(state, partition), partition, old, published.upto)
    disk.sync_dir(state.parent)


def _build(path: Path, partition: Partition, old: Mapping[Partition, Path], exported: int) -> None:
    """Builds a partition's database from the old ones. ``exported``: number of the last line in its export files."""
    before = max(each.count for each in old)
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            fill(db)
            db.execute("PRAGMA synchronous=FULL")
            schemas = [f"old{number}" for number in range(len(old))]
            for schema, file in zip(schemas, old.values(), strict=True):
                db.execute(f"ATTACH ? AS {schema}", (str(file),))
            db.create_function("mine", 1, partition.holds, deterministic=True)
            with Transaction(db, path):
                _put_logs(db, schemas)
                _put_waiting(db, schemas, partition)
                _put_claim(db, schemas, before)
                _put_requests(db, schemas)
                _put_figures(db, schemas, partition, exported)
    except sqlite3.Error as error:
        raise unusable(path, error) from None


def _of_all(schemas: Sequence[str], select: str) -> str:
    return " UNION ALL ".join(select.format(schema) for schema in schemas)


def _put_logs(db: sqlite3.Connection, schemas: Sequence[str]) -> None:
    for schema in schemas:
        for table in ("logs", "covered"):
            db.execute(f"INSERT INTO main.{table} SELECT * FROM {schema}.{table} WHERE mine(identity)")


def _put_waiting(db: sqlite3.Connection, schemas: Sequence[str], partition: Partition) -> None:
    """Adds waiting events, oldest first, because their row numbers express their age."""
    db.execute("CREATE TEMP TABLE moves (old TEXT, id INTEGER, file INTEGER, PRIMARY KEY (old, id))")
    for schema in schemas:
        read_as = {path: identity for identity, path in db.execute(f"SELECT identity, path FROM {schema}.logs")}
        for number, path, header in db.execute(f"SELECT id, path, header FROM {schema}.files").fetchall():
            # A file now read under another name: any database will do, but only one.
            identity = read_as.get(path) or identity_of(log_name(path), path.encode())
            if partition.holds(identity):
                db.execute("INSERT OR IGNORE INTO main.files (path, header) VALUES (?, ?)", (path, header))
                here = db.execute("SELECT id FROM main.files WHERE path = ? AND header = ?", (path, header))
                db.execute("INSERT INTO moves VALUES (?, ?, ?)", (schema, number, here.fetchone()[0]))
    columns = "event_id, digest, event_time_ns, key, record, offset, generation, first_read_ns, attempts"
    columns += ", next_try_ns, trigger_ns"
    rows = _of_all(
        schemas,
        f"SELECT {columns}, moves.file AS file, retries.id AS age FROM {{0}}.retries AS retries "
        "JOIN moves ON old = '{0}' AND moves.id = retries.file",
    )
    db.execute(
        f"INSERT INTO main.retries ({columns}, file) SELECT {columns}, file FROM ({rows}) ORDER BY first_read_ns, age"
    )
    db.execute("DROP TABLE moves")
    db.execute(
        "INSERT INTO main.meta SELECT 'retry_rows', count(*) FROM main.retries UNION ALL SELECT 'retry_bytes', "
        "coalesce(sum(length(event_id) + length(key) + length(record) + ?), 0) FROM main.retries",
        (ROW_BYTES,),
    )
    # Every dispatcher searches for all of them; a found one shows its log.
    reopened = _of_all(schemas, "SELECT * FROM {0}.reopened")
    db.execute(
        "INSERT INTO main.reopened SELECT digest, generation, event_time_ns, min(seen_ns), min(missing) "
        f"FROM ({reopened}) GROUP BY digest, generation"
    )


def _put_claim(db: sqlite3.Connection, schemas: Sequence[str], before: int) -> None:
    """Adds one claim: the earliest old one, as it is true of every partition, with all events that were in memory.

    Adds none if any of the ``before`` old dispatchers has no claim, or no database.
    """
    claims = db.execute(_of_all(schemas, "SELECT who, at_ns, read_ns, moving, waiting FROM {0}.claims")).fetchall()
    if len(claims) < before:
        return
    reads = [read_ns for _, _, read_ns, _, _ in claims]
    moving: Counts = []
    waiting: Counts = []
    for *_, one, other in claims:
        moving, waiting = summed(moving, decoded(one)), summed(waiting, decoded(other))
    at_ns = min(at_ns for _, at_ns, *_ in claims)
    read_ns = None if None in reads else min(reads)
    row = (claims[0][0], at_ns, read_ns, "", encoded(moving), encoded(waiting))
    db.execute("INSERT INTO main.claims VALUES (?, ?, ?, ?, ?, ?)", row)


def _put_requests(db: sqlite3.Connection, schemas: Sequence[str]) -> None:
    """Adds replays. If a dispatcher has not begun one, all begin it again: it is planned for all logs at once."""
    replays = _of_all(schemas, "SELECT * FROM {0}.replays")
    db.execute(
        "INSERT INTO main.replays SELECT id, min(from_ns), min(to_ns), min(pattern), min(asked_ns), CASE "
        "WHEN max(status) = ?3 THEN ?3 WHEN min(status) = ?1 THEN ?1 WHEN max(status = ?2) THEN ?2 ELSE max(status) "
        f"END, max(ended_ns) FROM ({replays}) GROUP BY id",
        (Step.ASKED, Step.RUNNING, Step.CANCELLED),
    )
    for schema in schemas:
        db.execute(
            f"INSERT INTO main.replay_logs SELECT * FROM {schema}.replay_logs WHERE mine(identity) "
            "AND replay IN (SELECT id FROM main.replays WHERE status <> ?)",
            (Step.ASKED,),
        )


def _put_figures(db: sqlite3.Connection, schemas: Sequence[str], partition: Partition, exported: int) -> None:
    if partition.number == 1:  # they belong to no single log
        counts = _of_all(schemas, "SELECT * FROM {0}.ledger")
        db.execute(f"INSERT INTO main.ledger SELECT hour, verdict, sum(count) FROM ({counts}) GROUP BY hour, verdict")
    for schema in schemas:
        db.execute(f"INSERT OR IGNORE INTO main.meta SELECT * FROM {schema}.meta WHERE name = 'rule'")
    clocks = _of_all(schemas, "SELECT value FROM {0}.meta WHERE name = 'clock_ns'")
    db.execute(f"INSERT INTO main.meta SELECT 'clock_ns', coalesce(max(value), 0) FROM ({clocks})")
    if exported >= 0:  # dispatchers of these names ran before
        db.execute("INSERT INTO main.meta VALUES ('exported', ?)", (exported,))
        db.execute("INSERT INTO main.sqlite_sequence VALUES ('outbox', ?)", (exported,))
    numbers = _of_all(schemas, "SELECT seq FROM {0}.sqlite_sequence WHERE name = 'replays'")
    db.execute("DELETE FROM main.sqlite_sequence WHERE name = 'replays'")
    db.execute(f"INSERT INTO main.sqlite_sequence SELECT 'replays', coalesce(max(seq), 0) FROM ({numbers})")
