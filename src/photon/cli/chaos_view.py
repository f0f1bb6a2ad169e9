"""How plans and reports of ``photon chaos`` look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.table import Table

from photon.cli import tables
from photon.cli.tables import print_json, print_table

if TYPE_CHECKING:
    from photon.cli.heads import Printed
    from photon.lab.chaos.api import Step
    from photon.lab.chaos.report import Report, Spread
    from photon.lab.chaos.scenario import Scenario

MIB = 1 << 20


def show_plan(out: Printed, scenario: Scenario, steps: Sequence[Step], seed: int) -> None:
    """The plan as a table."""
    if out.json:
        whole = {"scenario": scenario.name, "seed": seed, "seconds": scenario.seconds, "rate": scenario.rate}
        print_json({**whole, "plan": [asdict(step) for step in steps]})
        return
    click.echo(f"{scenario.name}: {scenario.about}; {scenario.seconds:g} s, {scenario.rate} events/s, seed {seed}")
    rows = [[f"{each.at_s:.1f} s", f"{each.end_s:.1f} s" if each.for_s else "-", each.words()] for each in steps]
    print_table(">from, >to, fault", rows)


def show_report(out: Printed, report: Report, kept: Path) -> None:
    """The verdict and its figures."""
    if out.json:
        from photon.lab.chaos.command import as_json

        print_json(as_json(report))
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    good = (
        f"[green]every one of {report.events:,} events exactly once[/green]"
        if report.events
        else "[green]all is right[/green]"
    )
    table.add_row("verdict", good if report.good else f"[bold red]{len(report.problems)} problems[/bold red]")
    for problem in report.problems:
        table.add_row("", problem)
    table.add_row("verified by", report.verified)
    table.add_row("scenario", f"{report.scenario}, seed {report.seed}, {report.faults} faults, {report.seconds:g} s")
    if report.events:
        within = ", ".join(f"{share:.4%} in {limit} s" for limit, share in report.latency.within.items())
        table.add_row("end to end", _spread(report.latency.overall))
        table.add_row("during faults", _spread(report.latency.during))
        table.add_row("unmatched", _spread(report.latency.unmatched))
        table.add_row("verdict within", within)
    for back in report.backs:
        took = "never seen at the head of its logs" if back.seconds is None else f"caught up in {back.seconds:g} s"
        what = f"away {back.away_s:g} s, {took}, {back.read:,} events read, {back.wasted} joins wasted"
        table.add_row(f"back: {back.datacentre}", what)
    table.add_row("settled", f"{report.settle_s:g} s after the heal; {report.wasted} joins wasted in all")
    _add_uses(table, report)
    table.add_row("load average", f"{report.load_before:.1f} before, {report.load_after:.1f} after")
    table.add_row("history", report.history)
    tables.show(table)
    click.echo(f"kept in {kept}")


def _add_uses(table: Table, report: Report) -> None:
    judged = [use for use in report.uses if use.judged]
    if not judged:
        return
    if not report.growing:
        most = max(judged, key=lambda use: use.memory_after)
        flat = f"flat in {len(judged)} processes; most: {most.name} {most.memory_after / MIB:.0f} MiB"
        table.add_row("memory, files", flat)
    for use in report.growing:
        memory = f"{use.memory_before / MIB:.0f} to {use.memory_after / MIB:.0f} MiB"
        files = f"{use.files_before} to {use.files_after} files"
        table.add_row("growing", f"[yellow]{use.name}: {memory}, {files} in {use.lived_s:.0f} s[/yellow]")


def _spread(spread: Spread) -> str:
    if not spread.count:
        return "-"
    values = f"p50 {spread.p50_ms:,.0f} ms, p99 {spread.p99_ms:,.0f} ms, most {spread.max_ms:,.0f} ms"
    return f"{values} ({spread.count:,} events)"
