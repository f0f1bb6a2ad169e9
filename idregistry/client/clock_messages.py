"""Between registry.proto's clock status and ClockFacts."""

from __future__ import annotations

from photon.config.interval_clock import Interval
from photon.idregistry import registry_pb2 as pb
from photon.idregistry.core.clock_offsets import ANYWHERE, Agreement, Range
from photon.idregistry.replica.clock_watch import ClockFacts


def status_of(facts: ClockFacts) -> pb.ClockStatus:
    """For Describe."""
    return pb.ClockStatus(
        now_ns=facts.now.now_ns,
        error_ns=facts.now.error_ns,
        synchronised=facts.now.synchronised,
        agreement=facts.agreement.value,  # type: ignore[arg-type]  # protobuf enums are plain numbers
        median=_offset(facts.middle),
        peers=[_offset(offset, peer) for peer, offset in sorted(facts.peers.items())],
        objection=facts.objection,
    )


def facts_of(reply: pb.DescribeReply) -> ClockFacts | None:
    """None: a replica of an older release says nothing of its clock."""
    if not reply.HasField("clock"):
        return None
    said = reply.clock
    known = {each.value for each in Agreement}
    return ClockFacts(
        Interval(said.now_ns, said.error_ns, said.synchronised),
        Agreement(said.agreement) if said.agreement in known else Agreement.UNCERTAIN,
        _range(said.median),
        {each.replica: _range(each) for each in said.peers},
        said.objection,
    )


def _offset(offset: Range, replica: str = "") -> pb.ClockOffset:
    if not offset.known:
        return pb.ClockOffset(replica=replica)
    return pb.ClockOffset(replica=replica, known=True, low_ns=offset.low_ns, high_ns=offset.high_ns)


def _range(offset: pb.ClockOffset) -> Range:
    return Range(offset.low_ns, offset.high_ns) if offset.known else ANYWHERE
