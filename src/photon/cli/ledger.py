"""``photon ledger``: what became of every event read."""

from __future__ import annotations

import os
from pathlib import Path

import click
import orjson
from rich.table import Table

from photon.cli import tables
from photon.cli.errors import ATTENTION, DONE


@click.command()
@click.argument("output", type=click.Path(path_type=Path), required=False)
@click.option("--config", type=click.Path(path_type=Path), help="In place of OUTPUT: the deployment file.")
@click.option("--datacentre", metavar="NAME", help="With --config: whose ledger; may be left out if there is one.")
@click.option("-o", "output_format", type=click.Choice(["table", "json"]), default="table", show_default=True)
def ledger(output: Path | None, config: Path | None, datacentre: str | None, output_format: str) -> int:
    """Show the ledger per event-time hour, of an output of photon join or of a pipeline's state directory.

    \b
    Examples:
      photon ledger out/
      photon ledger --config photon.toml --datacentre east
      photon ledger /var/lib/photon/east -o json
    Exit codes: 0 it balances, 3 it does not.
    """
    from photon.config.errors import UsageError
    from photon.dispatcher.ledger_reader import read_ledger
    from photon.embedded.ledger import as_json, hour_name

    if output is not None and (config is not None or datacentre is not None):
        raise UsageError("OUTPUT and --config with --datacentre say the same; name one of them")
    found = _of_deployment(config, datacentre) if config is not None else _of_directory(output)
    read = read_ledger(found)
    if output_format == "json":
        click.echo(orjson.dumps(as_json(read)).decode())
    else:
        table = Table(box=None, pad_edge=False)
        table.add_column("hour (UTC)")
        for name in read.total.as_dict() | read.total.apart():
            table.add_column(name, justify="right", style="dim" if name in read.total.apart() else "")
        for hour, each in [*read.hours.items(), (None, read.total)]:
            if hour is None:
                table.add_section()
            counts = each.as_dict() | each.apart()
            style = "bold" if hour is None else ""
            name = "all" if hour is None else hour_name(hour)
            table.add_row(name, *(f"{count:,}" for count in counts.values()), style=style)
        tables.show(table)
    if read.unbalanced:
        hours = ", ".join(map(hour_name, read.unbalanced))
        click.echo(f"photon: the ledger does not balance in {hours}; this is a defect, keep the directory", err=True)
        return ATTENTION
    return DONE


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
    from photon.embedded.services import pipeline_named

    name, pipeline = pipeline_named(load(config, environment=os.environ), datacentre)
    path = ledger_file(config.parent / pipeline.state)
    if not path.exists():
        raise UsageError(f"{path}: no ledger there yet; the dispatcher of datacentre {name} has not begun here")
    return path
