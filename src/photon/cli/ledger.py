"""``photon ledger``: what became of every event read."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import orjson
from rich.console import Console
from rich.table import Table

from photon.cli.errors import ATTENTION, DONE

PIPE_WIDTH = 240
"""Columns for a table that goes into a file or a pipe: there is no terminal to wrap it for."""


@click.command()
@click.argument("output", type=click.Path(path_type=Path))
@click.option("-o", "output_format", type=click.Choice(["table", "json"]), default="table", show_default=True)
def ledger(output: Path, output_format: str) -> int:
    """Show the ledger per event-time hour, of an output of photon join or of a pipeline's state directory.

    \b
    Examples:
      photon ledger out/
      photon ledger /var/lib/photon/east -o json
    Exit codes: 0 it balances, 3 it does not.
    """
    from photon.config.errors import UsageError
    from photon.dispatcher.ledger_reader import read_ledger
    from photon.embedded.ledger import as_json, hour_name, ledger_file

    places = [ledger_file(output / ".photon"), ledger_file(output)]
    found = next((path for path in places if path.exists()), None)
    if found is None:
        raise UsageError(f"{output}: no ledger there; name an output of photon join or a pipeline's state directory")
    read = read_ledger(found)
    if output_format == "json":
        click.echo(orjson.dumps(as_json(read)).decode())
    else:
        table = Table(box=None, pad_edge=False)
        names = list(read.total.as_dict())
        table.add_column("hour (UTC)")
        for name in names:
            table.add_column(name, justify="right")
        for hour, each in read.hours.items():
            table.add_row(hour_name(hour), *(f"{count:,}" for count in each.as_dict().values()))
        table.add_section()
        table.add_row("all", *(f"{count:,}" for count in read.total.as_dict().values()), style="bold")
        Console(width=None if sys.stdout.isatty() else PIPE_WIDTH).print(table)
    if read.unbalanced:
        hours = ", ".join(map(hour_name, read.unbalanced))
        click.echo(f"photon: the ledger does not balance in {hours}; this is a defect, keep the directory", err=True)
        return ATTENTION
    return DONE
