"""Between registry.proto's messages and the room's dataclasses, both ways."""

from __future__ import annotations

from typing import Any

from photon.idregistry import registry_pb2 as pb
from photon.idregistry.core import commands as c
from photon.idregistry.core.outcomes import Refusal, Status
from photon.idregistry.core.resharding import Action, Ask, Change, Resharding, ShardView, Stage

_COLUMNS = (
    "shard",
    "config",
    "decided",
    "prepared",
    "refused",
    "latest_ns",
    "boundary_ns",
    "until_ns",
    "ids",
    "leader",
)


def request_of(ask: Ask) -> pb.ReshardRequest:
    return pb.ReshardRequest(
        action=_number(ask.action),
        shards=ask.shards,
        dry_run=ask.dry_run,
        lead_ms=0 if ask.lead_s is None else max(1, round(1000 * ask.lead_s)),
        config=ask.config,
    )


def ask_of(request: pb.ReshardRequest) -> Ask | Refusal:
    """An action of a newer release is refused."""
    if request.action not in {action.value for action in Action}:
        return Refusal(Status.REFUSED, f"this release knows no action {request.action} for shards")
    lead_s = request.lead_ms / 1000 if request.lead_ms else None
    return Ask(Action(request.action), request.shards, request.dry_run, lead_s, request.config)


def reply_of(found: Resharding) -> pb.ReshardReply:
    return pb.ReshardReply(
        status=pb.STATUS_OK,
        replica=found.replica,
        config=found.config,
        ranges=[pb.ShardRange(start_ns=r.start_ns, end_ns=r.end_ns, shards=r.shards) for r in found.ranges],
        change=None if found.change is None else _change(found.change),
        shards=[pb.ShardPreparation(**{name: getattr(each, name) for name in _COLUMNS}) for each in found.shards],
        removed=found.removed,
        now_ns=found.now_ns,
        why_not_sooner=found.why_not_sooner,
        problems=found.problems,
    )


def resharding_of(reply: pb.ReshardReply) -> Resharding | Refusal:
    """Of a reply whose status is OK."""
    ranges = tuple(c.Range(each.start_ns, each.end_ns, tuple(each.shards)) for each in reply.ranges)
    try:
        c.check_ranges(ranges)
    except c.CommandError as error:
        return Refusal(Status.UNKNOWN, f"replica {reply.replica}: {error}")
    change = None
    if reply.HasField("change"):
        said = reply.change
        if said.stage not in {stage.value for stage in Stage}:
            return Refusal(Status.UNKNOWN, f"replica {reply.replica} speaks of a stage {said.stage}")
        change = Change(
            said.config,
            said.starts_ns,
            tuple(said.shards),
            tuple(said.added),
            tuple(said.leaving),
            Stage(said.stage),
            said.reason,
            said.settled,
        )
    return Resharding(
        reply.replica,
        reply.config,
        ranges,
        change,
        [ShardView(*(getattr(each, name) for name in _COLUMNS)) for each in reply.shards],
        tuple(reply.removed),
        reply.now_ns,
        tuple(reply.why_not_sooner),
        tuple(reply.problems),
    )


def _change(change: Change) -> pb.ShardChange:
    return pb.ShardChange(
        config=change.config,
        starts_ns=change.starts_ns,
        shards=change.shards,
        added=change.added,
        leaving=change.leaving,
        stage=_number(change.stage),
        reason=change.reason,
        settled=change.settled,
    )


def _number(value: Action | Stage) -> Any:
    return value.value  # protobuf enums are plain numbers
