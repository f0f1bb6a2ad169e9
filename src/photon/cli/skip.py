"""``photon dispatcher skip``: go on from now, or from a time, in logs that another datacentre reads as well."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson

from photon.cli import deployment_file, steering
from photon.cli.audited import audited
from photon.cli.errors import DONE, FAILED
from photon.cli.registry.common import print_table, words
from photon.cli.units import NOW, given_ns

if TYPE_CHECKING:
    from photon.dispatcher.skipping import Skip
    from photon.embedded.skip import SkipAnswer


@click.command("skip")
@deployment_file.config()
@click.option("--datacentre", metavar="NAME", required=True, help="Whose dispatcher skips.")
@click.option("--to", "to", metavar="now|TIME", required=True,
              help="now, or the event time to go on from: 2026-11-21T09:00, epoch seconds, or 2h (ago).")  # fmt: skip
@steering.sure
@click.option("--reader", "readers", multiple=True, metavar="NAME",
              help="This other datacentre reads the logs, though its dispatcher may not answer.")  # fmt: skip
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key.")
@click.option("-o", "output_format", type=click.Choice(["table", "json"]), default="table", show_default=True)
@audited
def skip(
    config: Path,
    datacentre: str,
    to: str,
    dry_run: bool,
    yes: bool,
    readers: tuple[str, ...],
    overrides: tuple[str, ...],
    output_format: str,
) -> int:
    """Leave out what a stopped dispatcher has not read, because another datacentre reads it.

    For a dispatcher whose state was lost, or that is too far behind. What is left out gets its verdict from the other
    datacentre alone and is not counted in this one's ledger. Where records are not in the order of their event time,
    less is left out. Compressed files are read through to find the place.

    \b
    Examples:
      photon dispatcher skip --config photon.toml --datacentre east --to 2h --dry-run
      photon dispatcher skip --config photon.toml --datacentre east --to 2h --yes
    Exit codes: 0 done, 1 refused: the dispatcher runs, or nobody else reads the logs, 2 wrong usage.
    """
    from photon.config.loader import load
    from photon.embedded.skip import skip as planned

    settings = load(config, environment=os.environ, flags=overrides)
    to_ns = None if to == NOW else given_ns("--to", to, time.time_ns())
    steering.must_be_said(f"what datacentre {datacentre} leaves out", dry_run=dry_run, yes=yes)
    answer = planned(settings, config.parent, datacentre, to_ns, vouched=readers, apply=yes and not dry_run)
    if not (dry_run or yes or answer.refusal):
        steering.ask(f"{_total(answer)} are left out and never read by datacentre {datacentre}. Skip them?", yes=yes)
        answer = planned(settings, config.parent, datacentre, to_ns, vouched=readers, apply=True)
    if output_format == "json":
        click.echo(orjson.dumps(_as_json(answer)).decode())
    else:
        _show(answer)
    for problem in answer.skips.problems:
        click.echo(f"photon: not skipped: {problem}", err=True)
    if answer.refusal:
        click.echo(f"photon: refused: {answer.refusal}", err=True)
    return FAILED if answer.refusal else DONE


def time_of(ns: int | None) -> str | None:
    """For people and scripts: ISO, UTC, to the second."""
    if ns is None:
        return None
    try:
        return datetime.fromtimestamp(ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{ns} ns"


def _row(skip: Skip) -> dict[str, object]:
    log = skip.log
    return {
        "file": log.position.path,
        "size": log.disk_bytes,
        "from": log.begin,
        "to": skip.to,
        "bytes": skip.skipped,
        "records": skip.records,
        "oldest": time_of(skip.oldest_ns),
        "newest": time_of(skip.newest_ns),
    }


def _as_json(answer: SkipAnswer) -> dict[str, object]:
    return {
        "datacentre": answer.datacentre,
        "applied": answer.applied,
        "readers": dict(answer.readers),
        "logs": [_row(skip) for skip in answer.skips.skips],
        "bytes": sum(skip.skipped for skip in answer.skips.moved),
        "records": sum(skip.records for skip in answer.skips.moved),
        "problems": answer.skips.problems,
        "refused": answer.refusal or None,
    }


def _show(answer: SkipAnswer) -> None:
    names = ("file", "size", "from", "to", "bytes", "records (about)", "oldest", "newest")
    rows = [[words(value) for value in _row(each).values()] for each in answer.skips.skips]
    if rows:
        print_table([(name, name not in ("file", "oldest", "newest")) for name in names], rows)
    total = _total(answer)
    if answer.applied:
        click.echo(f"{total} are left out by datacentre {answer.datacentre}")
        return
    reading = [name for name, reads in answer.readers.items() if reads]
    who = f"{', '.join(reading)} reads on" if reading else f"no answer from {', '.join(answer.readers)}"
    click.echo(f"{total} would be left out ({who}); nothing was changed")


def _total(answer: SkipAnswer) -> str:
    moved = answer.skips.moved
    return f"{sum(each.skipped for each in moved):,} bytes of {len(moved)} logs"
