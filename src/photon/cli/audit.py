"""``photon audit``: what was done to a deployment by command, and by whom."""

from __future__ import annotations

from pathlib import Path

import click

from photon.cli import deployment_file
from photon.cli.registry.common import formatted, print_json, print_table


@click.command()
@deployment_file.config()
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="The newest so many.")
@formatted
def audit(config: Path, limit: int, output_format: str) -> None:
    """Show the commands that changed a deployment: who, when, what, and what came of it; the newest last.

    Commands that were called on this machine. What an operator asks of a process over the network stands in that
    process's log too (docs/security.md).

    \b
    Examples:
      photon audit --config photon.toml
      photon audit --config photon.toml --limit 5 -o json
    """
    from photon.cli.audited import entries, place

    path = place(config)
    found = entries(path)[-limit:]
    if output_format == "json":
        print_json({"file": str(path), "commands": found})
        return
    if not found:
        click.echo(f"{path}: nothing was done yet")
        return
    columns = [("at", False), ("who", False), ("command", False), ("outcome", False)]
    rows = []
    for each in found:
        said = each["outcome"] + (f": {each['error']}" if each["error"] else "")
        who = f"{each.get('user')}@{each.get('host')} ({each.get('pid')})"
        rows.append([str(each["at"])[:19] + "Z", who, " ".join(each.get("arguments") or [each["command"]]), said])
    print_table(columns, rows)
