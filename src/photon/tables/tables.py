"""The API for programs: ``Tables``, with its transactions, snapshots, tables and rows.

tables = Tables.open("clicks.db")
with tables.transaction() as t:
    row = t.table("campaigns").row("c1")
    row.set("clicks", (row.get("clicks") or 0) + 1)
"""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

import orjson

from photon.tables.api import SYSTEM, BadName, Conflict, Oracle, StoreFailed, TooOld
from photon.tables.collecting import collect
from photon.tables.loading import Source, alone, load
from photon.tables.oracle import MemoryOracle
from photon.tables.resolving import Resolver
from photon.tables.store import Store, in_file, in_memory
from photon.tables.surroundings import Patience, Surroundings
from photon.tables.system import SystemView
from photon.tables.transaction import Transaction

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

KEY_BYTES_MAX = 1_000
VALUE_BYTES_MAX = 1 << 20
TRIES_S = 60.0  # seconds for which a transaction with conflicts is retried
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_good_names: set[str] = set()


def _has_no_json_number(value: Any) -> bool:
    """True if the value is or contains NaN or an infinity, which orjson writes as null."""
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(map(_has_no_json_number, value.values()))
    return isinstance(value, list | tuple) and any(map(_has_no_json_number, value))


class Row:
    """A row in a transaction or snapshot. Values are JSON values except null: str, int, float, bool, list, dict."""

    __slots__ = ("_table", "_transaction", "key")

    def __init__(self, transaction: Transaction, table: str, key: str) -> None:
        self._transaction = transaction
        self._table = table
        self.key = key

    def __repr__(self) -> str:
        return f"<row {self._table}/{self.key}>"

    def get(self, column: str) -> Any:
        """Returns the value, or ``None`` if there is none. Raises BadName, TooOld, StoreFailed."""
        value = self._transaction.get(self._table, self.key, column if column in _good_names else name_of(column))
        return None if value is None else orjson.loads(value)

    def get_many(self, *columns: str) -> tuple[Any, ...]:
        """Reads several columns in one round trip."""
        self._transaction.prefetch([(self._table, self.key, columns)])
        return tuple(map(self.get, columns))

    def values(self) -> dict[str, Any]:
        """Returns all columns that have a value."""
        for _, found in self._transaction.scan(self._table, self.key, self.key + "\0"):
            return _shown(found)
        return {}

    def set(self, column: str, value: Any) -> None:
        """Sets the value, which is written when the transaction commits. Raises BadName."""
        if value is None:
            raise BadName(f"{self._table}/{self.key}/{column}: None is not a value; use delete() to remove one")
        try:
            data = orjson.dumps(value)
        except TypeError as error:
            raise BadName(f"{self._table}/{self.key}/{column}: not valid in JSON: {value!r:.80}: {error}") from None
        if b"null" in data and _has_no_json_number(value):
            raise BadName(f"{self._table}/{self.key}/{column}: not valid in JSON: NaN or infinity in {value!r:.80}")
        if len(data) > VALUE_BYTES_MAX:
            raise BadName(f"{self._table}/{self.key}/{column}: {len(data)} bytes; the limit is {VALUE_BYTES_MAX}")
        self._transaction.write(self._table, self.key, column if column in _good_names else name_of(column), data)

    def delete(self, column: str) -> None:
        self._transaction.write(self._table, self.key, name_of(column), None)


class Table:
    """A table in a transaction or snapshot. It exists once something is written to it."""

    __slots__ = ("_transaction", "name")

    def __init__(self, transaction: Transaction, name: str) -> None:
        self._transaction = transaction
        self.name = name

    def row(self, key: str) -> Row:
        """Returns the row of a key, which has 1 to 1,000 bytes in UTF-8 and no NUL. Raises BadName."""
        if not key or len(key) > KEY_BYTES_MAX // 4 or "\0" in key or not key.isascii():
            key = _checked_key(key)
        return Row(self._transaction, self.name, key)

    def scan(self, begin: str = "", end: str | None = None, *, columns: Sequence[str] | None = None) -> Iterator[Row]:
        """Yields the rows in [``begin``, ``end``) that have a value in one of ``columns`` (``None`` means any).
        ``end``: ``None`` means the table's end."""
        for key, _ in self._transaction.scan(self.name, begin, end, columns):
            yield Row(self._transaction, self.name, key)

    def prefetch(self, keys: Iterable[str], *columns: str) -> None:
        """Reads cells in one round trip, so that ``get`` finds them in memory."""
        self._transaction.prefetch([(self.name, self.row(key).key, columns) for key in keys])


class TransactionFace:
    """The API of an open transaction or snapshot."""

    __slots__ = ("raw",)

    def __init__(self, raw: Transaction) -> None:
        self.raw = raw

    @property
    def start(self) -> int:
        """The start timestamp."""
        return self.raw.start

    def table(self, name: str) -> Table:
        return Table(self.raw, name if name in _good_names else name_of(name))


class _Writing:
    """The context manager of ``with tables.transaction() as t``."""

    __slots__ = ("_face",)

    def __init__(self, face: TransactionFace) -> None:
        self._face = face

    def __enter__(self) -> TransactionFace:
        return self._face

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._face.raw.commit()


class Snapshot(TransactionFace):
    """All tables as of one moment. Values set in a snapshot are visible only in it, and never written."""

    __slots__ = ()


class Tables:
    """Tables in one store, with timestamps from one oracle. Thread-safe, but a transaction belongs to one thread."""

    def __init__(self, store: Store, oracle: Oracle, around: Surroundings | None = None) -> None:
        """``around``: the context, with clocks and limits; it must have the same store and oracle."""
        self.around = around or Surroundings(store, oracle)
        self.observers: list[Any] = []  # registered by ``observer`` in this program
        self._own: set[tuple[str, str]] = set()
        self.system = SystemView(self.around, lambda: self._own)
        self.resolver = Resolver(self.around)

    @classmethod
    def open(cls, place: str | Path) -> Tables:
        """Opens tables. ``place``: a SQLite file, created if missing; a deployment file ``*.toml`` that configures
        tables; or ``:memory:``, for tables that are lost when the process ends. Raises UsageError, ConfigError,
        StoreFailed."""
        if str(place) == ":memory:":
            return cls(in_memory(), MemoryOracle())
        if str(place).endswith(".toml"):
            made: Tables = import_module("photon.tables.configured").open_configured(Path(place))
            return made
        store = in_file(Path(place))
        return cls(store, store)

    @property
    def counts(self) -> Counter[str]:
        """Counters since the program began: commits, conflicts, rolled_back, rolled_forward, reads, mutates, scans,
        locks_met, observed, collected, and round_trips to the servers of store and oracle."""
        counts = self.around.counts
        counts["round_trips"] = self.around.store.round_trips + self.around.oracle.round_trips
        return counts

    def transaction(self) -> _Writing:
        """Returns a transaction for ``with``, which commits at the end of the block unless the block raises. Raises
        Conflict, OutcomeUnknown, TooOld, StoreFailed."""
        return _Writing(self.begin())

    def begin(self) -> TransactionFace:
        """Returns a transaction to use without ``with``; ``raw.commit()`` commits it."""
        return TransactionFace(Transaction(self.around, self.resolver, self.system))

    @contextmanager
    def snapshot(self, *, hold_s: float = 0.0) -> Iterator[Snapshot]:
        """Yields all tables as of now, for reading. Old versions are kept for the usual time (``keep`` in
        ``[tables]``, default an hour); with ``hold_s``, for that many seconds while the snapshot is open. Raises
        TooOld, TablesError, StoreFailed."""
        raw = Transaction(self.around, self.resolver, self.system)
        if not hold_s:
            yield Snapshot(raw)
            return
        self.system.hold(raw.start, hold_s)
        try:
            yield Snapshot(raw)
        finally:
            with suppress(StoreFailed):  # the hold then expires by itself
                self.system.let_go(raw.start)

    def run(self, work: Callable[..., Result], *arguments: Any, **named: Any) -> Result:
        """Runs ``work(transaction, *arguments)`` and commits. After a Conflict or TooOld, repeats both in a new
        transaction, with back-off. Raises Conflict after a minute of conflicts, OutcomeUnknown, StoreFailed, and
        errors from ``work``."""
        patience = Patience(self.around, TRIES_S)
        while True:
            try:
                with self.transaction() as transaction:
                    return work(transaction, *arguments, **named)
            except (Conflict, TooOld):
                if not patience.wait():
                    raise

    def load(self, source: Source, work: Callable[..., object], *, name: str = "load", follow: bool = False) -> int:
        """Runs ``work(transaction, record)`` for each record of an output (``photon.library.Output``) exactly once:
        the same transaction writes the cursor ``name``. Returns the number of records. Raises LoadedElsewhere if
        another program is loading under this name, and the errors of ``loading.load``, which has more options."""
        with alone(self.around, name):
            return load(self.run, source, work, name=name, follow=follow)

    def collect(self, keep_s: float | None = None) -> int:
        """Removes versions that cannot be read by any transaction that begins now, began in the last ``keep_s``
        seconds (``None``: ``keep`` in ``[tables]``, default an hour), or is held. Takes that long. Returns their
        number. Older transactions and snapshots fail with TooOld. Running observers collect automatically."""
        keep_s = self.around.limits.keep_s if keep_s is None else keep_s
        return collect(self.around, self.resolver, self.system, keep_s)

    def observe(self, table: str, column: str) -> None:
        """Makes this program's writes notify observers of a column, even before a worker has published them."""
        self._own.add((table, column))

    def flush(self) -> None:
        """Waits until commits are completely written. A commit is valid once its primary is written; the other cells
        follow later. If a client dies before that, other clients complete its commits."""
        self.around.store.flush()

    def close(self) -> None:
        """Closes the store. Call it after ``flush``."""
        self.around.oracle.close()
        self.around.store.close()

    def __enter__(self) -> Tables:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def retrying(
    tables: Tables,
) -> Callable[[Callable[Concatenate[Any, Arguments], Result]], Callable[Arguments, Result]]:
    """``@retrying(tables)`` makes a function of a transaction run in one, and repeats it after a Conflict
    (``Tables.run``). Effects outside the tables may happen several times. The original function is available as
    ``work``, for ``Tables.load``."""

    def decorated(work: Callable[Concatenate[Any, Arguments], Result]) -> Callable[Arguments, Result]:
        @functools.wraps(work)
        def run(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
            return tables.run(work, *arguments, **named)

        run.work = work  # type: ignore[attr-defined]
        return run

    return decorated


def name_of(name: str) -> str:
    """Checks the name of a table or column. Raises BadName."""
    if name not in _good_names:
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name == SYSTEM:
            raise BadName(
                f"{name!r:.80} is not a name of a table or column: use at most 64 letters, digits, '_', '.', "
                f"'-', and not {SYSTEM}"
            )
        if len(_good_names) < 10_000:
            _good_names.add(name)
    return name


def _checked_key(key: str) -> str:
    try:
        size = len(key.encode())
    except (UnicodeEncodeError, AttributeError):
        raise BadName(f"{key!r:.80} is not a key of a row: it is not valid UTF-8 text") from None
    if not 0 < size <= KEY_BYTES_MAX or "\0" in key:
        raise BadName(f"{key!r:.80} is not a key of a row: 1 to {KEY_BYTES_MAX} bytes, without NUL")
    return key


def _shown(values: dict[str, bytes]) -> dict[str, Any]:
    """Decodes values, leaving out the columns of observers (``COLUMN@OBSERVER``)."""
    return {column: orjson.loads(value) for column, value in values.items() if "@" not in column}
