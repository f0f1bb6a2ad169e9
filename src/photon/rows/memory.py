"""Stores rows in memory, for tests and for programs without durable data."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Sequence

from photon.rows.api import EVER, Answer, Cell, Change, Delete, Groups, Put, Read

_Row = dict[bytes, list[Cell]]  # column -> its versions, in order


class MemoryRows:
    """Implements ``api.AtomicRows`` in memory, without a limit."""

    atomic = True
    round_trips = 0

    def __init__(self, groups: Groups) -> None:
        self._families = families = {family: versions for group in groups for family, versions in group.items()}
        self._rows: dict[bytes, dict[bytes, _Row]] = {family: {} for family in families}
        self._keys: dict[bytes, list[bytes]] = {family: [] for family in families}
        self._lock = threading.Lock()

    def create(self) -> bool:
        return True

    def read(self, reads: Sequence[Read]) -> list[list[Cell]]:
        with self._lock:
            return [self._read(each) for each in reads]

    def _read(self, read: Read) -> list[Cell]:
        row, columns, upto, every = read
        found: list[Cell] = []
        for name in columns:
            if (cells := self._rows[name[:1]].get(row)) is None:
                continue
            for column in cells if len(name) == 1 else (name,):
                if (versions := cells.get(column)) is None:
                    continue
                at = _behind(versions, upto)
                if every:
                    found += versions[:at]
                elif at:
                    found.append(versions[at - 1])
        return found

    def scan(
        self, begin: bytes, end: bytes | None, columns: Sequence[bytes], limit: int, *, upto: int = EVER,
        every: bool = False,
    ) -> list[tuple[bytes, list[Cell]]]:  # fmt: skip
        found: list[tuple[bytes, list[Cell]]] = []
        with self._lock:
            families = [self._keys[family] for family in dict.fromkeys(name[:1] for name in columns)]
            while len(found) < limit:
                at = [(keys, bisect_left(keys, begin)) for keys in families]
                row = min((keys[place] for keys, place in at if place < len(keys)), default=None)
                if row is None or (end is not None and row >= end):
                    break
                if cells := self._read(Read(row, columns, upto, every)):
                    found.append((row, cells))
                begin = row + b"\0"
        return found

    def change(self, changes: Sequence[Change]) -> list[Answer]:
        with self._lock:
            return [self._change(each) for each in changes]

    def decide(self, changes: Sequence[Change], *, wait: bool = True) -> list[Answer]:
        with self._lock:
            if not self._change(changes[0]):
                return [False] * len(changes)
            return [True, *(self._change(each) for each in changes[1:])]

    def change_all(
        self, row: bytes, columns: Sequence[bytes], changes: Callable[[list[Cell]], Sequence[Change]]
    ) -> Answer:
        with self._lock:
            made = changes(self._read(Read(row, columns)))
            return all(map(self._fits, made)) and all(map(self._change, made))

    def commit(self, change: Change, puts: Sequence[Put]) -> bool:
        with self._lock:
            done = self._change(change)
            if done:
                self._put(puts)
            return done

    def put(self, puts: Sequence[Put]) -> None:
        with self._lock:
            self._put(puts)

    def delete(self, deletes: Sequence[Delete]) -> None:
        with self._lock:
            for row, column, upto in deletes:
                for family in self._families if column is None else (column[:1],):
                    cells = self._rows[family].get(row, {})
                    for name in list(cells) if column is None else (column,):
                        versions = cells.get(name, [])
                        del versions[: _behind(versions, upto)]
                        if not versions:
                            cells.pop(name, None)
                    if not cells:
                        self._forget(family, row)

    def flush(self) -> None: ...

    def close(self) -> None: ...

    def _change(self, change: Change) -> bool:
        if not self._fits(change):
            return False
        for cell in change.cells:
            self._write(change.row, cell)
        return True

    def _fits(self, change: Change) -> bool:
        column = change.cells[0].column
        versions = self._rows[column[:1]].get(change.row, {}).get(column)
        return (versions[-1].value if versions else None) == change.expected

    def _put(self, puts: Sequence[Put]) -> None:
        for put in puts:
            if put.cells is None:
                for family in self._families:
                    self._forget(family, put.row)
                continue
            for cell in put.cells:
                self._write(put.row, cell)

    def _write(self, row: bytes, cell: Cell) -> None:
        family = cell.column[:1]
        columns = self._rows[family].get(row)
        if columns is None:
            columns = self._rows[family][row] = {}
            insort(self._keys[family], row)
        versions = columns.get(cell.column)
        if versions is None:
            columns[cell.column] = [cell]
            return
        at = _behind(versions, cell.version)
        if self._families[family] > 1:
            same = at > 0 and versions[at - 1].version == cell.version
            versions[at - same : at] = [cell]
        elif at == 1:
            versions[0] = cell

    def _forget(self, family: bytes, row: bytes) -> None:
        if self._rows[family].pop(row, None) is not None:
            del self._keys[family][bisect_left(self._keys[family], row)]


def _behind(versions: list[Cell], upto: int) -> int:
    if not versions or versions[-1].version <= upto:
        return len(versions)
    return bisect_right(versions, upto, key=lambda cell: cell.version)
