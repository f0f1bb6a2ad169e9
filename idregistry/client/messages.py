"""Between registry.proto's messages and what is asked and answered, both ways."""

from __future__ import annotations

from typing import Any

import numpy as np

from photon.batch.ids import Ids, IdsError
from photon.batch.verdicts import Verdicts
from photon.idregistry import registry_pb2 as pb
from photon.idregistry.client.clock_messages import facts_of, status_of
from photon.idregistry.core import commands as c
from photon.idregistry.core.outcomes import Answered, Description, GroupFacts, Refusal, SlotClaim, Status
from photon.idregistry.core.state_checks import Checked

_GROUP_FIELDS = (
    *("group", "leader", "is_leader", "term", "applied", "ids", "batches", "batch_mean"),
    *("commit_ms_p50", "commit_ms_p99", "writable", "bytes", "overloaded"),
)
"""Of GroupFacts and GroupStatus alike."""


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


def refusal(refused: Refusal) -> dict[str, Any]:
    """As columns of any reply but a look-up's, which names no leader."""
    return {"status": refused.status.value, "leader_hint": refused.leader, "reason": refused.reason}


def ids_of(*columns: bytes) -> Ids | Refusal:
    """As ``Ids.decode``."""
    try:
        return Ids.decode(*columns)
    except IdsError as error:
        return Refusal(Status.REFUSED, str(error))


def owners(found: Verdicts) -> dict[str, Any]:
    """Outcomes and all of their owners but the tokens, as columns of a reply."""
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
    """Of n ids."""
    columns = (reply.answers, reply.owner_kinds, reply.owner_tags, reply.owner_datacentres, tokens)
    times = reply.owner_times or bytes(8 * n)
    if [len(each) for each in (*columns, times)] != [n, n, 4 * n, n, 8 * n, 8 * n]:
        return Refusal(Status.UNKNOWN, f"a reply of {len(reply.answers)} answers for {n} ids")
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


def description_reply(known: Description) -> pb.DescribeReply:
    groups = [
        pb.GroupStatus(
            **{name: getattr(each, name) for name in _GROUP_FIELDS},
            checked_form=each.checked.form if each.checked else 0,
            checked_entry=each.checked.index if each.checked else 0,
            checked_hash=each.checked.hash if each.checked else b"",
            alarms=each.alarms,
        )
        for each in known.groups
    ]
    return pb.DescribeReply(
        replica=known.replica,
        ranges=[pb.ShardRange(start_ns=r.start_ns, end_ns=r.end_ns, shards=r.shards) for r in known.ranges],
        groups=groups,
        id_rules=known.id_rules,
        removed=known.removed,
        config=known.config,
        clock=None if known.clock is None else status_of(known.clock),
    )


def described(reply: pb.DescribeReply) -> Description | Refusal:
    ranges = tuple(c.Range(each.start_ns, each.end_ns, tuple(each.shards)) for each in reply.ranges)
    try:
        c.check_ranges(ranges)
    except c.CommandError as error:
        return Refusal(Status.UNKNOWN, f"replica {reply.replica}: {error}")
    groups = [
        GroupFacts(
            **{name: getattr(each, name) for name in _GROUP_FIELDS},
            healthy=True,
            checked=Checked(each.checked_form, each.checked_entry, each.checked_hash) if each.checked_entry else None,
            alarms=tuple(each.alarms),
        )
        for each in reply.groups
    ]
    return Description(
        reply.replica, ranges, groups, dict(reply.id_rules), reply.config, facts_of(reply), tuple(reply.removed)
    )
