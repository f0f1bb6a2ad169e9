"""A second program: a joined stream is loaded, and observers compute from it what a batch would.

Records go through a chain of three observers, with a fourth at the same column as the first (fan-out) and one that
writes the column it watches, guarded against an endless loop. Loader and observers are killed and restarted; two
collectors remove old versions while snapshots are read, some of them held.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from photon.tables.api import Conflict, OutcomeUnknown, StoreFailed, TooOld
from photon.tables.cell import value_of
from photon.tables.collecting import Collector
from photon.tables.loading import load
from photon.tables.locks import RowLocks
from photon.tables.observing import Worker, observer
from photon.tables.tables import Snapshot, Tables, TransactionFace
from photon.tables.transaction import Transaction
from tests.simulation.tables.world import Variant, World, thread_locks
from tests.simulation.world.violation import Violation

RECORDS = 14
AT_ONCE = 3
HOLD_S = 1_000.0  # longer than the wall clocks' differences
TROUBLE = (Conflict, TooOld, StoreFailed, OutcomeUnknown)


@dataclass
class Piece:
    some: list[dict[str, str]]
    cursor: bytes

    def records(self) -> list[dict[str, str]]:
        return self.some


class Chain(World):
    def __init__(self, seed: int, variant: Variant | None = None) -> None:
        super().__init__(seed, variant)
        draw = self.random.randrange
        self.records = [
            {"id": f"k{n:02}", "print": f"f{draw(5)}", "campaign": f"c{draw(3)}", "name": f"Name-{n}"}
            for n in self.random.sample(range(RECORDS), RECORDS)
        ]
        self.loaded = self.over = False
        self.told = self.random.random() < 0.5  # the loader knows the observers

    # -- processes ---------------------------------------------------------------------------------------------------
    def kept(self, name: str, work: Callable[[str], None], number: int = 1) -> None:
        """A process that is restarted after it was killed."""
        who = f"{name}-{number}"
        task = self.spawn(who, lambda: work(who), self.random.uniform(0.0, 0.5))

        def look() -> None:
            if task.dead and not self.over:
                self.kept(name, work, number + 1)
            elif not task.done:
                self.later(1.0, look)

        self.later(1.0, look)

    def batches(
        self, *, cursor: bytes | None = None, follow: bool = False, lines: int | None = None
    ) -> Iterator[Piece]:
        """The stream; a cursor is the number of the next record."""
        assert lines
        for at in range(int(cursor or 0), RECORDS, lines):
            self.wait(self.random.uniform(0.0, 0.3))
            end = min(at + lines, RECORDS)
            yield Piece(self.records[at:end], b"%d" % end)

    def loader(self, name: str) -> None:
        def write(t: TransactionFace, record: dict[str, str]) -> None:
            click = t.table("clicks").row(record["id"])
            for column in ("campaign", "print", "name"):
                click.set(column, record[column])

        tables = self.tables(name)
        if self.told:
            observe(tables)
        while not self.loaded:
            try:
                load(tables.run, self, write, at_once=AT_ONCE)
                self.loaded = True
            except TROUBLE:
                self.wait(0.1)

    def worker(self, locks: RowLocks) -> Callable[[str], None]:
        def work(name: str) -> None:
            tables = self.tables(name)
            observe(tables)
            worker = Worker(tables, locks=locks)
            while not self.over:
                try:
                    worker.publish()
                    while not self.over:
                        if not worker.step():
                            self.wait(self.random.uniform(0.05, 0.5))
                except TROUBLE:
                    self.wait(0.1)

        return work

    def collector(self, name: str) -> None:
        tables = self.tables(name)
        while not self.over:
            try:
                seen, safe_point = tables.system.look().safe_point, tables.around.timestamp()
                self.wait(self.random.uniform(0.2, 1.0))
                self.counts["collected"] += Collector(tables.around, tables.resolver, tables.system).step(
                    seen, safe_point
                )
            except TROUBLE:
                self.wait(0.1)

    def reader(self, name: str) -> None:
        """Reads the same moment twice, with some time between."""
        tables = self.tables(name)
        while not self.over:
            hold_s = self.random.choice((0.0, HOLD_S))
            try:
                with tables.snapshot(hold_s=hold_s) as now:
                    self._twice(tables, now, held=bool(hold_s))
            except TROUBLE:
                self.wait(0.1)

    def _twice(self, tables: Tables, now: Snapshot, *, held: bool) -> None:
        try:
            seen = clusters_of(now)
            self.wait(self.random.uniform(0.0, 8.0))
            # Its own transaction, which has read nothing yet.
            later = Snapshot(Transaction(tables.around, tables.resolver, tables.system, start=now.start))
            again = clusters_of(later)
        except TooOld:
            self.say("a snapshot is refused")
            if held:
                raise Violation(f"held: the snapshot of {now.start} was refused") from None
            raise
        if seen != again:
            raise Violation(f"snapshot: {now.start} has seen {seen}, and later {again}")
        self.say(f"a snapshot is the same{' and was held' * held}")

    # -- a schedule --------------------------------------------------------------------------------------------------
    def run_all(self) -> None:
        try:
            self._phases()
        finally:
            self.close()

    def _phases(self) -> None:
        locks = thread_locks()
        self.kept("client-loader", self.loader)
        for n in range(2):
            self.kept(f"client-worker-{n}", self.worker(locks))
            self.spawn(f"collector-{n}", lambda n=n: self.collector(f"collector-{n}"))  # type: ignore[misc]
            self.spawn(f"reader-{n}", lambda n=n: self.reader(f"reader-{n}"))  # type: ignore[misc]
        self.run(lambda: self.loaded, 3_000)
        until = self.now + self.random.uniform(0.0, 20.0)
        self.run(lambda: self.now > until, 30)
        self.over = True
        self.run(lambda: all(task.done or task.dead for task in self.tasks), 3_000)
        self.stormy = False
        late = self.now + 10
        self.run(lambda: self.now > late, 20)
        self.spawn("end", self._end)
        self.run(lambda: self.tasks[-1].done, 3_000)
        self._check()

    def _end(self) -> None:
        tables = self.tables("end")
        observe(tables)
        worker = Worker(tables, locks=thread_locks())
        worker.publish()
        worker.drain()
        with tables.snapshot() as now:  # resolves the remaining locks
            for name in self.truth.tables():
                for _ in now.table(name).scan():
                    pass

    def _check(self) -> None:
        canonical: dict[str, str] = {}
        for record in self.records:
            known = canonical.get(record["print"], record["id"])
            canonical[record["print"]] = min(known, record["id"])
        size = Counter(record["print"] for record in self.records)
        campaign = {record["id"]: record["campaign"] for record in self.records}
        wanted = {
            "clicks": {record["id"]: {**record, "name": record["name"].lower()} for record in self.records},
            "clusters": {
                name: {"canonical": key, "size": size[name], "counted": campaign[key]}
                for name, key in canonical.items()
            },
            "tally": {name: {"n": n} for name, n in Counter(campaign.values()).items()},
        }
        for record in wanted["clicks"].values():
            del record["id"]
        for table, rows in wanted.items():
            found = self._rows(table)
            if found != rows:
                raise Violation(f"batch: {table} is {found}, and the batch says {rows}")
        counts = Counter(campaign[key] for key in canonical.values())
        for table, column in (("campaigns", "clusters"), ("serving", "n")):
            shown = {row: values[column] for row, values in self._rows(table).items() if values[column]}
            if shown != counts:
                raise Violation(f"batch: {table} is {shown}, and the batch says {dict(counts)}")

    def _rows(self, table: str) -> dict[str, dict[str, Any]]:
        """Rows in the store that hold a value, without the observers' own columns."""
        found: dict[str, dict[str, Any]] = {}
        for row, columns in self.truth.scan(table, "", None, None, 2**60, 10**6):
            for column, held in columns.items():
                value = value_of(held.version)
                if "@" not in column and value is not None:
                    found.setdefault(row, {})[column] = orjson.loads(value)
        return found


class ChainInFile(Chain):
    in_file = True


def clusters_of(now: Snapshot) -> dict[str, Any]:
    return {row.key: row.values() for row in now.table("clusters").scan()}


def observe(tables: Tables) -> None:
    @observer(tables, "clicks", "print")
    def cluster(t: TransactionFace, click: Any) -> None:
        found = t.table("clusters").row(click.get("print"))
        canonical, size = found.get_many("canonical", "size")
        found.set("size", (size or 0) + 1)
        found.set("canonical", click.key if canonical is None else min(canonical, click.key))

    @observer(tables, "clicks", "print")
    def tally(t: TransactionFace, click: Any) -> None:
        row = t.table("tally").row(click.get("campaign"))
        row.set("n", (row.get("n") or 0) + 1)

    @observer(tables, "clicks", "name")
    def lower(t: TransactionFace, click: Any) -> None:
        name = click.get("name")
        if name != name.lower():  # or it would run endlessly
            click.set("name", name.lower())

    @observer(tables, "clusters", "canonical")
    def count(t: TransactionFace, found: Any) -> None:
        canonical, counted = found.get_many("canonical", "counted")
        campaign = t.table("clicks").row(canonical).get("campaign")
        for name, step in ((counted, -1), (campaign, 1)):
            if name is not None and campaign != counted:
                row = t.table("campaigns").row(name)
                row.set("clusters", (row.get("clusters") or 0) + step)
        found.set("counted", campaign)

    @observer(tables, "campaigns", "clusters")
    def serve(t: TransactionFace, campaign: Any) -> None:
        t.table("serving").row(campaign.key).set("n", campaign.get("clusters"))
