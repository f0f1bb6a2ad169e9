"""Converts changes and directions to and from messages of wan.proto."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from photon.config.clock import NS_PER_S
from photon.config.rpc import Service, WireError
from photon.lab.wan import wan_pb2 as pb
from photon.lab.wan.links import Change, DirectionNow, Fault

_FAULTS = dict(zip(Fault, (pb.FAULT_NONE, pb.FAULT_DROP, pb.FAULT_RESET, pb.FAULT_REFUSE), strict=True))
CONTROL = Service(pb.DESCRIPTOR, "Wan")


def set_request(changes: Iterable[Change]) -> pb.SetRequest:
    request = pb.SetRequest()
    for change in changes:
        message = request.changes.add(source=change.source, destination=change.destination)
        if change.delay_s is not None:
            message.delay_ns = round(change.delay_s * NS_PER_S)
        if change.fault is not None:
            message.fault = _FAULTS[change.fault]
    return request


def changes(request: pb.SetRequest) -> list[Change]:
    """The changes in a request. Raises WireError."""
    return [
        Change(
            each.source,
            each.destination,
            each.delay_ns / NS_PER_S if each.HasField("delay_ns") else None,
            _fault_in(each.fault) if each.HasField("fault") else None,
        )
        for each in request.changes
    ]


def list_reply(directions: Iterable[DirectionNow]) -> pb.ListReply:
    return pb.ListReply(
        directions=[
            pb.Direction(
                source=each.source,
                destination=each.destination,
                delay_ns=round(each.delay_s * NS_PER_S),
                fault=_FAULTS[each.fault],
                bytes=each.bytes,
                connections=each.connections,
            )
            for each in directions
        ]
    )


def directions(reply: pb.ListReply) -> Sequence[DirectionNow]:
    """The directions in a reply. Raises WireError."""
    return [
        DirectionNow(
            each.source,
            each.destination,
            each.delay_ns / NS_PER_S,
            _fault_in(each.fault),
            each.bytes,
            each.connections,
        )
        for each in reply.directions
    ]


def _fault_in(fault: int) -> Fault:
    try:
        return Fault(fault)
    except ValueError:
        raise WireError(f"fault {fault} is unknown; this version knows {', '.join(Fault.__members__)}") from None
