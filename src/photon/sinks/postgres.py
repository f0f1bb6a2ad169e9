"""Writes published records to a PostgreSQL table, with rows and cursor in one transaction.

=============  ===========  ==========================================================================================
kind           text
event_id, key  text         null if there is none, or if PostgreSQL cannot store it as text
event_time     timestamptz  microseconds; ``event_time_ns`` bigint, as in the record
record         jsonb        the whole output record
line           text         the record's line where jsonb cannot hold it (``\\u0000``); else null
=============  ===========  ==========================================================================================

``photon_sinks``, in the same schema, has a row for each sink and table. A commit changes that row only if its cursor
is the one that this sink has set. So of two sinks with the same name one stops, and no record is written twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from photon.config.errors import PhotonError, UsageError
from photon.config.extras import needed
from photon.config.words import many
from photon.library import Batch
from photon.outputs.arrow_columns import LineUnreadable
from photon.outputs.records import decode
from photon.sinks.transactions import Committed, TakenOver, Unreachable, committed_of

SINKS = "photon_sinks"
LOCK = 0x70686F746F6E  # advisory lock, held by the transaction that creates tables
# Used if the address does not set them
DEFAULTS = {
    "application_name": "photon sink",
    "connect_timeout": "10",
    "tcp_user_timeout": "30000",
    "keepalives_idle": "10",
    "client_encoding": "UTF8",
}
REFUSED = ("22", "54")  # classes of SQLSTATE: data that does not fit its type, or a limit of the server
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COLUMNS = ("kind", "event_id", "key", "event_time", "event_time_ns", "record", "line")
_Row = tuple[bytes | None, ...]


class PostgresTarget:
    """Writes over one connection. Raises like ``Target``, also in its constructor; ExtraMissing."""

    def __init__(self, address: str, table: str, name: str, kinds: Sequence[str]) -> None:
        """``address``: a connection string of libpq. ``table``: with or without its schema."""
        self._psycopg = needed("psycopg", "postgres")
        self._sql = needed("psycopg.sql", "postgres")
        given = self._given(address)
        self._where = f"PostgreSQL at {given.get('host', 'its socket')}:{given.get('port', '5432')}"
        self._table = self._identifier(table)
        self._sinks = self._identifier(".".join([*table.split(".")[:-1], SINKS]))
        self._named, self._name = table, name
        try:
            self._connection: Any = self._psycopg.connect(**{**DEFAULTS, **given})
        except self._psycopg.Error as error:
            raise Unreachable(f"{self._where}: {_said(error)}") from None
        try:
            self._stored = self._begin(kinds)
        except BaseException:
            self.close()
            raise

    def _given(self, address: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = needed("psycopg.conninfo", "postgres").conninfo_to_dict(address)
        except self._psycopg.Error as error:
            raise UsageError(f"--into: not an address of PostgreSQL ({_said(error)})") from None
        return found

    def _identifier(self, table: str) -> Any:
        parts = table.split(".")
        if not all(parts) or len(parts) > 2:
            raise UsageError(f"--table {table!r}: must be TABLE or SCHEMA.TABLE")
        return self._sql.Identifier(*parts)

    @property
    def committed(self) -> Committed:
        return self._stored

    def _begin(self, kinds: Sequence[str]) -> Committed:
        """Creates missing tables, and reads or creates the sink's row."""
        where = f"{self._where}, sink {self._name} of {self._named}"
        try:
            self._do("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
            self._do(
                "CREATE TABLE IF NOT EXISTS {sinks} (sink text, into_table text, committed text NOT NULL, "
                "changed_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (sink, into_table))"
            )
            found = self._do(
                "SELECT committed, to_regclass(%s) IS NULL FROM {sinks} WHERE sink = %s AND into_table = %s",
                (self._table.as_string(self._connection), self._name, self._named),
            ).fetchone()
            if found is None:
                stored = Committed.beginning(kinds)
                self._do(
                    "CREATE TABLE IF NOT EXISTS {table} (kind text NOT NULL, event_id text, key text, "
                    "event_time timestamptz, event_time_ns bigint, record jsonb, line text)"
                )
                self._do(
                    "INSERT INTO {sinks} (sink, into_table, committed) VALUES (%s, %s, %s)",
                    (self._name, self._named, _encoded(stored)),
                )
            else:
                stored = committed_of(found[0].encode(), where)
                stored.check(kinds, where)
                if found[1]:
                    went = f"{many(stored.records, 'record')} went there"
                    raise UsageError(
                        f"{where}: the table is gone, and {SINKS} says that {went}; "
                        "restore it, or delete that row to start again"
                    )
            self._connection.commit()
        except self._psycopg.Error as error:
            raise self._failed(error) from None
        return stored

    def _do(self, text: str, values: Sequence[object] = ()) -> Any:
        statement = self._sql.SQL(text).format(table=self._table, sinks=self._sinks)
        return self._connection.execute(statement, values)

    def _failed(self, error: Any) -> PhotonError:
        said = f"{self._where}: {_said(error)}"
        # Error classes of a server that stops, fails over, is full or resolved a deadlock; not of its limits.
        if isinstance(error, self._psycopg.OperationalError) and (error.sqlstate or "")[:2] not in REFUSED:
            return Unreachable(said)
        return PhotonError(f"{said}; the transaction is rolled back")

    def add(self, batch: Batch) -> int:
        """Implements ``Target``."""
        rows = _rows(batch)
        try:
            if self._connection.info.transaction_status == self._psycopg.pq.TransactionStatus.IDLE:
                self._check()  # begins the transaction of the following statements
            self._copy(rows)
        except self._psycopg.Error as error:
            raise self._failed(error) from None
        return len(rows)

    def _check(self) -> None:
        """Detects another sink before ``commit`` does. It takes no lock, as a lost machine would keep the lock."""
        found = self._do(
            "SELECT committed FROM {sinks} WHERE sink = %s AND into_table = %s", (self._name, self._named)
        ).fetchone()
        if found is None or found[0] != _encoded(self._stored):
            raise self._taken_over()

    def _taken_over(self) -> TakenOver:
        return TakenOver(
            f"{self._where}: another sink named {self._name} writes to {self._named} as well; uncommitted "
            "records of this one are rolled back; stop one of the two, or give it another --name"
        )

    def _copy(self, rows: list[_Row]) -> None:
        """Inserts rows. If PostgreSQL refuses some, finds the offending row by bisection and inserts it as text."""
        names = self._sql.SQL(", ").join(map(self._sql.Identifier, _COLUMNS))
        statement = self._sql.SQL("COPY {} ({}) FROM STDIN").format(self._table, names)
        try:
            with self._connection.transaction(), self._connection.cursor() as cursor, cursor.copy(statement) as copy:
                copy.write(b"".join(map(_copied, rows)))
        except self._psycopg.Error as error:
            *head, record, line = rows[0]
            if (error.sqlstate or "")[:2] not in REFUSED or (len(rows) == 1 and line is not None):
                raise
            if len(rows) == 1:
                self._copy([(*head, None, record)])
                return
            half = len(rows) // 2
            self._copy(rows[:half])
            self._copy(rows[half:])

    def commit(self, after: Committed) -> None:
        """Implements ``Target``."""
        try:
            changed = self._do(
                "UPDATE {sinks} SET committed = %s, changed_at = now() "
                "WHERE sink = %s AND into_table = %s AND committed = %s",
                (_encoded(after), self._name, self._named, _encoded(self._stored)),
            )
            if changed.rowcount != 1:
                raise self._taken_over()
            self._connection.commit()
        except self._psycopg.Error as error:
            raise self._failed(error) from None
        self._stored = after

    def close(self) -> None:
        self._connection.close()


def _encoded(committed: Committed) -> str:
    return msgspec.json.encode(committed).decode()


def _said(error: Any) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _rows(batch: Batch) -> list[_Row]:
    """Converts a batch to table rows. Raises LineUnreadable."""
    found, kind = decode(batch.data), batch.kind.encode()
    rows: list[_Row] = []
    lines = batch.data.split(b"\n")[:-1]
    for event_id, key, ns, why, line in zip(
        found.event_id, found.key, found.event_time_ns, found.torn, lines, strict=True
    ):
        if why is not None:
            raise LineUnreadable(
                f"a line of {batch.slot} is not an output record ({why}); see photon status verifier"
            )
        at = None if ns is None else (_EPOCH + timedelta(microseconds=ns // 1000)).isoformat().encode()
        rows.append((kind, _text(event_id), _text(key), at, None if ns is None else b"%d" % ns, line, None))
    return rows


def _text(data: bytes | None) -> bytes | None:
    """Returns ``data`` unchanged; ``None`` if PostgreSQL cannot store it as text."""
    if data is None or b"\0" in data:
        return None
    try:
        data.decode()
    except UnicodeDecodeError:
        return None
    return data


def _copied(row: _Row) -> bytes:
    """Formats a row as a line of COPY's text format."""
    return b"\t".join(b"\\N" if each is None else _escaped(each) for each in row) + b"\n"


def _escaped(data: bytes) -> bytes:
    data = data.replace(b"\\", b"\\\\")
    if b"\t" in data or b"\r" in data or b"\n" in data:
        data = data.replace(b"\t", b"\\t").replace(b"\r", b"\\r").replace(b"\n", b"\\n")
    return data
