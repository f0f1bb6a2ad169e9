"""``photon cache status``: what the cache nodes of a pipeline hold and how often they help."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import click

from photon.cli import deployment_file
from photon.cli.errors import ATTENTION, DONE
from photon.cli.registry.common import formatted, print_json, print_table

COLUMNS = ("node", "address", "held", "of", "entries", "evictions", "asked", "found", "taken in")


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
    from photon.config.clock import SystemClock
    from photon.config.loader import load
    from photon.config.tls import OPERATOR, cache_identity, towards
    from photon.embedded.services import pipeline_named, tls_of
    from photon.eventstore.cache_nodes.asking import NodeAsker

    settings = load(config, environment=os.environ, flags=overrides)
    name, pipeline = pipeline_named(settings, datacentre)
    to = towards(tls_of(settings, config.parent, OPERATOR), cache_identity(name))
    askers = {
        node: NodeAsker(cache.address, b"", to, SystemClock().monotonic) for node, cache in pipeline.caches.items()
    }
    counts = await asyncio.gather(*(asker.counts() for asker in askers.values()))
    rows = []
    for (node, asker), said in zip(askers.items(), counts, strict=True):
        row: dict[str, Any] = {"node": node, "address": pipeline.caches[node].address, "answers": said is not None}
        if said is None:
            row["error"] = asker.error
        else:
            cache = said.cache
            row |= {"bytes": cache.bytes, "bytes_max": said.bytes_max, "segments": cache.segments}
            row |= {"entries": cache.entries, "evictions": cache.evictions, "hits": cache.hits}
            row |= {"misses": cache.misses, "fed_bytes": said.fed_bytes, "fed_events": said.fed_events}
        rows.append(row)
        await asker.close()
    return rows


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
