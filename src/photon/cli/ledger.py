"""The fate of every event read."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from photon.cli.errors import ATTENTION, DONE
from photon.cli.looking import again
from photon.cli.tables import print_json, say
from photon.config.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from photon.cli.heads import Deployed
    from photon.dispatcher.ledger import Ledger, LedgerLine
    from photon.fleet.ledger import Account


def ledger(at: Deployed, name: str | None = None, watch: bool = False, every: float = 2.0) -> int:
    """``photon status ledger [NAME]``: by hour of event time; NAME: an output of photon join or a pipeline's state
    directory.

    With --config of several datacentres: shows those with a state on this machine, sums for those whose dispatcher
    answers, and the total: each event is joined, filtered or unmatched in one datacentre, and counted as elsewhere by
    the others that read it. ``watch`` with -o json writes a line each time. Exit code 3: it does not balance.
    """
    named = click.get_current_context().get_parameter_source("config") is ParameterSource.COMMANDLINE
    if name is not None and (named or at.datacentre is not None):
        raise UsageError("NAME and --config with --datacentre say the same; name one of them")
    output = None if name is None else Path(name)
    look = _looking(at, output)
    if watch:
        return _watch(look, every, as_json=at.json)
    seen = look()
    at.show(seen.json, lambda: _print(seen))
    return _tell(seen)


class _Seen:
    def __init__(
        self, json: dict[str, Any], table: RenderableType, unbalanced: list[str], missing: list[str], notes: list[str]
    ) -> None:
        self.json, self.table, self.unbalanced = json, table, unbalanced
        self.missing, self.notes = missing, notes


def _tell(seen: _Seen) -> int:
    """Prints problems on stderr. Returns the exit code."""
    for each in seen.missing:
        say(each)
    if seen.unbalanced:
        hours = ", ".join(seen.unbalanced)
        say(f"the ledger does not balance in {hours}; this is a defect, keep the directory")
        return ATTENTION
    return DONE


def _looking(at: Deployed, output: Path | None) -> Callable[[], _Seen]:
    """A function that reads the requested ledgers. Raises UsageError."""
    from photon.dispatcher.database import read_ledger
    from photon.dispatcher.ledger import hour_name
    from photon.fleet.ledger import as_json

    if output is None and at.given is not None:
        if at.datacentre is None and len(at.settings.datacentre) > 1:
            return lambda: _all(at)
        path = _of_deployment(at)
    else:
        path = _of_directory(output)

    def one() -> _Seen:
        read = read_ledger(path)
        return _Seen(as_json(read), _table_of(read), [hour_name(hour) for hour in read.unbalanced], [], [])

    return one


def _all(at: Deployed) -> _Seen:
    from photon.fleet.ledger import accounts, all_as_json

    found = accounts(at.settings, at.base)
    missing = [f"datacentre {each.datacentre}: {each.missing}" for each in found if each.total is None]
    if len(missing) == len(found):
        raise UsageError(f"{'; '.join(missing)}; run this where one of them is")
    unbalanced = [f"{hour} of {each.datacentre}" for each in found for hour in each.unbalanced]
    notes = ["all: each event has its verdict in one datacentre; the others that read it count it as elsewhere"]
    notes += [
        f"{each.datacentre}: sums as its dispatcher says; its hours lie where it runs"
        for each in found
        if each.total is not None and each.whole is None
    ]
    return _Seen(all_as_json(found), _table_of_all(found), unbalanced, missing, notes)


# -- again and again ---------------------------------------------------------------------------------------------
def _watch(look: Callable[[], _Seen], every: float, *, as_json: bool) -> int:
    """Repeats until Ctrl-C or SIGTERM, or until its reader has gone. Returns the exit code of the last look."""
    with contextlib.ExitStack() as stack:
        show = _shown(stack, as_json=as_json)

        def once() -> _Seen:
            seen = look()
            show(seen)
            return seen

        seen = again(once, every)
    return DONE if seen is None else _tell(seen)


def _shown(stack: contextlib.ExitStack, *, as_json: bool) -> Callable[[_Seen], None]:
    """Draws tables in place on a terminal, one after the other in a pipe; JSON always line by line."""
    if as_json or not sys.stdout.isatty():
        return lambda seen: _write(seen, as_json=as_json)
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    live = stack.enter_context(Live(auto_refresh=False, vertical_overflow="ellipsis"))

    def show(seen: _Seen) -> None:
        notes = [Text(note, style="dim") for note in (*seen.notes, *seen.missing)]
        live.update(Group(seen.table, *notes), refresh=True)

    return show


def _write(seen: _Seen, *, as_json: bool) -> None:
    if as_json:
        print_json({"at": time.time_ns(), **seen.json})
    else:
        _print(seen)
        click.echo()
    sys.stdout.flush()


def _print(seen: _Seen) -> None:
    from photon.cli import tables

    tables.show(seen.table)
    for note in seen.notes:
        click.echo(note)


# -- where it lies -----------------------------------------------------------------------------------------------
def _of_directory(output: Path | None) -> Path:
    from photon.dispatcher.partitions import there
    from photon.fleet.ledger import ledger_file
    from photon.local_join.site import OWN_DIRECTORIES

    if output is None:
        raise UsageError("name an output of photon join or a pipeline's state directory, or --config FILE")
    for path in (ledger_file(output / ".photon"), ledger_file(output)):
        if there(path):
            return path
    if any((output / name).is_dir() for name in OWN_DIRECTORIES):
        raise UsageError(
            f"{output}: an output without a ledger; a deployment's is in the pipeline's state directory: name that, "
            "or --config FILE --datacentre NAME"
        )
    raise UsageError(f"{output}: no ledger there; name an output of photon join or a pipeline's state directory")


def _of_deployment(at: Deployed) -> Path:
    from photon.dispatcher.partitions import there
    from photon.fleet.ledger import ledger_file

    name, pipeline = at.pipeline
    path = ledger_file(at.base / pipeline.state)
    if not there(path):
        raise UsageError(f"{path}: no ledger there yet; the dispatcher of datacentre {name} has not begun here")
    return path


# -- as tables -------------------------------------------------------------------------------------------------------
def _table_of(read: Ledger) -> Table:
    from photon.dispatcher.ledger import hour_name

    table = _table(["hour (UTC)"], read.total)
    for hour, each in read.hours.items():
        table.add_row(hour_name(hour), *_counts(each))
    table.add_section()
    table.add_row("all", *_counts(read.total), style="bold")
    return table


def _table_of_all(found: Sequence[Account]) -> Table:
    """For each hour: a line per datacentre, and the combined ledger of each join."""
    from photon.dispatcher.ledger import hour_name
    from photon.fleet.ledger import by_join, named, together

    known = [each for each in found if each.total is not None]
    first = known[0].total
    assert first is not None
    table = _table(["hour (UTC)", "datacentre"], first)
    names = list(first.as_dict())
    joins = by_join(known)
    all_ = {"all" if len(joins) == 1 else f"all of {join}": together(each) for join, each in joins.items()}
    for hour in sorted({hour for each in all_.values() for hour in each.hours}):
        label = hour_name(hour)
        for each in known:
            if each.whole is not None and hour in each.whole.hours:
                table.add_row(label, each.datacentre, *_counts(each.whole.hours[hour]))
                label = ""
        for what, made in all_.items():
            if hour in made.hours:
                table.add_row("", what, *_known(names, named(made.hours[hour])), style="dim")
    table.add_section()
    for at, each in enumerate(known):
        assert each.total is not None
        table.add_row("" if at else "all", each.datacentre, *_counts(each.total), style="bold")
    for what, made in all_.items():
        table.add_row("", what, *_known(names, named(made.total)), style="bold")
    return table


def _known(names: Sequence[str], counts: Mapping[str, int]) -> list[str]:
    return [f"{counts[name]:,}" if name in counts else "" for name in names]


def _table(first: Sequence[str], line: LedgerLine) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in first:
        table.add_column(name)
    for name in line.as_dict() | line.apart():
        table.add_column(name, justify="right", style="dim" if name in line.apart() else "")
    return table


def _counts(line: LedgerLine) -> list[str]:
    return [f"{count:,}" for count in (line.as_dict() | line.apart()).values()]
