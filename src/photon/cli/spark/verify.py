"""``photon spark verify``: compares inputs, outputs and registry of all datacentres with a fresh join."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from photon.cli.heads import PATH, PLACE, Deployed, deployed, on_spark
from photon.cli.tables import say
from photon.cli.units import given_ns
from photon.config.errors import UsageError
from photon.config.words import many
from photon.fleet.parts import Column, Part, picked

if TYPE_CHECKING:
    from photon.spark.verify.run import VerifyOutcome

HOUR_NS = 3_600_000_000_000
NOTES_SHOWN = 10
SIDES = ("foreign", "primary", "output")


@click.command("verify")
@deployed()
@click.option(
    "--from",
    "since",
    metavar="TIME",
    help="Event times from this hour on: 2026-11-21T09, epoch seconds, or 2d (ago); default: the oldest day that is "
    "not closed.",
)
@click.option("--to", "until", metavar="TIME",
              help="Event times before this hour; default: the last whole day that can be judged (with --from: the "
              "last such hour).")  # fmt: skip
@click.option("--report", type=PLACE, required=True,
              help="Directory of the report, shared by driver and executors, or a URL.")  # fmt: skip
@click.option("--work", type=PATH,
              help="Directory, shared by driver and executors, for temporary files and the next run's state; "
              "default: next to the report, or to the deployment file if the report is at a URL.")  # fmt: skip
@click.option("--join", metavar="NAME", help="Name of the join; required if the file has several.")
@click.option("--export", type=PATH,
              help="A backup of the registry made after --to (default: make one now).")  # fmt: skip
@click.option("--keep-export", type=PATH, help="Directory in which to keep the backup.")
@click.option("--backfill", "backfills", type=PLACE, multiple=True,
              help="Output directory, or URL, of a backfill of this range; may be repeated.")  # fmt: skip
@click.option("--full", is_flag=True, help="Verify every day of the range, even those found right before.")
@click.option("--allow-empty", is_flag=True, help="Accept days without events, even if others have many.")
@click.option(
    "--without-registry", "no_registry", is_flag=True, help="Compare logs and outputs only, without the registry."
)
@on_spark
def verify(
    at: Deployed,
    since: str | None,
    until: str | None,
    report: Path,
    no_registry: bool,
    **given: Any,
) -> int:
    """Verify that every event was written exactly once. Compares a range of event times with a fresh join of the raw
    logs.

    \b
    The report has verdict.json, report.html, problems/ and summary/ (Parquet). Days that an earlier report next to
    this one verified, and that have not changed since, are not verified again, except for a sample of a few hours.
    Without --from and --to, verifies all days that are not closed: run it like this each night.
    Examples:
      photon spark verify --config photon.toml --report reports/2026-11-20
      photon spark verify --config photon.toml --from 2026-11-20 --to 2026-11-21 --report reports/2026-11-20
      photon spark verify --config photon.toml --from 7d --report s3://reports/week --work /mnt/shared/photon
    Exit codes: 0 all is right; 1 failed; 2 wrong usage; 3 there are problems; 4 not judged: too much is pending or
    missing.
    """
    import msgspec

    from photon.operations.spark_verify import Wish, nightly

    now_ns = time.time_ns()
    if no_registry and (given["export"] or given["keep_export"]):
        raise UsageError("--without-registry cannot be combined with --export or --keep-export")
    from_ns = None if since is None else given_ns("--from", since, now_ns) // HOUR_NS * HOUR_NS
    to_ns = None if until is None else -(-given_ns("--to", until, now_ns) // HOUR_NS) * HOUR_NS
    wish = Wish(report, from_ns, to_ns, config=at.config, no_registry=no_registry, **given)
    done = nightly(at.settings, at.base, wish, partial(_export, at), say)
    at.show(msgspec.to_builtins(done.verdict), *_shown(done, report))
    return done.verdict.exit


def _export(at: Deployed, directory: Path) -> None:
    from photon.cli.registry.backup import write

    if not at.settings.registry.replicas:
        raise UsageError("the deployment has no [registry.replicas.NAME]: give a backup with --export")
    write(at, directory)


FOUND = (Column(">events"), Column("finding"), Column("what to do", "do"))
COVERAGE = (
    Column("datacentre"), Column(">events in logs", "events"), Column(">usually", "usual"), Column(">judged"),
    Column(">pending"), *(Column(f">{side} files") for side in SIDES),
)  # fmt: skip


def _shown(done: VerifyOutcome, report: Path) -> Iterator[str | Part]:
    from photon.spark.verify.advice import GOOD, MEANING, TO_DO

    figures = done.figures
    yield from (f"{cause.say}\n  {cause.command}" for cause in figures.causes)
    rows = [
        {"events": count, "finding": str(kind), "do": MEANING[kind] if kind in GOOD else TO_DO[kind]}
        for kind, count in figures.totals().items()
    ]
    yield Part("", rows, FOUND)
    if done.verdict.ledger_unexplained:
        counts = many(done.verdict.ledger_unexplained, "count")
        yield f"{counts} in the dispatchers' ledgers cannot be explained; see the report"
    covered = [
        {**picked(each, "datacentre events usual judged pending"), **{f"{of} files": each.files[of] for of in SIDES}}
        for each in figures.coverage
    ]
    yield Part("", covered, COVERAGE)
    yield from (f"not judged: {said}" for said in figures.unjudged)
    if figures.unlooked:
        yield f"not read: {'; '.join(figures.unlooked)}"
    yield from (f"note: {note}" for note in figures.notes[:NOTES_SHOWN])
    if len(figures.notes) > NOTES_SHOWN:
        yield f"note: {len(figures.notes) - NOTES_SHOWN:,} more notes are in the report"
    yield f"{report / 'report.html'}: {figures.headline()}"
