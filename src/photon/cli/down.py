"""``photon down``."""

from __future__ import annotations

from pathlib import Path

import click
import orjson

from photon.cli.processes import place, run_option


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@run_option
@click.option("--timeout", type=click.FloatRange(min=1.0), default=60.0, show_default=True,
              help="Seconds until all must have ended.")  # fmt: skip
@click.option("-o", "output_format", type=click.Choice(["table", "json"]), default="table", show_default=True)
def down(file: Path, run: Path | None, timeout: float, output_format: str) -> None:
    """End what photon up runs: dispatchers, joiners, event stores, caches, registry, proxy, in this order.

    Nothing is lost by it: photon up with the same file continues. What a photon up that was killed may have left
    is ended too.

    \b
    Example:
      photon down photon.toml
    Exit codes: 0 nothing runs any more (also if nothing ran), 1 something has not ended.
    """
    from photon.embedded.detached import stop_detached

    directory = place(file, run)
    ended = stop_detached(directory, timeout)
    if output_format == "json":
        click.echo(orjson.dumps({"run": str(directory), "ended": ended}).decode())
    elif ended:
        click.echo(f"{len(ended)} processes have ended: {', '.join(ended)}")
    else:
        click.echo(f"nothing runs in {directory}")
