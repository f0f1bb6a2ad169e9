"""Shows the registry: its groups, its members, and its problems."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from photon.cli.errors import ATTENTION, DONE, FAILED
from photon.cli.heads import Deployed
from photon.cli.tables import moment, picked, print_table
from photon.config.errors import PhotonError

if TYPE_CHECKING:
    from photon.config.settings import Settings
    from photon.idregistry.operate.findings import CertificateEnd
    from photon.idregistry.operate.inspection import GroupRow, Inspection


BEHIND_MAX = 1000
"""A replica that lacks more entries than this has not caught up."""
PAUSE_S = 0.2
WAIT_S = 120.0


def groups(at: Deployed, wait: bool = False, timeout: float = WAIT_S) -> int:
    """``photon status registry``: a line per group. ``wait``: until each group has a leader and each replica answers
    and has caught up. Raises PhotonError if no replica answers. Exit code 3: that is not so."""
    from photon.idregistry.operate.inspection import group_rows

    with at.registry() as client:
        found = client.inspect_all()
        deadline = time.monotonic() + timeout
        while wait and not _all_is_well(found) and time.monotonic() < deadline:
            time.sleep(PAUSE_S)
            found = client.inspect_all()
    if all(each.reply is None for each in found.values()):
        why = "; ".join(f"{each.name} at {client.addresses[each.name]}: {each.why}" for each in found.values())
        raise PhotonError(f"no registry replica answers ({why})")
    rows = group_rows(found)
    silent = {name: each.why for name, each in found.items() if each.reply is None}

    def people() -> None:
        print_table(COLUMNS, [_cells(row) for row in rows])
        for name, why in silent.items():
            click.echo(f"replica {name} at {client.addresses[name]}: {why}")

    at.show({"groups": [_as_json(row) for row in rows], "silent": silent}, people)
    return DONE if all(row.leader for row in rows) and not silent else ATTENTION


def _all_is_well(found: Mapping[str, Inspection]) -> bool:
    """True if another replica may be restarted: nothing is silent, leaderless or far behind."""
    from photon.idregistry.operate.inspection import group_rows

    rows = group_rows(found)
    lags = [each.behind for row in rows for each in row.lags]
    answer = all(each.reply is not None for each in found.values())
    return answer and all(row.leader for row in rows) and all(lag is not None and lag < BEHIND_MAX for lag in lags)


def _as_json(row: GroupRow) -> dict[str, Any]:
    return {
        "group": row.group,
        "leader": row.leader or None,
        "term": row.term,
        "applied": row.applied,
        "lag": {each.replica: each.behind for each in row.lags},
        "ids": row.ids,
        "bytes": row.bytes,
        "boundary_ns": row.boundary_ns,
        "closed": row.closed,
        "batch_mean": round(row.batch_mean, 1),
        "commit_ms_p50": round(row.commit_ms_p50, 2),
        "commit_ms_p99": round(row.commit_ms_p99, 2),
        "alarms": list(row.alarms),
    }


COLUMNS = ">group, leader, >term, >applied, lag, >ids, >bytes, >batch, >commit p50/p99, boundary, alarms"


def _cells(row: GroupRow) -> list[str]:
    lag = ", ".join(f"{each.replica} {'-' if each.behind is None else each.behind}" for each in row.lags)
    shard = row.group != 0
    return [
        str(row.group),
        row.leader or "none",
        str(row.term),
        f"{row.applied:,}",
        lag,
        f"{row.ids:,}" if shard else "-",
        f"{row.bytes:,}" if shard else "-",
        f"{row.batch_mean:.1f}" if row.batch_mean else "-",
        f"{row.commit_ms_p50:.1f}/{row.commit_ms_p99:.1f} ms" if row.commit_ms_p50 else "-",
        moment(row.boundary_ns) if shard else "-",
        "; ".join((["closed: restored, not opened yet"] if row.closed else []) + list(row.alarms)) or "-",
    ]


def members(at: Deployed) -> int:
    """``photon status members``: addresses, datacentres, regions, membership epoch. Exit code 3: not all replicas
    answer and agree on the membership."""
    from photon.idregistry.operate.inspection import epoch_of

    settings = at.with_registry
    with at.registry() as client:
        found = client.measure_all()
    epoch = epoch_of(found)
    rows = [_member(settings, found[name], epoch) for name in settings.registry.replicas]
    columns = "replica, address, datacentre, region, release, >epoch, >round trip, >leads, state"
    document = {"epoch": epoch, "members": rows}
    at.show(document, lambda: print_table(columns, [_member_cells(row) for row in rows]))
    return DONE if all(row["state"] == "reachable" for row in rows) else ATTENTION


def _member(settings: Settings, each: Inspection, epoch: int) -> dict[str, Any]:
    replica = settings.registry.replicas[each.name]
    reply = each.reply
    state = each.why
    if reply is not None:
        state = "reachable"
        if sorted(reply.members) != sorted(settings.registry.replicas):
            state = f"believes in other members: {', '.join(sorted(reply.members))}"
        elif reply.epoch != epoch:
            state = f"is in epoch {reply.epoch}, others in {epoch}: restart it"
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


def _member_cells(row: dict[str, Any]) -> list[str]:
    trip = row["round_trip_ms"]
    shown = [row["replica"], row["address"], row["datacentre"], row["region"], row["version"], row["epoch"]]
    shown += ["-" if trip is None else f"{trip} ms", row["leads"], row["state"]]
    return ["-" if each in (None, "") else str(each) for each in shown]


# -- photon doctor registry ------------------------------------------------------------------------------------------
def findings_of(at: Deployed) -> int:
    """Exit code 1: something is wrong."""
    from photon.idregistry.operate.findings import Expected, findings

    settings = at.with_registry
    with at.registry() as client:
        found = client.measure_all()
    addresses = {name: replica.address for name, replica in settings.registry.replicas.items()}
    expected = Expected(addresses, settings.clock.uncertainty)
    said = findings(found, expected, _certificates(settings, at.base))

    def people() -> None:
        if said:
            print_table("level, where, what, what to do", [[e.level, e.where, e.what, e.do] for e in said])
        else:
            click.echo(f"{len(found)} replicas: nothing found")

    at.show([picked(each, "level where what do") for each in said], people)
    return FAILED if said else DONE


def _certificates(settings: Settings, base: Path) -> list[CertificateEnd]:
    """Certificates in this machine's directory."""
    from photon.config.certificates import CertificateError, facts, read_certificate
    from photon.fleet.processes import identities
    from photon.idregistry.operate.findings import CertificateEnd

    if settings.tls is None:
        return []
    directory = base / settings.tls.directory
    now = datetime.now(UTC)
    ends = []
    for name in ["ca", *identities(settings)]:
        path = directory / f"{name}.crt"
        if not path.exists():
            continue
        try:
            said = facts(read_certificate(path.read_bytes(), str(path)))
        except CertificateError as error:
            ends.append(CertificateEnd(name, None, why=str(error)))
        else:
            expired = said.ends <= now
            why = f"expired on {said.ends:%Y-%m-%d}" if expired else ""
            ends.append(CertificateEnd(name, None if expired else said.ends, said.expires_soon(now), why))
    return ends
