"""How the demo looks while it runs, and its table at the end."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from photon.config.words import size
from photon.lab.demo.observe import Observation
from photon.lab.demo.run import Report

LINE_EVERY_S = 2.0
"""Between two plain lines where there is no terminal."""


class DemoView:
    """Shows what happens on stderr; standard output stays free for the result."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._began = time.monotonic()
        self._last_line = -LINE_EVERY_S
        self._live: Live | None = None

    def say(self, what: str) -> None:
        """One thing that happened."""
        self._print(what)

    def show(self, seen: Observation) -> None:
        """Call a few times a second."""
        if self._console.is_terminal:
            if self._live is None:
                self._live = Live(console=self._console, transient=True, auto_refresh=False)
                self._live.start()
            self._live.update(_live_table(seen), refresh=True)
            return
        now = time.monotonic()
        if now - self._last_line >= LINE_EVERY_S:
            self._last_line = now
            for line in _lines(seen):
                self._print(line)

    def close(self) -> None:
        """Leaves the terminal as it was."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _print(self, what: str) -> None:
        at = time.monotonic() - self._began
        self._console.print(f"[{at:5.1f} s] {what}", markup=False, highlight=False, soft_wrap=True)


def _registry_line(seen: Observation) -> str:
    leader = f"leader {seen.leader}" if seen.leader else "no leader"
    return f"registry: {leader}, {seen.batch_mean:.0f} ids a commit, {seen.commit_ms_p50:.0f} ms a commit"


def _latency_line(seen: Observation) -> str:
    p50, p90, p99 = seen.latencies_ms
    return f"click written to joined: p50 {p50:.0f} ms, p90 {p90:.0f} ms, p99 {p99:.0f} ms"


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


def _live_table(seen: Observation) -> Group:
    table = Table(box=None, pad_edge=False, show_edge=False)
    table.add_column("datacentre")
    for column in ("read", "joined", "elsewhere", "wasted", "pending", "lag"):
        table.add_column(column, justify="right")
    for name, each in seen.datacentres.items():
        counts = [f"{each.ledger[column]:,}" for column in ("read", "joined", "elsewhere", "wasted", "pending")]
        lag = size(each.lag_bytes) if each.up else "DOWN"
        table.add_row(name, *counts, lag, style="" if each.up else "bold red")
    return Group(
        table, Text(_registry_line(seen)), Text(_latency_line(seen)), Text(f"{seen.written:,} lines written")
    )


def result(report: Report, directory: Path, *, kept: bool) -> Group:
    """The tables at the end."""
    names = list(report.ledgers)
    ledgers = Table(box=None, pad_edge=False, title="Ledgers (clicks)", title_justify="left")
    ledgers.add_column("")
    for name in names:
        ledgers.add_column(name, justify="right")
    for verdict in (
        "read",
        "joined",
        "unmatched",
        "elsewhere",
        "duplicate",
        "rejected",
        "pending",
        "wasted",
        "reread",
    ):
        ledgers.add_row(verdict, *(f"{report.ledgers[name][verdict]:,}" for name in names))
    phases = Table(box=None, pad_edge=False, title="Who decided", title_justify="left")
    phases.add_column("phase")
    for column in ("seconds", *names, "wasted"):
        phases.add_column(column, justify="right")
    for phase in report.phases:
        shares = [f"{phase.made[name]:,} ({phase.share(name):.0%})" for name in names]
        phases.add_row(phase.name, f"{phase.seconds:.0f}", *shares, f"{phase.wasted:,} ({phase.wasted_share:.1%})")
    p50, p90, p99 = report.latencies_ms
    facts = Table(box=None, show_header=False, pad_edge=False)
    facts.add_row("lines written", f"{report.lines:,}, of them {report.clicks:,} clicks, in each datacentre")
    if report.killed:
        facts.add_row("kill -9", report.killed)
        facts.add_row("return", report.catch_up)
    facts.add_row("click written to joined", f"p50 {p50:.0f} ms, p90 {p90:.0f} ms, p99 {p99:.0f} ms")
    facts.add_row("every click exactly once", "yes, over both datacentres" if report.good else "NO")
    for problem in report.problems:
        facts.add_row("problem", problem)
    facts.add_row("output", f"{directory}" if kept else "removed (keep it with --keep DIR)")
    facts.add_row("took", f"{report.seconds:.0f} s")
    return Group(ledgers, "", phases, "", facts)
