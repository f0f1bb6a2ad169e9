"""``photon demo``."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import click
import orjson
from rich.console import Console
from rich.table import Table

from photon.cli.errors import DONE, FAILED


@click.command()
@click.option("--seconds", type=click.FloatRange(min=2.0, max=3600.0), default=12.0, show_default=True)
@click.option("--rate", type=click.IntRange(min=10, max=100_000), default=500, show_default=True,
              help="Clicks a second; there are ten times as many queries.")  # fmt: skip
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--keep", type=click.Path(path_type=Path), help="Keep all files in this directory.")
@click.option("--no-kill", is_flag=True, help="Kill nothing.")
@click.option("-o", "output_format", type=click.Choice(["table", "json"]), default="table", show_default=True)
def demo(seconds: float, rate: int, seed: int, keep: Path | None, no_kill: bool, output_format: str) -> int:
    """Join a live stream with real processes, kill some of them, verify every click.

    Three registry replicas, an event store, a joiner and a dispatcher run as processes of their own. The joiner and a
    registry leader are killed with kill -9 on the way. Exit code 0 only if every click came out exactly once.

    \b
    Example:
      photon demo --seconds 30 --rate 2000 --keep /tmp/demo
    """
    from photon.config.errors import UsageError
    from photon.demo.observe import Observation
    from photon.demo.run import DemoOptions, default_directory, run
    from photon.embedded import runtime

    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise UsageError(f"{keep}: is not empty; name a new directory for --keep")
    directory = (keep or default_directory()).absolute()
    console = Console(stderr=True)
    began = time.monotonic()
    last = [0.0]

    def say(what: str) -> None:
        console.print(f"[{time.monotonic() - began:5.1f} s] {what}", markup=False, highlight=False, soft_wrap=True)

    def show(seen: Observation) -> None:
        if time.monotonic() - last[0] >= 2.0:
            last[0] = time.monotonic()
            ledger = seen.ledger
            say(f"written {seen.written:,}  read {ledger['read']:,}  joined {ledger['joined']:,}  "
                f"pending {ledger['pending']:,}  registry leader {seen.leader or '(none)'}, "
                f"{seen.batch_mean:.0f} ids a commit in {seen.commit_ms_p50:.1f} ms")  # fmt: skip

    try:
        report = runtime.run(run(DemoOptions(directory, seconds, rate, seed, not no_kill), say=say, show=show))
    finally:
        if keep is None:
            shutil.rmtree(directory, ignore_errors=True)
    if output_format == "json":
        click.echo(
            orjson.dumps(
                {
                    "good": report.good,
                    "problems": report.problems,
                    "ledger": report.ledger,
                    "kills": report.kills,
                    "latency_ms": dict(zip(("p50", "p90", "p99"), report.latencies_ms, strict=True)),
                    "seconds": report.seconds,
                }
            ).decode()
        )
        return DONE if report.good else FAILED
    table = Table(box=None, show_header=False, pad_edge=False, title="Photon demo", title_justify="left")
    table.add_row("lines written", f"{report.lines:,}, of them {report.ledger['read']:,} clicks")
    for name in ("joined", "unmatched", "rejected", "duplicate"):
        table.add_row(name, f"{report.ledger[name]:,}")
    p50, p90, p99 = report.latencies_ms
    table.add_row("line written to joined", f"p50 {p50:.0f} ms, p90 {p90:.0f} ms, p99 {p99:.0f} ms")
    for killed in report.kills:
        table.add_row("kill -9", killed)
    table.add_row("every click exactly once", "yes" if report.good else "NO")
    for problem in report.problems:
        table.add_row("problem", problem)
    table.add_row("output", f"{directory}" if keep else "removed (keep it with --keep DIR)")
    table.add_row("took", f"{report.seconds:.0f} s")
    Console().print(table)
    return DONE if report.good else FAILED
