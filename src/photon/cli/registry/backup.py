"""``photon registry backup`` and ``photon registry verify``, which checks a backup or compares the replicas."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from photon.cli.errors import ATTENTION, DONE, FAILED
from photon.cli.heads import PATH, PLACE, Deployed, deployed
from photon.cli.units import DURATION
from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.config.words import many
from photon.fleet.parts import Column, Part, moment

if TYPE_CHECKING:
    from photon.idregistry.operate.backup import Source
    from photon.idregistry.operate.fingerprints import Fingerprint
    from photon.idregistry.operate.operator_client import OperatorClient


GROUP = (Column(">group"), Column(">entry", "index"), Column(">ids"))


@click.command()
@click.argument("directory", type=PLACE)
@deployed()
def backup(at: Deployed, directory: Path) -> None:
    """Back up all groups to a new DIRECTORY or URL. Traffic is not interrupted.

    \b
    A backup includes everything acknowledged before the command started. DIRECTORY appears once it is complete and
    verified; an interrupted call leaves DIRECTORY.partial, which the next one removes. Under a URL the manifest is
    written last; without it there is no backup. Backups contain digests, not event ids.
    Examples:
      photon registry backup --config photon.toml backups/2026-11-21
      photon registry backup --config photon.toml s3://backups/2026-11-21
    Exit codes: 0 written and verified; 1 not written.
    """
    from contextlib import nullcontext

    from photon.idregistry.operate.backup import MANIFEST
    from photon.objects.paths import ObjectPath
    from photon.objects.transfer import uploaded

    with uploaded(directory, MANIFEST) if isinstance(directory, ObjectPath) else nullcontext(directory) as local:
        made_at, rows = write(at, local)

    part = Part("groups", rows, (*GROUP, Column(">bytes")))
    said = f"{directory}: {many(sum(row['ids'] for row in rows), 'id')}, written and verified"
    at.part(part, said, directory=str(directory), made_at=made_at)


def write(at: Deployed, directory: Path) -> tuple[str, list[dict[str, int]]]:
    """Backs up the running registry. Returns the time of the backup, and a row per group. Raises PhotonError."""
    from datetime import UTC, datetime

    from photon import __version__
    from photon.idregistry.operate.backup import write_backup

    made_at = datetime.now(UTC).isoformat(timespec="seconds")
    members = list(at.with_registry.registry.replicas)
    with at.registry() as client:
        found = write_backup(
            RealDisk(), directory, _sources(client), photon=__version__, made_at=made_at, members=members
        )
    return made_at, [
        {"group": each.group, "index": each.index, "ids": each.ids, "bytes": each.bytes} for each in found
    ]


def _sources(client: OperatorClient) -> Iterator[Source]:
    """Yields the groups to back up: shards first, the config group last."""
    from photon.idregistry.operate.backup import Source
    from photon.idregistry.operate.inspection import groups_of
    from photon.idregistry.operate.seeding import GroupSeed

    client.leader(0)
    for group in sorted(groups_of(client.inspect_all().values()), reverse=True):
        mark = client.marked(group)
        reader = client.export(client.leader(group), mark)
        yield Source(GroupSeed(group, mark.index, mark.term, reader), partial(getattr, reader, "facts"))


# -- verify ----------------------------------------------------------------------------------------------------------
@click.command()
@click.argument("backup", type=PATH, required=False)
@click.option("--shards", is_flag=True,
              help="With --config: check that each id is in the right shard, and that shards agree.")  # fmt: skip
@click.option(
    "--timeout", type=DURATION, default="60s", show_default=True, help="With --shards: seconds to wait for an answer."
)
@deployed(required=False, unless=["backup"], help="The deployment file; compares its live replicas.")
def verify(at: Deployed, backup: Path | None, shards: bool, timeout: float) -> int:
    """Check a BACKUP byte by byte, or compare live replicas. With --config, traffic continues meanwhile.

    \b
    Each group's replicas freeze their state at the same log entry. Compares their number of ids, a sum over all
    entries, and the rest of their state; this reads every id from every replica. With --shards, every replica checks
    its own ids.
    Examples:
      photon registry verify backups/2026-11-21
      photon registry verify --config photon.toml -o json
      photon registry verify --config photon.toml --shards
    Exit codes: 0 good; 1 damaged, different or in the wrong shard, or no replica answers; 3 good, but some replica
    could not be asked.
    """
    if (backup is None) == (at.given is None) or (shards and backup is not None):
        raise UsageError("give either a BACKUP or --config FILE; --shards requires --config")
    if backup is not None:
        _verify_backup(at, backup)
        return DONE
    if shards:
        from photon.cli.registry.reshard import verify_shards

        return verify_shards(at, timeout)
    with at.registry() as client:
        compared, problems, silent = _compare(client)

    lines = problems or ["all replicas that answered hold the same state"]
    lines = [*lines, *(f"replica {name} could not be asked" for name in silent)]
    part = Part("groups", compared, (*GROUP, Column("sum"), Column("replicas", "replicas", ", ".join)))
    at.part(part, *lines, problems=problems, silent=silent)
    return FAILED if problems else ATTENTION if silent else DONE


def _verify_backup(at: Deployed, backup: Path) -> None:
    from photon.idregistry.operate.backup import check_backup, read_manifest

    disk = RealDisk()
    found = check_backup(disk, backup)
    made_at = read_manifest(disk, backup).made_at
    groups = [
        {"group": e.group, "index": e.index, "ids": e.ids, "slots": e.slots, "boundary_ns": e.boundary_ns}
        for e in found
    ]

    part = Part("groups", groups, (*GROUP, Column(">slots"), Column("boundary", "boundary_ns", moment)))
    at.part(part, f"{backup}: good, created at {made_at}", backup=str(backup), made_at=made_at)


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
    exports = {name: client.export(name, mark) for name in replicas}  # start all first: each one freezes its state
    return {name: fingerprint(group, export) for name, export in exports.items()}
