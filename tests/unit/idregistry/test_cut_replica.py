"""A replica that is cut off says so: its look-ups grow stale."""

from __future__ import annotations

from pathlib import Path

import pytest

from photon.idregistry.raft.api import Applied
from photon.idregistry.raft.options import RaftOptions
from tests.unit.idregistry.raft.cluster import Cluster, propose, wait_until


@pytest.mark.parametrize("who", ["follower", "leader"])
def test_one_that_is_cut_off_names_no_leader_after_the_leaders_patience(tmp_path: Path, who: str) -> None:
    patience = RaftOptions().leader_patience + RaftOptions().peer_silence
    with Cluster(tmp_path) as cluster:
        leader = cluster.leader()
        away = leader if who == "leader" else next(name for name in "abc" if name != leader)
        rest = "".join(name for name in "abc" if name != away)
        wait_until(lambda: all(cluster.group(name).state().leader == leader for name in "abc"))
        cut = {(away, other) for other in rest} | {(other, away) for other in rest}
        cluster.hub.cut |= cut
        wait_until(lambda: cluster.group(away).state().leader is None, patience + 3)
        assert isinstance(propose(cluster.group(cluster.leader(rest)), b"meanwhile"), Applied)
        assert cluster.group(away).state().leader is None
        cluster.hub.cut -= cut
        wait_until(lambda: cluster.group(away).state().leader in tuple(rest))
        wait_until(lambda: cluster.machines[away].commands == [b"meanwhile"])
