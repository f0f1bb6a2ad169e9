"""``photon slot list`` and ``show``."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from photon.cli.errors import ATTENTION, DONE
from photon.cli.registry.common import deployment, formatted, loaded, moment, print_json, print_table

if TYPE_CHECKING:
    from photon.operations.slots.inventory import OnDisk, SlotRow, WitnessRow
    from photon.operations.slots.retiring import ShardCount

WAIT_S = 30.0


@click.command("list")
@deployment
@formatted
def list_slots(config: Path, overrides: tuple[str, ...], output_format: str) -> int:
    """List all slots: what the registry knows of each, and what lies of it on this machine.

    \b
    Published and cleared are bytes of output. A slot whose directory is here, free and not retired is redone by
    another joiner of its datacentre on this machine.
    Example:
      photon slot list --config photon.toml
    Exit codes: 0 done, 1 the registry does not answer.
    """
    from photon.operations.slots.operating import Here, all_slots

    rows = asyncio.run(all_slots(Here(loaded(config, overrides), config.parent)))
    if output_format == "json":
        print_json({"slots": [_as_json(row) for row in rows]})
        return DONE
    columns = [("slot", False), ("datacentre", False), ("incarnation", True), ("witnessed", True), ("state", False)]
    columns += [("redo", True), ("published", True), ("cleared", True), ("directory", False)]
    print_table(columns, [_cells(row) for row in rows])
    return DONE


@click.command()
@click.argument("name")
@deployment
@formatted
def show(name: str, config: Path, overrides: tuple[str, ...], output_format: str) -> int:
    """Show one slot: its witness against its files, and the ids that it owns in each shard.

    \b
    An id is owned from its registration until the verifier has read its record and cleared it.
    Example:
      photon slot show east-1 --config photon.toml
    Exit codes: 0 done, 1 the registry does not answer, 2 no such slot, 3 the directory here is older than the
    witness, or the verifier objects to lines in it.
    """
    from photon.config.disk import RealDisk
    from photon.config.errors import UsageError
    from photon.operations.slots.inventory import witness_rows
    from photon.operations.slots.operating import Here, all_slots, owned_by

    here = Here(loaded(config, overrides), config.parent)
    rows = {row.name: row for row in asyncio.run(all_slots(here))}
    if name not in rows:
        raise UsageError(f"{name}: no such slot; there are: {', '.join(rows) or 'none'}")
    row = rows[name]
    counts = asyncio.run(owned_by(here, name, WAIT_S)).counts if row.registry is not None else []
    witness = witness_rows(RealDisk(), row)
    if output_format == "json":
        found = {"owned": [_count_json(each) for each in counts], "witness": [_witness_json(w) for w in witness]}
        print_json(_as_json(row) | found)
    else:
        _show(row, counts, witness)
    bad = any(each.lacking for each in witness) or (
        row.disk is not None and (row.disk.trouble or row.disk.unreadable)
    )
    return ATTENTION if bad else DONE


def _show(row: SlotRow, counts: list[ShardCount], witness: list[WitnessRow]) -> None:
    known = row.registry
    click.echo(f"slot {row.name} of datacentre {row.datacentre}: {_state(row)}")
    if known is not None:
        click.echo(f"incarnation {known.newest}, opened {known.openings} times, last by {known.address}")
    if row.disk is None:
        click.echo("no directory of it is on this machine")
    else:
        click.echo(f"{row.disk.directory}: {_disk_line(row.disk)}")
    if witness:
        columns = [("output", False), ("file", True), ("witnessed", True), ("published here", True), ("", False)]
        print_table(columns, [_witness_cells(each) for each in witness])
    owned = [each for each in counts if each.ids]
    if owned:
        columns = [("shard", True), ("owned ids", True), ("oldest event", False)]
        print_table(columns, [[str(e.shard), f"{e.ids:,}", moment(e.oldest_ns)] for e in owned])
    else:
        click.echo(f"owns no id in {len(counts)} shards")


def _disk_line(disk: OnDisk) -> str:
    if disk.unreadable:
        return disk.unreadable
    lines = f"; {disk.trouble} lines the verifier objects to" if disk.trouble else ""
    return (
        f"{'held by a process' if disk.held else 'free'}, redo log {disk.redo_bytes:,} bytes, "
        f"published {disk.published:,}, cleared {disk.cleared:,}{lines}"
    )


def _witness_cells(each: WitnessRow) -> list[str]:
    here = "-" if each.published is None else f"{each.published:,}"
    return [each.kind, str(each.number), f"{each.witnessed:,}", here, "an older copy" if each.lacking else ""]


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


def _cells(row: SlotRow) -> list[str]:
    known, disk = row.registry, row.disk
    witnessed = sum(log.length for log in known.witness) if known is not None else 0
    cells = [row.name, row.datacentre, "-" if known is None else str(known.newest), f"{witnessed:,}", _state(row)]
    if disk is None:
        return [*cells, "-", "-", "-", "-"]
    if disk.unreadable:
        return [*cells, f"{disk.redo_bytes:,}", "-", "-", disk.unreadable]
    return [*cells, f"{disk.redo_bytes:,}", f"{disk.published:,}", f"{disk.cleared:,}", str(disk.directory)]


def _as_json(row: SlotRow) -> dict[str, Any]:
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


def _count_json(each: ShardCount) -> dict[str, Any]:
    return {"shard": each.shard, "ids": each.ids, "oldest_ns": each.oldest_ns}


def _witness_json(each: WitnessRow) -> dict[str, Any]:
    return {
        "output": each.kind,
        "file": each.number,
        "witnessed": each.witnessed,
        "published": each.published,
        "lacking": each.lacking,
    }
