"""``photon registry restore``: restores a backup into a new deployment with closed shards, registers the ids in
outputs again, and opens the shards."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from photon.cli.audited import audited
from photon.cli.errors import ATTENTION, DONE
from photon.cli.heads import PLACE, Deployed, ask, deployed, must_be_said, sure
from photon.cli.units import NOW, given_ns
from photon.config.disk import RealDisk
from photon.config.errors import PhotonError, UsageError
from photon.config.words import many
from photon.fleet.parts import Column, Part, moment, picked

if TYPE_CHECKING:
    from photon.config.disk import Disk
    from photon.config.settings import Settings
    from photon.idregistry.operate.backup import Manifest
    from photon.idregistry.operate.operator_client import OperatorClient
    from photon.operations.register import OutputFiles


@click.command()
@click.argument("backup", type=PLACE, required=False)
@click.option("--replica", "replicas", metavar="NAME", multiple=True, help="Create only this replica's directory.")
@click.option("--register-again", "again", is_flag=True, help="Register the records in this machine's outputs again.")
@click.option("--datacentre", "only", metavar="NAME", multiple=True,
              help="With --register-again: only outputs of this datacentre (default: all).")  # fmt: skip
@click.option("--open", "open_", is_flag=True,
              help="Open the shards; all ids registered since the backup must be registered again.")  # fmt: skip
@click.option(
    "--accept-boundary", metavar="TIME",
    help="Open the shards; refuse unknown events older than TIME (2026-11-21T15:00Z, epoch seconds, 2h ago, now).",
)  # fmt: skip
@sure
@deployed()
@audited
def restore(
    at: Deployed, backup: Path | None, replicas: tuple[str, ...], again: bool, only: tuple[str, ...], open_: bool,
    accept_boundary: str | None, dry_run: bool, yes: bool,
) -> int:  # fmt: skip
    """Restore BACKUP into a new deployment. Creates directories, registers outputs again, and opens the shards.

    \b
    1. restore BACKUP fills the directories of all replicas in the file, which must be empty, or only that of
       --replica on its machine. Then start all replicas. Their shards are closed: inserts wait.
    2. restore --register-again, on each machine that has outputs, while the joiners are stopped: each record has the
       event id and the token that it is registered with. It may be repeated. Once the shards are open, joiners
       register the records that are only in a redo log. When these lines are read again, ledgers count them as
       duplicates. Then: restore --open. Or, if outputs are lost: restore --accept-boundary now. Unknown events older
       than that are never joined (they become late), so nothing is joined twice.
    Examples:
      photon registry restore --config new.toml backups/2026-11-21 --dry-run
      photon registry restore --config new.toml backups/2026-11-21 --yes
      photon registry restore --config new.toml s3://backups/2026-11-21 --yes
      photon registry restore --config new.toml --register-again --yes
      photon registry restore --config new.toml --open --yes
      photon registry restore --config new.toml --accept-boundary now --yes
    Exit codes: 0 done; 1 damaged backup, directory not empty, no answer, or an output that cannot be read; 2 wrong
    usage; 3 some ids in outputs have another owner in the backup or no token, so that their records may exist twice,
    or archived output files are missing.
    """
    from contextlib import nullcontext

    from photon.idregistry.operate.backup import MANIFEST
    from photon.objects.paths import ObjectPath
    from photon.objects.transfer import fetched

    settings = at.with_registry
    if (backup is not None) + again + open_ + (accept_boundary is not None) != 1:
        raise UsageError("give only one of BACKUP, --register-again, --open and --accept-boundary TIME")
    if replicas and backup is None:
        raise UsageError("--replica requires a BACKUP; shards are always opened in all replicas")
    if only and not again:
        raise UsageError("--datacentre requires --register-again")
    if backup is not None:
        must_be_said("restoring", dry_run=dry_run, yes=yes)
        with fetched(backup, MANIFEST) if isinstance(backup, ObjectPath) else nullcontext(backup) as local:
            _restore(at, local, replicas, dry_run=dry_run, yes=yes)
        return DONE
    if again:
        return _register_again(at, only, dry_run=dry_run, yes=yes)
    boundary = None if accept_boundary is None else _boundary(settings, accept_boundary)
    must_be_said("opening shards", dry_run=dry_run, yes=yes)
    _open(at, boundary, dry_run=dry_run, yes=yes)
    return DONE


def _restore(at: Deployed, backup: Path, replicas: tuple[str, ...], *, dry_run: bool, yes: bool) -> None:
    from photon.idregistry.operate.backup import check_backup, read_manifest, restore_replica
    from photon.idregistry.operate.seeding import Member, check_free

    settings, base = at.settings, at.base
    known = settings.registry.replicas
    for name in replicas:
        if name not in known:
            raise UsageError(f"--replica {name}: not in [registry.replicas]; there are: {', '.join(sorted(known))}")
    disk = RealDisk()
    manifest = read_manifest(disk, backup)
    chosen = replicas or tuple(known)
    for name in chosen:
        check_free(base / known[name].directory)
    found = check_backup(disk, backup)
    _check_set_up(settings, base, backup, manifest)
    ids = sum(each.ids for each in found)
    if not dry_run:
        ask(f"Create the directories of {', '.join(chosen)} with {many(ids, 'id')}?", yes=yes)
    for name in () if dry_run else chosen:
        member = Member(name, list(known), settings.registry.epoch)
        restore_replica(disk, backup, manifest, base / known[name].directory, member, os.urandom)
    said = {"replicas": list(chosen), "ids": ids, "made_at": manifest.made_at, "closed": True, "dry_run": dry_run}
    names, made = ", ".join(chosen), f"{many(ids, 'id')} as of {manifest.made_at}"
    next_ = "next: start all replicas; photon registry restore --register-again; then --open"
    would, done = f"{names} would get {made}; nothing was changed", f"{names}: {made}; every shard is closed\n{next_}"
    at.show(said, would if dry_run else done)


def _check_set_up(settings: Settings, base: Path, backup: Path, manifest: Manifest) -> None:
    """Raises UsageError if replicas with these settings would refuse the backup."""
    from photon.assembly.registry import rules_of
    from photon.idregistry.core import commands as c
    from photon.idregistry.core.sharding import single_range
    from photon.idregistry.operate.backup import config_of

    machine = config_of(RealDisk(), backup, manifest)
    conflict = machine.conflict(c.SetUp(single_range(settings.registry.shards), rules_of(settings, base)))
    if conflict:
        raise UsageError(f"the backup is of another deployment: {conflict}")


def _open(at: Deployed, boundary_ns: int | None, *, dry_run: bool, yes: bool) -> None:
    from photon.idregistry.operate.inspection import group_rows

    with at.registry() as client:
        client.leader(0)
        closed = [row.group for row in group_rows(client.inspect_all()) if row.closed]
        if not closed:
            raise PhotonError("no shard is closed; there is nothing to open")
        refused = "" if boundary_ns is None else f"; unknown events older than {moment(boundary_ns)} are refused"
        shards = f"shards {', '.join(map(str, closed))}"
        if not dry_run:
            word = " Have all outputs been registered again?" if boundary_ns is None else " Do it?"
            ask(f"{shards} will be opened{refused}.{word}", yes=yes)
        for shard in () if dry_run else closed:
            client.open_shard(shard, boundary_ns)
    would = f"{shards} would be opened{refused}; nothing was changed"
    document = {"opened": closed, "boundary_ns": boundary_ns, "dry_run": dry_run}
    at.show(document, would if dry_run else f"{shards} are open{refused}")


def _boundary(settings: Settings, given: str) -> int:
    """Parses a boundary into ns UTC. ``now`` means 2 S in the future, so that no clock here can have admitted a later
    event."""
    now_ns = time.time_ns()
    if given == NOW:
        return now_ns + int(2 * settings.clock.uncertainty * 1e9)
    return given_ns("--accept-boundary", given, now_ns)


# -- register-again --------------------------------------------------------------------------------------------------
def _register_again(at: Deployed, only: tuple[str, ...], *, dry_run: bool, yes: bool) -> int:
    must_be_said("registering outputs again", dry_run=dry_run, yes=yes)
    settings = at.with_registry
    unknown = [name for name in only if name not in settings.datacentre]
    if not settings.datacentre:
        raise UsageError(f"{at.config}: has no [datacentre.NAME], so there is no pipeline, so no outputs to read")
    if unknown:
        known = ", ".join(sorted(settings.datacentre))
        raise UsageError(f"--datacentre {', '.join(unknown)}: not in the configuration; there are: {known}")
    names = only or tuple(settings.datacentre)
    with at.registry() as client:
        client.leader(0)  # waits for replicas that are starting
        if dry_run:
            return _would_register(at, client, names)
        ask(f"Register the records in the outputs of {', '.join(names)}, under their tokens?", yes=yes)
        rows = [_registered(at, client, name) for name in names]
    at.part(Part("", rows, (*COUNTED, *map(_count, ("registered", "taken", "too_old", "without_token")))))
    return ATTENTION if any(row["taken"] or row["without_token"] or row["archived"] for row in rows) else DONE


def _count(name: str) -> Column:
    return Column(f">{name.replace('_', ' ')}", name)


COUNTED = (Column("datacentre"), _count("files"), _count("archived"), _count("lines"))


def _files(at: Deployed, disk: Disk, name: str) -> OutputFiles:
    """Returns the output files of a datacentre. Warns about archived ones, whose records are not registered."""
    from photon.operations.register import datacentre_files

    pipeline = at.settings.datacentre[name]
    output, state = at.base / pipeline.output, at.base / pipeline.state
    files = datacentre_files(disk, at.base, name, pipeline.join, output, state)
    if files.archived:
        gone, first = len(files.archived), files.archived[0].path
        click.echo(
            f"photon: {name}: final output files are missing: {gone}, the first is {first}; "
            "restore those written since the backup and repeat; otherwise their events are joined again", err=True,
        )  # fmt: skip
    return files


def _would_register(at: Deployed, client: OperatorClient, names: Sequence[str]) -> int:
    """Shows what would be registered. Raises PhotonError if registering would be refused."""
    from photon.idregistry.operate.inspection import group_rows
    from photon.objects.disk import UrlDisk
    from photon.operations.register import counted

    if not any(row.closed for row in group_rows(client.inspect_all())):
        raise PhotonError("no shard is closed; outputs can be registered again only in a restored registry")
    disk, rows = UrlDisk(), []
    for name in names:
        files = _files(at, disk, name)
        done = counted(disk, files.found)
        rows.append(_row(name, files) | picked(done, "lines without_token"))
    part = Part("datacentres", rows, (*COUNTED, _count("without_token")))
    at.part(part, "these records would be registered again; nothing was changed", dry_run=True)
    return DONE


def _row(name: str, files: OutputFiles) -> dict[str, Any]:
    return {"datacentre": name, "files": len(files.found), "archived": len(files.archived)}


def _registered(at: Deployed, client: OperatorClient, name: str) -> dict[str, Any]:
    from photon.idregistry.api import Digester
    from photon.idregistry.client.deployment_key import key_path, read_key
    from photon.objects.disk import UrlDisk
    from photon.operations.register import Registered, register_file

    digester = Digester(read_key(key_path(at.settings, at.base)), at.settings.datacentre[name].join)
    disk, ranges, done = UrlDisk(), client.ranges(), Registered()
    files = _files(at, disk, name)
    for file in files.found:
        register_file(disk, client, ranges, digester, name, file, done)
    return _row(name, files) | picked(done, "lines registered taken too_old without_token")
