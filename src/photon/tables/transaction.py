"""Transactions, which read as of their start and write at their end (rules 1 to 4). ``docs/tables.md`` has the rules.

Only calls of the store or the oracle may be interrupted; two transactions share nothing in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from photon.tables.api import (
    NOTHING,
    Cell,
    Conflict,
    Held,
    Mutation,
    OutcomeUnknown,
    Read,
    RowRead,
    StoreFailed,
    TablesError,
    TooOld,
)
from photon.tables.cell import (
    Commit,
    Lock,
    commit_meta,
    is_lock,
    lock_meta,
    primary_line,
    read_meta,
    rolled_back,
    value_of,
    version_of,
)
from photon.tables.resolving import Resolver
from photon.tables.store import AtomicStore
from photon.tables.surroundings import Patience, Surroundings
from photon.tables.system import SystemView

CELLS_MAX = 10_000  # limit of cells written by a transaction
AT_ONCE = 64  # cells that are locked in one call
SCAN_ROWS = 200  # rows per page of a scan
# Scanned rows that a transaction remembers; further ones are read again when needed.
ROWS_KEPT = 10_000


class Transaction:
    """A transaction on raw cells, whose values are bytes. It belongs to one thread. Programs use ``tables.py``."""

    def __init__(self, around: Surroundings, resolver: Resolver, system: SystemView, *, start: int = 0) -> None:
        """``start``: a timestamp that this client got; 0 takes a new one."""
        self._around = around
        self._resolver = resolver
        self._system = system
        self.start = start or around.timestamp()
        self.commit_timestamp = 0  # set by a commit; stays 0 if there was nothing to write
        self._read: dict[tuple[str, str], dict[str, Held]] = {}
        self._first: dict[tuple[str, str], str] = {}  # the first column read of each row
        self.writes: dict[Cell, bytes | None] = {}
        self._locked: dict[Cell, tuple[bytes, Commit]] = {}

    # -- reading -----------------------------------------------------------------------------------------------------
    def get(self, table: str, row: str, column: str) -> bytes | None:
        """Returns the value, as this transaction sees it. Raises TooOld, StoreFailed."""
        if self.writes:
            cell = Cell(table, row, column)
            if cell in self.writes:
                return self.writes[cell]
        return value_of(self.held(table, row, column).version)

    def held(self, table: str, row: str, column: str, *also: str) -> Held:
        """Returns a column's content as of the start. ``also``: columns of the row that will be needed next."""
        key = table, row
        known = self._read.get(key)
        habits: tuple[str, ...] = ()
        if known is None:
            habits = self._around.habits.get((table, column), ())
            self._first[key] = column
        elif column in known:
            return known[column]
        elif key in self._first:
            self._around.learn(table, self._first[key], column)
        self._fetch([Read(table, row, (column, *also, *habits), self.start)], habits)
        return self._read[key][column]

    def prefetch(self, wanted: Iterable[tuple[str, str, Sequence[str]]]) -> None:
        """Reads (table, row, columns) in one round trip, so that ``get`` finds them in memory."""
        reads = []
        for table, row, columns in wanted:
            known = self._read.get((table, row), {})
            missing = [column for column in columns if column not in known]
            if missing:
                reads.append(Read(table, row, missing, self.start))
        if reads:
            self._fetch(reads)

    def _fetch(self, reads: list[Read], optional: Sequence[str] = ()) -> None:
        """Reads, and resolves locks that are in the way, except on ``optional`` columns."""
        patience = None
        while True:
            blocked: list[Read] = []
            in_the_way: list[tuple[Cell, bytes]] = []
            for read, found in zip(reads, self._around.read(reads), strict=True):
                locks = self._take(read, found)
                if locks and (locks := [each for each in locks if each[0].column not in optional]):
                    blocked.append(read)
                    in_the_way += locks
            if not blocked:
                return self._system.check(self.start)
            reads = blocked
            if not self._settled(in_the_way):
                patience = patience or Patience(self._around, self._around.limits.lock_age_s * 3)
                if not patience.wait():
                    raise StoreFailed(f"{in_the_way[0][0]}: is locked and stays locked")

    def _take(self, read: Read, found: RowRead) -> list[tuple[Cell, bytes]]:
        """Remembers committed values. Returns the locks of transactions that may commit before this one's start."""
        known = self._read.setdefault((read.table, read.row), {})
        locks = []
        for column in read.columns if read.columns is not None else found:
            held = found.get(column, NOTHING)
            meta = held.meta
            if meta is not None and is_lock(meta) and int(meta[3 : meta.index(b" ", 3)]) < self.start:
                locks.append((Cell(read.table, read.row, column), meta))
            else:
                known.setdefault(column, held)
        return locks

    def _settled(self, locks: Iterable[tuple[Cell, bytes]]) -> bool:
        """Resolves locks. Returns True if all are gone or have changed; False if some must be waited for."""
        self._around.counts["locks_met"] += 1
        try:
            gone = [self._resolver.settle(cell, meta) for cell, meta in locks]
        except StoreFailed:
            return False
        return all(gone)

    def scan(
        self, table: str, begin: str = "", end: str | None = None, columns: Sequence[str] | None = None
    ) -> Iterator[tuple[str, dict[str, bytes]]]:
        """Yields the rows in [``begin``, ``end``) with their values as of the start, and this transaction's writes
        from before the scan. Rows without a value are left out. Raises TooOld, StoreFailed."""
        own: dict[str, dict[str, bytes | None]] = {}
        for cell, value in self.writes.items():
            inside = cell.table == table and cell.row >= begin and (end is None or cell.row < end)
            if inside and (columns is None or cell.column in columns):
                own.setdefault(cell.row, {})[cell.column] = value
        for row, found in self._committed(table, begin, end, columns):
            for written in sorted(each for each in own if each < row):
                if values := _present(own.pop(written)):
                    yield written, values
            if values := _present(found | own.pop(row, {})):
                yield row, values
        for written in sorted(own):
            if values := _present(own[written]):
                yield written, values

    def _committed(
        self, table: str, begin: str, end: str | None, columns: Sequence[str] | None
    ) -> Iterator[tuple[str, dict[str, bytes | None]]]:
        while True:
            page = self._page(table, begin, end, columns)
            self._system.check(self.start)
            for row, found in page:
                read = Read(table, row, columns if columns is not None else list(found), self.start)
                if self._take(read, found):
                    self._fetch([read])
                known = self._read[table, row]
                names = list(known) if columns is None else columns
                yield row, {name: value_of(known.get(name, NOTHING).version) for name in names if name in known}
                if len(self._read) > ROWS_KEPT:
                    self._read.pop((table, row), None)
            if len(page) < SCAN_ROWS:
                return
            begin = page[-1][0] + "\0"

    def _page(
        self, table: str, begin: str, end: str | None, columns: Sequence[str] | None
    ) -> list[tuple[str, RowRead]]:
        patience = None
        while True:
            self._around.counts["scans"] += 1
            try:
                return self._around.store.scan(table, begin, end, columns, self.start, SCAN_ROWS)
            except StoreFailed:
                patience = patience or Patience(self._around)
                if not patience.wait():
                    raise

    # -- writing -----------------------------------------------------------------------------------------------------
    def write(self, table: str, row: str, column: str, value: bytes | None) -> None:
        """Sets a value for the commit; ``None`` deletes. Raises TablesError if the transaction has too many cells."""
        self.writes[Cell(table, row, column)] = value
        if len(self.writes) > CELLS_MAX:
            raise TablesError(f"a transaction writes more than {CELLS_MAX} cells; split it")

    def commit(self) -> int:
        """Commits. Returns the commit timestamp; 0 if there was nothing to write. Raises Conflict, OutcomeUnknown,
        TooOld, StoreFailed; after all but OutcomeUnknown, the transaction had no effect, and will have none."""
        if not self.writes:
            return 0
        cells = sorted(self.writes)  # sorted, so that of transactions on the same cells the first succeeds
        try:
            at_once = self._around.at_once
            timestamp = self._commit_in_two(cells) if at_once is None else self._commit_at_once(at_once, cells)
        except Conflict:
            self._around.counts["conflicts"] += 1
            raise
        self.commit_timestamp = timestamp
        self._around.counts["commits"] += 1
        return timestamp

    def _commit_in_two(self, cells: list[Cell]) -> int:
        try:
            observed = self._system.observed()
            self._prewrite(cells, observed)
            self._system.check(self.start)
            now = self._system.observed()
            if now is not observed and any((cell[0], cell[2]) in now - observed for cell in cells):
                raise Conflict("a column that it writes has a new observer")
            timestamp = self._around.timestamp()
        except Exception:
            self._give_up(cells[0])
            raise
        self._commit(cells, timestamp)
        return timestamp

    def _commit_at_once(self, store: AtomicStore, cells: list[Cell]) -> int:
        """Commits all cells in one step (rule 11)."""
        metas = self._metas(cells)
        uncertain: set[Cell] = set()
        for cell in cells:
            self._free(cell, metas, uncertain)
        timestamp = 0

        def mutations(commit: int, state: bytes | None) -> list[Mutation]:
            nonlocal timestamp
            timestamp, start = commit, self.start
            self._around.counts["mutates"] += 1
            observed, done = self._system.observed_in(state), commit_meta(Commit(commit, start, 0))
            made = []
            for cell, value in self.writes.items():
                notify = start if (cell[0], cell[2]) in observed else 0
                made.append(Mutation(cell, metas[cell], done, version_of(start, value), commit, notify))
            return made

        patience = None
        while not (done := store.commit(mutations)):
            if done is False and patience is not None:  # another client's commit, or ours, whose answer was lost
                with suppress(StoreFailed):
                    return self._committed_at(cells[0])
            elif done is False:
                changed = zip(cells, self._around.read_cells(cells), strict=True)
                first = next((cell for cell, held in changed if held.meta != metas[cell]), cells[0])
                raise Conflict(f"{'/'.join(first)}: another client has written it")
            patience = patience or Patience(self._around)
            if not patience.wait():
                raise OutcomeUnknown(
                    f"{'/'.join(cells[0])}: the store does not answer, or its disk is full: it is unknown whether "
                    "the transaction is committed"
                )
        return timestamp

    def _prewrite(self, cells: list[Cell], observed: set[tuple[str, str]]) -> None:
        """Locks all cells, the primary first."""
        metas = self._metas(cells)
        self._primary_line = primary_line(cells[0])
        uncertain: set[Cell] = set()
        for at in range(0, len(cells), AT_ONCE):
            if at:
                self._prolong(cells[0])
            self._lock_all(cells[at : at + AT_ONCE], metas, uncertain, observed, primary=cells[0])

    def _metas(self, cells: Iterable[Cell]) -> dict[Cell, bytes | None]:
        """Returns the cells' metas. Reads the ones that this transaction has not read yet."""
        metas: dict[Cell, bytes | None] = {}
        blind = []
        for cell in cells:
            held = self._read.get((cell[0], cell[1]), {}).get(cell[2])
            if held is None or is_lock(held.meta):
                blind.append(cell)
            else:
                metas[cell] = held.meta
        self._look(blind, metas)
        return metas

    def _look(self, cells: Sequence[Cell], metas: dict[Cell, bytes | None]) -> None:
        if cells:
            metas.update(zip(cells, (held.meta for held in self._around.read_cells(cells)), strict=True))

    def _lock_all(
        self,
        cells: Sequence[Cell],
        metas: dict[Cell, bytes | None],
        uncertain: set[Cell],
        observed: set[tuple[str, str]],
        *,
        primary: Cell,
    ) -> None:
        """Locks cells. ``uncertain``: cells whose prewrite was sent, but has an unknown outcome."""
        patience = Patience(self._around)
        token = self._around.liveness.token.encode()
        while cells:
            wall_ms = self._around.wall_ms()
            mutations, laid = [], []
            for cell in cells:
                before = self._free(cell, metas, uncertain)
                value = self.writes[cell]
                meta = lock_meta(self.start, wall_ms, token, before, self._primary_line, value)
                notify = self.start if (cell[0], cell[2]) in observed else 0
                mutations.append(Mutation(cell, metas[cell], meta, notify=notify))
                laid.append((meta, before))
            answers = self._mutate(mutations, first_decides=cells[0] is primary)
            left = []
            for cell, answer, lock in zip(cells, answers, laid, strict=True):
                if answer:
                    self._locked[cell] = lock
                else:
                    left.append(cell)
                    if answer is None:
                        uncertain.add(cell)
            if left:
                left = self._looked_again(left, metas, uncertain)
                if uncertain and left and not patience.wait():
                    raise StoreFailed(f"{'/'.join(left[0])}: the store does not answer, or its disk is full")
            cells = left

    def _looked_again(self, cells: list[Cell], metas: dict[Cell, bytes | None], uncertain: set[Cell]) -> list[Cell]:
        """Reads cells again. Returns the ones that this transaction has not locked. An uncertain cell keeps its
        expected meta, which is the fence (rule 4)."""
        left = []
        for cell, held in zip(cells, self._around.read_cells(cells), strict=True):
            now = read_meta(held.meta)
            if isinstance(now, Lock) and now.start == self.start:
                assert held.meta is not None
                self._locked[cell] = held.meta, now.before
                continue
            if cell in uncertain and held.meta != metas[cell]:
                raise Conflict(f"{cell}: was taken by another client, or this transaction was rolled back")
            metas[cell] = held.meta
            left.append(cell)
        return left

    def _free(self, cell: Cell, metas: dict[Cell, bytes | None], uncertain: set[Cell]) -> Commit:
        """Returns the committed state of a cell. Raises Conflict if it is locked, or was written since the start."""
        for _ in range(4):
            meta = metas[cell]
            before = read_meta(meta)
            if isinstance(before, Commit):
                if before.commit > self.start:
                    break
                return before
            assert meta is not None
            if cell in uncertain or not self._settled([(cell, meta)]):
                break
            self._look([cell], metas)
        raise Conflict(f"{'/'.join(cell)}: another client is writing it")

    def _prolong(self, primary: Cell) -> None:
        """Renews the primary's lock, to show that a long commit is still running."""
        meta, before = self._locked[primary]
        lock = read_meta(meta)
        wall_ms = self._around.wall_ms()
        if isinstance(lock, Lock) and abs(wall_ms - lock.wall_ms) < self._around.limits.lock_age_s * 1000 / 3:
            return
        token = self._around.liveness.token.encode()
        longer = lock_meta(self.start, wall_ms, token, before, self._primary_line, self.writes[primary])
        done = self._mutate([Mutation(primary, meta, longer)])[0]
        if done is None:
            (held,) = self._around.read_cells([primary])
            done = held.meta == longer
            if held.meta == meta:
                return  # if it takes effect later, the commit reads again
        if not done:
            raise Conflict("this transaction took too long, and was rolled back by a waiting client")
        self._locked[primary] = longer, before

    def _commit(self, cells: list[Cell], timestamp: int) -> None:
        """Commits the primary. The other cells follow, or are completed by clients that find them."""
        primary = cells[0]
        done = commit_meta(Commit(timestamp, self.start, 0))
        patience = None
        while not self._decide([self._final(cell, done, timestamp) for cell in cells]):
            # Refused: rolled back, or done by a call whose answer was lost. Unknown: read to find out.
            patience = patience or Patience(self._around)
            try:
                if self._committed_at(primary):
                    if rest := [self._final(cell, done, timestamp) for cell in cells[1:]]:
                        self._mutate(rest)
                    return
            except StoreFailed:
                pass
            if not patience.wait():
                raise OutcomeUnknown("the store does not answer: it is unknown whether the transaction is committed")

    def _final(self, cell: Cell, done: bytes, timestamp: int) -> Mutation:
        return Mutation(cell, self._locked[cell][0], done, version_of(self.start, self.writes[cell]), timestamp)

    def _committed_at(self, primary: Cell) -> int:
        """Returns the commit timestamp; 0 if the lock still exists. Raises Conflict if the transaction was rolled
        back, OutcomeUnknown, StoreFailed."""
        (held,) = self._around.read_cells([primary])
        state = read_meta(held.meta)
        if isinstance(state, Lock) and state.start == self.start:
            assert held.meta is not None
            self._locked[primary] = held.meta, state.before  # as it may have been prolonged
            return 0
        if commit := self._resolver.commit_of(primary, self.start):
            return commit
        try:
            self._system.check(self.start)
        except TooOld:  # its version may have been collected
            raise OutcomeUnknown("the store took too long to answer: it is unknown if the commit was done") from None
        raise Conflict(f"{'/'.join(primary)}: was taken by another client while this one got no answer")

    def _give_up(self, primary: Cell) -> None:
        """Frees the locked cells. If the store does not answer, clients that find them free them."""
        if primary in self._locked:
            cells = [primary, *(cell for cell in self._locked if cell != primary)]
            back = [Mutation(cell, self._locked[cell][0], rolled_back(self._locked[cell][1])) for cell in cells]
            self._decide(back)

    def _mutate(self, mutations: Sequence[Mutation], *, first_decides: bool = False) -> list[bool | None]:
        self._around.counts["mutates"] += 1
        return self._around.store.mutate(mutations, first_decides=first_decides)

    def _decide(self, mutations: Sequence[Mutation]) -> bool | None:
        self._around.counts["mutates"] += 1
        return self._around.store.decide(mutations)


def _present(values: dict[str, bytes | None]) -> dict[str, bytes]:
    return {column: value for column, value in values.items() if value is not None}
