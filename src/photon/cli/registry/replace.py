"""``photon registry replace``: a replica whose disk is lost gives its place to a new one."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from photon.cli.audited import audited
from photon.cli.heads import Deployed, ask, deployed, must_be_said, sure

if TYPE_CHECKING:
    from photon.config.settings import Settings
    from photon.idregistry.operate.operator_client import OperatorClient
    from photon.idregistry.operate.replacing import Exchange
    from photon.idregistry.operate.seeding import GroupSeed

BARRIER_SECONDS = 30.0
PAUSE = 0.1


@click.command()
@click.argument("old")
@click.argument("new")
@click.option("--address", metavar="HOST:PORT", help="Of NEW; default: that of OLD.")
@click.option("--directory", metavar="DIR", help="Of NEW, relative to the file; default: next to OLD's, named NEW.")
@click.option("--datacentre", "place", help="Of NEW; default: that of OLD.")
@click.option("--region", help="Of NEW; default: that of OLD.")
@sure
@click.option("--wait", is_flag=True, help="Wait until all run in the new epoch and nothing lags.")
@click.option("--timeout", default=120.0, show_default=True, help="Of --wait, seconds.")
@deployed()
@audited
def replace(
    at: Deployed, old: str, new: str, address: str | None, directory: str | None, place: str | None,
    region: str | None, dry_run: bool, yes: bool, wait: bool, timeout: float,
) -> None:  # fmt: skip
    """Replace replica OLD, whose disk is lost, by NEW, a name that was never used. Step by step:

    \b
    1. replace OLD NEW --dry-run  checks that it is safe, and says what would be done.
    2. replace OLD NEW --yes, on NEW's machine. --yes is the operator's word that OLD's disk will never come back:
       what was acknowledged could be lost. Every survivor applies all that was acknowledged; NEW's directory is
       filled; the deployment file gets NEW and the next epoch (the old file is kept).
    3. Give the file to all machines (and NEW its certificate). Start NEW, then restart the surviving replicas
       one after the other. Inserts wait while neither epoch has a majority, some seconds. Joiners and
       dispatchers may be restarted later.
    4. replace OLD NEW --wait     returns when all run in the new epoch and NEW has caught up.
    Examples:
      photon registry replace r3 r4 --config photon.toml --address 10.0.0.4:7101 --dry-run
      photon registry replace r3 r4 --config photon.toml --address 10.0.0.4:7101 --yes
    Exit codes: 0 done, 1 refused or not done in time, 2 wrong usage.
    """
    from photon.config.errors import UsageError

    settings = at.with_registry
    if wait and (dry_run or yes):
        raise UsageError("--wait comes after the restarts: a call of its own")
    if wait:
        _wait(at, old, new, timeout)
        return
    must_be_said(f"replacing {old}, whose disk is gone for ever,", dry_run=dry_run, yes=yes)
    wanted = _wanted(settings, old, new, address, directory, place, region)
    with at.registry() as client:
        steps = _plan(client, settings, at.config, wanted)
        if not dry_run:
            ask(f"Is the disk of {old} gone for ever? If it comes back, what was acknowledged can be lost", yes=yes)
            _apply(client, settings, at.config, wanted)
    people = [f"{number}. {step}" for number, step in enumerate(steps, 1)]
    people.append("nothing was changed" if dry_run else "1 to 3 are done")
    at.show({"done": not dry_run, "steps": steps}, "\n".join(people))


def _wanted(
    settings: Settings, old: str, new: str, address: str | None, directory: str | None,
    datacentre: str | None, region: str | None,
) -> Exchange:  # fmt: skip
    from photon.config.settings import Replica
    from photon.idregistry.operate.replacing import Exchange, ReplaceRefused

    known = settings.registry.replicas.get(old)
    if known is None:
        names = ", ".join(sorted(settings.registry.replicas))
        raise ReplaceRefused(f"{old}: not in [registry.replicas]; there are: {names}")
    replica = Replica(
        address=address or known.address,
        directory=directory or str(Path(known.directory).parent / new),
        datacentre=known.datacentre if datacentre is None else datacentre,
        region=known.region if region is None else region,
    )
    return Exchange(old, new, replica)


def _plan(client: OperatorClient, settings: Settings, config: Path, wanted: Exchange) -> list[str]:
    from photon.idregistry.operate.replacing import check_survivors, check_wanted, edited
    from photon.idregistry.operate.seeding import check_free

    check_wanted(settings, wanted)
    check_free(config.parent / wanted.replica.directory)
    edited(config.read_text(encoding="utf-8"), settings, wanted, str(config))
    rows = check_survivors(client.inspect_all(), wanted.old, settings.registry.epoch)
    survivors = ", ".join(name for name in settings.registry.replicas if name != wanted.old)
    return [
        f"a barrier in {len(rows)} groups, applied by every survivor: {survivors}",
        f"{config.parent / wanted.replica.directory}: {sum(row.ids for row in rows):,} ids as of the barrier",
        f"{config}: {wanted.new} at {wanted.replica.address} in place of {wanted.old}, epoch "
        f"{settings.registry.epoch + 1}; the file before is kept as {_kept(config, settings).name}",
        f"then: start {wanted.new}, restart {survivors} with the new file, and call this again with --wait",
    ]


def _kept(config: Path, settings: Settings) -> Path:
    return config.with_name(f"{config.name}.epoch-{settings.registry.epoch}")


def _apply(client: OperatorClient, settings: Settings, config: Path, wanted: Exchange) -> None:
    from photon.config.disk import RealDisk
    from photon.idregistry.operate.replacing import after, edited
    from photon.idregistry.operate.seeding import Member, seed_directory

    disk = RealDisk()
    text = config.read_text(encoding="utf-8")
    new_text = edited(text, settings, wanted, str(config))
    _barriers(client, wanted.old)
    then = after(settings, wanted).registry
    member = Member(wanted.new, list(then.replicas), then.epoch)
    seed_directory(disk, config.parent / wanted.replica.directory, member, _seeds(client, wanted.old), os.urandom)
    disk.replace(_kept(config, settings), text.encode())
    disk.replace(config, new_text.encode())


def _barriers(client: OperatorClient, old: str) -> None:
    """Waits until every survivor has applied what was acknowledged before."""
    from photon.idregistry.operate.inspection import groups_of
    from photon.idregistry.operate.replacing import ReplaceRefused, behind

    found = client.inspect_all()
    barriers = {group: client.barrier(group) for group in groups_of(found.values())}
    deadline = time.monotonic() + BARRIER_SECONDS
    while left := behind(client.inspect_all(), old, barriers):
        if time.monotonic() >= deadline:
            raise ReplaceRefused(
                f"{', '.join(left)} did not reach the barrier within {BARRIER_SECONDS:g} s; try again"
            )
        time.sleep(PAUSE)


def _seeds(client: OperatorClient, old: str) -> Iterator[GroupSeed]:
    """The state of each group, past the barrier, with the term of its last entry."""
    from photon.idregistry.client.export_stream import ExportFailed
    from photon.idregistry.operate.inspection import groups_of
    from photon.idregistry.operate.seeding import GroupSeed

    for group in groups_of(client.inspect_all().values()):
        mark = client.marked(group)
        reader = client.export(client.leader(group), mark)
        yield GroupSeed(group, mark.index, mark.term, reader)
        if reader.facts is None or reader.facts.applied != mark.index:
            raise ExportFailed(f"group {group}: the export is not of entry {mark.index}; try again")


def _wait(at: Deployed, old: str, new: str, timeout: float) -> None:
    from photon.idregistry.operate.replacing import ReplaceRefused, not_there_yet

    registry = at.settings.registry
    replicas = registry.replicas
    if old in replicas or new not in replicas:
        raise ReplaceRefused(f"the file does not have {new} in place of {old} yet: replace it first")
    deadline = time.monotonic() + timeout
    with at.registry() as client:
        while left := not_there_yet(client.inspect_all(), registry.epoch):
            if time.monotonic() >= deadline:
                raise ReplaceRefused(f"not done after {timeout:g} s: {'; '.join(left)}")
            time.sleep(PAUSE)
    document = {"done": True, "epoch": registry.epoch, "members": sorted(replicas)}
    at.show(document, f"epoch {registry.epoch}: {', '.join(replicas)} have everything")
