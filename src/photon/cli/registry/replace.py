"""``photon registry replace``: replaces a replica that lost its disk with a new one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from operator import not_
from pathlib import Path
from typing import TYPE_CHECKING

import click

from photon.cli.audited import audited
from photon.cli.heads import Deployed, ask, deployed, must_be_said, sure
from photon.cli.looking import waited
from photon.config.words import many

if TYPE_CHECKING:
    from photon.idregistry.operate.operator_client import OperatorClient
    from photon.idregistry.operate.replacing import Exchange
    from photon.idregistry.operate.seeding import GroupSeed

BARRIER_SECONDS = 30.0
PAUSE = 0.1


@click.command()
@click.argument("old")
@click.argument("new")
@sure
@click.option("--wait", is_flag=True, help="Wait until all replicas run in the new epoch and have caught up.")
@click.option("--timeout", default=120.0, show_default=True, help="With --wait: seconds to wait.")
@deployed()
@audited
def replace(at: Deployed, old: str, new: str, dry_run: bool, yes: bool, wait: bool, timeout: float) -> None:
    """Replace replica OLD, which lost its disk, with NEW. NEW is a name that was never used. Step by step:

    \b
    1. In the deployment file, put the table of NEW in place of OLD's.
    2. replace OLD NEW --dry-run  checks that it is safe, and shows what would be done.
    3. replace OLD NEW --yes, on NEW's machine. With --yes you assert that OLD's disk will never come back; if it did,
       acknowledged registrations could be lost. Every survivor applies all acknowledged entries and records the new
       membership; NEW's directory is filled.
    4. Start NEW (with its certificate), then restart the surviving replicas one after another. While neither epoch
       has a majority, inserts wait for some seconds. Joiners and dispatchers may be restarted later.
    5. replace OLD NEW --wait     returns when all run in the new epoch and NEW has caught up.
    Examples:
      photon registry replace r3 r4 --config photon.toml --dry-run
      photon registry replace r3 r4 --config photon.toml --yes
    Exit codes: 0 done; 1 refused, or not done in time; 2 wrong usage.
    """
    from photon.config.errors import UsageError
    from photon.idregistry.operate.operator_client import OperatorClient
    from photon.idregistry.operate.replacing import survivors

    if wait and (dry_run or yes):
        raise UsageError("--wait cannot be combined with --dry-run or --yes; run it separately, after the restarts")
    if not wait:
        must_be_said(f"replacing {old}, whose disk is permanently gone,", dry_run=dry_run, yes=yes)
    kept = survivors(at.with_registry.registry.replicas, old, new)
    if wait:
        _wait(at, timeout)
        return
    with OperatorClient(kept, at.tls) as client:
        wanted, steps = _plan(at, client, old, new)
        if not dry_run:
            ask(
                f"Is the disk of {old} permanently gone? If it comes back, acknowledged registrations can be lost",
                yes=yes,
            )
            _apply(at, client, wanted)
    people = [f"{number}. {step}" for number, step in enumerate(steps, 1)]
    people.append("nothing was changed" if dry_run else "1 and 2 are done")
    at.show({"done": not dry_run, "steps": steps}, "\n".join(people))


def _plan(at: Deployed, client: OperatorClient, old: str, new: str) -> tuple[Exchange, list[str]]:
    from photon.idregistry.operate.operator_client import OperatorClient
    from photon.idregistry.operate.replacing import ReplaceRefused, check_survivors, exchange
    from photon.idregistry.operate.seeding import check_free

    directory = _directory(at, new)
    check_free(directory)
    found = client.inspect_all()
    wanted = exchange(found, old, new, at.settings.registry.replicas[new].address)
    with OperatorClient({old: wanted.members[old]}, at.tls) as lost:
        if lost.inspect_all()[old].reply is not None:
            raise ReplaceRefused(f"{old} answers: stop it first, and make sure that its disk never comes back")
    rows = check_survivors(found)
    names = ", ".join(found)
    return wanted, [
        f"a barrier in {many(len(rows), 'group')}, applied by every survivor; each records epoch {wanted.epoch} "
        f"with {new} at {wanted.address} in place of {old}: {names}",
        f"{directory}: {many(sum(row.ids for row in rows), 'id')} as of the barrier",
        f"then: start {new}, restart {names}, and run this again with --wait",
    ]


def _directory(at: Deployed, new: str) -> Path:
    return at.base / at.settings.registry.replicas[new].directory


def _apply(at: Deployed, client: OperatorClient, wanted: Exchange) -> None:
    from photon.config.disk import RealDisk
    from photon.idregistry.operate.seeding import Member, seed_directory

    _barriers(client)
    for name in sorted(client.addresses):  # sorted: the first replica refuses a second operator
        client.follow(name, wanted.epoch, wanted.next)
    member = Member(wanted.new, wanted.next, wanted.epoch)
    seed_directory(RealDisk(), _directory(at, wanted.new), member, _seeds(client), os.urandom)


def _barriers(client: OperatorClient) -> None:
    """Waits until every survivor has applied all entries that were acknowledged before this call."""
    from photon.idregistry.operate.inspection import groups_of
    from photon.idregistry.operate.replacing import ReplaceRefused, behind

    found = client.inspect_all()
    barriers = {group: client.barrier(group) for group in groups_of(found.values())}
    left = waited(lambda: behind(client.inspect_all(), barriers), not_, BARRIER_SECONDS, PAUSE)
    if left:
        raise ReplaceRefused(f"{', '.join(left)} did not reach the barrier within {BARRIER_SECONDS:g} s; try again")


def _seeds(client: OperatorClient) -> Iterator[GroupSeed]:
    """Yields each group's state after the barrier, with the term of its last entry."""
    from photon.idregistry.client.export_stream import ExportFailed
    from photon.idregistry.operate.inspection import groups_of
    from photon.idregistry.operate.seeding import GroupSeed

    for group in groups_of(client.inspect_all().values()):
        mark = client.marked(group)
        reader = client.export(client.leader(group), mark)
        yield GroupSeed(group, mark.index, mark.term, reader)
        if reader.facts is None or reader.facts.applied != mark.index:
            raise ExportFailed(f"group {group}: the export was not made at entry {mark.index}; try again")


def _wait(at: Deployed, timeout: float) -> None:
    from photon.idregistry.operate.inspection import epoch_of
    from photon.idregistry.operate.replacing import ReplaceRefused, not_there_yet

    replicas = at.settings.registry.replicas
    with at.registry() as client:
        found = waited(client.inspect_all, lambda found: not not_there_yet(found), timeout, PAUSE)
    if left := not_there_yet(found):
        raise ReplaceRefused(f"not done after {timeout:g} s: {'; '.join(left)}")
    epoch = epoch_of(found)
    people = f"epoch {epoch}: {', '.join(replicas)} have caught up"
    at.show({"done": True, "epoch": epoch, "members": sorted(replicas)}, people)
