"""``photon ledger``: what became of every event read."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from photon.cli import deployment_file
from photon.cli.errors import ATTENTION, DONE
from photon.cli.looking import again

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command()
@click.argument("output", type=click.Path(path_type=Path), required=False)
@deployment_file.config(required=False, unless=["output"], help="In place of OUTPUT: the deployment file.")
@click.option("--datacentre", metavar="NAME", help="With --config: only this one's ledger.")
@click.option("--watch", is_flag=True, help="Show it again and again, until Ctrl-C.")
@click.option("--every", type=click.FloatRange(0.1), default=2.0, show_default=True, metavar="SECONDS",
              help="With --watch: from one time to the next.")  # fmt: skip
@click.option("-o", "output_format", type=click.Choice(["table", "json"]), default="table", show_default=True)
def ledger(
    output: Path | None, config: Path | None, datacentre: str | None, watch: bool, every: float, output_format: str
) -> int:
    """Show the ledger per event-time hour, of an output of photon join or of a pipeline's state directory.

    \b
    With --config of several datacentres: all whose state lies on this machine, sums of those whose dispatcher
    answers, and what they made together: each event is joined, filtered or unmatched in one datacentre, and counted
    as elsewhere by the others that read it. --watch -o json writes a line each time.
    Examples:
      photon ledger out/
      photon ledger --config photon.toml
      photon ledger --config photon.toml --datacentre east --watch
      photon ledger /var/lib/photon/east -o json
    Exit codes: 0 it balances, 3 it does not.
    """
    from photon.config.errors import UsageError

    if output is not None and (config is not None or datacentre is not None):
        raise UsageError("OUTPUT and --config with --datacentre say the same; name one of them")
    look = _looking(output, config, datacentre)
    if watch:
        return _watch(look, every, output_format)
    seen = look()
    if output_format == "json":
        click.echo(orjson.dumps(seen.json).decode())
    else:
        from photon.cli import tables

        tables.show(seen.table)
        for note in seen.notes:
            click.echo(note)
    return _tell(seen)


class _Seen:
    """A ledger, or several, at one moment."""

    def __init__(
        self, json: dict[str, Any], table: RenderableType, unbalanced: list[str], missing: list[str], notes: list[str]
    ) -> None:
        self.json, self.table, self.unbalanced = json, table, unbalanced
        self.missing, self.notes = missing, notes


def _tell(seen: _Seen) -> int:
    """What is wrong, on stderr; the exit code."""
    for each in seen.missing:
        click.echo(f"photon: {each}", err=True)
    if seen.unbalanced:
        hours = ", ".join(seen.unbalanced)
        click.echo(f"photon: the ledger does not balance in {hours}; this is a defect, keep the directory", err=True)
        return ATTENTION
    return DONE


def _looking(output: Path | None, config: Path | None, datacentre: str | None) -> Callable[[], _Seen]:
    """Reads what is asked for, each time it is called. Raises UsageError."""
    from photon.config.loader import load
    from photon.dispatcher.database import read_ledger
    from photon.embedded.ledger import as_json, hour_name

    if config is not None:
        settings = load(config, environment=os.environ)
        if datacentre is None and len(settings.datacentre) > 1:
            return lambda: _all(settings, config.parent)
        path = _of_deployment(config, datacentre)
    else:
        path = _of_directory(output)

    def one() -> _Seen:
        from photon.cli.ledger_tables import table_of

        read = read_ledger(path)
        return _Seen(as_json(read), table_of(read), [hour_name(hour) for hour in read.unbalanced], [], [])

    return one


def _all(settings: Any, base: Path) -> _Seen:
    from photon.cli.ledger_tables import table_of_all
    from photon.config.errors import UsageError
    from photon.embedded.ledger import accounts, all_as_json

    found = accounts(settings, base)
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
    return _Seen(all_as_json(found), table_of_all(found), unbalanced, missing, notes)


# -- again and again ---------------------------------------------------------------------------------------------
def _watch(look: Callable[[], _Seen], every: float, output_format: str) -> int:
    """Until Ctrl-C or SIGTERM, or until nobody reads it any more; the exit code is that of the last look."""
    with contextlib.ExitStack() as stack:
        show = _shown(output_format, stack)

        def once() -> _Seen:
            seen = look()
            show(seen)
            return seen

        seen = again(once, every)
    return DONE if seen is None else _tell(seen)


def _shown(output_format: str, stack: contextlib.ExitStack) -> Callable[[_Seen], None]:
    """Tables in place on a terminal, one after the other in a pipe; JSON always line by line."""
    if output_format == "json" or not sys.stdout.isatty():
        return lambda seen: _write(seen, output_format)
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    live = stack.enter_context(Live(auto_refresh=False, vertical_overflow="ellipsis"))

    def show(seen: _Seen) -> None:
        notes = [Text(note, style="dim") for note in (*seen.notes, *seen.missing)]
        live.update(Group(seen.table, *notes), refresh=True)

    return show


def _write(seen: _Seen, output_format: str) -> None:
    from photon.cli import tables

    if output_format == "json":
        click.echo(orjson.dumps({"at": time.time_ns(), **seen.json}).decode())
    else:
        tables.show(seen.table)
        for note in seen.notes:
            click.echo(note)
        click.echo()
    sys.stdout.flush()


# -- where it lies -----------------------------------------------------------------------------------------------
def _of_directory(output: Path | None) -> Path:
    from photon.config.errors import UsageError
    from photon.embedded.ledger import ledger_file
    from photon.embedded.site import OWN_DIRECTORIES

    if output is None:
        raise UsageError("name an output of photon join or a pipeline's state directory, or --config FILE")
    for path in (ledger_file(output / ".photon"), ledger_file(output)):
        if path.exists():
            return path
    if any((output / name).is_dir() for name in OWN_DIRECTORIES):
        raise UsageError(
            f"{output}: an output without a ledger; a deployment's is in the pipeline's state directory: name that, "
            "or --config FILE --datacentre NAME"
        )
    raise UsageError(f"{output}: no ledger there; name an output of photon join or a pipeline's state directory")


def _of_deployment(config: Path, datacentre: str | None) -> Path:
    from photon.config.errors import UsageError
    from photon.config.loader import load
    from photon.embedded.ledger import ledger_file
    from photon.fleet.access import pipeline_named

    name, pipeline = pipeline_named(load(config, environment=os.environ), datacentre)
    path = ledger_file(config.parent / pipeline.state)
    if not path.exists():
        raise UsageError(f"{path}: no ledger there yet; the dispatcher of datacentre {name} has not begun here")
    return path
