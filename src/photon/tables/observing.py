"""Observers, which are functions that run after a column has changed, and workers that run them (rules 2, 7, 8,
10)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import TypeVar

import msgspec
import orjson
import structlog

from photon.adapters.containment import Hung, Watched
from photon.computing.guarding import failed
from photon.config.back_off import BackOff
from photon.tables.api import (
    Conflict,
    Held,
    Notification,
    OutcomeUnknown,
    StoreFailed,
    TablesError,
    TooOld,
)
from photon.tables.cell import is_lock, read_meta
from photon.tables.locks import RowLocks
from photon.tables.surroundings import Patience
from photon.tables.system import State, with_observer
from photon.tables.tables import TRIES_S, Row, Tables, TransactionFace, name_of
from photon.tables.transaction import Transaction

Work = TypeVar("Work", bound=Callable[..., object])
Dirty = tuple[tuple[str, str], list[Notification]]  # row and column, and their notifications

PAGE = 200  # notifications that are read at once
ROWS_SEEN = 256  # limit of row keys at which scans may begin
FAILED_MAX = 10_000
# First and longest wait before a failed observer is retried on that row; doubled each time.
FAILED = BackOff(first=1.0, most=60.0)
# First and longest wait between polls of an idle program, for all its threads together; doubled each time.
IDLE = BackOff(first=0.02, most=0.2)
REST_S_MAX = 1.0
LEAVE_S = 10.0  # a process that stops waits for its threads at most this long, and then ends without them
BATCH = 16  # rows that a thread takes at once


@dataclass(frozen=True)
class Observer:
    """Runs ``run(transaction, row)`` after ``column`` of a row of ``table`` has changed."""

    name: str
    table: str
    column: str
    run: Callable[[TransactionFace, Row], object]
    time_limit_s: float = 10.0

    @property
    def acknowledged(self) -> str:
        """The column that holds the start timestamp of the observer's last run."""
        return f"{self.column}@{self.name}"

    @property
    def seeded(self) -> str:
        """The observer's name in the system's table."""
        return f"{self.table}/{self.acknowledged}"


def observer(
    tables: Tables, table: str, column: str, *, name: str | None = None, time_limit_s: float = 10.0
) -> Callable[[Work], Work]:
    """``@observer(tables, table="clicks", column="campaign")`` makes a function run with (transaction, row) after the
    column has changed, in its own transaction, whose commit acknowledges all changes before its start. Several
    changes may share one run; for each change at most one run commits. Effects outside the tables may happen several
    times.

    ``name`` (default: the function's name): an observer with a new name runs again for pending notifications.

    ``time_limit_s``: limit on one run of the function's own code, not counting time spent in tables; 0 means no
    limit. A run that raises or takes longer has no effect and is retried. A blocking call cannot be interrupted until
    it returns.
    """

    def decorated(work: Work) -> Work:
        called = name_of(name or work.__name__)
        if any(each.name == called for each in tables.observers):
            raise TablesError(f"two observers are named {called}; give one of them another name=")
        tables.observers.append(Observer(called, name_of(table), name_of(column), work, time_limit_s))
        tables.observe(table, column)
        return work

    return decorated


class ObserverFailed(TablesError):
    """An observer's code raised or hung; its pending changes are not lost. ``cells``: one line for each cell."""

    exit_code = 3

    def __init__(self, cells: Sequence[str]) -> None:
        more = f"; and {len(cells) - 1} more" if len(cells) > 1 else ""
        super().__init__(f"{cells[0]}{more}: fix it, and run the observers again")
        self.cells = cells


class _Guarded(Transaction):
    """The transaction of one run. Time spent in the store does not count toward the observer's limit, and calls of
    the store are never interrupted."""

    guard: Watched | None = None

    @contextmanager
    def _unwatched(self) -> Iterator[None]:
        guard, self.guard = self.guard, None  # so that nested calls do not leave it twice
        if guard is None:
            yield
            return
        guard.disarm()
        try:
            yield
        finally:
            self.guard = guard
            guard.__enter__()

    def get(self, table: str, row: str, column: str) -> bytes | None:
        with self._unwatched():
            return super().get(table, row, column)

    def prefetch(self, wanted: Iterable[tuple[str, str, Sequence[str]]]) -> None:
        with self._unwatched():
            super().prefetch(wanted)

    def scan(
        self, table: str, begin: str = "", end: str | None = None, columns: Sequence[str] | None = None
    ) -> Iterator[tuple[str, dict[str, bytes]]]:
        found = super().scan(table, begin, end, columns)
        while True:
            with self._unwatched():
                row = next(found, None)
            if row is None:
                return
            yield row


class Worker:
    """Runs the observers of a program, in any number of threads and processes."""

    def __init__(self, tables: Tables, *, locks: RowLocks | None = None) -> None:
        """``locks``: by default, the locks of ``tables``."""
        self._tables = tables
        self._around = tables.around
        self._locks = locks or tables.around.locks
        self._by_column: dict[tuple[str, str], list[Observer]] = {}
        for each in tables.observers:
            self._by_column.setdefault((each.table, each.column), []).append(each)
        self._names = sorted({each.table for each in tables.observers})
        self._seen: list[tuple[str, str]] = []
        self._failed: dict[tuple[str, str, str], tuple[float, int]] = {}  # cell -> (not before, failures)
        self._guards = threading.local()
        self._threads = 1
        self._resting = 0
        self._idle = 1
        self._news = threading.Condition()
        self._log = structlog.get_logger("photon.tables")

    def publish(self) -> None:
        """Makes every writer notify these observers. Also notifies new observers of all existing rows. Takes a grace
        period. Raises StoreFailed."""
        observers = self._tables.observers

        def published(state: State) -> State:
            for each in observers:
                state = with_observer(state, each.table, each.column, each.name)
            return state

        state = self._tables.system.change(published)
        fresh = [each for each in observers if each.seeded not in state.seeded]
        if not fresh:
            return
        self._around.sleep(self._around.limits.grace_s)
        for table, column in sorted({(each.table, each.column) for each in fresh}):
            self._seed(table, column)
        seeded = {each.seeded for each in fresh}
        self._tables.system.change(
            lambda state: msgspec.structs.replace(state, seeded=sorted(seeded.union(state.seeded)))
        )

    def _seed(self, table: str, column: str) -> None:
        start = self._around.timestamp()
        begin = ""
        while page := self._around.store.scan(table, begin, None, [column], start, PAGE):
            self._around.store.notify([Notification(table, row, column, start) for row, _ in page])
            begin = page[-1][0] + "\0"

    def run(self, stop: threading.Event, *, threads: int = 4) -> None:
        """Runs until ``stop`` is set, or a thread has an unexpected error, which is then raised. Raises StoreFailed
        only from ``publish``."""
        self.publish()
        self._threads = threads
        unexpected: list[Exception] = []

        def running() -> None:
            try:
                self._until(stop)
            except Exception as error:
                unexpected.append(error)
                stop.set()

        workers = [threading.Thread(target=running, name=f"observer-{n}", daemon=True) for n in range(threads)]
        for each in workers:
            each.start()
        stop.wait()
        until = self._around.clock.monotonic() + LEAVE_S
        for each in workers:
            each.join(max(0.0, until - self._around.clock.monotonic()))
        if left := [each.name for each in workers if each.is_alive()]:
            self._log.warning(
                "some observers did not return and were abandoned; they will run again for their rows", threads=left
            )
        if unexpected:
            raise unexpected[0]

    def _until(self, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                done = self.step()
            except StoreFailed as failed:
                self._log.warning("observers wait: the store does not answer", error=str(failed))
                stop.wait(FAILED.first)
                continue
            if done:
                self._idle = 1
            else:
                self._rest()

    def _rest(self) -> None:
        """Waits for work. One thread at a time polls, and wakes another if there is more work than it takes
        itself."""
        with self._news:
            self._resting += 1
            waited_s = min(IDLE.delay(self._idle) * self._resting, REST_S_MAX)
            self._idle = 1 if self._news.wait(waited_s) else self._idle + 1
            self._resting -= 1

    def _wake(self) -> None:
        with self._news:
            self._news.notify()

    def drain(self) -> int:
        """Runs until no work is left. Returns the number of committed runs. A failing observer blocks only its own
        cell. Raises ObserverFailed at the end, StoreFailed, and Conflict after a minute of conflicts."""
        runs = 0
        failures: dict[tuple[str, str, str], str] = {}
        patience = Patience(self._around, TRIES_S)
        while True:
            at_rest, moved = True, False
            met: TablesError = Conflict("the remaining cells are locked by live clients")
            for table in self._names:
                begin = ""
                while page := self._page(table, begin):
                    seen_to: list[Notification] = []
                    for (row, column), found in _cells(page):
                        if (table, row, column) in failures:
                            continue
                        try:
                            committed, done, clean = self._tend(table, row, column)
                        except (Conflict, OutcomeUnknown, TooOld) as error:  # caused by other workers
                            at_rest, met = False, error
                            continue
                        except ObserverFailed as error:
                            failures[table, row, column] = error.cells[0]
                            moved = True
                            continue
                        runs += committed
                        seen_to += found if done else ()
                        moved = moved or bool(committed or done)
                        at_rest = at_rest and clean
                    if seen_to:
                        self._around.store.forget(seen_to)
                    begin = page[-1].row + "\0"
            if at_rest and not moved:
                if failures:
                    raise ObserverFailed(list(failures.values()))
                return runs
            if moved:
                patience = Patience(self._around, TRIES_S)
            elif not patience.wait():
                raise met

    def step(self) -> int:
        """Takes some free rows, beginning at a random place, and runs their observers. Returns the number of
        notifications handled."""
        if not self._names:
            return 0
        first, begin = self._place()
        for table, at in [(first, begin), *((name, "") for name in self._names if name != first or begin)]:
            page = _cells(self._page(table, at))
            self._remember(table, [row for (row, _), _ in page])
            dirty = [each for each in page if not self._not_yet(table, *each[0])]
            found = list(dict.fromkeys(row for (row, _), _ in dirty))
            if rows := self._locks.acquire(table, found, min(BATCH, -(-len(found) // self._threads))):
                if len(rows) < len(found):
                    self._wake()
                try:
                    return self._tend_all(table, [each for each in dirty if each[0][0] in rows])
                finally:
                    self._locks.release(table, rows)
        return 0

    def _tend_all(self, table: str, dirty: Sequence[Dirty]) -> int:
        """Runs the observers of rows. Observers that met a conflict are retried at the end."""
        done = 0
        seen_to: list[Notification] = []
        for again in (True, False):
            met: list[Dirty] = []
            for (row, column), found in dirty:
                try:
                    committed, clean, _ = self._tend(table, row, column)
                except (Conflict, OutcomeUnknown, TooOld):
                    self._around.counts["observers_met"] += 1
                    met.append(((row, column), found))
                except ObserverFailed as error:
                    self._raised(table, row, column, error)
                else:
                    self._failed.pop((table, row, column), None)
                    seen_to += found if clean else ()
                    done += committed or (len(found) if clean else 0)
            dirty = met if again else ()
        if seen_to:
            self._around.store.forget(seen_to)
        return done

    def _page(self, table: str, begin: str) -> list[Notification]:
        self._around.counts["scans"] += 1
        return self._around.store.dirty(table, begin, PAGE)

    def _place(self) -> tuple[str, str]:
        if self._seen and self._around.random() < 0.75:
            return self._seen[int(self._around.random() * len(self._seen))]
        return self._names[int(self._around.random() * len(self._names))], ""

    def _remember(self, table: str, rows: Sequence[str]) -> None:
        for row in rows:
            if len(self._seen) < ROWS_SEEN:
                self._seen.append((table, row))
            else:
                self._seen[int(self._around.random() * ROWS_SEEN)] = table, row

    def _tend(self, table: str, row: str, column: str) -> tuple[int, bool, bool]:
        """Runs the observers of a cell that have not acknowledged its last change. Returns the number of commits,
        True if earlier notifications may be forgotten, and False if this program has more to do there."""
        committed, clean, acknowledged = 0, True, True
        here = self._by_column.get((table, column), ())
        failed: ObserverFailed | None = None
        for each in here:
            try:
                ran, decided = self._observe(each, row)
            except ObserverFailed as error:
                failed = failed or error
                continue
            committed += ran
            clean = clean and decided
        if failed is not None:
            raise failed
        elsewhere = set(self._tables.system.observers(table, column)).difference(each.name for each in here)
        if elsewhere:
            acknowledged = self._acknowledged(table, row, column, elsewhere)
        return committed, clean and acknowledged, clean or not here

    def _observe(self, observer: Observer, row: str) -> tuple[bool, bool]:
        """Runs an observer.

        Returns True if it ran, and True if this observer needs no earlier notification any more.
        """
        tables = self._tables
        raw = _Guarded(self._around, tables.resolver, tables.system)
        held = raw.held(observer.table, row, observer.column, observer.acknowledged)
        before = raw.get(observer.table, row, observer.acknowledged)
        if held.version is None or (before is not None and held.commit <= int(before)):
            return False, _decided(held, raw)
        face = TransactionFace(raw)
        self._call(observer, raw, face, face.table(observer.table).row(row))
        raw.commit()
        self._around.counts["observed"] += 1
        return True, _decided(held, raw)

    def _call(self, observer: Observer, raw: _Guarded, face: TransactionFace, row: Row) -> None:
        """Runs the observer's code under its time limit. Raises ObserverFailed, and errors of the tables."""
        guards: dict[str, Watched] = self._guards.__dict__.setdefault("by_name", {})
        guard = guards.get(observer.name)
        if guard is None:  # each thread has its own
            guard = guards[observer.name] = Watched(observer)
        raw.guard = guard
        try:
            with guard:
                guard.count += 1
                observer.run(face, row)
            raw.write(observer.table, row.key, observer.acknowledged, orjson.dumps(raw.start))
        except (Conflict, OutcomeUnknown, TooOld, StoreFailed):
            raise
        except Hung:
            what = f"did not return within {observer.time_limit_s:g} s{guard.where}"
            raise self._failure(observer, row, what) from None
        except failed() as error:
            raise self._failure(observer, row, f"raises {error!r}") from error
        finally:
            guard.disarm()
            raw.guard = None

    def _failure(self, observer: Observer, row: Row, what: str) -> ObserverFailed:
        cell = "/".join((observer.table, row.key, observer.column))
        return ObserverFailed([f"the observer {observer.name} of {cell} {what}"])

    def _acknowledged(self, table: str, row: str, column: str, names: Iterable[str]) -> bool:
        """True if these observers, of other programs, have seen the last change."""
        raw = Transaction(self._around, self._tables.resolver, self._tables.system)
        columns = [f"{column}@{name}" for name in names]
        raw.prefetch([(table, row, (column, *columns))])
        held = raw.held(table, row, column)
        seen = [raw.get(table, row, each) for each in columns]
        done = held.version is None or all(each is not None and held.commit <= int(each) for each in seen)
        return done and _decided(held, raw)

    def _not_yet(self, table: str, row: str, column: str) -> bool:
        failed = self._failed.get((table, row, column))
        return failed is not None and self._around.clock.monotonic() < failed[0]

    def _raised(self, table: str, row: str, column: str, error: ObserverFailed) -> None:
        key = table, row, column
        failures = self._failed.get(key, (0.0, 0))[1] + 1
        wait_s = FAILED.delay(failures)
        if len(self._failed) >= FAILED_MAX:
            self._failed.clear()
        self._failed[key] = self._around.clock.monotonic() + wait_s, failures
        self._around.counts["observers_failed"] += 1
        self._log.warning("an observer failed", cell="/".join(key), error=error.cells[0], again_s=wait_s)


def _cells(page: Iterable[Notification]) -> list[Dirty]:
    return [(cell, list(found)) for cell, found in groupby(page, key=lambda each: (each.row, each.column))]


def _decided(held: Held, reader: Transaction) -> bool:
    """True if no write is pending on the column, and its newest one was committed before the reader's start."""
    return not is_lock(held.meta) and read_meta(held.meta)[0] < reader.start
