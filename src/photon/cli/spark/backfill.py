"""``photon spark backfill``: joins a historic range as a batch."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from photon.cli.errors import ATTENTION, DONE
from photon.cli.heads import PLACE, Deployed, deployed, on_spark
from photon.cli.tables import counted, say
from photon.cli.units import DURATION, SIZE, given_ns
from photon.config.words import many

if TYPE_CHECKING:
    from photon.objects.paths import ObjectPath
    from photon.outputs.output_places import OutputPlace
    from photon.spark.backfill.run import BackfillOutcome

WORDS = {
    "joined": "joined, written by this backfill",
    "filtered": "filtered, written by this backfill",
    "unmatched": "unmatched, written by this backfill",
    "rejected": "rejected by the adapter, written by this backfill",
    "elsewhere": "registered by the live pipeline, or in another output: left out",
    "duplicate": "other lines with the id of a written event",
    "without_primary": "without a primary event: left unregistered (--unmatched writes them)",
    "below_boundary": "older than the registry remembers: left out",
    "unreadable": "records without id, key or time: left to the dispatcher",
}


@click.command("backfill")
@deployed(datacentre="Datacentre of the logs; required if the file has several.")
@click.option(
    "--from",
    "since",
    metavar="TIME",
    required=True,
    help="First event time: 2026-11-21T09:00, epoch seconds, or 2d (ago).",
)
@click.option("--to", "until", metavar="TIME", required=True, help="Event time to stop before.")
@click.option("--output", type=PLACE, required=True,
              help="Directory shared by driver and executors, or a URL; a new one for each backfill.")  # fmt: skip
@click.option("--unmatched", is_flag=True, help="Also write events without a primary event, as unmatched.")
@click.option("--below-boundary", type=click.Choice(["refuse", "compare"]), default="refuse", show_default=True,
              help="compare: write events that the registry has forgotten if no output has them.")  # fmt: skip
@click.option("--slack", "slack_s", type=DURATION, default="1h", show_default=True,
              help="Minimum age of --to.")  # fmt: skip
@click.option("--part", "part_bytes", type=SIZE, default="16MiB", show_default=True,
              help="Raw log bytes per task; each task holds them in memory.")  # fmt: skip
@on_spark
def backfill(at: Deployed, since: str, until: str, output: Path, below_boundary: str, **given: Any) -> int:
    """Join a historic range of the raw logs as a batch on Spark.

    \b
    It may run while the live pipeline runs: every id is registered first. It may be killed; run it again with the
    same options to continue. Read the output with photon read or format("photon").
    Examples:
      photon spark backfill --config photon.toml --datacentre east --from 2026-11-01 --to 2026-11-20 \\
        --output /mnt/shared/backfill-november
      photon spark backfill --config photon.toml --from 2026-11-20T08 --to 2026-11-20T09 --output out --unmatched \\
        --master spark://host:7077
      photon spark backfill --config photon.toml --from 2026-11-01 --to 2026-11-20 --output s3://lake/november
    Exit codes: 0 done; 1 failed (run it again); 2 wrong usage; 3 done, but some events were left out.
    """
    from photon.operations.spark_backfill import Wish
    from photon.operations.spark_backfill import backfill as do

    now_ns = time.time_ns()
    span = (given_ns("--from", since, now_ns), given_ns("--to", until, now_ns))
    compare_below = below_boundary == "compare"
    wish = Wish(at.datacentre, *span, output, compare_below=compare_below, **given)
    done = do(at.settings, at.base, wish, say, copied)
    found = _as_json(done)
    earlier = "; an earlier run had finished this backfill" if done.earlier else ""
    line = (
        f"{output}: {many(found['files'], 'file')}, {found['bytes'] / 1e6:,.1f} MB, as slot {found['slot']}{earlier}"
    )
    at.show(found, counted(found["events"], WORDS), line)
    return ATTENTION if found["events"].get("below_boundary") else DONE


def copied(place: OutputPlace, into: ObjectPath) -> None:
    """Copies a whole output to a URL. Raises PhotonError, OSError."""
    from photon.config.output_kinds import KINDS
    from photon.objects.disk import UrlDisk
    from photon.sinks.objects import ObjectSink

    ObjectSink(UrlDisk(), place, into, KINDS).pass_(all_of_it=True)


def _as_json(done: BackfillOutcome) -> dict[str, Any]:
    counts = dict(done.result.counts)
    counts["duplicate"] = counts.pop("own", 0) + counts.pop("repeats", 0)
    counts["below_boundary"] = counts.pop("late", 0)
    return {
        "slot": done.slot,
        "events": {name: counts.get(name, 0) for name in WORDS},
        "files": done.result.files,
        "bytes": done.result.bytes,
        "cleared": done.cleared,
        "earlier_run": done.earlier,
    }
