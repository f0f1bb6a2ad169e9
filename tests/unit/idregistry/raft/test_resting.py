"""Idle groups rest, and wake when something happens to them or to their leader."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.stages import ReplicaGroup
from photon.idregistry.raft.api import Applied
from photon.idregistry.raft.group import RaftGroup
from photon.idregistry.raft.options import RaftOptions
from tests.unit.idregistry.raft.cluster import Cluster, Recorder, propose, wait_until

OPTIONS = RaftOptions(rest_after=0.1, ping=0.1, peer_silence=2.0)  # longer than a busy machine keeps a thread waiting


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """One command is committed, and all rest."""
    with Cluster(tmp_path, options=OPTIONS) as cluster:
        committed(cluster, b"one")
        wait_until(lambda: rests(cluster))
        yield cluster


def rests(cluster: Cluster, names: str = "abc") -> bool:
    groups = [cluster.group(name) for name in names]
    return all(isinstance(group, RaftGroup) and group.resting for group in groups)


def committed(cluster: Cluster, command: bytes) -> None:
    """Proposed wherever it leads, until it is."""
    deadline = time.monotonic() + 60
    while not isinstance(propose(cluster.group(cluster.leader()), command), Applied):
        assert time.monotonic() < deadline


def test_a_quiet_group_rests_and_a_proposal_wakes_it(cluster: Cluster) -> None:
    leader = cluster.leader()
    for n in range(3):
        wait_until(lambda: rests(cluster))
        terms = {cluster.group(name).state().term for name in "abc"}
        assert len(terms) == 1
        assert isinstance(propose(cluster.group(leader), b"more %d" % n), Applied)
        assert {cluster.group(name).state().term for name in "abc"} == terms
    wait_until(lambda: all(len(machine.commands) == 4 for machine in cluster.machines.values()))


def test_resting_replicas_send_no_more_than_signs_of_life(cluster: Cluster) -> None:
    sent: list[str] = []
    for name, host in cluster.hosts.items():
        receive = host.receive

        def counted(hello, messages, receive=receive, name=name):  # type: ignore[no-untyped-def]
            sent.extend(name for _ in messages)
            return receive(hello, messages)

        host.receive = counted  # type: ignore[method-assign]
    time.sleep(0.6)  # five heartbeats' time
    assert sent == []
    assert rests(cluster)


def test_a_dead_leader_of_a_resting_group_is_replaced(cluster: Cluster) -> None:
    leader = cluster.leader()
    cluster.hosts[leader].stop()
    others = "abc".replace(leader, "")
    cluster.leader(others)
    wait_until(lambda: rests(cluster, others))  # with one missing, as the existing ones have everything
    cluster.start(leader)
    committed(cluster, b"two")
    wait_until(lambda: all(machine.commands == [b"one", b"two"] for machine in cluster.machines.values()))
    wait_until(lambda: rests(cluster))


def test_a_leader_that_restarts_at_once_finds_no_sleepers(cluster: Cluster) -> None:
    """Its process is hardly missed, but it no longer leads."""
    for n in range(3):
        committed(cluster, b"%d" % n)
        wait_until(lambda: rests(cluster))
        leader = cluster.leader()
        cluster.hosts[leader].stop()
        cluster.start(leader)
        committed(cluster, b"after %d" % n)
    wait_until(lambda: len({tuple(machine.commands) for machine in cluster.machines.values()}) == 1)


def test_a_follower_that_restarts_at_once_learns_who_leads(cluster: Cluster) -> None:
    leader = cluster.leader()
    term = cluster.group(leader).state().term
    follower = "abc".replace(leader, "")[0]
    cluster.hosts[follower].stop()
    cluster.start(follower)
    wait_until(lambda: cluster.group(follower).state().leader == leader)
    assert cluster.group(leader).state().term == term
    wait_until(lambda: rests(cluster))
    assert cluster.machines[follower].commands == [b"one"]


def test_a_resting_leader_that_is_cut_off_gives_way(cluster: Cluster) -> None:
    leader = cluster.leader()
    cluster.cut(leader)
    assert isinstance(propose(cluster.group(cluster.leader("abc".replace(leader, ""))), b"two"), Applied)
    wait_until(lambda: not cluster.group(leader).state().is_leader)
    cluster.hub.cut.clear()
    wait_until(lambda: all(machine.commands == [b"one", b"two"] for machine in cluster.machines.values()))
    wait_until(lambda: rests(cluster))


def test_a_resting_replica_that_falls_silent_is_missed_when_its_time_is_over(tmp_path: Path) -> None:
    """In simulated time: no turn is taken at any other moment, so the host must have planned one for this."""
    options = RaftOptions()
    replicas = ReplicaGroup(tmp_path, {name: {1: Recorder()} for name in "abc"})
    replicas.rest(10.0)
    leader = replicas.leader
    others = [host.group(1) for host in replicas.hosts if host is not leader]
    leader._network.send = lambda peer, messages: None  # type: ignore[union-attr, method-assign]
    replicas.rest(options.peer_silence - options.ping - 0.1)  # its last sign may be that old
    assert all(group.hears(leader._name) for group in others)
    replicas.rest(options.ping + 0.15)
    assert not any(group.hears(leader._name) for group in others)
    replicas.rest(2 * options.election_max)
    assert any(group.state().is_leader for group in others)
    replicas.close()
