"""``photon help``: explains a counter of the ledger, a metric, or a command."""

from __future__ import annotations

from difflib import get_close_matches

import click

from photon.cli.errors import DONE
from photon.cli.heads import Printed, formatted
from photon.config.errors import UsageError

LEDGER = "photon status ledger shows it by hour"


@click.command(name="help")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@formatted
def help_(names: tuple[str, ...], out: Printed) -> int:
    """Explain NAME: a counter of the ledger, a metric, or a command.

    \b
    Examples:
      photon help unmatched
      photon help photon_dispatcher_lag_bytes
      photon help slot retire
    """
    meanings = _meanings(names[0]) if len(names) == 1 else []
    command = _command_help(names)
    if not meanings and command is None:
        raise UsageError(_unknown(" ".join(names)))
    lines = [f"{each['name']} ({each['kind']}): {each['meaning']}; {each['where']}" for each in meanings]
    out.show({"meanings": meanings, "command": command}, "\n\n".join([*lines, *([command] if command else [])]))
    return DONE


def _meanings(name: str) -> list[dict[str, str]]:
    from photon.config.metrics.table import SERVICES
    from photon.fleet.counters import COUNTERS, VERDICTS

    found = []
    if name in COUNTERS:
        also = f', and photon_dispatcher_events_total{{verdict="{name}"}}' if name in VERDICTS else ""
        meaning = COUNTERS[name].removesuffix(":")
        found.append({"name": name, "kind": "lines", "meaning": meaning, "where": LEDGER + also})
    for service, metrics in SERVICES.items():
        for metric in metrics:
            if name in _names(metric.name):
                labels = f", by {', '.join(metric.labels)}" if metric.labels else ""
                what = {"name": metric.name, "kind": str(metric.kind), "meaning": metric.help.rstrip(".")}
                found.append({**what, "where": f"reported by {service}{labels}"})
    return found


def _names(metric: str) -> tuple[str, ...]:
    """Returns a metric's full name and its short forms."""
    short = metric.removeprefix("photon_")
    return metric, metric.removesuffix("_total"), short, short.removesuffix("_total")


def _command_help(names: tuple[str, ...]) -> str | None:
    """Returns the help of the command with this name; `None` if there is none."""
    from photon.cli.main import main

    context = click.Context(main, info_name="photon")
    for name in names:
        group = context.command
        inner = group.get_command(context, name) if isinstance(group, click.Group) else None
        if inner is None:
            return None
        context = click.Context(inner, info_name=name, parent=context)
    return context.get_help()


def _unknown(name: str) -> str:
    from photon.cli.main import NOUNS
    from photon.config.metrics.table import METRICS
    from photon.fleet.counters import COUNTERS

    known = [*COUNTERS, *NOUNS, *(each for metric in METRICS for each in _names(metric))]
    alike = get_close_matches(name, dict.fromkeys(known), n=1)
    hint = f"; did you mean {alike[0]}?" if alike else "; see photon --help and photon status --help"
    return f"{name}: no counter, metric or command has this name{hint}"
