"""A replaced replica takes nothing away; without the barrier it does, and where it is listened to again."""

from __future__ import annotations

import msgspec
import pytest

from photon.idregistry.raft.identity import Identity
from photon.idregistry.raft.transport import Hello, Refused
from tests.simulation.raft.replacing import NEW, Skips, run
from tests.simulation.world.cluster import Violation, ViolationInCallback
from tests.simulation.world.seeds import seeds, share


def test_nothing_acknowledged_is_lost_when_a_replica_is_replaced() -> None:
    for seed in share(seeds(60), 4, least=8):
        try:
            world = run(seed)
        except (Violation, ViolationInCallback, AssertionError) as found:
            pytest.fail(f"seed {seed}: {found}; PHOTON_SIM_SEED={seed} replays it")
        assert world.nodes[NEW].up


def test_without_the_barrier_something_is() -> None:
    """The ablation: at once, with an empty replica."""
    found = 0
    for seed in range(300):
        try:
            run(seed, Skips(barrier=True))
        except (Violation, ViolationInCallback):
            found += 1
            break
    assert found


def test_where_the_old_one_is_listened_to_something_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is started again though its disk was said to be gone: it may be in a majority of the epoch before."""
    check = Identity.check

    def listening(identity: Identity, hello: Hello) -> Refused | None:
        noted = identity._record.following
        identity._record = msgspec.structs.replace(identity._record, following=None)
        try:
            return check(identity, hello)
        finally:
            identity._record = msgspec.structs.replace(identity._record, following=noted)

    monkeypatch.setattr(Identity, "check", listening)
    found = 0
    for seed in range(13, 300):
        try:
            run(seed)
        except (Violation, ViolationInCallback):
            found += 1
            break
    assert found
