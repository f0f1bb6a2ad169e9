"""``photon down``."""

from __future__ import annotations

from pathlib import Path

import click
import orjson

from photon.cli import deployment_file, steering
from photon.cli.audited import audited
from photon.cli.processes import place, run_option


@click.command()
@deployment_file.file
@run_option
@click.option("--timeout", type=click.FloatRange(min=1.0), default=60.0, show_default=True,
              help="Seconds until all must have ended.")  # fmt: skip
@steering.dry_run
@click.option("-o", "output_format", type=click.Choice(["table", "json"]), default="table", show_default=True)
@audited
def down(file: Path, run: Path | None, timeout: float, dry_run: bool, output_format: str) -> None:
    """End what photon up runs: dispatchers, joiners, event stores, caches, registry, proxy, in this order.

    Nothing is lost by it: photon up with the same file continues. What a photon up that was killed may have left
    is ended too.

    \b
    Example:
      photon down photon.toml
    Exit codes: 0 nothing runs any more (also if nothing ran), 1 something has not ended.
    """
    from photon.supervision.detached import running, stop_detached

    directory = place(file, run)
    ended = running(directory) if dry_run else stop_detached(directory, timeout)
    if output_format == "json":
        click.echo(orjson.dumps({"run": str(directory), "dry_run": dry_run, "ended": ended}).decode())
    elif ended and dry_run:
        click.echo(f"{len(ended)} processes would be ended: {', '.join(ended)}; nothing was changed")
    elif ended:
        click.echo(f"{len(ended)} processes have ended: {', '.join(ended)}")
    else:
        click.echo(f"nothing runs in {directory}")
