"""``photon eventstore init``: the table of a file map that lies in HBase."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path

import click
import orjson

from photon.cli import deployment_file


@click.command("init")
@deployment_file.config()
@click.option("--datacentre", metavar="NAME", help="Whose table; may be left out if there is one datacentre.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key.")
@click.option("-o", "output_format", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.pass_context
def init(
    context: click.Context, config: Path, datacentre: str | None, overrides: tuple[str, ...], output_format: str
) -> None:
    """Make the table of a file map in HBase: split from the start, its rows with a time to live.

    What is there already is left as it is; where it is not as the configuration wants it, that is said and the exit
    code is 3. Needs [datacentre.NAME.hbase] in the deployment file.

    \b
    Example:
      photon eventstore init --config photon.toml --datacentre east
    Exit codes: 0 it is there, 1 failed, 3 it is there, and something should be looked at (it is said).
    """
    from photon.cli.errors import ATTENTION
    from photon.config.loader import load
    from photon.fleet import hbase

    made = hbase.init(load(config, environment=os.environ, flags=overrides), datacentre)
    if output_format == "json":
        click.echo(orjson.dumps(asdict(made)).decode())
    else:
        lives = "for ever" if made.ttl_s is None else f"{made.ttl_s} s"
        done = "made" if made.made else "there already"
        click.echo(f"table {made.table}: {done}; {made.regions} regions, rows live {lives}")
        for note in made.notes:
            click.echo(f"photon: {note}", err=True)
    if made.notes:
        context.exit(ATTENTION)
