"""Ledgers as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table

from photon.dispatcher.ledger import Ledger, LedgerLine
from photon.fleet.ledger import Account, hour_name, named, together


def table_of(read: Ledger) -> Table:
    """An hour a line, and all."""
    table = _table(["hour (UTC)"], read.total)
    for hour, each in read.hours.items():
        table.add_row(hour_name(hour), *_counts(each))
    table.add_section()
    table.add_row("all", *_counts(read.total), style="bold")
    return table


def table_of_all(found: Sequence[Account]) -> Table:
    """Each hour: a line for each datacentre, and what they made together."""
    known = [each for each in found if each.total is not None]
    first = known[0].total
    assert first is not None
    table = _table(["hour (UTC)", "datacentre"], first)
    names = list(first.as_dict())
    all_ = together(found)
    for hour, made in all_.hours.items():
        label = hour_name(hour)
        for each in known:
            if each.whole is not None and hour in each.whole.hours:
                table.add_row(label, each.datacentre, *_counts(each.whole.hours[hour]))
                label = ""
        table.add_row("", "all", *_known(names, named(made)), style="dim")
    table.add_section()
    for at, each in enumerate(known):
        assert each.total is not None
        table.add_row("" if at else "all", each.datacentre, *_counts(each.total), style="bold")
    table.add_row("", "all", *_known(names, named(all_.total)), style="bold")
    return table


def _known(names: Sequence[str], counts: Mapping[str, int]) -> list[str]:
    return [f"{counts[name]:,}" if name in counts else "" for name in names]


def _table(first: Sequence[str], line: LedgerLine) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in first:
        table.add_column(name)
    for name in line.as_dict() | line.apart():
        table.add_column(name, justify="right", style="dim" if name in line.apart() else "")
    return table


def _counts(line: LedgerLine) -> list[str]:
    return [f"{count:,}" for count in (line.as_dict() | line.apart()).values()]
