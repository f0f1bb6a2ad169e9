"""A replica that is told to stand does so, whatever else arrives from the leader with the order."""

from pathlib import Path
from random import Random

import pytest

from photon.config.disk import RealDisk
from photon.idregistry.raft.codec import Append, Message, RequestVote, Stand
from photon.idregistry.raft.group import RaftGroup
from photon.idregistry.raft.options import RaftOptions
from tests.kit.clock import ManualClock
from tests.unit.idregistry.raft.cluster import Recorder

TERM = 5


def heartbeat(term: int = TERM) -> Append:
    return Append(term, 1, 1, 0, [])


@pytest.mark.parametrize(
    ("messages", "stands"),
    [
        ([Stand(TERM)], True),
        ([heartbeat(), Stand(TERM)], True),
        ([Stand(TERM), heartbeat()], True),
        ([Stand(TERM - 1), heartbeat()], False),
        ([Stand(TERM), heartbeat(TERM + 1)], False),
        ([heartbeat()], False),
    ],
)
def test_an_order_to_stand_is_followed(tmp_path: Path, messages: list[Message], stands: bool) -> None:
    clock = ManualClock(100 * 10**9)
    group = RaftGroup(
        number=1, name="a", peers=["b", "c"], directory=tmp_path, machine=Recorder(), disk=RealDisk(),
        clock=clock, random=Random(1), options=RaftOptions(), wake=lambda: None,
    )  # fmt: skip
    group.open()
    for peer in ("b", "c"):
        group.connect(peer, True)
    group.step([("b", heartbeat())])
    assert group.state().leader == "b"
    clock.ns += 50_000_000
    sent = group.step([("b", each) for each in messages]).messages
    clock.ns += 10_000_000
    sent += group.step([]).messages
    asked = [message for _, message in sent if isinstance(message, RequestVote)]
    assert [each.term for each in asked] == ([TERM + 1] * 2 if stands else [])
    group.close(healthy=True)
