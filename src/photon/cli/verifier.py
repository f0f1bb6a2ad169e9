"""``photon verifier serve | status | acknowledge``: the continuous verifier of a pipeline."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from photon.cli import deployment_file, steering
from photon.cli.audited import audited
from photon.cli.errors import ATTENTION, DONE
from photon.cli.registry.common import formatted, print_json, print_table
from photon.cli.serve import _common, _datacentre, _load, _run

if TYPE_CHECKING:
    from photon.verifier.service import VerifiedPipeline
    from photon.verifier.status import PipelineStatus, SlotStatus

COLUMNS = (
    ("slot", False),
    ("state", False),
    ("published", True),
    ("cleared", True),
    ("checked", True),
    ("behind", True),
    ("owned", True),
    ("oldest owned", True),
    ("alarms", True),
)


@click.group()
def verifier() -> None:
    """The continuous verifier: checks what was published, clears tokens, raises alarms.

    \b
    Examples:
      photon verifier serve --config photon.toml --datacentre east
      photon verifier status --config photon.toml --datacentre east
    """


@verifier.command("serve")
@_common
@_datacentre
def serve(config: Path | None, overrides: tuple[str, ...], stop_with_parent: bool, datacentre: str | None) -> None:
    """Verify all slots of a pipeline until SIGTERM, on the machine that they are on. One process for each.

    \b
    Example:
      photon verifier serve --config photon.toml --datacentre east
    """
    from photon.assembly.verifier import serve_verifier

    settings, base = _load(config, overrides)
    _run(lambda stop: serve_verifier(settings, base, datacentre, stop), with_parent=stop_with_parent)


@verifier.command("status")
@deployment_file.config()
@click.option("--datacentre", metavar="NAME", help="Whose slots; may be left out if there is one.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key.")
@formatted
def status(config: Path, datacentre: str | None, overrides: tuple[str, ...], output_format: str) -> int:
    """Show how far each slot is verified, and the alarms that stand. Reads the files of this machine.

    \b
    Example:
      photon verifier status --config photon.toml --datacentre east
    Exit codes: 0 all is well, 3 alarms stand, or no verifier runs.
    """
    import time

    from photon.config.disk import RealDisk
    from photon.verifier.status import status_of

    found = status_of(RealDisk(), _pipeline(config, overrides, datacentre))
    now_ns = time.time_ns()
    if output_format == "json":
        print_json(_json(found, now_ns))
    else:
        _show(found, now_ns)
    return ATTENTION if found.attention else DONE


@verifier.command("acknowledge")
@deployment_file.config()
@click.option("--datacentre", metavar="NAME", help="Whose slots; may be left out if there is one.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key.")
@click.option("--slot", "slots", multiple=True, metavar="NAME", help="Of this slot only; may be given several times.")
@steering.sure
@formatted
@audited
def acknowledge(
    config: Path,
    datacentre: str | None,
    overrides: tuple[str, ...],
    slots: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    output_format: str,
) -> None:
    """Say that the alarms that stand have been dealt with. They stay in the slots' alarms.jsonl, as over.

    \b
    Examples:
      photon verifier acknowledge --config photon.toml --datacentre east --dry-run
      photon verifier acknowledge --config photon.toml --datacentre east --slot east-1 --yes
    """
    import time

    from photon.config.disk import RealDisk
    from photon.verifier.status import acknowledged, standing

    steering.must_be_said("acknowledging alarms", dry_run=dry_run, yes=yes)
    pipeline = _pipeline(config, overrides, datacentre)
    count = standing(RealDisk(), pipeline, slots)
    if not dry_run:
        steering.ask(f"{count} alarms stand. Have they been dealt with?", yes=yes)
        count = acknowledged(RealDisk(), pipeline, slots, time.time_ns())
    if output_format == "json":
        print_json({"alarms": count, "acknowledged": not dry_run})
    else:
        click.echo(f"{count} alarms would be acknowledged" if dry_run else f"{count} alarms acknowledged")


def _pipeline(config: Path, overrides: tuple[str, ...], datacentre: str | None) -> VerifiedPipeline:
    from photon.assembly.verifier import pipeline_of
    from photon.config.loader import load

    settings = load(config, environment=os.environ, flags=overrides)
    return pipeline_of(settings, config.parent, datacentre)[1]


def _json(found: PipelineStatus, now_ns: int) -> dict[str, Any]:
    return {"verifier": found.verifier, "slots": [_row(each, now_ns) for each in found.slots]}


def _row(each: SlotStatus, now_ns: int) -> dict[str, Any]:
    since = each.owned_since_ns
    return {
        "slot": each.slot,
        "state": each.state.word,
        "detail": str(each.state),
        "published": each.published,
        "cleared": each.cleared,
        "checked": each.checked,
        "behind": each.behind,
        "checked_lines": each.checked_lines,
        "unverifiable": each.unverifiable,
        "gone": each.gone,
        "owned": each.owned,
        "oldest_owned_s": None if since is None else max(now_ns - since, 0) / 1e9,
        "problem": each.problem,
        "alarms": [
            {
                "at_ns": alarm.at_ns,
                "finding": alarm.finding,
                "what": alarm.what,
                "file": alarm.file,
                "offset": alarm.offset,
                "event_id": alarm.event_id,
                "todo": alarm.todo,
            }
            for alarm in each.alarms
        ],
    }


def _show(found: PipelineStatus, now_ns: int) -> None:
    from photon.config.words import size

    rows = []
    for each in found.slots:
        since = each.owned_since_ns
        age = "-" if since is None else f"{max(now_ns - since, 0) / 1e9:,.0f} s"
        sizes = [size(number) for number in (each.published, each.cleared, each.checked, each.behind)]
        rows.append([each.slot, each.state.word, *sizes, f"{each.owned:,}", age, str(len(each.alarms))])
    print_table(list(COLUMNS), rows)
    click.echo("no verifier runs here" if found.verifier is None else f"verifier: {found.verifier}")
    for each in found.slots:
        if each.unverifiable:
            click.echo(f"{each.slot}: {each.unverifiable:,} lines whose source log is gone ({', '.join(each.gone)})")
        if each.problem:
            click.echo(f"{each.slot}: {each.problem}")
        for alarm in each.alarms:
            where = f" at {alarm.file}:{alarm.offset}" if alarm.file else ""
            click.echo(f"{each.slot}: {alarm.finding}{where}: {alarm.what}; {alarm.todo}")
