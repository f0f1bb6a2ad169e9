"""``photon status ledger``: counts what became of every event read."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from photon.cli.errors import ATTENTION, DONE
from photon.cli.looking import again
from photon.cli.tables import say, table_of
from photon.config.errors import UsageError
from photon.fleet.parts import Column, Part

if TYPE_CHECKING:
    from photon.cli.heads import Deployed


def ledger(at: Deployed, name: str | None = None, watch: bool = False, every: float = 2.0) -> int:
    """``photon status ledger [NAME]``: shows counts by hour of event time. NAME: an output of photon join, or a
    pipeline's state directory.

    With --config and several datacentres: shows hours for those with a state on this machine, totals for those whose
    dispatcher answers, and combined totals. Each event is joined, filtered or unmatched in one datacentre; the others
    that read it count it as elsewhere. ``watch`` with -o json prints a line each time. Exit code 3: the ledger does
    not balance.
    """
    named = click.get_current_context().get_parameter_source("config") is ParameterSource.COMMANDLINE
    if name is not None and (named or at.datacentre is not None):
        raise UsageError("give either NAME, or --config and --datacentre")
    output = None if name is None else Path(name)
    look = _looking(at, output)
    if watch:
        return _watch(at, look, every)
    seen = look()
    at.show(seen.document, seen.part, *seen.notes)
    return _tell(seen)


class _Seen(NamedTuple):
    document: dict[str, Any]
    part: Part
    unbalanced: list[str]
    missing: Sequence[str] = ()
    notes: Sequence[str] = ()


def _tell(seen: _Seen) -> int:
    """Prints problems on standard error. Returns the exit code."""
    for each in seen.missing:
        say(each)
    if seen.unbalanced:
        hours = ", ".join(seen.unbalanced)
        say(f"the ledger does not balance in {hours}; this is a bug in Photon: keep the directory and report it")
        return ATTENTION
    return DONE


def _looking(at: Deployed, output: Path | None) -> Callable[[], _Seen]:
    """Returns a function that reads the requested ledgers. Raises UsageError."""
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
        said = as_json(read)
        rows = [{"hour": hour, **counts} for hour, counts in said["hours"].items()]
        rows.append({"hour": "all", **said["total"], "style": "bold"})
        return _Seen(said, _part(rows, "hour"), [hour_name(hour) for hour in read.unbalanced])

    return one


def _all(at: Deployed) -> _Seen:
    from photon.fleet.ledger import accounts, all_as_json

    found = accounts(at.settings, at.base)
    missing = [f"datacentre {each.datacentre}: {each.missing}" for each in found if each.total is None]
    if len(missing) == len(found):
        raise UsageError(f"{'; '.join(missing)}; run this on a machine that has one of them")
    unbalanced = [f"{hour} of {each.datacentre}" for each in found for hour in each.unbalanced]
    notes = ["all: each event has its verdict in one datacentre; others that read it count it as elsewhere"]
    notes += [
        f"{each.datacentre}: totals from its dispatcher; hours are shown only on its machine"
        for each in found
        if each.total is not None and each.whole is None
    ]
    said = all_as_json(found)
    return _Seen(said, _part(list(_rows(said)), "hour", "datacentre"), unbalanced, missing, notes)


# -- watch ------------------------------------------------------------------------------------------------------
def _watch(at: Deployed, look: Callable[[], _Seen], every: float) -> int:
    """Shows the ledger repeatedly until Ctrl-C, SIGTERM, or the end of the output's reader. Returns the exit code of
    the last look."""
    with contextlib.ExitStack() as stack:
        show = _shown(at, stack)

        def once() -> _Seen:
            seen = look()
            show(seen)
            return seen

        seen = again(once, every)
    return DONE if seen is None else _tell(seen)


def _shown(at: Deployed, stack: contextlib.ExitStack) -> Callable[[_Seen], None]:
    """Returns a function that shows the ledger: redrawn in place on a terminal, appended in a pipe. JSON is always
    appended."""
    if at.json or not sys.stdout.isatty():
        return lambda seen: _write(at, seen)
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    live = stack.enter_context(Live(auto_refresh=False, vertical_overflow="ellipsis"))

    def show(seen: _Seen) -> None:
        notes = [Text(note, style="dim") for note in (*seen.notes, *seen.missing)]
        live.update(Group(table_of(seen.part), *notes), refresh=True)

    return show


def _write(at: Deployed, seen: _Seen) -> None:
    at.show({"at": time.time_ns(), **seen.document}, seen.part, *seen.notes, "")
    sys.stdout.flush()


# -- location ----------------------------------------------------------------------------------------------------
def _of_directory(output: Path | None) -> Path:
    from photon.dispatcher.partitions import there
    from photon.fleet.ledger import ledger_file
    from photon.local_join.site import OWN_DIRECTORIES

    if output is None:
        raise UsageError("give an output of photon join, a pipeline's state directory, or --config FILE")
    for path in (ledger_file(output / ".photon"), ledger_file(output)):
        if there(path):
            return path
    if (output / ".photon").is_dir():
        raise UsageError(f"{output}: no ledger yet: photon join has not joined anything into it")
    if any((output / name).is_dir() for name in OWN_DIRECTORIES):
        raise UsageError(
            f"{output}: has no ledger; a deployment's ledger is in the pipeline's state directory: give that, "
            "or --config FILE --datacentre NAME"
        )
    raise UsageError(f"{output}: no ledger; give an output of photon join or a pipeline's state directory")


def _of_deployment(at: Deployed) -> Path:
    from photon.dispatcher.partitions import there
    from photon.fleet.ledger import ledger_file

    name, pipeline = at.pipeline
    path = ledger_file(at.base / pipeline.state)
    if not there(path):
        raise UsageError(f"{path}: no ledger yet; the dispatcher of datacentre {name} has never run here")
    return path


# -- table -----------------------------------------------------------------------------------------------------------
def _part(rows: Sequence[dict[str, Any]], *first: str) -> Part:
    from photon.fleet.counters import COUNTERS

    heads = {"hour": "hour (UTC)"}
    columns = [Column(heads.get(name, name), name, str) for name in first]
    columns += [Column(f">{name}", name, lambda count: "" if count is None else f"{count:,}") for name in COUNTERS]
    return Part("", rows, columns, style=lambda row: row.get("style", ""))


def _rows(said: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields for each hour one row per datacentre and the combined ledger of each join; then the totals."""
    places, joins = said["datacentres"], said["joins"]
    all_ = {"all" if len(joins) == 1 else f"all of {join}": each for join, each in joins.items()}
    hours = {hour for each in all_.values() for hour in each["hours"]}
    for hour in sorted(hours, key=lambda name: (name[0].isdigit(), name)):  # the unknown hour first
        label = hour
        for name, each in places.items():
            if each["hours"] and hour in each["hours"]:
                yield {"hour": label, "datacentre": name, **each["hours"][hour]}
                label = ""
        for what, made in all_.items():
            if hour in made["hours"]:
                yield {"hour": "", "datacentre": what, **made["hours"][hour], "style": "dim"}
    for at, (name, each) in enumerate(places.items()):
        yield {"hour": "" if at else "all", "datacentre": name, **each["total"], "style": "bold"}
    for what, made in all_.items():
        yield {"hour": "", "datacentre": what, **made["total"], "style": "bold"}
