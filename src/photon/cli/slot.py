"""Commands for joiner slots: show what each one owns and has written, and retire one whose disk is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from photon.cli.audited import audited
from photon.cli.errors import ATTENTION, DONE
from photon.cli.heads import PATH, Deployed, ask, deployed, must_be_said, sure
from photon.cli.looking import Progress
from photon.cli.units import DURATION
from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.config.words import many
from photon.fleet.parts import Column, Part, moment, picked

if TYPE_CHECKING:
    from photon.operations.slots.id_list import Listed
    from photon.operations.slots.inventory import OnDisk, SlotRow, WitnessRow
    from photon.operations.slots.operating import Asked, Checked, Here
    from photon.operations.slots.retiring import Report

WAIT_S = 30.0
SHOWN_MAX = 20  # maximum number of ids in a dry run's table; ``-o json`` and ``--ids`` list all


# -- photon status slots ---------------------------------------------------------------------------------------------
def slots(at: Deployed, name: str | None = None) -> int:
    """Shows the registry's entry of each slot, and the slot's files on this machine. For a single slot, also compares
    its files with its witness, and counts the ids that it owns in each shard. A slot owns an id from its registration
    until the verifier has read its record and cleared it.

    Published and cleared are bytes of output. If a slot's directory is on this machine and the slot is free and not
    retired, another joiner of its datacentre here redoes it. Raises UsageError for an unknown name. Exit code 3: the
    directory here is older than the witness, or the verifier objects to lines in it.
    """
    from photon.operations.slots.operating import Here, all_slots

    here = Here(at.with_registry, at.base)
    rows = asyncio.run(all_slots(here))
    if name is not None:
        return _one(at, here, {row.name: row for row in rows}, name)
    at.part(Part("slots", [_slot_json(row) for row in rows], SLOTS))
    return DONE


def _one(at: Deployed, here: Here, rows: dict[str, SlotRow], name: str) -> int:
    from photon.operations.slots.inventory import witness_rows
    from photon.operations.slots.operating import owned_by

    if name not in rows:
        raise UsageError(f"{name}: no such slot; there are: {', '.join(rows) or 'none'}")
    row = rows[name]
    counts = asyncio.run(owned_by(here, name, WAIT_S)).counts if row.registry is not None else []
    witness = [_witness_json(each) for each in witness_rows(RealDisk(), row)]
    found = {"owned": [picked(each, COUNT) for each in counts], "witness": witness}
    nothing = f"owns no ids in {many(len(counts), 'shard')}"
    at.show(
        _slot_json(row) | found, *_lines(row), Part("witness", witness, WITNESS, ""), _owned(found["owned"], nothing)
    )
    bad = any(each["lacking"] for each in witness) or (
        row.disk is not None and (row.disk.trouble or row.disk.unreadable)
    )
    return ATTENTION if bad else DONE


def _lines(row: SlotRow) -> Iterator[str]:
    known = row.registry
    yield f"slot {row.name} of datacentre {row.datacentre}: {_state(row)}"
    if known is not None:
        yield f"incarnation {known.newest}, opened {known.openings} times, last by {known.address}"
    if row.disk is None:
        yield "its directory is not on this machine"
    else:
        yield f"{row.disk.directory}: {_disk_line(row.disk)}"


def _owned(counts: Sequence[dict[str, Any]], none: str = "") -> Part:
    return Part("owned", [each for each in counts if each["ids"]], OWNED, none)


def _disk_line(disk: OnDisk) -> str:
    if disk.unreadable:
        return disk.unreadable
    lines = f"; the verifier objects to {disk.trouble} lines" if disk.trouble else ""
    return (
        f"{'held by a process' if disk.held else 'free'}, redo log {disk.redo_bytes:,} bytes, "
        f"published {disk.published:,}, cleared {disk.cleared:,}{lines}"
    )


def _state(row: SlotRow) -> str:
    if row.registry is not None and row.registry.retired:
        return "retired"
    if row.registry is None:
        return "never opened"
    if row.disk is None:
        return "not on this machine"
    if row.disk.held:
        return "at work"
    return "down" if row.configured else "orphaned"


def _here(field: str) -> Callable[[dict[str, Any]], Any]:
    """Returns a function that reads ``field`` of a slot's files; `None` unless they are on this machine and
    readable."""
    return lambda row: row["disk"][field] if row["disk"] and not row["disk"]["unreadable"] else None


SLOTS = (
    Column("slot"), Column("datacentre"),
    Column(">incarnation", "incarnation", lambda at: "-" if at is None else str(at)),
    Column(">witnessed", lambda row: row["witnessed_bytes"] or 0), Column("state"),
    Column(">redo", lambda row: row["disk"] and row["disk"]["redo_bytes"]),
    Column(">published", _here("published_bytes")), Column(">cleared", _here("cleared_bytes")),
    Column("directory", lambda row: row["disk"] and (row["disk"]["unreadable"] or row["disk"]["directory"])),
)  # fmt: skip
WITNESS = (
    Column("output"), Column(">file", "file", str), Column(">witnessed"), Column(">published here", "published"),
    Column("", lambda row: "an older copy" if row["lacking"] else "", str),
)  # fmt: skip
COUNT = "shard ids oldest_ns"
OWNED = (Column(">shard", "shard", str), Column(">owned ids", "ids"), Column("oldest event", "oldest_ns", moment))
LISTED = (
    Column("digest"), Column("event time", "event_time_ns", moment), Column("kind"), Column("token", "token", str),
    Column("event id", lambda row: row.get("event_id") or row.get("event_id_raw_base64")),
)  # fmt: skip


def _slot_json(row: SlotRow) -> dict[str, Any]:
    known, disk = row.registry, row.disk
    return {
        "slot": row.name,
        "datacentre": row.datacentre,
        "configured": row.configured,
        "state": _state(row),
        "retired": known is not None and known.retired,
        "incarnation": None if known is None else known.newest,
        "openings": None if known is None else known.openings,
        "address": None if known is None else known.address,
        "witnessed_bytes": None if known is None else sum(log.length for log in known.witness),
        "disk": None
        if disk is None
        else {
            "directory": str(disk.directory),
            "held": disk.held,
            "redo_bytes": disk.redo_bytes,
            "published_bytes": disk.published,
            "cleared_bytes": disk.cleared,
            "trouble": disk.trouble,
            "unreadable": disk.unreadable or None,
        },
    }


def _witness_json(each: WitnessRow) -> dict[str, Any]:
    return {"output": each.kind, "file": each.number, **picked(each, "witnessed published lacking")}


# -- retire ----------------------------------------------------------------------------------------------------------
@click.command()
@click.argument("name")
@click.option("--copy", type=PATH, metavar="DIR",
              help="A surviving copy of the slot's output (the directory that contains joined/).")  # fmt: skip
@click.option("--ids", type=PATH, metavar="FILE",
              help="File for the list of ids (default: in the slot's state, or the working directory).")  # fmt: skip
@sure
@click.option("--wait", type=DURATION, default="5min", show_default=True,
              help="Seconds to wait for the registry in each step.")  # fmt: skip
@deployed()
@audited
def retire(
    at: Deployed, name: str, dry_run: bool, copy: Path | None, ids: Path | None, yes: bool, wait: float
) -> int:
    """Retire slot NAME, whose disk is permanently gone. Fences it, and gives up the ids that it owned.

    \b
    Refused while its joiner runs or its directory is readable on this machine: starting a joiner there loses nothing,
    but retiring may. Dispatchers that still read the logs process the ids again. The list of ids is written first:
    readers of the slot's uncleared output may see exactly these twice. If the command is killed, run it again to
    continue. A retired name is never used again.
    Examples:
      photon slot retire east-1 --config photon.toml --dry-run
      photon slot retire east-1 --config photon.toml --yes
      photon slot retire east-1 --config photon.toml --copy /mnt/saved/output --yes
    Exit codes: 0 done; 1 failed or refused; 2 wrong usage; 3 done, but the copy lacks bytes that readers may have
    read, or no dispatcher that would process the ids again answers.
    """
    from photon.operations.slots import operating

    here = operating.Here(at.with_registry, at.base)
    asked = operating.Asked(name, copy, ids, wait)
    checked = asyncio.run(operating.check(here, asked))
    if not checked.slot.retired:  # a retirement that has started is completed without asking again
        must_be_said(f"retiring slot {name}, whose disk is permanently gone,", dry_run=dry_run, yes=yes)
    if dry_run:
        return _dry_run(at, here, checked, asked)
    _confirm(here, checked, asked, yes)
    progress = Progress()
    steps = operating.carry_out(here, checked, asked, lambda line: progress.tell(line, line.partition(":")[0]))
    report = asyncio.run(steps)
    progress.end()
    readers = asyncio.run(operating.dispatchers(here, checked.slot))
    at.show(_as_json(report, dry_run=False) | {"dispatchers": readers}, *_shown(report, readers))
    lacking = report.copy is not None and report.copy.lacking
    return ATTENTION if lacking or (report.reopened and not any(readers.values())) else DONE


def _confirm(here: Here, checked: Checked, asked: Asked, yes: bool) -> None:
    from photon.operations.slots import operating

    path = operating.ids_path(here, checked, asked)
    click.echo(f"the ids to give up are listed in {path}", err=True)
    ask(
        f"Is the disk of slot {asked.slot} of datacentre {checked.slot.datacentre} permanently gone? If it comes "
        "back, nothing on it can be used",
        yes=yes or checked.slot.retired,
    )


# -- a dry run -------------------------------------------------------------------------------------------------------
def _dry_run(at: Deployed, here: Here, checked: Checked, asked: Asked) -> int:
    from photon.operations.slots import operating

    report, entries = asyncio.run(operating.preview(here, checked, asked))
    if asked.ids is not None:
        operating.write_list(asked.ids, asked.slot, entries)
        report.ids_path = asked.ids
    document = _as_json(report, dry_run=True) | {"list": [_id_json(each) for each in entries]}
    already = "is retired already; " if checked.slot.retired else ""
    beside = "; those in the copy would be cleared instead" if report.copy is not None else ""
    more = f"... and {len(entries) - SHOWN_MAX:,} more; --ids FILE or -o json lists all"
    at.show(
        document, *_counts(report), Part("list", document["list"][:SHOWN_MAX], LISTED, ""),
        *([more] if len(entries) > SHOWN_MAX else []),
        f"{already}{many(report.ids, 'id')} would be given up{beside}; nothing was changed",
    )  # fmt: skip
    return DONE


def _id_json(each: Listed) -> dict[str, Any]:
    named = "event_id" if each.event_id_raw_base64 is None else "event_id_raw_base64"
    return picked(each, f"digest event_time_ns kind token {named}")


# -- result ----------------------------------------------------------------------------------------------------------
def _counts(report: Report) -> Iterator[str | Part]:
    copy = report.copy
    yield _owned([picked(each, COUNT) for each in report.counts])
    if copy is not None:
        size = sum(copy.lengths.values())
        yield f"the copy {copy.root}: {many(len(copy.files), 'file')}, {size:,} bytes of complete records"
        for name, missing in copy.lacking.items():
            yield f"  {name}: lacks {missing:,} bytes that readers may have read"


def _shown(report: Report, readers: dict[str, bool]) -> Iterator[str | Part]:
    yield from _counts(report)
    yield f"slot {report.slot} is retired: {many(len(report.shards), 'shard is', 'shards are')} fenced"
    if report.copy is not None:
        cleared = many(report.copy.cleared, "id of the copy is", "ids of the copy are")
        yield f"{cleared} cleared; readers continue in the copy"
    if not report.reopened:
        yield "no ids were left to give up"
    else:
        other = (
            f", {many(report.cleared_meanwhile, 'was', 'were')} cleared meanwhile" if report.cleared_meanwhile else ""
        )
        given_up = many(report.reopened, "id was", "ids were")
        yield f"{given_up} given up{other}; dispatchers process them again within seconds"
    yield f"{many(report.listed, 'id is', 'ids are')} listed in {report.ids_path}"
    for name, answers in readers.items():
        says = "reads the logs" if answers else "does not answer: it processes them when it is back"
        yield f"  dispatcher of {name}: {says}"


def _as_json(report: Report, *, dry_run: bool) -> dict[str, Any]:
    copy = report.copy
    return {
        "slot": report.slot,
        "dry_run": dry_run,
        "shards": [picked(each, COUNT) for each in report.counts],
        "ids": report.ids,
        "given_up": report.reopened,
        "cleared_meanwhile": report.cleared_meanwhile,
        "listed": report.listed,
        "ids_file": None if report.ids_path is None else str(report.ids_path),
        "copy": None
        if copy is None
        else {
            "directory": str(copy.root),
            "files": len(copy.files),
            "bytes": sum(copy.lengths.values()),
            "lacking": copy.lacking,
            "cleared": copy.cleared,
        },
    }
