"""``photon registry status`` and ``members``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from photon.cli.errors import ATTENTION, DONE
from photon.cli.registry.common import connected, deployment, formatted, loaded, moment, print_json, print_table

if TYPE_CHECKING:
    from photon.config.settings import Settings
    from photon.idregistry.operate.inspection import GroupRow, Inspection


BEHIND_MAX = 1000
"""Entries: a replica that lacks more has not caught up."""
PAUSE_S = 0.2


@click.command()
@deployment
@formatted
@click.option("--wait", is_flag=True, help="Until each group is led and each replica answers and has caught up.")
@click.option("--timeout", type=float, default=120.0, show_default=True, help="Of --wait, seconds.")
def status(config: Path, overrides: tuple[str, ...], output_format: str, wait: bool, timeout: float) -> int:
    """Show each group: leader, term, lag of every replica, ids, bytes, batches, commit times, alarms.

    \b
    Group 0 is the config group, the others are shards. Lag is in entries, committed but not applied there.
    Examples:
      photon registry status --config photon.toml -o json
      photon registry status --config photon.toml --wait
    Exit codes: 0 each group is led and each replica answers, 3 not so (--wait: not in time), 1 no replica answers.
    """
    from photon.config.errors import PhotonError
    from photon.idregistry.operate.inspection import group_rows

    settings = loaded(config, overrides)
    with connected(settings, config.parent) as client:
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
    if output_format == "json":
        print_json({"groups": [_as_json(row) for row in rows], "silent": silent})
    else:
        _show(rows)
        for name, why in silent.items():
            click.echo(f"replica {name} at {client.addresses[name]}: {why}")
    return DONE if all(row.leader for row in rows) and not silent else ATTENTION


def _all_is_well(found: Mapping[str, Inspection]) -> bool:
    """Whether a further replica may be restarted: nothing is silent, leaderless or far behind."""
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


def _show(rows: list[GroupRow]) -> None:
    columns = [("group", True), ("leader", False), ("term", True), ("applied", True), ("lag", False)]
    columns += [("ids", True), ("bytes", True), ("batch", True), ("commit p50/p99", True)]
    columns += [("boundary", False), ("alarms", False)]
    print_table(columns, [_cells(row) for row in rows])


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


@click.command()
@deployment
@formatted
def members(config: Path, overrides: tuple[str, ...], output_format: str) -> int:
    """Show the replicas: addresses, datacentres, regions, membership epoch, whether they can be reached.

    \b
    Example:
      photon registry members --config photon.toml
    Exit codes: 0 all answer and agree on the membership, 3 not so.
    """
    settings = loaded(config, overrides)
    with connected(settings, config.parent) as client:
        found = client.measure_all()
    rows = [_member(settings, found[name]) for name in settings.registry.replicas]
    if output_format == "json":
        print_json({"epoch": settings.registry.epoch, "members": rows})
    else:
        columns = [("replica", False), ("address", False), ("datacentre", False), ("region", False),
                   ("release", False), ("epoch", True), ("round trip", True), ("leads", True),
                   ("state", False)]  # fmt: skip
        print_table(columns, [_member_cells(row) for row in rows])
    return DONE if all(row["state"] == "reachable" for row in rows) else ATTENTION


def _member(settings: Settings, each: Inspection) -> dict[str, Any]:
    replica = settings.registry.replicas[each.name]
    reply = each.reply
    state = each.why
    if reply is not None:
        state = "reachable"
        if sorted(reply.members) != sorted(settings.registry.replicas):
            state = f"believes in other members: {', '.join(sorted(reply.members))}"
        elif reply.epoch != settings.registry.epoch:
            state = f"is in epoch {reply.epoch}, the file says {settings.registry.epoch}: restart it"
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
