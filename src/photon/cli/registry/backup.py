"""``photon registry backup`` and ``export``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from photon.cli.heads import PATH, PLACE, Deployed, deployed
from photon.cli.tables import print_table

if TYPE_CHECKING:
    from photon.idregistry.operate.backup import Source
    from photon.idregistry.operate.operator_client import OperatorClient


@click.command()
@click.argument("directory", type=PLACE)
@deployed()
def backup(at: Deployed, directory: Path) -> None:
    """Back up all groups to the new DIRECTORY, or URL, while traffic runs.

    \b
    What was acknowledged before the command began is in it. DIRECTORY appears when it is whole and was read back;
    a call that is cut short leaves DIRECTORY.partial, which the next one removes; below a URL the manifest comes
    last, and without it there is no backup. It holds digests, no event ids.
    Examples:
      photon registry backup --config photon.toml backups/2026-11-21
      photon registry backup --config photon.toml s3://backups/2026-11-21
    Exit codes: 0 written and verified, 1 not written.
    """
    from contextlib import nullcontext

    from photon.idregistry.operate.backup import MANIFEST
    from photon.objects.paths import ObjectPath
    from photon.objects.transfer import uploaded

    with uploaded(directory, MANIFEST) if isinstance(directory, ObjectPath) else nullcontext(directory) as local:
        made_at, rows = write(at, local)

    def people() -> None:
        print_table(">group, >entry, >ids, >bytes", [[f"{value:,}" for value in row.values()] for row in rows])
        click.echo(f"{directory}: {sum(row['ids'] for row in rows):,} ids, written and verified")

    at.show({"directory": str(directory), "made_at": made_at, "groups": rows}, people)


def write(at: Deployed, directory: Path) -> tuple[str, list[dict[str, int]]]:
    """A backup of the running registry: when it was made, and a row a group. Raises PhotonError."""
    from datetime import UTC, datetime

    from photon import __version__
    from photon.config.disk import RealDisk
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
    """Shards first, the config group last."""
    from photon.idregistry.operate.backup import Source
    from photon.idregistry.operate.inspection import groups_of
    from photon.idregistry.operate.seeding import GroupSeed

    client.leader(0)
    for group in sorted(groups_of(client.inspect_all().values()), reverse=True):
        mark = client.marked(group)
        reader = client.export(client.leader(group), mark)
        yield Source(GroupSeed(group, mark.index, mark.term, reader), partial(getattr, reader, "facts"))


@click.command()
@deployed()
@click.option("--shard", type=click.IntRange(1), required=True, help="Which shard.")
@click.option("--output", type=PATH, required=True, help="The file; must not exist yet.")
@click.option("--replica", metavar="NAME", help="From this replica; default: the leader.")
def export(at: Deployed, shard: int, output: Path, replica: str | None) -> None:
    """Write the ids of a shard, as of one moment, to a file, while traffic runs.

    \b
    Columns: digest, time, token, kind, tag, generation, state; docs/operations/registry.md describes the file.
    Example:
      photon registry export --config photon.toml --shard 1 --output shard-1.ids
    Exit codes: 0 written, 1 not written.
    """
    from photon.config.disk import RealDisk
    from photon.config.errors import UsageError
    from photon.idregistry.operate.id_columns import write_columns

    settings = at.with_registry
    if replica is not None and replica not in settings.registry.replicas:
        raise UsageError(f"--replica {replica}: there are: {', '.join(sorted(settings.registry.replicas))}")
    with at.registry() as client:
        mark = client.marked(shard)
        written = write_columns(RealDisk(), output, client.export(replica or client.leader(shard), mark))
    said = {"file": str(output), "shard": shard, "index": written.index, "ids": written.ids, "bytes": written.bytes}
    people = f"{output}: {written.ids:,} ids of shard {shard} as of entry {written.index}, {written.bytes:,} bytes"
    at.show(said, people)
