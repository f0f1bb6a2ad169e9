"""``photon dispatcher lag``: which foreign logs are not read to their ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from photon.cli import deployment_file
from photon.cli.errors import ATTENTION, DONE
from photon.cli.registry.common import formatted, print_json, print_table
from photon.config.errors import PhotonError, UsageError

if TYPE_CHECKING:
    from photon.fleet.polling import Heard

ASK_S = 5.0


class Silent(PhotonError):
    """No dispatcher answers."""


@click.command()
@deployment_file.config()
@click.option("--datacentre", metavar="NAME", help="Whose dispatcher; may be left out if there is one.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key.")
@formatted
def lag(config: Path, datacentre: str | None, overrides: tuple[str, ...], output_format: str) -> int:
    """Show how far a running dispatcher is behind its logs: sums, and the logs that wait longest.

    Also how many events wait in its retry store, since when, and whether joiners fail.

    \b
    A log's last line without its newline is no lag. Seconds: since the oldest byte not read was written, as far as
    the times of files tell.
    Example:
      photon dispatcher lag --config photon.toml --datacentre east
    Exit codes: 0 told, 3 not all of several workers answer, 1 none does.
    """
    heard = _ask(config, datacentre, overrides)
    up, silent = [each for each in heard if each.up], [each for each in heard if not each.up]
    sums = lag_of_all(up) | {"silent": [each.process.address for each in silent]}
    if output_format == "json":
        print_json(sums)
    else:
        click.echo(
            f"{sums['behind']:,} of {sums['logs']:,} logs are not read to their ends: {sums['bytes']:,} bytes, "
            f"the oldest {sums['seconds']:.1f} s old"
        )
        if sums["waiting"]:
            click.echo(
                f"{sums['waiting']:,} events wait in the retry store ({sums['waiting_bytes']:,} bytes), the oldest "
                f"for {sums['waiting_seconds']:.0f} s"
            )
        if sums["joiners_failing"]:
            click.echo(f"{sums['joiners_failing']} joiners fail and are left alone for a while")
        if sums["worst"]:
            rows = [[row["log"], f"{row['bytes']:,}", f"{row['seconds']:.1f}"] for row in sums["worst"]]
            print_table([("log", False), ("bytes behind", True), ("seconds behind", True)], rows)
    return ATTENTION if silent else DONE


def lag_of_all(up: Sequence[Heard]) -> dict[str, Any]:
    """Each worker sees all logs, and reads its own; they share one retry store. Pure."""
    from photon.fleet.numbers import Numbers, oldest_lag

    now, prefix = Numbers(up), "photon_dispatcher"
    return {
        "logs": int(now.max(f"{prefix}_logs")),
        "behind": int(now.sum(f"{prefix}_logs_behind")),
        "bytes": int(now.sum(f"{prefix}_lag_bytes")),
        "seconds": round(now.max(f"{prefix}_lag_seconds"), 3),
        "waiting": int(now.max(f"{prefix}_retry_store_events")),
        "waiting_bytes": int(now.max(f"{prefix}_retry_store_bytes")),
        "waiting_seconds": round(now.max(f"{prefix}_retry_store_oldest_seconds"), 3),
        "joiners_failing": int(now.max(f"{prefix}_joiners_failing")),
        "workers": [each.process.address for each in up],
        "silent": [],
        "worst": [{**row, "seconds": round(row["seconds"], 3)} for row in oldest_lag(up)],
    }


def _ask(config: Path, datacentre: str | None, overrides: tuple[str, ...]) -> list[Heard]:
    import os

    from photon.config.loader import load
    from photon.config.tls import OPERATOR
    from photon.fleet.access import pipeline_named, tls_of
    from photon.fleet.polling import ask_dispatchers

    settings, base = load(config, environment=os.environ, flags=overrides), config.parent
    name, _ = pipeline_named(settings, datacentre)
    heard = asyncio.run(ask_dispatchers(settings, base, name, tls_of(settings, base, OPERATOR), ASK_S))
    if not heard:
        raise UsageError(
            f"{config}: the dispatcher of datacentre {name} has no address; give it dispatcher = host:port"
        )
    if not any(each.up for each in heard):
        silent = ", ".join(each.process.address or "" for each in heard)
        raise Silent(f"{silent}: no dispatcher answers there within {ASK_S:g} s; is it running?")
    return heard
