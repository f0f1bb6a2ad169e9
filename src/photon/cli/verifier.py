"""Commands for a pipeline's continuous verifier: show its progress and open alarms. They read files of this
machine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from photon.cli.audited import audited
from photon.cli.errors import ATTENTION, DONE
from photon.cli.heads import Deployed, ask, deployed, must_be_said, sure
from photon.config.disk import RealDisk
from photon.config.words import many, size
from photon.fleet.parts import Column, Part, picked

if TYPE_CHECKING:
    from photon.verifier.service import VerifiedPipeline
    from photon.verifier.status import PipelineStatus, SlotStatus


def show(at: Deployed) -> int:
    """``photon status verifier``. Exit code 3: there are open alarms, or no verifier runs."""
    from photon.verifier.status import status_of

    found = status_of(RealDisk(), _pipeline(at))
    now_ns = time.time_ns()
    part = Part("slots", [_row(each, now_ns) for each in found.slots], COLUMNS)
    at.part(part, *_lines(found), verifier=found.verifier)
    return ATTENTION if found.attention else DONE


@click.command()
@click.option("--slot", "slots", multiple=True, metavar="NAME", help="Only this slot; may be repeated.")
@sure
@deployed(datacentre="Datacentre of the slots; may be left out if there is only one.")
@audited
def acknowledge(at: Deployed, slots: tuple[str, ...], dry_run: bool, yes: bool) -> None:
    """Acknowledge open alarms. They remain in the slots' alarms.jsonl, marked as ended.

    \b
    Examples:
      photon verifier acknowledge --config photon.toml --datacentre east --dry-run
      photon verifier acknowledge --config photon.toml --datacentre east --slot east-1 --yes
    """
    from photon.verifier.status import acknowledged, standing

    must_be_said("acknowledging alarms", dry_run=dry_run, yes=yes)
    pipeline = _pipeline(at)
    count = standing(RealDisk(), pipeline, slots)
    if not dry_run:
        ask(f"Acknowledge {many(count, 'open alarm')}?", yes=yes)
        count = acknowledged(RealDisk(), pipeline, slots, time.time_ns())
    people = f"{many(count, 'alarm')} {'would be ' if dry_run else ''}acknowledged"
    at.show({"alarms": count, "acknowledged": not dry_run}, people)


def _pipeline(at: Deployed) -> VerifiedPipeline:
    from photon.assembly.verifier import pipeline_of

    return pipeline_of(at.settings, at.base, at.datacentre)[1]


def _row(each: SlotStatus, now_ns: int) -> dict[str, Any]:
    since = each.owned_since_ns
    return {
        "slot": each.slot,
        "state": each.state.word,
        "detail": str(each.state),
        **picked(each, "published cleared checked behind checked_lines unverifiable gone owned"),
        "oldest_owned_s": None if since is None else max(now_ns - since, 0) / 1e9,
        "problem": each.problem,
        "alarms": [picked(alarm, "at_ns finding what file offset event_id todo") for alarm in each.alarms],
    }


COLUMNS = (
    Column("slot"), Column("state"), Column(">published", "published", size), Column(">cleared", "cleared", size),
    Column(">checked", "checked", size), Column(">behind", "behind", size), Column(">owned"),
    Column(">oldest owned", "oldest_owned_s", lambda s: "-" if s is None else f"{s:,.0f} s"),
    Column(">alarms", lambda row: len(row["alarms"])),
)  # fmt: skip


def _lines(found: PipelineStatus) -> Iterator[str]:
    yield "no verifier runs here" if found.verifier is None else f"verifier: {found.verifier}"
    for each in found.slots:
        if each.unverifiable:
            yield f"{each.slot}: {many(each.unverifiable, 'line')} whose source log is gone ({', '.join(each.gone)})"
        if each.problem:
            yield f"{each.slot}: {each.problem}"
        for alarm in each.alarms:
            where = f" at {alarm.file}:{alarm.offset}" if alarm.file else ""
            yield f"{each.slot}: {alarm.finding}{where}: {alarm.what}; {alarm.todo}"
