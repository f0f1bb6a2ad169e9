"""``photon registry verify``: a backup, or the replicas against each other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from photon.cli import deployment_file
from photon.cli.errors import ATTENTION, DONE, FAILED
from photon.cli.registry.common import connected, formatted, loaded, moment, print_json, print_table

if TYPE_CHECKING:
    from photon.idregistry.operate.fingerprints import Fingerprint
    from photon.idregistry.operate.operator_client import OperatorClient


@click.command()
@click.argument("backup", type=click.Path(path_type=Path), required=False)
@deployment_file.config(required=False, unless=["backup"], help="The deployment file: compares the live replicas.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key.")
@formatted
def verify(backup: Path | None, config: Path | None, overrides: tuple[str, ...], output_format: str) -> int:
    """Check a BACKUP byte by byte; or, with --config, that all replicas hold the same, while traffic runs.

    \b
    Live: each group's replicas keep their state as of the same entry, and are compared by number of ids, a sum
    over all entries, and all else that they know. That reads every id from every replica.
    Examples:
      photon registry verify backups/2026-11-21
      photon registry verify --config photon.toml -o json
    Exit codes: 0 good, 1 damaged or different, 3 the same, but some replica could not be asked.
    """
    from photon.config.errors import UsageError

    if (backup is None) == (config is None):
        raise UsageError("name a BACKUP or --config FILE, one of them")
    if backup is not None:
        _verify_backup(backup, output_format)
        return DONE
    assert config is not None
    settings = loaded(config, overrides)
    with connected(settings, config.parent) as client:
        compared, problems, silent = _compare(client)
    if output_format == "json":
        print_json({"groups": compared, "problems": problems, "silent": silent})
    else:
        columns = [("group", True), ("entry", True), ("ids", True), ("sum", False), ("replicas", False)]
        print_table(columns, [_cells(each) for each in compared])
        for line in problems or ["all that were asked hold the same"]:
            click.echo(line)
        for name in silent:
            click.echo(f"replica {name} could not be asked")
    return FAILED if problems else ATTENTION if silent else DONE


def _verify_backup(backup: Path, output_format: str) -> None:
    from photon.config.disk import RealDisk
    from photon.idregistry.operate.backup import check_backup, read_manifest

    disk = RealDisk()
    found = check_backup(disk, backup)
    made_at = read_manifest(disk, backup).made_at
    if output_format == "json":
        groups = [
            {"group": e.group, "index": e.index, "ids": e.ids, "slots": e.slots, "boundary_ns": e.boundary_ns}
            for e in found
        ]
        print_json({"backup": str(backup), "made_at": made_at, "groups": groups})
        return
    columns = [("group", True), ("entry", True), ("ids", True), ("slots", True), ("boundary", False)]
    print_table(
        columns, [[str(e.group), f"{e.index:,}", f"{e.ids:,}", str(e.slots), moment(e.boundary_ns)] for e in found]
    )
    click.echo(f"{backup}: good, made at {made_at}")


def _compare(client: OperatorClient) -> tuple[list[dict[str, Any]], list[str], list[str]]:
    from photon.idregistry.operate.fingerprints import differences
    from photon.idregistry.operate.inspection import groups_of

    client.leader(0)
    inspected = client.inspect_all()
    silent = [name for name, each in inspected.items() if each.reply is None]
    answering = [name for name in inspected if name not in silent]
    compared, problems = [], []
    for group in groups_of(inspected.values()):
        found = _of_group(client, group, answering)
        problems += differences(group, found)
        first = next(iter(found.values()))
        compared.append(
            {"group": group, "index": first.applied, "ids": first.ids, "sum": first.sum, "replicas": sorted(found)}
        )
    return compared, problems, silent


def _of_group(client: OperatorClient, group: int, replicas: list[str]) -> dict[str, Fingerprint]:
    from photon.idregistry.operate.fingerprints import fingerprint

    mark = client.marked(group)
    exports = {name: client.export(name, mark) for name in replicas}  # all begun: each keeps what it has
    return {name: fingerprint(group, export) for name, export in exports.items()}


def _cells(each: dict[str, Any]) -> list[str]:
    return [
        str(each["group"]), f"{each['index']:,}", f"{each['ids']:,}" if each["group"] else "-", each["sum"],
        ", ".join(each["replicas"]),
    ]  # fmt: skip
