"""Messages of wan.proto and back."""

import pytest

from photon.lab.wan import wan_pb2 as pb
from photon.lab.wan import wire
from photon.lab.wan.links import Change, DirectionNow, Fault


def test_changes_go_over_the_wire_with_what_they_leave_out() -> None:
    changes = [
        Change("east", "west"),
        Change("east", "west", delay_s=0.0),
        Change("east", "west", delay_s=0.05, fault=Fault.NONE),
        *(Change("west", "east", fault=fault) for fault in Fault),
    ]
    request = pb.SetRequest.FromString(wire.set_request(changes).SerializeToString())
    assert wire.changes(request) == changes


def test_directions_go_over_the_wire() -> None:
    directions = [DirectionNow("east", "west", 0.05, fault, 1 << 40, 7) for fault in Fault]
    assert wire.directions(pb.ListReply.FromString(wire.list_reply(directions).SerializeToString())) == directions


def test_a_fault_of_a_later_version_is_refused() -> None:
    request = pb.SetRequest.FromString(b"\x0a\x02\x20\x09")  # changes: {fault: 9}
    with pytest.raises(wire.WireError, match="fault 9 is unknown"):
        wire.changes(request)
