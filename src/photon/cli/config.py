"""``photon config check``."""

from __future__ import annotations

import os
from pathlib import Path

import click
import orjson

from photon.config.loader import load


@click.group()
def config() -> None:
    """Look at configuration files."""


@config.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key, as for the services.")
@click.option("-o", "output_format", type=click.Choice(["table", "json"]), default="table", show_default=True)
def check(file: Path, overrides: tuple[str, ...], output_format: str) -> None:
    """Validate a deployment file and each adapter that it names.

    \b
    Example:
      photon config check config/examples/zeek.toml
    """
    from photon.embedded.adapter import adapter_of
    from photon.embedded.placement import survives

    settings = load(file, environment=os.environ, flags=overrides)
    for name in settings.join:
        adapter_of(settings, name, file.parent)
    losses = survives(settings)
    if output_format == "json":
        click.echo(
            orjson.dumps(
                {"file": str(file), "joins": sorted(settings.join), "survives": losses, "problems": []}
            ).decode()
        )
        return
    click.echo(f"{file}: good; joins: {', '.join(sorted(settings.join)) or 'none'}")
    for line in losses:
        click.echo(line)
