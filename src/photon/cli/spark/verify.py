"""``photon spark verify``: compare inputs, outputs and registry of all datacentres with a fresh join."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from photon.cli import deployment_file

if TYPE_CHECKING:
    from photon.config.settings import Settings
    from photon.spark.verify.run import VerifyOutcome

HOUR_NS = 3_600_000_000_000
SLACK_S = 3600.0
"""--to lies so long in the past, and by the patience of a missing primary."""


@click.command("verify")
@deployment_file.config()
@click.option(
    "--from",
    "since",
    metavar="TIME",
    required=True,
    help="Event times from this hour on: 2026-11-21T09, epoch seconds, or 2d (ago).",
)
@click.option("--to", "until", metavar="TIME",
              help="Event times before this hour; default: the last one that can be judged.")  # fmt: skip
@click.option("--report", type=click.Path(path_type=Path), required=True,
              help="Directory of the report, which driver and executors share.")  # fmt: skip
@click.option("--join", "join_name", metavar="NAME", help="Which join, if there are several.")
@click.option("--export", type=click.Path(path_type=Path),
              help="A backup of the registry made after --to; default: one is made now.")  # fmt: skip
@click.option("--keep-export", type=click.Path(path_type=Path), help="Where the backup made now is kept.")
@click.option("--backfill", "backfills", type=click.Path(path_type=Path), multiple=True,
              help="Output directory of a backfill of this range; may be given several times.")  # fmt: skip
@click.option("--without-registry", is_flag=True, help="Compare logs and outputs alone.")
@click.option("--master", metavar="URL", help="Of Spark; else as spark-submit says, else local[*].")
@click.option("--spark", "spark_settings", multiple=True, metavar="KEY=VALUE", help="A setting of Spark's.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key of the deployment.")
@click.option("-o", "output_format", type=click.Choice(["table", "json"]), default="table", show_default=True)
def verify(
    config: Path,
    since: str,
    until: str | None,
    report: Path,
    join_name: str | None,
    export: Path | None,
    keep_export: Path | None,
    backfills: tuple[Path, ...],
    without_registry: bool,
    master: str | None,
    spark_settings: tuple[str, ...],
    overrides: tuple[str, ...],
    output_format: str,
) -> int:
    """Verify a range of event times: every event exactly once, as a fresh join of the raw logs has it.

    \b
    The report has verdict.json, report.html, problems/ and summary/ (Parquet). Days that were verified before into
    the same directory, and of which nothing has changed, are not verified again.
    Examples:
      photon spark verify --config photon.toml --from 2026-11-20 --to 2026-11-21 --report reports/2026-11-20
      photon spark verify --config photon.toml --from 7d --report reports/week --master spark://host:7077
    Exit codes: 0 all is right, 1 failed, 2 wrong usage, 3 there are problems.
    """
    from photon.cli.spark.backfill import _pairs
    from photon.cli.units import given_ns
    from photon.config.errors import UsageError
    from photon.config.loader import load
    from photon.operations.spark_verify import Wish, nightly

    now_ns = time.time_ns()
    settings = load(config, environment=os.environ, flags=overrides)
    if without_registry and (export or keep_export):
        raise UsageError("--without-registry goes with neither --export nor --keep-export")
    newest = _newest(settings, now_ns)
    to_ns = newest if until is None else given_ns("--to", until, now_ns)
    wish = Wish(
        from_ns=given_ns("--from", since, now_ns) // HOUR_NS * HOUR_NS,
        to_ns=-(-to_ns // HOUR_NS) * HOUR_NS,
        report=report,
        join=join_name,
        export=export,
        no_registry=without_registry,
        keep_export=keep_export,
        backfills=backfills,
        master=master,
        spark=_pairs(spark_settings),
    )
    if wish.from_ns >= wish.to_ns:
        raise UsageError("--from is not before --to")
    if wish.to_ns > now_ns:
        raise UsageError("--to: this hour is not over yet")
    done = nightly(settings, config.parent, wish, partial(_export, settings, config.parent),
                   lambda line: click.echo(f"photon: {line}", err=True))  # fmt: skip
    _show(done, report, output_format)
    return done.verdict.exit


def _newest(settings: Settings, now_ns: int) -> int:
    """The end of the last hour whose events can all be judged."""
    patience = max((join.unmatched_after or 0.0 for join in settings.join.values()), default=0.0)
    return (now_ns - int((patience + SLACK_S) * 1e9)) // HOUR_NS * HOUR_NS


def _export(settings: Settings, base: Path, directory: Path) -> None:
    """A backup of the running registry."""
    from datetime import UTC, datetime

    from photon import __version__
    from photon.cli.registry.backup import _sources
    from photon.cli.registry.common import connected
    from photon.config.disk import RealDisk
    from photon.config.errors import UsageError
    from photon.idregistry.operate.backup import write_backup

    if not settings.registry.replicas:
        raise UsageError("the deployment names no [registry.replicas.NAME]: name a backup with --export")
    made_at = datetime.now(UTC).isoformat(timespec="seconds")
    with connected(settings, base) as client:
        members = list(settings.registry.replicas)
        write_backup(RealDisk(), directory, _sources(client), photon=__version__, made_at=made_at, members=members)


def _show(done: VerifyOutcome, report: Path, output_format: str) -> None:
    import msgspec

    from photon.cli.registry.common import print_json, print_table
    from photon.spark.verify.advice import GOOD, MEANING, TO_DO

    if output_format == "json":
        print_json(msgspec.to_builtins(done.verdict))
        return
    rows = [
        [f"{count:,}", str(kind), MEANING[kind] if kind in GOOD else TO_DO[kind]]
        for kind, count in done.figures.totals().items()
    ]
    print_table([("events", True), ("finding", False), ("what to do", False)], rows)
    if done.verdict.ledger_unexplained:
        click.echo(f"{done.verdict.ledger_unexplained:,} counts of the dispatchers' ledgers differ, see the report")
    problems = done.verdict.problems
    said = f"{problems:,} problems" if problems else "every event exactly once"
    click.echo(f"{report / 'report.html'}: {said}")
