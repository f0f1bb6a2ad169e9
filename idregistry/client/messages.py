"""Converts requests and answers to registry.proto's messages, and back.

Nothing here raises: an inconsistent reply, or one that only a newer release understands, becomes a Refusal with
UNKNOWN.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from google.protobuf.message_factory import GetMessageClass

from photon.batch.ids import Ids, IdsError
from photon.batch.verdicts import Verdicts
from photon.config.interval_clock import Interval
from photon.idregistry import registry_pb2 as pb
from photon.idregistry.api import DIGEST_BYTES, Answer
from photon.idregistry.core import commands as c
from photon.idregistry.core.clock_offsets import ANYWHERE, Agreement, ClockFacts, Offset
from photon.idregistry.core.outcomes import Answered, Description, GroupFacts, Refusal, SlotClaim, Status
from photon.idregistry.core.resharding import Action, Ask, Change, Resharding, ShardView, Stage
from photon.idregistry.core.scans import Below, EntryPage, Traced
from photon.idregistry.core.state_checks import Checked
from photon.idregistry.core.verdict_rules import VerdictRules
from photon.idregistry.witness import LOGS_MAX, KnownSlot, Witness, Witnessed, WitnessLog

REOPEN_IDS_MAX = 2_048  # per Reopen request: ids are judged one by one, some 20 us each

# Fields that a message and its dataclass share, in the dataclass's order
_GROUP = (
    *("group", "leader", "is_leader", "term", "applied", "ids", "batches", "batch_mean"),
    *("commit_ms_p50", "commit_ms_p99", "writable", "bytes", "overloaded"),
)
_BELOW = ("applied", "count", "xor", "reason")
_TRACED = ("cleared", "token", "kind", "generation", "slot", "datacentre")
_SHARD = (
    *("shard", "config", "decided", "prepared", "refused"),
    *("latest_ns", "boundary_ns", "until_ns", "ids", "leader"),
)
_CHANGE = ("config", "starts_ns", "shards", "added", "leaving", "stage", "reason", "settled")
_PAGE = (("times", "<i8"), ("tokens", "<u8"), ("kinds", "u1"), ("tags", "<u4"), ("generations", "<u4"))


_REPLIES: dict[type[Any], type[Any]] = {
    GetMessageClass(method.input_type): GetMessageClass(method.output_type)
    for service in pb.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}


def _fields(value: Any, names: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names}


# -- refusals -------------------------------------------------------------------------------------------------------
def refused(reply: Any) -> Refusal | None:
    """Returns the refusal in a reply of any kind; ``None`` if its status is OK."""
    if reply.status == pb.STATUS_OK:
        return None
    known = {status.value for status in Status} - {Status.UNSPECIFIED}
    status = Status(reply.status) if reply.status in known else Status.UNKNOWN
    return Refusal(status, reply.reason, getattr(reply, "leader_hint", ""))


def refusal_reply(request: Any, refused: Refusal) -> Any:
    """Wraps a refusal in the reply type of its request, of either service. A look-up's reply has no leader."""
    kind = _REPLIES[type(request)]
    hint = {"leader_hint": refused.leader} if "leader_hint" in kind.DESCRIPTOR.fields_by_name else {}
    return kind(status=refused.status.value, reason=refused.reason, **hint)


# -- inserts, clears, look-ups --------------------------------------------------------------------------------------
def slot_name(claim: SlotClaim) -> pb.SlotName:
    return pb.SlotName(
        slot=claim.slot.name,
        datacentre=claim.slot.datacentre,
        address=claim.slot.address,
        incarnations=claim.incarnations,
    )


def ids_of(*columns: bytes) -> Ids | Refusal:
    """Decodes ids like ``Ids.decode``, but returns a Refusal instead of raising."""
    try:
        return Ids.decode(*columns)
    except IdsError as error:
        return Refusal(Status.REFUSED, str(error))


def owners(found: Verdicts) -> dict[str, Any]:
    """Encodes the outcomes and the owner columns, except for the tokens, as fields of a reply."""
    times = found.owner_times
    return {
        "answers": found.outcomes.tobytes(),
        "owner_kinds": found.owner_kinds.tobytes(),
        "owner_tags": found.owner_tags.astype("<u4", copy=False).tobytes(),
        "owner_datacentres": found.owner_datacentres.tobytes(),
        "datacentres": found.datacentres,
        "owner_times": times.astype("<i8", copy=False).tobytes() if np.count_nonzero(times) else b"",
    }


def verdicts_of(reply: Any, n: int, tokens: bytes) -> Answered:
    columns = (reply.answers, reply.owner_kinds, reply.owner_tags, reply.owner_datacentres, tokens)
    times = reply.owner_times or bytes(8 * n)
    if [len(each) for each in (*columns, times)] != [n, n, 4 * n, n, 8 * n, 8 * n]:
        return Refusal(Status.UNKNOWN, f"the reply's columns do not have the length of {n} ids")
    datacentres = tuple(reply.datacentres)
    return Verdicts(
        np.frombuffer(reply.answers, np.uint8),
        np.frombuffer(tokens, "<u8"),
        np.frombuffer(reply.owner_kinds, np.uint8),
        np.frombuffer(reply.owner_tags, "<u4"),
        np.minimum(np.frombuffer(reply.owner_datacentres, np.uint8), max(len(datacentres) - 1, 0)),
        datacentres,
        np.frombuffer(times, "<i8"),
    )


# -- a replica as it is ---------------------------------------------------------------------------------------------
def _ranges_message(ranges: Iterable[c.Range]) -> list[pb.ShardRange]:
    return [pb.ShardRange(start_ns=each.start_ns, end_ns=each.end_ns, shards=each.shards) for each in ranges]


def _ranges_of(reply: pb.DescribeReply | pb.ReshardReply) -> tuple[c.Range, ...] | Refusal:
    ranges = tuple(c.Range(each.start_ns, each.end_ns, tuple(each.shards)) for each in reply.ranges)
    try:
        c.check_ranges(ranges)
    except c.CommandError as error:
        return Refusal(Status.UNKNOWN, f"replica {reply.replica}: {error}")
    return ranges


def description_reply(known: Description) -> pb.DescribeReply:
    groups = [
        pb.GroupStatus(
            **_fields(each, _GROUP),
            checked_form=each.checked.form if each.checked else 0,
            checked_entry=each.checked.index if each.checked else 0,
            checked_hash=each.checked.hash if each.checked else b"",
            alarms=each.alarms,
        )
        for each in known.groups
    ]
    return pb.DescribeReply(
        replica=known.replica,
        ranges=_ranges_message(known.ranges),
        groups=groups,
        id_rules=known.id_rules,
        removed=known.removed,
        config=known.config,
        clock=clock_status(known.clock),
    )


def described(reply: pb.DescribeReply) -> Description | Refusal:
    ranges = _ranges_of(reply)
    if isinstance(ranges, Refusal):
        return ranges
    groups = [
        GroupFacts(
            **_fields(each, _GROUP),
            healthy=True,
            checked=Checked(each.checked_form, each.checked_entry, each.checked_hash) if each.checked_entry else None,
            alarms=tuple(each.alarms),
        )
        for each in reply.groups
    ]
    return Description(
        reply.replica, ranges, groups, dict(reply.id_rules), clock_facts(reply), reply.config, tuple(reply.removed)
    )


def clock_status(facts: ClockFacts) -> pb.ClockStatus:
    def message(offset: Offset, replica: str = "") -> pb.ClockOffset:
        if not offset.known:
            return pb.ClockOffset(replica=replica)
        return pb.ClockOffset(replica=replica, known=True, low_ns=offset.low_ns, high_ns=offset.high_ns)

    return pb.ClockStatus(
        now_ns=facts.now.now_ns,
        error_ns=facts.now.error_ns,
        synchronised=facts.now.synchronised,
        agreement=facts.agreement.value,  # type: ignore[arg-type]  # protobuf enums are plain numbers
        median=message(facts.middle),
        peers=[message(offset, peer) for peer, offset in sorted(facts.peers.items())],
        objection=facts.objection,
    )


def clock_facts(reply: pb.DescribeReply) -> ClockFacts:
    said = reply.clock

    def offset(message: pb.ClockOffset) -> Offset:
        return Offset(message.low_ns, message.high_ns) if message.known else ANYWHERE

    known = {each.value for each in Agreement}
    return ClockFacts(
        Interval(said.now_ns, said.error_ns, said.synchronised),
        Agreement(said.agreement) if said.agreement in known else Agreement.UNCERTAIN,
        offset(said.median),
        {each.replica: offset(each) for each in said.peers},
        said.objection,
    )


# -- witnesses and slots --------------------------------------------------------------------------------------------
def witness_of(logs: Sequence[pb.WitnessLog]) -> Witness:
    """Decodes a witness of at most LOGS_MAX + 1 logs; a witness with one too many fails the command's check."""
    return tuple(WitnessLog(each.number, each.length, each.hash) for each in logs[: LOGS_MAX + 1])


def witness_logs(witness: Iterable[WitnessLog]) -> list[pb.WitnessLog]:
    return [pb.WitnessLog(number=each.number, length=each.length, hash=each.hash) for each in witness]


def witness_reply(known: Witnessed) -> pb.WitnessReply:
    return pb.WitnessReply(
        status=pb.STATUS_OK,
        newest=known.newest,
        witness=witness_logs(known.witness),
        retired=known.retired,
        refused=known.reason,
    )


def witnessed_of(reply: pb.WitnessReply) -> Witnessed:
    return Witnessed(reply.newest, witness_of(reply.witness), reply.refused, reply.retired)


def slots_reply(slots: Sequence[KnownSlot], more: bool) -> pb.ListSlotsReply:
    names = ("datacentre", "address", "newest", "openings", "retired")
    known = [
        pb.KnownSlot(slot=each.name, witness=witness_logs(each.witness), **_fields(each, names)) for each in slots
    ]
    return pb.ListSlotsReply(status=pb.STATUS_OK, slots=known, more=more)


def slots_of(reply: pb.ListSlotsReply) -> list[KnownSlot]:
    return [
        KnownSlot(e.slot, e.datacentre, e.address, e.newest, e.openings, e.retired, witness_of(e.witness))
        for e in reply.slots
    ]


def judged_reply(known: VerdictRules) -> pb.JudgeByReply:
    return pb.JudgeByReply(status=pb.STATUS_OK, newest=known.newest, brought=known.brought, processes=known.processes)


def judged_of(reply: pb.JudgeByReply) -> VerdictRules:
    """Decodes a JudgeBy reply. The reply has the newest rule only, so earlier ones are missing from the result."""
    return VerdictRules((reply.newest,), reply.brought, dict(reply.processes))


_SAMPLE = ("side", "log", "record", "key", "id", "time_ns", "key_shown", "id_shown")


def sample_messages(samples: Iterable[c.Sample]) -> list[pb.Sample]:
    return [pb.Sample(**_fields(each, _SAMPLE)) for each in samples]


def samples_of(of: pb.KeepSamplesRequest | pb.KeepSamplesReply) -> tuple[c.Sample, ...]:
    return tuple(c.Sample(**_fields(each, _SAMPLE)) for each in of.samples)


# -- questions about a shard's ids ----------------------------------------------------------------------------------
def entries_reply(page: EntryPage) -> pb.EntriesReply:
    columns = {name: getattr(page, name).astype(kind, copy=False).tobytes() for name, kind in _PAGE}
    return pb.EntriesReply(
        status=pb.STATUS_OK, digests=page.digests, cursor=page.cursor, fenced=page.fenced, **columns
    )


def page_of(reply: pb.EntriesReply) -> EntryPage | Refusal:
    n, rest = divmod(len(reply.digests), DIGEST_BYTES)
    if rest or any(len(getattr(reply, name)) != n * np.dtype(kind).itemsize for name, kind in _PAGE):
        return Refusal(Status.UNKNOWN, f"a page has {n} ids, but columns of another length")
    times, tokens, kinds, tags, generations = (np.frombuffer(getattr(reply, name), kind) for name, kind in _PAGE)
    return EntryPage(reply.digests, times, tokens, kinds, tags, generations, reply.cursor, reply.fenced)


def below_reply(below: Below) -> pb.ClearBelowReply:
    return pb.ClearBelowReply(status=pb.STATUS_OK, **_fields(below, _BELOW))


def below_of(reply: pb.ClearBelowReply) -> Below:
    return Below(**_fields(reply, _BELOW))


def trace_reply(traced: Traced) -> pb.TraceReply:
    return pb.TraceReply(
        status=pb.STATUS_OK,
        answer=traced.answer,
        bounded=traced.boundary_ns is not None,
        boundary_ns=traced.boundary_ns or 0,
        **_fields(traced, (*_TRACED, "replica", "applied")),
    )


def traced_of(reply: pb.TraceReply, shard: int) -> Traced | Refusal:
    known = {int(each): each for each in (Answer.ABSENT, Answer.PRESENT, Answer.BELOW_BOUNDARY, Answer.REOPENED)}
    if reply.answer not in known:
        return Refusal(Status.UNKNOWN, f"shard {shard}: this release does not know answer {reply.answer}")
    boundary_ns = reply.boundary_ns if reply.bounded else None
    return Traced(
        known[reply.answer], shard, boundary_ns=boundary_ns, **_fields(reply, (*_TRACED, "replica", "applied"))
    )


# -- changes of the shards ------------------------------------------------------------------------------------------
def reshard_request(ask: Ask) -> pb.ReshardRequest:
    action: Any = ask.action.value  # protobuf enums are plain numbers
    return pb.ReshardRequest(
        action=action,
        shards=ask.shards,
        dry_run=ask.dry_run,
        lead_ms=0 if ask.lead_s is None else max(1, round(1000 * ask.lead_s)),
        config=ask.config,
    )


def reshard_ask(request: pb.ReshardRequest) -> Ask | Refusal:
    if request.action not in {action.value for action in Action}:
        return Refusal(Status.REFUSED, f"this release does not know shard action {request.action}")
    lead_s = request.lead_ms / 1000 if request.lead_ms else None
    return Ask(Action(request.action), request.shards, request.dry_run, lead_s, request.config)


def reshard_reply(found: Resharding) -> pb.ReshardReply:
    return pb.ReshardReply(
        status=pb.STATUS_OK,
        replica=found.replica,
        config=found.config,
        ranges=_ranges_message(found.ranges),
        change=None if found.change is None else pb.ShardChange(**_fields(found.change, _CHANGE)),
        shards=[pb.ShardPreparation(**_fields(each, _SHARD)) for each in found.shards],
        removed=found.removed,
        now_ns=found.now_ns,
        why_not_sooner=found.why_not_sooner,
        problems=found.problems,
    )


def resharding_of(reply: pb.ReshardReply) -> Resharding | Refusal:
    """Decodes a reply whose status is OK."""
    ranges = _ranges_of(reply)
    if isinstance(ranges, Refusal):
        return ranges
    change = None
    if reply.HasField("change"):
        said = reply.change
        if said.stage not in {stage.value for stage in Stage}:
            return Refusal(Status.UNKNOWN, f"replica {reply.replica} reports unknown stage {said.stage}")
        shards = {name: tuple(getattr(said, name)) for name in ("shards", "added", "leaving")}
        change = Change(**{**_fields(said, _CHANGE), **shards, "stage": Stage(said.stage)})
    return Resharding(
        reply.replica,
        reply.config,
        ranges,
        change,
        [ShardView(**_fields(each, _SHARD)) for each in reply.shards],
        tuple(reply.removed),
        reply.now_ns,
        tuple(reply.why_not_sooner),
        tuple(reply.problems),
    )
