"""Between registry.proto's messages and the room's dataclasses, both ways."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from photon.idregistry import registry_pb2 as pb
from photon.idregistry.api import DIGEST_BYTES, Answer
from photon.idregistry.core.outcomes import Refusal, Status
from photon.idregistry.core.scans import Below, EntryPage
from photon.idregistry.core.tracing import Traced
from photon.idregistry.witness import LOGS_MAX, KnownSlot, Witness, Witnessed, WitnessLog

_COLUMNS = (
    ("times", "<i8"),
    ("tokens", "<u8"),
    ("kinds", "u1"),
    ("tags", "<u4"),
    ("generations", "<u4"),
)


def witness_of(logs: Sequence[pb.WitnessLog]) -> Witness:
    """At most one log more than may be: the command's check refuses that."""
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
    known = [
        pb.KnownSlot(
            slot=each.name,
            datacentre=each.datacentre,
            address=each.address,
            newest=each.newest,
            openings=each.openings,
            retired=each.retired,
            witness=witness_logs(each.witness),
        )
        for each in slots
    ]
    return pb.ListSlotsReply(status=pb.STATUS_OK, slots=known, more=more)


def slots_of(reply: pb.ListSlotsReply) -> list[KnownSlot]:
    return [
        KnownSlot(e.slot, e.datacentre, e.address, e.newest, e.openings, e.retired, witness_of(e.witness))
        for e in reply.slots
    ]


def entries_reply(page: EntryPage) -> pb.EntriesReply:
    columns = {name: getattr(page, name).astype(kind, copy=False).tobytes() for name, kind in _COLUMNS}
    return pb.EntriesReply(
        status=pb.STATUS_OK, digests=page.digests, cursor=page.cursor, fenced=page.fenced, **columns
    )


def page_of(reply: pb.EntriesReply) -> EntryPage | Refusal:
    """Raises nothing: columns that do not fit together count as unknown."""
    n, rest = divmod(len(reply.digests), DIGEST_BYTES)
    if rest or any(len(getattr(reply, name)) != n * np.dtype(kind).itemsize for name, kind in _COLUMNS):
        return Refusal(Status.UNKNOWN, f"a page of {len(reply.digests)} bytes whose columns do not fit")
    times, tokens, kinds, tags, generations = (np.frombuffer(getattr(reply, name), kind) for name, kind in _COLUMNS)
    return EntryPage(reply.digests, times, tokens, kinds, tags, generations, reply.cursor, reply.fenced)


def below_reply(below: Below) -> pb.ClearBelowReply:
    return pb.ClearBelowReply(
        status=pb.STATUS_OK, applied=below.applied, count=below.count, xor=below.xor, reason=below.reason
    )


def below_of(reply: pb.ClearBelowReply) -> Below:
    return Below(reply.applied, reply.count, reply.xor, reply.reason)


def trace_reply(traced: Traced) -> pb.TraceReply:
    return pb.TraceReply(
        status=pb.STATUS_OK,
        answer=traced.answer,
        cleared=traced.cleared,
        token=traced.token,
        kind=traced.kind,
        generation=traced.generation,
        slot=traced.slot,
        datacentre=traced.datacentre,
        applied=traced.applied,
        replica=traced.replica,
        bounded=traced.boundary_ns is not None,
        boundary_ns=traced.boundary_ns or 0,
    )


def traced_of(reply: pb.TraceReply, shard: int) -> Traced | Refusal:
    """Raises nothing: an answer that nobody gives counts as unknown."""
    known = {int(each): each for each in (Answer.ABSENT, Answer.PRESENT, Answer.BELOW_BOUNDARY, Answer.REOPENED)}
    if reply.answer not in known:
        return Refusal(Status.UNKNOWN, f"shard {shard}: an answer {reply.answer} that this release does not know")
    return Traced(
        known[reply.answer],
        shard,
        reply.cleared,
        reply.token,
        reply.kind,
        reply.generation,
        reply.slot,
        reply.datacentre,
        reply.boundary_ns if reply.bounded else None,
        reply.replica,
        reply.applied,
    )
