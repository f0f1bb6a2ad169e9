"""``photon feed``: generates event streams in log directories, and compares outputs with the streams' truth."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from photon.cli.errors import DONE, FAILED
from photon.cli.heads import PATH, Printed, formatted
from photon.cli.looking import waited
from photon.cli.units import DURATION, SIZE
from photon.config.errors import UsageError
from photon.config.words import many

POLL_S = 2.0


@click.command("serve")
@click.option("--into", "directories", multiple=True, required=True, type=PATH,
              help="Directory for queries/ and clicks/; repeat it to write the same files to several.")  # fmt: skip
@click.option("--rate", type=click.IntRange(1, 100_000), default=50, show_default=True,
              help="Clicks per second; there are ten times as many queries.")  # fmt: skip
@click.option(
    "--seed", type=int, default=1, show_default=True, help="Seed of the first stream; each start makes a new one."
)
@click.option("--keep", type=SIZE, default="1GiB", show_default=True,
              help="Maximum total size of files per directory; the oldest are deleted.")  # fmt: skip
@click.option("--stop-at", type=SIZE, default="8GiB", show_default=True,
              help="Stop writing at this size.")  # fmt: skip
def serve(directories: tuple[Path, ...], rate: int, seed: int, keep: int, stop_at: int) -> None:
    """Write a stream until SIGTERM.

    \b
    Example:
      photon feed serve --into east/logs --into west/logs --rate 50 --keep 512MiB
    """
    from photon.config import runtime
    from photon.config.stopping import stop_event
    from photon.lab.demo.endless import FeedOptions, feed

    options = FeedOptions(directories, rate, seed, keep, stop_at)

    async def main() -> None:
        await feed(options, stop_event(with_parent=False), click.echo)

    runtime.run(main())


@click.command("day")
@click.option("--into", "directories", multiple=True, required=True, type=PATH,
              help="Directory for queries/ and clicks/; repeat it to write the same files to several.")  # fmt: skip
@click.option("--day", type=click.DateTime(["%Y-%m-%d"]), help="The day in UTC (default: yesterday).")
@click.option("--clicks", type=click.IntRange(1, 10_000_000), default=5_000, show_default=True,
              help="Number of clicks in the day; there are ten times as many queries.")  # fmt: skip
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the day's stream.")
@formatted
def day(directories: tuple[Path, ...], day: datetime | None, clicks: int, seed: int, out: Printed) -> None:
    """Write the logs of a past day, one file per hour.

    Use it to try a nightly verification at once. `photon feed check` compares the outputs with it.

    \b
    Examples:
      photon feed day --into east/logs --into west/logs
      photon feed day --into logs --day 2026-11-20 --clicks 100000
    Exit codes: 0 written; 1 not written; 2 wrong usage.
    """
    from photon.lab.demo.endless import DayOptions, write_day

    today = datetime.now(UTC).date()
    which = today - timedelta(days=1) if day is None else day.date()
    if which >= today:
        raise UsageError(f"--day {which}: this day is not over in UTC; give an earlier one")
    lines = write_day(DayOptions(directories, which, clicks, seed))
    said = {"day": str(which), "clicks": clicks, "lines": lines, "directories": [str(each) for each in directories]}
    where = many(len(directories), "directory", "directories each")
    out.show(said, f"{which}: {many(clicks, 'click')}, {many(lines, 'line')} in {where}")


@click.command("check")
@click.option("--of", "directory", required=True, type=PATH, help="Directory into which the stream was written.")
@click.option("--output", "outputs", multiple=True, required=True, type=PATH,
              help="Output of one datacentre; repeat it for all of them.")  # fmt: skip
@click.option("--wait", type=DURATION, default="0s", show_default=True, help="How long to wait for missing events.")
@formatted
def check(directory: Path, outputs: tuple[Path, ...], wait: float, out: Printed) -> int:
    """Compare outputs with the truth of a stream. Stop the stream cleanly first.

    \b
    Example:
      photon feed check --of east/logs --output east/output --output west/output --wait 60s
    Exit codes: 0 every click came out exactly once over all outputs and was joined correctly; 1 otherwise.
    """
    from photon.lab.demo.check import check as compare
    from photon.lab.demo.endless import truth_of

    truth = truth_of(directory)
    findings = waited(lambda: compare(outputs, truth), lambda found: not found.problems, wait, POLL_S)
    clicks = len(truth.joined) + len(truth.unmatched)
    verdict = "not as expected" if findings.problems else "each exactly once"
    people = f"{many(clicks, 'click')}: {findings.joined:,} joined, {findings.unmatched:,} unmatched: {verdict}"
    said = {"clicks": clicks, "joined": findings.joined, "unmatched": findings.unmatched,
            "rejected": findings.rejected, "problems": findings.problems}  # fmt: skip
    out.show(said, "\n".join([*findings.problems, people]))
    return FAILED if findings.problems else DONE
