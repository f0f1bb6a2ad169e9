"""Implements ``photon demo``."""

from __future__ import annotations

import dataclasses
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Group
from rich.text import Text

from photon.cli.errors import DONE, FAILED
from photon.cli.heads import PATH, Printed, formatted
from photon.cli.looking import LiveView
from photon.cli.tables import facts, table_of
from photon.config.errors import UsageError
from photon.config.words import size
from photon.fleet.parts import Column, Part, bad_if

if TYPE_CHECKING:
    from photon.lab.demo.observe import Observation
    from photon.lab.demo.run import Report

LINE_EVERY_S = 2.0  # seconds between two lines of text if there is no terminal
VERDICTS = ("read", "joined", "unmatched", "elsewhere", "duplicate", "rejected", "pending", "wasted", "reread")


@click.command()
@click.option("--seconds", type=click.FloatRange(min=5.0, max=3600.0), default=20.0, show_default=True,
              help="How long to write events, in seconds.")  # fmt: skip
@click.option("--rate", type=click.IntRange(min=10, max=100_000), default=500, show_default=True,
              help="Clicks per second; there are ten times as many queries.")  # fmt: skip
@click.option("--seed", type=int, default=1, show_default=True,
              help="Seed of the stream and of the choice of victim; odd: prefer the registry's leader.")  # fmt: skip
@click.option("--keep", type=PATH, metavar="DIR", help="Keep all files in this new directory.")
@click.option("--no-kill", is_flag=True, help="Kill nothing.")
@formatted
def demo(seconds: float, rate: int, seed: int, keep: Path | None, no_kill: bool, out: Printed) -> int:
    """Join a live stream in two datacentres, lose one, and verify every click.

    Each datacentre has an event store, two joiners, a verifier and a dispatcher; three registry replicas are in three
    regions, 30 ms apart. Each is a separate process. One whole datacentre, with its registry replica, is killed with
    kill -9; the other takes over; then the killed one returns and catches up. The exit code is 0 only if every click
    came out exactly once in both datacentres together, with the right contents, the ledgers of both agree with the
    truth, and no verifier has an alarm.

    \b
    Example:
      photon demo --seconds 30 --rate 1000 --seed 2 --keep /tmp/demo
    """
    from photon.supervision.zygote import ALL, zygote

    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise UsageError(f"{keep}: is not empty; give a new directory to --keep")
    made = click.get_current_context().with_resource(zygote(ALL))

    from photon.config import runtime
    from photon.lab.demo.run import DemoOptions, run

    directory = (keep or Path(os.environ.get("TMPDIR", "/tmp")) / f"photon-demo-{os.getpid()}").absolute()
    view = DemoView()
    try:
        options = DemoOptions(directory, seconds, rate, seed, not no_kill)
        report = runtime.run(run(options, say=view.say, show=view.show, zygote=made))
    finally:
        view.close()
        if keep is None:
            shutil.rmtree(directory, ignore_errors=True)
    whole = dataclasses.asdict(report) | {"good": report.good, "output": str(keep) if keep else None}
    out.show(whole, *_result(report, directory, kept=keep is not None))
    return DONE if report.good else FAILED


# -- display ---------------------------------------------------------------------------------------------------------
class DemoView(LiveView):
    def __init__(self) -> None:
        super().__init__()
        self._began = time.monotonic()
        self._last_line = -LINE_EVERY_S

    def say(self, what: str) -> None:
        at = time.monotonic() - self._began
        self.console.print(f"[{at:5.1f} s] {what}", markup=False, highlight=False, soft_wrap=True)

    def show(self, seen: Observation) -> None:
        """Draws the progress. Call it a few times per second."""
        if self.draw(lambda: _live_table(seen)):
            return
        now = time.monotonic()
        if now - self._last_line >= LINE_EVERY_S:
            self._last_line = now
            for line in _lines(seen):
                self.say(line)


def _registry_line(seen: Observation) -> str:
    leader = f"leader {seen.leader}" if seen.leader else "no leader"
    return f"registry: {leader}, {seen.batch_mean:.0f} ids per commit, {seen.commit_ms_p50:.0f} ms a commit"


def _latency_line(seen: Observation) -> str:
    p50, p90, p99 = seen.latencies_ms
    return f"time from click to join: p50 {p50:.0f} ms, p90 {p90:.0f} ms, p99 {p99:.0f} ms"


def _lines(seen: Observation) -> list[str]:
    lines = []
    for name, each in seen.datacentres.items():
        ledger = each.ledger
        state = f"lag {size(each.lag_bytes)}" if each.up else "DOWN"
        lines.append(
            f"{name:8} read {ledger['read']:>7,}  joined {ledger['joined']:>7,}  "
            f"elsewhere {ledger['elsewhere']:>7,}  wasted {ledger['wasted']:>5,}  "
            f"pending {ledger['pending']:>6,}  {state}"
        )
    return [*lines, f"{_registry_line(seen)}; {_latency_line(seen)}"]


COUNTS = ("read", "joined", "elsewhere", "wasted", "pending")


def _live_table(seen: Observation) -> Group:
    rows = [
        {"datacentre": name, **each.ledger, "lag": size(each.lag_bytes) if each.up else "DOWN", "up": each.up}
        for name, each in seen.datacentres.items()
    ]
    columns = (Column("datacentre"), *(Column(f">{name}") for name in COUNTS), Column(">lag"))
    table = table_of(Part("", rows, columns, style=bad_if(lambda row: not row["up"])))
    return Group(
        table, Text(_registry_line(seen)), Text(_latency_line(seen)), Text(f"{seen.written:,} lines written")
    )


def _result(report: Report, directory: Path, *, kept: bool) -> Iterator[str | Part]:
    names, rows = list(report.ledgers), list[dict[str, Any]]()
    right = [Column(f">{name}") for name in names]
    for verdict in VERDICTS:
        rows.append({"verdict": verdict, **{name: report.ledgers[name][verdict] for name in names}})
    yield from ("Ledgers (clicks)", Part("", rows, (Column("", "verdict"), *right)))
    rows = []
    for phase in report.phases:
        shares = {name: f"{phase.made[name]:,} ({phase.share(name):.0%})" for name in names}
        wasted = f"{phase.wasted:,} ({phase.wasted_share:.1%})"
        rows.append({"phase": phase.name, "seconds": f"{phase.seconds:.0f}", **shares, "wasted": wasted})
    columns = (Column("phase"), Column(">seconds"), *right, Column(">wasted"))
    yield from ("", "Who decided", Part("", rows, columns), "")
    p50, p90, p99 = report.latencies_ms
    said = [("lines written", f"{report.lines:,} in each datacentre, {report.clicks:,} of them clicks")]
    if report.killed:
        said += [("kill -9", report.killed), ("return", report.catch_up)]
    said += [
        ("time from click to join", f"p50 {p50:.0f} ms, p90 {p90:.0f} ms, p99 {p99:.0f} ms"),
        ("every click joined exactly once", "yes, over both datacentres" if report.good else "NO"),
        *(("problem", problem) for problem in report.problems),
        ("output", f"{directory}" if kept else "removed (keep it with --keep DIR)"),
        ("took", f"{report.seconds:.0f} s"),
    ]
    yield from facts(said)
