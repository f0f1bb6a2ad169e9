"""The rules of ``docs/tables.md`` with one removed each: the simulator must notice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from photon.tables import collecting, loading, observing, resolving, tables, transaction
from photon.tables.api import Cell, Mutation
from photon.tables.cell import Lock, commit_meta
from photon.tables.observing import Worker
from photon.tables.oracle import Action, Confirm, OracleLeader
from photon.tables.resolving import Resolver
from photon.tables.store import AtomicStore
from photon.tables.system import SystemView
from photon.tables.tables import TransactionFace
from photon.tables.transaction import Transaction
from tests.simulation.tables.chains import Chain
from tests.simulation.tables.workload import InFile, Races, Schedule
from tests.simulation.tables.world import SimulatedFile, Variant


class Unconfirmed(OracleLeader):
    """Rule 6: answers from its range without asking whether it still leads."""

    def _begin(self) -> list[Action]:
        actions = super()._begin()
        if actions and isinstance(actions[0], Confirm):
            self._busy = False
            return self._serve()
        return actions

    def confirmed(self, end: int) -> list[Action]:
        return super().confirmed(self._end)


def _failed_is_aborted(self: Transaction, primary: Cell) -> int:
    """Rule 4: a missing answer to a commit means that nothing was done."""
    raise transaction.Conflict("simulated: taken for failed")


def _resolved_alone(self: Resolver, cell: Cell, meta: bytes, *, force: bool = False) -> bool:
    """Rule 5: after waiting long enough, rolls back the lock it met, regardless of its primary."""
    lock = resolving.read_meta(meta)
    assert isinstance(lock, Lock)
    if not (force or self._given_up(cell, lock)):
        return False
    return self._roll_back(cell, meta, lock)


def _never_acknowledged(self: Worker, observer: Any, row: str) -> tuple[bool, bool]:
    """Rule 7: the observer's transaction does not say that it ran."""
    raw = Transaction(self._around, self._tables.resolver, self._tables.system)
    held = raw.held(observer.table, row, observer.column)
    if held.version is None:
        return False, True
    face = TransactionFace(raw)
    observer.run(face, face.table(observer.table).row(row))
    raw.commit()
    return True, held.commit < raw.start


def _always_decided(held: Any, reader: Transaction) -> bool:
    """Rule 8: forgets what it has seen, although it is undecided, or newer than its own start."""
    return True


def _never_too_old(self: SystemView, start: int) -> None:
    """Rule 9: reads below the safe point."""


def _unresolved(*_: Any) -> None:
    """Rule 9: versions are removed although locks still need them."""


class _Blind(Transaction):
    """Rule 10: a writer uses what it saw when it began to commit."""

    def _prewrite(self, cells: list[Cell], observed: set[tuple[str, str]]) -> None:
        super()._prewrite(cells, observed)
        self._system = _Still(self._system, observed)  # type: ignore[assignment]


class _Still:
    def __init__(self, system: SystemView, observed: set[tuple[str, str]]) -> None:
        self._observed = observed
        self.check = system.check

    def observed(self) -> set[tuple[str, str]]:
        return self._observed


def _seeds_at_once(self: Worker) -> None:
    """Rule 10: an observer's column is notified before all writers know of it."""
    sleep, self._around.sleep = self._around.sleep, lambda seconds: None
    try:
        publish(self)
    finally:
        self._around.sleep = sleep


publish = Worker.publish


def _not_held(self: SystemView, start: int, seconds: float) -> None:
    """Rule 9: nobody hears of a held snapshot."""


def _cursor_apart(
    transaction: Any, name: str, before: str | None, after: str, records: Sequence[Any], work: Callable[..., object]
) -> None:
    """Loading: the changes made from the records are committed before their cursor."""
    raw = transaction.raw
    for record in records:
        work(transaction, record)
    raw.commit()
    raw.writes.clear()
    cursor = Transaction(raw._around, raw._resolver, raw._system)
    cursor.write(loading.CURSORS, name, "cursor", orjson.dumps(after))
    cursor.commit()


def _unconfirmed_range(self: AtomicStore) -> int:
    """Rule 11: a client hands out its range without reading that it is still the last."""
    if self._next < self._end:
        self._next += 1
        return self._next - 1
    return timestamp(self)


timestamp = AtomicStore.timestamp


def _timestamp_before_the_step(
    self: SimulatedFile, mutations: Callable[[int, bytes | None], Sequence[Mutation]]
) -> bool | None:
    """Rule 11: others may begin between the commit timestamp and the commit."""
    at = self.timestamp()
    return commit(self, lambda _, state: mutations(at, state))


commit = SimulatedFile.commit


def _observed_before_the_step(self: SystemView, meta: bytes | None) -> set[tuple[str, str]]:
    """Rule 11: a step believes the columns that its client last saw."""
    return self._all_observed()


@dataclass(frozen=True)
class Ablation:
    variant: Variant
    finds: str
    kind: type[Any] = Schedule


def _patch(where: Any, name: str, value: Any) -> Variant:
    return Variant(patched=[(where, name, value)])


_UNMARKED = [(each, "rolled_back", commit_meta) for each in (resolving, transaction)]


ABLATIONS = {
    "rule 1: primary not first": Ablation(Variant(ordered=False), "half|fractured|lost commit|false abort|sum"),
    "rule 2: notified with the commit": Ablation(Variant(notify_late=True), "observers"),
    "rule 3: a roll-back leaves no mark": Ablation(
        Variant(patched=[*_UNMARKED]), "half|fractured|lost|wrong snapshot|false abort", Races
    ),
    "rule 4: a lost answer to a commit taken for failure": Ablation(
        _patch(Transaction, "_committed_at", _failed_is_aborted), "false abort|observers"
    ),
    "rule 5: resolved without the primary": Ablation(
        _patch(Resolver, "settle", _resolved_alone), "half|fractured|lost|wrong snapshot|sum"
    ),
    "rule 6: leadership not confirmed": Ablation(Variant(leader=Unconfirmed), "oracle"),
    "rule 7: not acknowledged": Ablation(_patch(Worker, "_observe", _never_acknowledged), "observers"),
    "rule 8: forgotten undecided": Ablation(_patch(observing, "_decided", _always_decided), "observers"),
    "rule 9: read below the safe point": Ablation(
        _patch(SystemView, "check", _never_too_old), "snapshot|read|sum|scan"
    ),
    "rule 9: below the safe point a lost commit is a roll-back": Ablation(
        _patch(transaction, "TooOld", ZeroDivisionError), "false abort"
    ),
    "rule 9: locks left behind the safe point": Ablation(
        _patch(collecting, "_resolve", _unresolved), "half|fractured|lost"
    ),
    "rule 9: a hold is not heard of": Ablation(_patch(SystemView, "hold", _not_held), "held: .* refused", Chain),
    "rule 11: a range is not confirmed": Ablation(
        _patch(AtomicStore, "timestamp", _unconfirmed_range), "oracle", InFile
    ),
    "rule 11: a commit timestamp from before the step": Ablation(
        _patch(SimulatedFile, "commit", _timestamp_before_the_step), "fractured|wrong|lost|sum", InFile
    ),
    "rule 11: observed columns from before the step": Ablation(
        _patch(SystemView, "observed_in", _observed_before_the_step), "observers: .* of news", InFile
    ),
    "rule 11: a refused step after a lost answer taken for failure": Ablation(
        _patch(Transaction, "_committed_at", _failed_is_aborted), "false abort|observers", InFile
    ),
    "loading: the cursor apart": Ablation(_patch(loading, "_step", _cursor_apart), "batch", Chain),
    "rule 10: a writer does not look again": Ablation(_patch(tables, "Transaction", _Blind), "observers: .* of news"),
    "rule 10: no grace before what is there is notified": Ablation(
        _patch(Worker, "publish", _seeds_at_once), "observers: .* of news"
    ),
}
