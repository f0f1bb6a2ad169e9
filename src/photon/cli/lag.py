"""``photon dispatcher lag``: which foreign logs are not read to their ends."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from photon.cli import deployment_file
from photon.cli.errors import ATTENTION, DONE
from photon.cli.registry.common import formatted, print_json, print_table
from photon.config.errors import PhotonError, UsageError

if TYPE_CHECKING:
    from photon.dispatcher import dispatcher_pb2 as pb
    from photon.embedded.workers import Told

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
    answers = _ask(config, datacentre, overrides)
    replies = list(answers.replies.values())
    now_ns = time.time_ns()
    told = [_told(reply.lag, now_ns) for reply in replies]
    sums: dict[str, Any] = {
        # Each worker sees all logs, and reads its own; they share one retry store.
        "logs": max(each["logs"] for each in told),
        "behind": sum(each["behind"] for each in told),
        "bytes": sum(each["bytes"] for each in told),
        "seconds": max(each["seconds"] for each in told),
        "waiting": max(reply.stored for reply in replies),
        "waiting_bytes": max(reply.stored_bytes for reply in replies),
        "waiting_seconds": max(_age(reply.oldest_stored_ns, now_ns) for reply in replies),
        "joiners_failing": max(reply.joiners_failing for reply in replies),
        "workers": list(answers.replies),
        "silent": answers.silent,
        "worst": sorted((row for each in told for row in each["worst"]), key=lambda row: -row["seconds"]),
    }
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
    return ATTENTION if answers.silent else DONE


def _told(lag: pb.Lag, now_ns: int) -> dict[str, Any]:
    return {
        "logs": lag.logs,
        "behind": lag.behind,
        "bytes": lag.bytes,
        "seconds": _age(lag.oldest_ns, now_ns),
        "worst": [{"log": log.path, "bytes": log.bytes, "seconds": _age(log.since_ns, now_ns)} for log in lag.worst],
    }


def _age(since_ns: int, now_ns: int) -> float:
    return round(max(now_ns - since_ns, 0) / 1e9, 3) if since_ns else 0.0


def _ask(config: Path, datacentre: str | None, overrides: tuple[str, ...]) -> Told:
    import os

    from photon.config.loader import load
    from photon.embedded.services import pipeline_named
    from photon.embedded.workers import ask_dispatchers

    settings = load(config, environment=os.environ, flags=overrides)
    name, _ = pipeline_named(settings, datacentre)
    told = asyncio.run(ask_dispatchers(settings, config.parent, name, ASK_S))
    if not told.replies and not told.silent:
        raise UsageError(
            f"{config}: the dispatcher of datacentre {name} has no address; give it dispatcher = host:port"
        )
    if not told.replies:
        raise Silent(f"{', '.join(told.silent)}: no dispatcher answers there within {ASK_S:g} s; is it running?")
    return told
