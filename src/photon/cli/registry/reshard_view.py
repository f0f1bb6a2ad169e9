"""Formats the output of ``photon registry reshard``: shards, ranges of event time and changes, as tables and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from photon.fleet.parts import Column, Part, picked
from photon.idregistry.core.commands import END_OF_TIME, NO_TIME
from photon.idregistry.core.outcomes import Refusal
from photon.idregistry.core.resharding import Change, Resharding, ReshardOutcome, ShardView, Stage


def moment(ns: int) -> str | None:
    """Formats a time as ISO text in UTC. Returns `None` for the minimum and maximum time."""
    if ns in (NO_TIME, END_OF_TIME):
        return None
    try:
        at = datetime.fromtimestamp(ns // 10**9, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{ns} ns"
    return at.strftime("%Y-%m-%dT%H:%M:%S") + f".{ns // 10**6 % 1000:03d}Z"


def _at(name: str, ns: int) -> dict[str, str | int | None]:
    """Formats a time as text and in nanoseconds; both are null for the minimum and maximum time."""
    said = moment(ns)
    return {name: said, f"{name}_ns": None if said is None else ns}


def numbers(shards: Iterable[int]) -> str:
    """Formats numbers with spaces: ``1 2 3``."""
    return " ".join(map(str, shards)) or "none"


# -- JSON ------------------------------------------------------------------------------------------------------------


def as_json(found: Resharding) -> dict[str, Any]:
    return {
        **picked(found, "replica config"),
        **_at("now", found.now_ns),
        "ranges": [
            {**_at("from", each.start_ns), **_at("until", each.end_ns), "shards": list(each.shards)}
            for each in found.ranges
        ],
        "change": None if found.change is None else _change(found.change),
        "shards": [_shard(each, found) for each in found.shards],
        **picked(found, "removed why_not_sooner"),
    }


def verify_as_json(found: Mapping[str, ReshardOutcome]) -> dict[str, Any]:
    """Returns replica -> its problems, or why it did not answer."""
    return {
        "ok": not troubles(found),
        "replicas": {
            name: {"answered": False, "reason": each.reason, "problems": []}
            if isinstance(each, Refusal)
            else {
                "answered": True,
                "config": each.config,
                "shards": len(each.shards),
                "ids": sum(shard.ids for shard in each.shards),
                "problems": list(each.problems),
            }
            for name, each in found.items()
        },
    }


def troubles(found: Mapping[str, ReshardOutcome]) -> list[str]:
    """Lists the problems of all replicas, one per line."""
    lines = []
    for name, each in found.items():
        if isinstance(each, Refusal):
            lines.append(f"replica {name} did not answer: {each.reason or each.status.name.lower()}")
        else:
            lines += [f"replica {name}: {problem}" for problem in each.problems]
    return lines


def _change(change: Change) -> dict[str, object]:
    return {
        "number": change.config,
        "stage": change.stage.name.lower(),
        "settled": change.settled,
        **_at("starts", change.starts_ns),
        **picked(change, "shards added leaving reason"),
    }


def _shard(view: ShardView, found: Resharding) -> dict[str, object]:
    return {
        **picked(view, "shard leader config decided"),
        "prepared": view.prepared or None,
        "refused": view.refused or None,
        "ids": view.ids,
        **_at("latest", view.latest_ns),
        **_at("boundary", view.boundary_ns),
        **_at("until", view.until_ns),
        "state": _state(view, found),
    }


VERIFIED = (
    *map(Column, ("replica", ">config", ">shards", ">ids")),
    Column(">problems", lambda row: len(row["problems"]) if row["answered"] else "no answer"),
)
RANGES = (
    Column("events from", "from", lambda at: at or "the beginning"), Column("until"),
    Column("shards", "shards", numbers),
)  # fmt: skip
SHARDS = (
    Column(">shard"), Column("leader"), Column("state"), Column(">ids"), Column("latest event", "latest"),
    Column("collected below", "boundary"),
)  # fmt: skip


# -- tables ----------------------------------------------------------------------------------------------------------


def shown(found: Resharding) -> Iterator[str | Part]:
    said = as_json(found)
    yield f"config {found.config}, as known to replica {found.replica}"
    if found.change is not None:
        yield sentence(found)
    yield from (f"  not sooner: {reason}" for reason in found.why_not_sooner)
    yield from ("", Part("ranges", said["ranges"], RANGES), "", Part("shards", said["shards"], SHARDS))
    if found.removed:
        yield f"removed shards: {numbers(found.removed)}"


def sentence(found: Resharding) -> str:
    change = found.change
    if change is None:
        return "the shards have never been changed"
    away = (change.starts_ns - found.now_ns) / 1e9
    when = f"{moment(change.starts_ns)} ({f'in {away:.1f} s' if away > 0 else f'{-away:.1f} s ago'})"
    what = f"events from {when} go to shards {numbers(change.shards)}"
    parts = [f"new: {numbers(change.added)}"] if change.added else []
    parts += [f"leaving: {numbers(change.leaving)}"] if change.leaving else []
    if change.stage is Stage.ABORTED:
        return f"change {change.config} was aborted: {change.reason or 'unknown reason'}"
    stage = {
        Stage.PLANNED: "would be",
        Stage.PREPARING: f"is preparing, {prepared(found)}",
        Stage.ACTIVATED: "is activated and settled" if change.settled else "is activated, not yet in every shard",
    }[change.stage]
    return f"change {change.config} {stage}: {'; '.join([what, *parts])}"


def prepared(found: Resharding) -> str:
    assert found.change is not None
    asked = [each for each in found.shards if each.config]
    ready = sum(each.prepared == found.change.config for each in asked)
    return f"{ready} of {len(asked)} shards are ready"


def _state(view: ShardView, found: Resharding) -> str:
    change = found.change
    if not view.config:
        return "opening"
    if change is not None and change.stage is Stage.PREPARING:
        if view.refused == change.config:
            return f"refuses change {change.config}"
        return f"ready for change {change.config}" if view.prepared == change.config else "preparing"
    if view.until_ns != END_OF_TIME:
        return f"takes events until {moment(view.until_ns)}"
    return "takes events"
