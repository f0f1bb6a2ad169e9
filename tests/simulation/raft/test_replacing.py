"""A replaced replica loses nothing; without the barrier, or if the old replica is heard again, it does."""

from __future__ import annotations

import msgspec
import pytest

from photon.idregistry.raft.identity import Identity
from photon.idregistry.raft.transport import Hello, Refused
from tests.simulation.raft.replacing import NEW, Skips, run
from tests.simulation.world.noticed import notice
from tests.simulation.world.seeds import seeds, share
from tests.simulation.world.violation import Violation, ViolationInCallback

FOUND = (Violation, ViolationInCallback)


def test_nothing_acknowledged_is_lost_when_a_replica_is_replaced() -> None:
    for seed in share(seeds(60), 4, least=8):
        try:
            world = run(seed)
        except (*FOUND, AssertionError) as found:
            pytest.fail(f"seed {seed}: {found}; PHOTON_SIM_SEED={seed} replays it")
        assert world.nodes[NEW].up


def test_without_the_barrier_something_is() -> None:
    """The ablation: at once, with an empty replica."""
    notice("replaced replica: no barrier", range(300), lambda seed: run(seed, Skips(barrier=True)), ".", FOUND)


def test_where_the_old_one_is_listened_to_something_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is started again although its disk was declared lost: it may be in a majority of the previous epoch."""
    check = Identity.check

    def listening(identity: Identity, hello: Hello) -> Refused | None:
        noted = identity._record.following
        identity._record = msgspec.structs.replace(identity._record, following=None)
        try:
            return check(identity, hello)
        finally:
            identity._record = msgspec.structs.replace(identity._record, following=noted)

    monkeypatch.setattr(Identity, "check", listening)
    notice("replaced replica: the old one is listened to", range(300), run, ".", FOUND)
