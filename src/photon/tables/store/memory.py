"""Rows in memory: for tests, and for programs without durable data."""

from __future__ import annotations

import bisect
import threading
from collections.abc import Sequence

from photon.tables.api import SYSTEM, Cell, Held, Mutation, Notification, Read, RowRead


class _Column:
    __slots__ = ("meta", "versions")

    def __init__(self) -> None:
        self.meta: bytes | None = None
        self.versions: list[tuple[int, bytes]] = []  # by timestamp


class _Table:
    __slots__ = ("dirty", "keys", "rows")

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, _Column]] = {}
        self.keys: list[str] = []
        self.dirty: list[tuple[str, str, int]] = []


class MemoryRows:
    """A ``RowStore``. Limited only by memory."""

    round_trips = 0

    def __init__(self) -> None:
        self._tables: dict[str, _Table] = {}
        self._lock = threading.Lock()

    def read(self, reads: Sequence[Read]) -> list[RowRead]:
        answers: list[RowRead] = []
        with self._lock:
            for table, row, columns, upto in reads:
                found = self._tables.get(table)
                cells = found.rows.get(row) if found is not None else None
                answers.append(_row(cells, columns, upto) if cells else {})
        return answers

    def mutate(self, mutations: Sequence[Mutation], *, first_decides: bool = False) -> list[bool | None]:
        answers: list[bool | None] = []
        with self._lock:
            for mutation in mutations:
                done = self._mutate(mutation)
                answers.append(done)
                if first_decides and not done:
                    return [False] * len(mutations)
                first_decides = False
        return answers

    def decide(self, mutations: Sequence[Mutation]) -> bool | None:
        return self.mutate(mutations, first_decides=True)[0]

    def flush(self) -> None: ...

    def _mutate(self, mutation: Mutation) -> bool:
        (table, row, name), expected, meta, version, commit, notify = mutation
        found = self._tables.get(table)
        cells = found.rows.get(row) if found is not None else None
        column = cells.get(name) if cells is not None else None
        if (column.meta if column is not None else None) != expected:
            return False
        if found is None:
            found = self._tables[table] = _Table()
        if cells is None:
            cells = found.rows[row] = {}
            bisect.insort(found.keys, row)
        if column is None:
            column = cells[name] = _Column()
        column.meta = meta
        if version is not None:
            column.versions.append((commit, version))
        if notify:
            _insert(found.dirty, (row, name, notify))
        return True

    def scan(
        self, table: str, begin: str, end: str | None, columns: Sequence[str] | None, upto: int, limit: int
    ) -> list[tuple[str, RowRead]]:
        answers: list[tuple[str, RowRead]] = []
        with self._lock:
            found = self._tables.get(table)
            if found is None:
                return []
            at = bisect.bisect_left(found.keys, begin)
            while at < len(found.keys) and len(answers) < limit:
                row = found.keys[at]
                if end is not None and row >= end:
                    break
                if read := _row(found.rows[row], columns, upto):
                    answers.append((row, read))
                at += 1
        return answers

    def versions(self, cell: Cell, after: int) -> list[tuple[int, bytes]]:
        with self._lock:
            found = self._tables.get(cell.table)
            column = found.rows.get(cell.row, {}).get(cell.column) if found is not None else None
            return [each for each in column.versions if each[0] > after] if column is not None else []

    def dirty(self, table: str, begin: str, limit: int) -> list[Notification]:
        with self._lock:
            if (found := self._tables.get(table)) is None:
                return []
            at = bisect.bisect_left(found.dirty, (begin, "", 0))
            return [Notification(table, *each) for each in found.dirty[at : at + limit]]

    def notify(self, notifications: Sequence[Notification]) -> None:
        with self._lock:
            for table, row, column, start in notifications:
                _insert(self._tables.setdefault(table, _Table()).dirty, (row, column, start))

    def forget(self, notifications: Sequence[Notification]) -> None:
        with self._lock:
            for table, row, column, start in notifications:
                if (found := self._tables.get(table)) is not None:
                    at = bisect.bisect_left(found.dirty, (row, column, start))
                    if at < len(found.dirty) and found.dirty[at] == (row, column, start):
                        del found.dirty[at]

    def collect(self, table: str, safe_point: int, begin: str, limit: int) -> tuple[int, str | None]:
        removed = 0
        with self._lock:
            if (found := self._tables.get(table)) is None:
                return 0, None
            at = bisect.bisect_left(found.keys, begin)
            for row in found.keys[at : at + limit]:
                for column in found.rows[row].values():
                    older = bisect.bisect_right(column.versions, safe_point, key=lambda each: each[0]) - 1
                    if older > 0:
                        del column.versions[:older]
                        removed += older
            at += limit
            return removed, found.keys[at] if at < len(found.keys) else None

    def claims(self, table: str, rows: Sequence[str]) -> list[bytes | None]:
        """Always ``None``, as no other process has this store."""
        return [None] * len(rows)

    def claim(self, table: str, rows: Sequence[str], claim: bytes) -> None: ...

    def unclaim(self, table: str, rows: Sequence[str]) -> None: ...

    def tables(self) -> list[str]:
        with self._lock:
            return sorted(name for name, table in self._tables.items() if name != SYSTEM and table.rows)

    def close(self) -> None: ...


def _row(cells: dict[str, _Column], columns: Sequence[str] | None, upto: int) -> dict[str, Held]:
    read: dict[str, Held] = {}
    for name in columns if columns is not None else cells:
        if (column := cells.get(name)) is not None:
            for commit, version in reversed(column.versions):
                if commit <= upto:
                    read[name] = Held(column.meta, commit, version)
                    break
            else:
                read[name] = Held(column.meta)
    return read


def _insert(dirty: list[tuple[str, str, int]], one: tuple[str, str, int]) -> None:
    at = bisect.bisect_left(dirty, one)
    if at == len(dirty) or dirty[at] != one:
        dirty.insert(at, one)
