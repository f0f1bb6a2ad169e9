"""Messages of wan.proto and back."""

import pytest

from photon.lab.wan import wan_pb2 as pb
from photon.lab.wan import wire


def test_a_fault_of_a_later_version_is_refused() -> None:
    request = pb.SetRequest.FromString(b"\x0a\x02\x20\x09")  # changes: {fault: 9}
    with pytest.raises(wire.WireError, match="fault 9 is unknown"):
        wire.changes(request)
