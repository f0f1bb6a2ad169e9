"""Reads the ledgers of a deployment's datacentres, from this machine or from dispatchers, and combines them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from photon.config.disk import RealDisk
from photon.config.settings import Settings
from photon.config.tls import OPERATOR
from photon.dispatcher.database import STATE_NAME
from photon.dispatcher.database import read_ledger as _read
from photon.dispatcher.ledger import Ledger, LedgerLine, Verdict, hour_name, made, total_of
from photon.dispatcher.partitions import there
from photon.fleet.counters import EMPTY, VERDICTS

ASK_S = 2.0


def ledger_file(state: Path) -> Path:
    return state / STATE_NAME


def read_ledger(state: Path) -> dict[str, int]:
    """Reads a ledger's totals, including the counters outside the sum. Returns zeros if the dispatcher has never run.
    Raises StateError."""
    path = ledger_file(state)
    if not there(path):
        return dict(EMPTY)
    total = _read(path).total
    return total.as_dict() | total.apart()


def balances(ledger: Mapping[str, int]) -> bool:
    """Returns True if ``read`` is the sum of all verdicts and ``pending``, which must always hold."""
    return ledger["read"] == sum(ledger[name] for name in VERDICTS) + ledger["pending"]


def as_json(ledger: Ledger) -> dict[str, Any]:
    return {
        "total": ledger.total.as_dict() | ledger.total.apart(),
        "hours": {hour_name(hour): line.as_dict() | line.apart() for hour, line in ledger.hours.items()},
        "balances": not ledger.unbalanced,
    }


@dataclass(frozen=True, slots=True)
class Account:
    """The ledger of one datacentre. ``whole``: `None` if its hours are on another machine. ``missing``: why nothing
    is known."""

    datacentre: str
    total: LedgerLine | None
    whole: Ledger | None = None
    missing: str = ""
    join: str = ""

    @property
    def unbalanced(self) -> list[str]:
        """Returns the names of hours that do not balance, or ``all`` for the totals."""
        if self.whole is not None:
            return [hour_name(hour) for hour in self.whole.unbalanced]
        return ["all"] if self.total is not None and self.total.balance else []


def accounts(settings: Settings, base: Path) -> list[Account]:
    """Returns the ledgers of all datacentres in the file. Raises StateError, JournalDamaged if a local one cannot be
    read."""
    found = {
        name: _on_spark(base / pipeline.state, name, pipeline.spark_slot(name))
        if pipeline.on_spark
        else _here(base / pipeline.state, name)
        for name, pipeline in settings.datacentre.items()
    }
    away = [name for name, each in found.items() if each is None]
    told = asyncio.run(_told(settings, base, away)) if away else {}
    joins = {name: pipeline.join for name, pipeline in settings.datacentre.items()}
    return [replace(each or told[name], join=joins[name]) for name, each in found.items()]


def _here(state: Path, name: str) -> Account | None:
    path = ledger_file(state)
    if not there(path):
        return None
    ledger = _read(path)
    return Account(name, ledger.total, ledger)


def _on_spark(state: Path, name: str, slot: str) -> Account | None:
    """Returns the account of a join on Spark, whose commits count totals over all hours."""
    from photon.spark.pipeline.journal import journal_of
    from photon.spark.pipeline.standing import ledger_of, read_standing

    found = read_standing(RealDisk(), journal_of(state, slot), lambda file, rows: len(rows))
    if found is None:
        return Account(name, total_of({})) if state.is_dir() else None
    commit, waiting = found
    return Account(name, ledger_of(commit.counts, sum(waiting)))


async def _told(settings: Settings, base: Path, names: list[str]) -> dict[str, Account]:
    from photon.fleet.access import tls_of
    from photon.fleet.look import look_at
    from photon.fleet.numbers import counts_of
    from photon.fleet.processes import READERS

    async def ask(name: str) -> Account:
        heard = (await look_at(settings, name, READERS, tls_of(settings, base, OPERATOR), ASK_S)).heard
        if heard and all(each.up for each in heard):
            return Account(name, total_of(counts_of(heard)))
        silent = ", ".join(each.process.address or "" for each in heard if not each.up)
        why = f"no dispatcher answers at {silent}" if silent else "its dispatcher has no address"
        return Account(name, None, missing=f"its state is not on this machine, and {why}")

    return dict(zip(names, await asyncio.gather(*map(ask, names)), strict=True))


@dataclass(frozen=True, slots=True)
class Together:
    """The combined ledger of all datacentres: each event is joined, filtered or unmatched in one of them, and counted
    as elsewhere in the others that read it. ``total`` includes datacentres that report no hours."""

    hours: Mapping[int, Mapping[Verdict, int]]
    total: Mapping[Verdict, int]


def together(found: Sequence[Account]) -> Together:
    wholes = [each.whole for each in found if each.whole is not None]
    hours = sorted({hour for whole in wholes for hour in whole.hours})
    by_hour = {hour: made(whole.hours[hour] for whole in wholes if hour in whole.hours) for hour in hours}
    return Together(by_hour, made(each.total for each in found if each.total is not None))


def by_join(found: Sequence[Account]) -> dict[str, list[Account]]:
    """Groups accounts by join. Each join in a chain has its own ledger and counts the same events again."""
    joins: dict[str, list[Account]] = {}
    for each in found:
        joins.setdefault(each.join, []).append(each)
    return joins


def named(counts: Mapping[Verdict, int]) -> dict[str, int]:
    return {verdict.name.lower(): count for verdict, count in counts.items()}


def all_as_json(found: Sequence[Account]) -> dict[str, Any]:
    """Returns each datacentre's own ledger, the combined ledger of each join, and the list of missing ledgers."""
    joins = {join: _made(together(each)) for join, each in by_join(found).items()}
    return {
        "datacentres": {each.datacentre: _as_json(each) for each in found if each.total is not None},
        "made": _made(together(found)),
        "joins": joins,
        "missing": {each.datacentre: each.missing for each in found if each.total is None},
        "balances": not any(each.unbalanced for each in found),
    }


def _made(made: Together) -> dict[str, object]:
    return {"total": named(made.total), "hours": {hour_name(hour): named(each) for hour, each in made.hours.items()}}


def _as_json(each: Account) -> dict[str, object]:
    if each.whole is not None:
        return as_json(each.whole)
    assert each.total is not None
    return {"total": each.total.as_dict() | each.total.apart(), "hours": None, "balances": not each.total.balance}
