"""The clients' work in a schedule, and its invariants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import orjson

from photon.tables.api import Conflict, OutcomeUnknown, StoreFailed, TooOld
from photon.tables.cell import is_lock, value_of
from photon.tables.locks import RowLocks
from photon.tables.observing import Worker, observer
from photon.tables.tables import Tables, TransactionFace
from tests.simulation.tables.chains import Chain
from tests.simulation.tables.history import Ran, check
from tests.simulation.tables.world import LIMITS, Faults, SimulatedStore, Variant, World, thread_locks
from tests.simulation.world.violation import Violation, of_seed

ACCOUNTS = 6
BALANCE = 100
ROUNDS = 5
CAMPAIGNS = 3
GIVEN_UP = (Conflict, TooOld, StoreFailed)


class Recorded:
    """A transaction whose reads and writes of accounts are recorded. A value names its writer."""

    def __init__(self, face: TransactionFace, ran: Ran) -> None:
        self.face = face
        self.ran = ran

    def get(self, table: str, row: str, column: str) -> int:
        found = self.face.table(table).row(row).get(column)
        if (cell := (table, row, column)) not in self.ran.writes:
            self.ran.reads[cell] = found["by"] if found else 0
        return int(found["n"]) if found else 0

    def set(self, table: str, row: str, column: str, n: int) -> None:
        self.ran.writes.add((table, row, column))
        self.face.table(table).row(row).set(column, {"n": n, "by": self.ran.start})


class Schedule(World):
    def __init__(self, seed: int, variant: Variant | None = None) -> None:
        super().__init__(seed, variant)
        self.history: list[Ran] = []
        self.told = 0  # the highest commit known to a client
        self.clicks: dict[int, str] = {}  # start of the transaction that wrote a click -> its row
        self.finished = 0
        self.observing = True
        mixed = [self.transfer, self.transfer, self.audit, self.click, self.order, self.cold, self.unknown]
        seldom = [self.pair, self.look, self.look, self.look]
        self.works = self.random.choice((mixed, mixed, seldom, mixed + seldom))

    # -- transactions ------------------------------------------------------------------------------------------------
    @contextmanager
    def recorded(self, tables: Tables) -> Iterator[Recorded]:
        after = self.told
        face = tables.begin()
        ran = Ran(face.start, after)
        self.history.append(ran)
        try:
            yield Recorded(face, ran)
            commit = face.raw.commit()
        except GIVEN_UP:
            ran.told = "aborted"
            self.say(f"{ran.start} is told: aborted")
            raise
        ran.told = "committed"
        self.say(f"{ran.start} is told: committed at {commit}")
        self.told = max(self.told, commit)

    def again(self, work: Callable[[], None]) -> None:
        """Like ``Tables.run``, but gives up a round that leads to nothing."""
        for _ in range(8):
            try:
                return work()
            except GIVEN_UP:
                self.wait(self.random.uniform(0.001, 0.2))
            except OutcomeUnknown:
                return None
        return None

    def client(self, name: str) -> None:
        """Boots and works, again after each kill."""

        def work() -> None:
            tables = self.tables(name)
            self.observed(tables)
            for n in range(ROUNDS):
                chosen = self.random.choice(self.works)
                self.again(lambda chosen=chosen, n=n: chosen(tables, f"{name}-{n}"))  # type: ignore[misc]
                self.wait(self.random.uniform(0, 0.05))

        self.spawn(name, work, self.random.uniform(0, 0.2))

    def transfer(self, tables: Tables, name: str) -> None:
        rows = [f"a{n}" for n in self.random.sample(range(ACCOUNTS), self.random.choice((2, 2, 3)))]
        with self.recorded(tables) as t:
            held = [t.get("bank", row, "n") for row in rows]
            if self.random.random() < 0.2:
                self.wait(self.random.uniform(0, 3.0))
            t.set("bank", rows[0], "n", held[0] - len(rows) + 1)
            for row, balance in zip(rows[1:], held[1:], strict=True):
                t.set("bank", row, "n", balance + 1)

    def audit(self, tables: Tables, name: str) -> None:
        with self.recorded(tables) as t:
            if self.random.random() < 0.5:
                seen = {row.key: row for row in t.face.table("bank").scan()}
                if len(seen) != ACCOUNTS:
                    raise Violation(f"scan: {sorted(seen)}")
            total = sum(t.get("bank", f"a{n}", "n") for n in range(ACCOUNTS))
        if total != ACCOUNTS * BALANCE:
            raise Violation(f"sum: {t.ran.start} has seen {total}")

    def pair(self, tables: Tables, name: str) -> None:
        """Two cells that are seldom written and often read, so that a lock in the way is rolled back by a client that
        does not take its place."""
        with self.recorded(tables) as t:
            n = t.get("pair", "p0", "n") + 1
            for row in ("p0", "p1"):
                t.set("pair", row, "n", n)

    def look(self, tables: Tables, name: str) -> None:
        with self.recorded(tables) as t:
            seen = [t.get("pair", row, "n") for row in ("p0", "p1")]
        if seen[0] != seen[1]:
            raise Violation(f"fractured: {t.ran.start} has seen {seen}")

    def click(self, tables: Tables, name: str) -> None:
        """A row that is written once, together with one of the bank's rows, so that its primary is elsewhere."""
        row = f"{name}-{len(self.history)}"
        with self.recorded(tables) as t:
            self.clicks[t.ran.start] = row
            t.face.table("clicks").row(row).set("campaign", f"c{self.random.randrange(CAMPAIGNS)}")
            t.face.table("also").row(row).set("x", 1)
            t.ran.writes |= {("clicks", row, "campaign"), ("also", row, "x")}

    def cold(self, tables: Tables, name: str) -> None:
        """The primary is written all the time, and the other cell is not read before the end."""
        with self.recorded(tables) as t:
            t.set("a-hot", "one", "n", t.get("a-hot", "one", "n") + 1)
            t.set("cold", f"{name}-{len(self.history)}", "n", 1)

    def unknown(self, tables: Tables, name: str) -> None:
        """A column that becomes observed at some time without clients knowing."""
        row = f"{name}-{len(self.history)}"
        with self.recorded(tables) as t:
            t.set("news", row, "n", 1)

    def order(self, tables: Tables, name: str) -> None:
        """A row that is written again and again."""
        with self.recorded(tables) as t:
            row = t.face.table("orders").row(f"o{self.random.randrange(3)}")
            row.set("state", int(row.get("state") or 0) + 1)

    def collector(self) -> None:
        def work() -> None:
            tables = self.tables("collector")
            while self.finished < len(self.names):
                self.wait(self.random.uniform(0.2, 1.0))
                try:
                    tables.collect(0.5)
                except StoreFailed:
                    continue

        self.spawn("collector", work)

    # -- observers ---------------------------------------------------------------------------------------------------
    def observed(self, tables: Tables, *, worker: bool = False) -> None:
        if worker:

            @observer(tables, "news", "n")
            def read(t: TransactionFace, row: Any) -> None:
                t.table("read").row(row.key).set("n", row.get("n")["n"])

        @observer(tables, "clicks", "campaign")
        def count(t: TransactionFace, row: Any) -> None:
            total = t.table("campaigns").row(row.get("campaign"))
            total.set("clicks", int(total.get("clicks") or 0) + 1)

        @observer(tables, "campaigns", "clicks")
        def shown(t: TransactionFace, row: Any) -> None:
            t.table("shown").row(row.key).set("clicks", row.get("clicks"))

        @observer(tables, "orders", "state")
        def copied(t: TransactionFace, row: Any) -> None:
            copy = t.table("copies").row(row.key)
            copy.set("state", row.get("state"))
            copy.set("runs", int(copy.get("runs") or 0) + 1)

    def worker(self, name: str, locks: RowLocks | None) -> None:
        """``locks``: ``None`` means those in the store."""

        def work() -> None:
            while self.observing:
                tables = self.tables(name)
                self.observed(tables, worker=True)
                around = tables.around
                noted = RowLocks(SimulatedStore(self, name), around.liveness, around.clock, LIMITS.lock_age_s)
                worker = Worker(tables, locks=locks or noted)
                try:
                    worker.publish()
                    while self.observing:
                        if not worker.step():
                            self.wait(self.random.uniform(0.05, 0.5))
                except (StoreFailed, TooOld):
                    self.wait(0.1)

        self.spawn(name, work, self.random.uniform(0.0, 4.0))

    # -- a schedule --------------------------------------------------------------------------------------------------
    def run_all(self) -> None:
        self.names = [f"client-{n}" for n in range(self.random.randint(3, 6))]
        try:
            self._phases()
        finally:
            self.close()

    def _phases(self) -> None:
        storm, self.stormy = self.stormy, False
        self.spawn("setup", self._set_up)
        self.run(lambda: all(task.done for task in self.tasks), 60)
        self.stormy = storm
        for name in self.names:
            self.client(name)
        locks = thread_locks() if self.random.random() < 0.5 else None
        for n in range(2):
            self.worker(f"client-worker-{n}", locks)
        if self.random.random() < 0.5:
            self.collector()
        clients = [task for task in self.tasks if task.name in self.names]

        def finished() -> bool:
            self.finished = sum(task.done or task.dead for task in clients)
            return self.finished == len(clients)

        self.run(finished, 3_000)
        self.observing = False
        self.run(lambda: all(task.done or task.dead for task in self.tasks), 3_000)
        self.stormy = False
        until = self.now + 10  # late calls arrive
        self.run(lambda: self.now > until, 20)
        self.spawn("end", self._end)
        self.run(lambda: self.tasks[-1].done, 3_000)
        self._check()

    def _set_up(self) -> None:
        tables = self.tables("setup")
        with self.recorded(tables) as t:
            for n in range(ACCOUNTS):
                t.set("bank", f"a{n}", "n", BALANCE)

    def _end(self) -> None:
        """Everything left over is resolved and observed."""
        tables = self.tables("end")
        self.observed(tables, worker=True)
        worker = Worker(tables, locks=thread_locks())
        worker.publish()
        worker.drain()
        with tables.snapshot() as now:
            for name in self.truth.tables():
                for _ in now.table(name).scan():
                    pass

    def _check(self) -> None:
        for table in self.truth.tables():
            for row, columns in self.truth.scan(table, "", None, None, 2**60, 10**6):
                for column, held in columns.items():
                    if is_lock(held.meta):
                        raise Violation(f"locked: {table}/{row}/{column} stays locked: {held.meta!r}")
        by_start = {each.start: each for each in self.history}
        for start, cells in self.installed.items():
            if len(set(cells.values())) > 1:
                raise Violation(f"fractured: {start} is committed at {cells}")
            if start in by_start:
                by_start[start].commit = next(iter(cells.values()))
                if left := by_start[start].writes - set(cells):
                    raise Violation(f"half: of {start} {sorted(cells)} are committed and {sorted(left)} are not")
        check(self.history)
        total = sum(self._value("bank", f"a{n}", "n")["n"] for n in range(ACCOUNTS))
        if total != ACCOUNTS * BALANCE:
            raise Violation(f"sum: {total} in the end")
        self._check_observed()

    def _check_observed(self) -> None:
        wanted: Counter[str] = Counter()
        for start, row in self.clicks.items():
            if start in self.installed:
                wanted[self._value("clicks", row, "campaign")] += 1
        for campaign in {f"c{n}" for n in range(CAMPAIGNS)}:
            counted = self._value("campaigns", campaign, "clicks") or 0
            if counted != wanted[campaign]:
                raise Violation(f"observers: {counted} clicks of {campaign} were counted, of {wanted[campaign]}")
            shown = self._value("shown", campaign, "clicks") or 0
            if shown != counted:
                raise Violation(f"observers: {campaign} is shown with {shown} clicks of {counted}")
        for row, _ in self.truth.scan("news", "", None, ["n"], 2**60, 10**6):
            if self._value("news", row, "n") and not self._value("read", row, "n"):
                raise Violation(f"observers: {row} of news was not seen")
        for n in range(3):
            state = self._value("orders", f"o{n}", "state") or 0
            if state != (self._value("copies", f"o{n}", "state") or 0):
                raise Violation(f"observers: state {state} of o{n} was not seen")
            if (runs := self._value("copies", f"o{n}", "runs") or 0) > state:
                raise Violation(f"observers: {runs} runs for {state} changes of o{n}")

    def _value(self, table: str, row: str, column: str) -> Any:
        found = self.truth.scan(table, row, row + "\0", [column], 2**60, 1)
        value = value_of(found[0][1][column].version) if found else None
        return None if value is None else orjson.loads(value)


class InFile(Schedule):
    in_file = True


class Races(Schedule):
    """Almost only slow and late calls, on two cells: prewrites that come after their roll-back."""

    def __init__(self, seed: int, variant: Variant | None = None) -> None:
        super().__init__(seed, variant)
        self.faults = Faults(late=0.2, slow=0.3)
        self.works = [self.pair, self.look]


S = TypeVar("S", Schedule, Races, Chain)


def run_seed(seed: int, variant: Variant | None = None, kind: type[S] = Schedule) -> S:  # type: ignore[assignment]
    """Raises Violation with the seed."""
    schedule = kind(seed, variant)
    patched = [(where, name, getattr(where, name)) for where, name, _ in schedule.variant.patched]
    try:
        for where, name, value in schedule.variant.patched:
            setattr(where, name, value)
        with of_seed(seed):
            schedule.run_all()
    finally:
        for where, name, value in patched:
            setattr(where, name, value)
    return schedule
