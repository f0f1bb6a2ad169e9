"""``photon registry transfer-leader``: moves the leadership of groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from photon.cli.audited import audited
from photon.cli.heads import Deployed, deployed, dry_run
from photon.config.errors import PhotonError, UsageError

if TYPE_CHECKING:
    from photon.idregistry.operate.operator_client import OperatorClient


@click.command("transfer-leader")
@deployed()
@click.option("--group", "groups", type=click.IntRange(0), multiple=True,
              help="Move the leadership of this group; may be repeated.")  # fmt: skip
@click.option("--from", "source", metavar="REPLICA", help="Move every group that this replica leads.")
@click.option("--to", "to", metavar="REPLICA", default="", help="The new leader (default: the most up-to-date one).")
@dry_run
@audited
def transfer_leader(at: Deployed, groups: tuple[int, ...], source: str | None, to: str, dry_run: bool) -> None:
    """Move leadership to another replica. Useful before a restart. Inserts wait for some round trips.

    \b
    Examples:
      photon registry transfer-leader --config photon.toml --group 1 --to r2
      photon registry transfer-leader --config photon.toml --from r1 --dry-run
    Exit codes: 0 moved; 1 a group kept its leader; 2 wrong usage.
    """
    settings = at.with_registry
    if bool(groups) == bool(source):
        raise UsageError("give either --group or --from")
    for name in filter(None, (source, to)):
        if name not in settings.registry.replicas:
            known = ", ".join(sorted(settings.registry.replicas))
            raise UsageError(f"{name}: not in [registry.replicas]; there are: {known}")
    if source and source == to:
        raise UsageError("--from and --to name the same replica")
    with at.registry() as client:
        chosen = list(groups) if source is None else _led_by(client, source)
        move = _would_move if dry_run else _moved
        done = [move(client, group, to) for group in chosen]
    people = [
        f"group {each['group']}: {each['from']} -> {each['to'] or 'the most up-to-date replica'}" for each in done
    ]
    people = people or [f"replica {source} leads no group"]
    at.show(done, "\n".join([*people, *(["nothing was changed"] if dry_run else [])]))


def _led_by(client: OperatorClient, source: str) -> list[int]:
    from photon.idregistry.operate.inspection import groups_of, leader_of

    found = client.inspect_all()
    return [group for group in groups_of(found.values()) if leader_of(found.values(), group) == source]


def _would_move(client: OperatorClient, group: int, to: str) -> dict[str, Any]:
    """Returns the move that would be made. Raises PhotonError if the group has no leader, or ``to`` does not
    answer."""
    before = client.leader(group)
    if to and client.inspect_all()[to].reply is None:
        raise PhotonError(f"{to} does not answer, so it cannot lead; see photon status registry")
    return {"group": group, "from": before, "to": to or None, "dry_run": True}


def _moved(client: OperatorClient, group: int, to: str) -> dict[str, Any]:
    before = client.leader(group)
    return {"group": group, "from": before, "to": client.transfer(group, to)}
