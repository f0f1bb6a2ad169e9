"""Between registry.proto's messages and outcomes, on the caller's side."""

from __future__ import annotations

from typing import Any

import numpy as np

from photon.idregistry import commands as c
from photon.idregistry import registry_pb2 as pb
from photon.idregistry.clocks.wire import facts_of
from photon.idregistry.outcomes import Description, GroupFacts, OwnerColumns, Refusal, SlotClaim, Status
from photon.idregistry.state_checks import Checked


def slot_name(claim: SlotClaim) -> pb.SlotName:
    slot = claim.slot
    return pb.SlotName(
        slot=slot.name, datacentre=slot.datacentre, address=slot.address, incarnations=claim.incarnations
    )


def refused(reply: Any) -> Refusal | None:
    """Replies of all kinds have a status and a reason; a status of a newer release counts as unknown."""
    if reply.status == pb.STATUS_OK:
        return None
    known = {status.value for status in Status} - {Status.UNSPECIFIED}
    status = Status(reply.status) if reply.status in known else Status.UNKNOWN
    return Refusal(status, reply.reason, getattr(reply, "leader_hint", ""))


def owners(reply: Any, n: int, tokens: bytes) -> OwnerColumns | Refusal:
    columns = (reply.answers, reply.owner_kinds, reply.owner_tags, reply.owner_datacentres, tokens)
    times = reply.owner_times or bytes(8 * n)
    if [len(each) for each in (*columns, times)] != [n, n, 4 * n, n, 8 * n, 8 * n]:
        return Refusal(Status.UNKNOWN, f"a reply of {len(reply.answers)} answers for {n} ids")
    return OwnerColumns(
        np.frombuffer(reply.answers, np.uint8),
        np.frombuffer(tokens, "<u8"),
        np.frombuffer(reply.owner_kinds, np.uint8),
        np.frombuffer(reply.owner_tags, "<u4"),
        np.frombuffer(reply.owner_datacentres, np.uint8),
        tuple(reply.datacentres),
        np.frombuffer(times, "<i8"),
    )


def described(reply: pb.DescribeReply) -> Description | Refusal:
    ranges = tuple(c.Range(each.start_ns, each.end_ns, tuple(each.shards)) for each in reply.ranges)
    try:
        c.check_ranges(ranges)
    except c.CommandError as error:
        return Refusal(Status.UNKNOWN, f"replica {reply.replica}: {error}")
    groups = [
        GroupFacts(
            group=each.group,
            leader=each.leader,
            is_leader=each.is_leader,
            term=each.term,
            applied=each.applied,
            healthy=True,
            ids=each.ids,
            batches=each.batches,
            batch_mean=each.batch_mean,
            commit_ms_p50=each.commit_ms_p50,
            commit_ms_p99=each.commit_ms_p99,
            writable=each.writable,
            bytes=each.bytes,
            overloaded=each.overloaded,
            checked=Checked(each.checked_form, each.checked_entry, each.checked_hash) if each.checked_entry else None,
            alarms=tuple(each.alarms),
        )
        for each in reply.groups
    ]
    return Description(
        reply.replica, ranges, groups, dict(reply.id_rules), reply.config, facts_of(reply), tuple(reply.removed)
    )
