"""Commands that show the registry: its groups, its members, and its problems."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from photon.cli.errors import ATTENTION, DONE, FAILED
from photon.cli.heads import Deployed
from photon.cli.looking import waited
from photon.config.errors import PhotonError
from photon.config.words import many
from photon.fleet.parts import Column, Part, moment, picked

if TYPE_CHECKING:
    from photon.config.settings import Settings
    from photon.idregistry.operate.findings import CertificateEnd
    from photon.idregistry.operate.inspection import GroupRow, Inspection


BEHIND_MAX = 1000  # a replica that is this many entries behind has not caught up
PAUSE_S = 0.2
WAIT_S = 120.0


def groups(at: Deployed, wait: bool = False, timeout: float = WAIT_S) -> int:
    """``photon status registry``: shows one line per group. ``wait``: first waits until each group has a leader and
    all replicas answer and have caught up. Raises PhotonError if no replica answers. Exit code 3: a group has no
    leader or a replica does not answer."""
    from photon.idregistry.operate.inspection import group_rows

    with at.registry() as client:
        found = waited(client.inspect_all, _all_is_well, timeout if wait else 0.0, PAUSE_S)
    if all(each.reply is None for each in found.values()):
        why = "; ".join(f"{each.name} at {client.addresses[each.name]}: {each.why}" for each in found.values())
        raise PhotonError(f"no registry replica answers ({why})")
    rows = group_rows(found)
    silent = {name: each.why for name, each in found.items() if each.reply is None}

    lines = [f"replica {name} at {client.addresses[name]}: {why}" for name, why in silent.items()]
    at.part(Part("groups", [_group(row) for row in rows], GROUPS), *lines, silent=silent)
    return DONE if all(row.leader for row in rows) and not silent else ATTENTION


def _all_is_well(found: Mapping[str, Inspection]) -> bool:
    """Returns True if another replica may be restarted: all answer and have caught up, and each group has a
    leader."""
    from photon.idregistry.operate.inspection import group_rows

    rows = group_rows(found)
    lags = [each.behind for row in rows for each in row.lags]
    answer = all(each.reply is not None for each in found.values())
    return answer and all(row.leader for row in rows) and all(lag is not None and lag < BEHIND_MAX for lag in lags)


def _group(row: GroupRow) -> dict[str, Any]:
    return {
        **picked(row, "group term applied ids bytes boundary_ns closed"),
        "leader": row.leader or None,
        "lag": {each.replica: each.behind for each in row.lags},
        "batch_mean": round(row.batch_mean, 1),
        "commit_ms_p50": round(row.commit_ms_p50, 2),
        "commit_ms_p99": round(row.commit_ms_p99, 2),
        "alarms": list(row.alarms),
    }


def _of_shard(field: str) -> Callable[[dict[str, Any]], Any]:
    """Returns a function that reads ``field`` of a shard; `None` for group 0 (config), which has no ids."""
    return lambda row: row[field] if row["group"] else None


GROUPS = (
    Column(">group"), Column("leader", "leader", lambda name: name or "none"), Column(">term", "term", str),
    Column(">applied"),
    Column("lag", "lag", lambda lag: ", ".join(f"{name} {'-' if at is None else at}" for name, at in lag.items())),
    Column(">ids", _of_shard("ids")), Column(">bytes", _of_shard("bytes")), Column(">batch", "batch_mean"),
    Column(">commit p50/p99", lambda row: (row["commit_ms_p50"], row["commit_ms_p99"]),
           lambda ms: f"{ms[0]:.1f}/{ms[1]:.1f} ms" if ms[0] else "-"),
    Column("boundary", _of_shard("boundary_ns"), moment),
    Column("alarms", lambda row: "; ".join(["closed: restored, not opened yet"] * row["closed"] + row["alarms"])),
)  # fmt: skip
MEMBERS = (
    Column("replica"), Column("address"), Column("datacentre"), Column("region"), Column("release", "version"),
    Column(">epoch", "epoch", lambda epoch: "-" if epoch is None else str(epoch)),
    Column(">round trip", "round_trip_ms", lambda ms: "-" if ms is None else f"{ms} ms"), Column(">leads"),
    Column("state"),
)  # fmt: skip


def members(at: Deployed) -> int:
    """``photon status members``: shows addresses, datacentres, regions and the membership epoch. Exit code 3: a
    replica does not answer or disagrees about the membership."""
    from photon.idregistry.operate.inspection import epoch_of

    settings = at.with_registry
    with at.registry() as client:
        found = client.measure_all()
    epoch = epoch_of(found)
    rows = [_member(settings, found[name], epoch) for name in settings.registry.replicas]
    at.part(Part("members", rows, MEMBERS), epoch=epoch)
    return DONE if all(row["state"] == "reachable" for row in rows) else ATTENTION


def _member(settings: Settings, each: Inspection, epoch: int) -> dict[str, Any]:
    replica = settings.registry.replicas[each.name]
    reply = each.reply
    state = each.why
    if reply is not None:
        state = "reachable"
        if sorted(reply.members) != sorted(settings.registry.replicas):
            state = f"has a different membership: {', '.join(sorted(reply.members))}"
        elif reply.epoch != epoch:
            state = f"is in epoch {reply.epoch}, others are in {epoch}: restart it"
    return {
        "replica": each.name,
        "address": replica.address,
        "directory": replica.directory,
        "datacentre": replica.datacentre,
        "region": settings.region_of_replica(each.name),
        "epoch": None if reply is None else reply.epoch,
        "version": None if reply is None else reply.version,
        "round_trip_ms": None if reply is None else round(each.round_trip_s * 1000, 2),
        "leads": None if reply is None else sum(group.is_leader for group in reply.groups),
        "state": state,
    }


# -- photon doctor registry ------------------------------------------------------------------------------------------
def findings_of(at: Deployed) -> int:
    """Implements ``photon doctor registry``. Exit code 1: something is wrong."""
    from photon.idregistry.operate.findings import Expected, findings

    settings = at.with_registry
    with at.registry() as client:
        found = client.measure_all()
    expected = Expected(client.addresses, settings.clock.uncertainty)
    said = findings(found, expected, _certificates(settings, at.base))

    rows = [picked(each, "level where what do") for each in said]
    columns = (*map(Column, ("level", "where", "what")), Column("what to do", "do"))
    at.part(Part("", rows, columns, f"{many(len(found), 'replica')}: nothing found"))
    return FAILED if said else DONE


def _certificates(settings: Settings, base: Path) -> list[CertificateEnd]:
    """Reads the certificates in this machine's directory."""
    from photon.config.certificates import EXPIRES_SOON
    from photon.fleet.here import pairs
    from photon.idregistry.operate.findings import CertificateEnd

    now = datetime.now(UTC)
    return [
        CertificateEnd(each.identity, None, why=each.problem)
        if each.problem or each.ends is None
        else CertificateEnd(each.identity, each.ends, each.ends - now < EXPIRES_SOON)
        for each in pairs(settings, base, now)
        if each.there
    ]
