"""``photon watermark``: shows the time up to which a deployment's output is complete, or waits until it is
reached."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from photon.cli.errors import ATTENTION, DONE
from photon.cli.heads import PATH, Deployed, deployed
from photon.cli.looking import again
from photon.config.clock import NEVER_NS, utc
from photon.config.errors import UsageError
from photon.config.units import moment_ns
from photon.fleet.parts import Column, Part

if TYPE_CHECKING:
    from photon.fleet.watermarks import DatacentreWatermark, JoinWatermark

LOOK_S = 0.5
_OUTPUT = click.option("--output", type=PATH, metavar="OUTPUT", help="Instead of --config: an output of photon join.")


@click.group(invoke_without_command=True)
@deployed(required=False, unless=["output"], sets=False, datacentre="Only this datacentre (default: each and all).")
@_OUTPUT
@click.option("--watch", is_flag=True, help="Repeat until Ctrl-C.")
@click.option("--every", type=click.FloatRange(0.1), default=1.0, show_default=True, metavar="SECONDS",
              help="Interval of --watch.")  # fmt: skip
@click.pass_context
def watermark(context: click.Context, at: Deployed, output: Path | None, watch: bool, every: float) -> int:
    """Show up to which event time the output is complete, and what holds it back.

    \b
    exact: every older record has been published. percentile: about 99 % of older records have been; waiting: number
    of events before the percentile that have no verdict. Reads the states of the datacentres on this machine, and
    asks the verifiers of the others.
    Examples:
      photon watermark --config photon.toml
      photon watermark --config photon.toml --datacentre east --watch
      photon watermark --output out/
      photon watermark wait 2026-11-24T10:00 --final --config photon.toml
    Exit codes: 0 shown; 3 a datacentre does not answer.
    """
    if context.invoked_subcommand is not None:
        return DONE
    if watch:
        return again(lambda: _show(at, output), every) or DONE
    return _show(at, output)


def _look(at: Deployed, output: Path | None) -> tuple[list[DatacentreWatermark], list[JoinWatermark]]:
    """Reads the watermarks of the datacentres and of the joins. Raises UsageError."""
    from photon.fleet.access import pipelines_named
    from photon.fleet.watermarks import of_state, over_all, watermarks

    if output is not None:
        from photon.outputs import OutputPlace

        found = [of_state("-", str(output), OutputPlace.of_join(output).state)]
    else:
        named = pipelines_named(at.settings, at.datacentre)
        found = asyncio.run(watermarks(at.settings, at.base, named, lambda: at.tls))
    return found, over_all(found)


def _show(at: Deployed, output: Path | None) -> int:
    found, joins = _look(at, output)
    document = {"joins": [_of_join(each) for each in joins], "datacentres": [_of_datacentre(each) for each in found]}
    alone = len(found) == 1
    rows = document["datacentres"] if alone else [*document["datacentres"], *document["joins"]]
    at.show(document, Part("", rows, COLUMNS))
    return ATTENTION if any(each.pair is None for each in found) else DONE


def _of_join(each: JoinWatermark) -> dict[str, Any]:
    marks = {"exact": _time(each.exact_ns), "percentile": _time(each.percentile_ns)}
    return {"join": each.join, **marks, "waiting": each.waiting, "held_by": each.held_by}


def _of_datacentre(each: DatacentreWatermark) -> dict[str, Any]:
    pair = each.pair
    if pair is None:
        return {"datacentre": each.datacentre, "problem": each.problem}
    return {
        "datacentre": each.datacentre,
        "exact": _time(pair.exact_ns),
        "percentile": _time(pair.percentile_ns),
        "waiting": pair.waiting,
        "late_records": each.late_records,
        "held_by": pair.held_by,
        "at": _time(pair.at_ns),
    }


def _ago_s(time: str) -> float:
    return (datetime.now(UTC) - datetime.fromisoformat(time)).total_seconds()


def _with_lag(time: str | None) -> str:
    return "-" if time is None else f"{time} ({_ago_s(time):,.0f} s)"


COLUMNS = (
    Column("datacentre", lambda row: row.get("datacentre") or f"all of {row['join']}"),
    Column("exact", "exact", _with_lag), Column("percentile", "percentile", _with_lag), Column(">waiting"),
    Column(">late", "late_records"),
    Column("said", "at", lambda at: "-" if at is None else f"{_ago_s(at):.0f} s ago"),
    Column("held back by", lambda row: row.get("problem") or "; ".join(row.get("held_by", ())), str),
)  # fmt: skip


def _time(time_ns: int | None) -> str | None:
    return None if time_ns is None else utc(time_ns)


@watermark.command()
@click.argument("moment", metavar="TIME")
@deployed(required=False, unless=["output"], sets=False, datacentre="Only this datacentre (default: all).")
@click.option(
    "--final", "kind", flag_value="exact", help="Wait until all records before TIME are published (default)."
)
@click.option(
    "--percentile", "kind", flag_value="percentile", help="Wait until 99 % of the records before TIME are published."
)
@click.option("--timeout", type=click.FloatRange(0.0), metavar="SECONDS", help="Longest wait.")
@_OUTPUT
def wait(at: Deployed, moment: str, kind: str | None, timeout: float | None, output: Path | None) -> int:
    """Wait until records before TIME (event time) are published.

    \b
    TIME: an ISO date or time (UTC if it has no zone), epoch seconds, or 2h (ago). Prints the number of open events.
    Examples:
      photon watermark wait 2026-11-24T10:00 --final --config photon.toml && bill-the-hour
      photon watermark wait 10m --percentile --timeout 60 --config photon.toml
    Exit codes: 0 reached; 3 not reached in time; 2 wrong usage.
    """
    time_ns = _moment_ns(moment)
    percentile = kind == "percentile"
    if not percentile:
        found, joins = _look(at, output)
        unset = next((each.join for each in joins if not _promised(at, output, each)), None)
        if unset is not None:
            which = f"join.{unset}.written_within" if output is None else f"{unset}: written_within of its join"
            raise UsageError(
                f"{which} is not set, so lines written later may have any time; set it, or wait with --percentile"
            )
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        found, joins = _look(at, output)
        reached = [each.percentile_ns if percentile else each.exact_ns for each in joins]
        done = all(each is not None and each >= time_ns for each in reached)
        if done or (deadline is not None and time.monotonic() >= deadline):
            break
        time.sleep(LOOK_S)
    final = all(each.exact_ns is not None and each.exact_ns >= time_ns for each in joins)
    counts = [0] if final else [count for each in found if (count := each.waiting_before(time_ns)) is not None]
    waiting = max(counts, default=None)
    document = {"time": _time(time_ns), "reached": done, "final": final, "waiting": waiting}
    held = "; ".join(why for each in joins for why in each.held_by)
    out = "no event is missing" if final else f"{'?' if waiting is None else f'{waiting:,}'} events have no verdict"
    at.show(document, f"{_time(time_ns)}: {'reached' if done else 'not reached'}, {out}{'' if done else f'; {held}'}")
    return DONE if done else ATTENTION


def _promised(at: Deployed, output: Path | None, join: JoinWatermark) -> bool:
    if output is None:
        return at.settings.join[join.join].written_within is not None
    return not any("written_within is not set" in why for why in join.held_by)


def _moment_ns(text: str) -> int:
    """Parses a moment, which may be in the future, into ns UTC. Raises UsageError."""
    for latest_ns in (time.time_ns(), NEVER_NS):
        try:
            return moment_ns(text, latest_ns)
        except ValueError as error:
            why = error
    raise UsageError(f"{text}: {why}")
