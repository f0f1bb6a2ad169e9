"""``photon cache status``: what the cache nodes of a pipeline hold and how often they help."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from photon.cli import deployment_file
from photon.cli.errors import ATTENTION, DONE
from photon.cli.registry.common import formatted, print_json, print_table

if TYPE_CHECKING:
    from photon.fleet.polling import Heard

COLUMNS = ("node", "address", "held", "of", "entries", "evictions", "asked", "found", "taken in")

METRICS = {
    "bytes": "bytes", "bytes_max": "limit_bytes", "segments": "segments", "entries": "entries",
    "evictions": "evictions_total", "hits": "hits_total", "misses": "misses_total", "fed_bytes": "fed_bytes_total",
    "fed_events": "fed_events_total",
}  # fmt: skip


@click.command()
@deployment_file.config()
@click.option("--datacentre", metavar="NAME", help="Whose cache nodes; may be left out if there is one.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key.")
@formatted
def status(config: Path, datacentre: str | None, overrides: tuple[str, ...], output_format: str) -> int:
    """Show what each cache node of a pipeline holds, and how many look-ups found something there.

    \b
    Example:
      photon cache status --config photon.toml --datacentre east
    Exit codes: 0 told, 3 not all nodes answer (look-ups then read the logs).
    """
    rows = asyncio.run(_ask(config, datacentre, overrides))
    if output_format == "json":
        print_json({"nodes": rows})
    else:
        print_table([(name, name not in COLUMNS[:2]) for name in COLUMNS], [_shown(row) for row in rows])
    return DONE if all(row["answers"] for row in rows) else ATTENTION


async def _ask(config: Path, datacentre: str | None, overrides: tuple[str, ...]) -> list[dict[str, Any]]:
    from photon.config.loader import load
    from photon.config.tls import OPERATOR
    from photon.fleet.access import pipeline_named, tls_of
    from photon.fleet.polling import Gatherer
    from photon.fleet.processes import asked_of

    settings = load(config, environment=os.environ, flags=overrides)
    name, _ = pipeline_named(settings, datacentre)
    nodes = [each for each in asked_of(settings, name) if each.kind == "cache"]
    gatherer = Gatherer(tls_of(settings, config.parent, OPERATOR), details=False)
    try:
        return [_row(each) for each in await gatherer.gather(nodes)]
    finally:
        await gatherer.close()


def _row(heard: Heard) -> dict[str, Any]:
    from photon.fleet.numbers import Numbers

    row: dict[str, Any] = {"node": heard.process.name, "address": heard.process.address, "answers": heard.up}
    if not heard.up:
        return row | {"error": heard.problem}
    now = Numbers([heard])
    return row | {field: int(now.sum(f"photon_cache_{metric}")) for field, metric in METRICS.items()}


def _shown(row: dict[str, Any]) -> list[str]:
    from photon.config.words import size

    if not row["answers"]:
        return [row["node"], row["address"], "does not answer", *["-"] * (len(COLUMNS) - 3)]
    asked = row["hits"] + row["misses"]
    return [
        row["node"],
        row["address"],
        size(row["bytes"]),
        size(row["bytes_max"]),
        f"{row['entries']:,}",
        f"{row['evictions']:,}",
        f"{asked:,}",
        f"{row['hits'] / asked:.1%}" if asked else "-",
        size(row["fed_bytes"]),
    ]
