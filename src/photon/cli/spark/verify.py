"""``photon spark verify``: compare inputs, outputs and registry of all datacentres with a fresh join."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from photon.cli.heads import PATH, PLACE, Deployed, deployed
from photon.cli.tables import print_table, say
from photon.cli.units import given_ns
from photon.config.errors import UsageError

if TYPE_CHECKING:
    from photon.config.settings import Settings
    from photon.spark.verify.run import VerifyOutcome

HOUR_NS = 3_600_000_000_000
SLACK_S = 3600.0
"""--to lies so long in the past, and by the patience of a missing primary."""


@click.command("verify")
@deployed()
@click.option(
    "--from",
    "since",
    metavar="TIME",
    required=True,
    help="Event times from this hour on: 2026-11-21T09, epoch seconds, or 2d (ago).",
)
@click.option("--to", "until", metavar="TIME",
              help="Event times before this hour; default: the last one that can be judged.")  # fmt: skip
@click.option("--report", type=PLACE, required=True,
              help="Directory of the report, shared by driver and executors, or URL.")  # fmt: skip
@click.option("--work", type=PATH,
              help="Directory, shared by driver and executors, for files on the way and what the next run needs to "
              "know; default: next to the report, where that is a URL next to the deployment file.")  # fmt: skip
@click.option("--join", metavar="NAME", help="Which join, if there are several.")
@click.option("--export", type=PATH,
              help="A backup of the registry made after --to; default: one is made now.")  # fmt: skip
@click.option("--keep-export", type=PATH, help="Where to keep that backup.")
@click.option("--backfill", "backfills", type=PLACE, multiple=True,
              help="Output directory, or URL, of a backfill of this range; may be given several times.")  # fmt: skip
@click.option("--full", is_flag=True, help="Verify every day of the range, whatever is known of it.")
@click.option("--without-registry", "no_registry", is_flag=True, help="Compare logs and outputs alone.")
@click.option("--master", metavar="URL", help="Spark's master; default: as spark-submit says, else local[*].")
@click.option("--spark", multiple=True, metavar="KEY=VALUE", help="A Spark setting.")
def verify(
    at: Deployed, since: str, until: str | None, report: Path, spark: tuple[str, ...], no_registry: bool, **given: Any
) -> int:
    """Verify a range of event times against a fresh join of the raw logs: every event exactly once.

    \b
    The report has verdict.json, report.html, problems/ and summary/ (Parquet). Days that an earlier report next
    to this one verified, and that have not changed, are not verified again, but for a sample of a few hours.
    Examples:
      photon spark verify --config photon.toml --from 2026-11-20 --to 2026-11-21 --report reports/2026-11-20
      photon spark verify --config photon.toml --from 7d --report reports/week --master spark://host:7077
      photon spark verify --config photon.toml --from 7d --report s3://reports/week --work /mnt/shared/photon
    Exit codes: 0 all is right, 1 failed, 2 wrong usage, 3 there are problems.
    """
    import msgspec

    from photon.cli.spark.backfill import pairs
    from photon.operations.spark_verify import Wish, nightly

    now_ns = time.time_ns()
    if no_registry and (given["export"] or given["keep_export"]):
        raise UsageError("--without-registry goes with neither --export nor --keep-export")
    newest = _newest(at.settings, now_ns)
    to_ns = newest if until is None else given_ns("--to", until, now_ns)
    from_ns, to_ns = given_ns("--from", since, now_ns) // HOUR_NS * HOUR_NS, -(-to_ns // HOUR_NS) * HOUR_NS
    wish = Wish(from_ns, to_ns, report, config=at.config, no_registry=no_registry, spark=pairs(spark), **given)
    if wish.from_ns >= wish.to_ns:
        raise UsageError("--from is not before --to")
    if wish.to_ns > now_ns:
        raise UsageError("--to: this hour is not over yet")
    done = nightly(at.settings, at.base, wish, partial(_export, at), say)
    at.show(msgspec.to_builtins(done.verdict), lambda: _show(done, report))
    return done.verdict.exit


def _newest(settings: Settings, now_ns: int) -> int:
    """The end of the last hour whose events can all be judged."""
    patience = max((join.unmatched_after or 0.0 for join in settings.join.values()), default=0.0)
    return (now_ns - int((patience + SLACK_S) * 1e9)) // HOUR_NS * HOUR_NS


def _export(at: Deployed, directory: Path) -> None:
    from photon.cli.registry.backup import write

    if not at.settings.registry.replicas:
        raise UsageError("the deployment names no [registry.replicas.NAME]: name a backup with --export")
    write(at, directory)


def _show(done: VerifyOutcome, report: Path) -> None:
    from photon.spark.verify.advice import GOOD, MEANING, TO_DO

    for cause in done.figures.causes:
        click.echo(f"{cause.say}\n  {cause.command}")
    rows = [
        [f"{count:,}", str(kind), MEANING[kind] if kind in GOOD else TO_DO[kind]]
        for kind, count in done.figures.totals().items()
    ]
    print_table(">events, finding, what to do", rows)
    if done.verdict.ledger_unexplained:
        click.echo(f"{done.verdict.ledger_unexplained:,} counts of the dispatchers' ledgers differ, see the report")
    problems = done.verdict.problems
    said = f"{problems:,} problems" if problems else "every event exactly once"
    if accepted := sum(done.verdict.acknowledged.values()):
        said = f"{problems:,} new problems, {accepted:,} acknowledged"
    click.echo(f"{report / 'report.html'}: {said}")
