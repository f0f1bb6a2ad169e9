"""Replicas on threads: proposals, leaders, deadlines, fail-stop, restart, and that nothing is unpickled."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import pickle
import threading
import time
from pathlib import Path

import pytest

from photon.idregistry.raft.api import Applied, NotLeader, Unknown
from photon.idregistry.raft.driver import PINNED_VERSION
from photon.idregistry.raft.options import COMMAND_BYTES_MAX, RaftOptions, RaftStopped
from tests.unit.idregistry.raft.cluster import GROUP, Cluster, Recorder, host_of, propose, running, wait_until

TINY_LOG = RaftOptions(log_bytes=2_000, log_margin=200)


@pytest.fixture(autouse=True)
def _no_pickle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything here runs with unpickling forbidden."""

    def banned(*_: object, **__: object) -> None:
        raise AssertionError("unpickled")

    for name in ("loads", "load", "_loads", "_load", "Unpickler", "_Unpickler"):
        monkeypatch.setattr(pickle, name, banned)


def test_pysyncobj_is_the_version_the_driver_was_made_for() -> None:
    """The driver uses its private names: read driver.py and run thousands of seeds before moving the pin."""
    assert PINNED_VERSION == "0.3.17"
    assert importlib.metadata.version("pysyncobj") == PINNED_VERSION


def test_one_replica_leads_at_once_and_keeps_its_log(tmp_path: Path) -> None:
    never = RaftOptions(first_min=3000, first_max=4000, election_min=3000, election_max=4000)
    with Cluster(tmp_path, "a", never) as cluster:
        assert cluster.leader() == "a"
        outcome = propose(cluster.group("a"), b"x")
        assert outcome.result == (3, 1)  # behind the first entry and the leader's own
        state = cluster.group("a").state()
        assert (state.leader, state.term, state.applied, state.committed, state.healthy) == ("a", 1, 3, 3, True)
    assert not cluster.hosts["a"].healthy
    assert cluster.hosts["a"].failure is None
    with Cluster(tmp_path, "a") as cluster:
        cluster.leader()
        assert cluster.machines["a"].commands == [b"x"]
        assert cluster.group("a").state().term == 2


def test_one_replica_opens_no_socket_and_forks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def banned(*_: object) -> None:
        raise AssertionError("forked")

    monkeypatch.setattr(os, "fork", banned)
    with Cluster(tmp_path, "a", TINY_LOG) as cluster:
        cluster.leader()
        for number in range(100):
            propose(cluster.group("a"), b"%d" % number * 50)
        assert len(_opened_under(tmp_path)) == 1  # the journal
    assert not _opened_under(tmp_path)


def _opened_under(directory: Path) -> list[str]:
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
    return [path for path in found if path.startswith(str(directory))]


def test_the_log_is_compacted_and_a_restart_restores(tmp_path: Path) -> None:
    commands = [b"%d" % number * 20 for number in range(300)]
    with Cluster(tmp_path, "a", TINY_LOG) as cluster:
        cluster.leader()
        for command in commands:
            assert isinstance(propose(cluster.group("a"), command), Applied)
    here = tmp_path / "a" / f"group-{GROUP:05d}"
    assert (here / "snapshot").exists()
    assert sum(path.stat().st_size for path in here.glob("journal-*")) < 20_000
    with Cluster(tmp_path, "a", TINY_LOG) as cluster:
        wait_until(lambda: cluster.machines["a"].commands == commands)


def test_three_replicas_agree_and_name_their_leader(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        leader = cluster.leader()
        for number in range(20):
            assert isinstance(propose(cluster.group(leader), b"%d" % number), Applied)
        wait_until(lambda: all(len(m.commands) == 20 for m in cluster.machines.values()))
        follower = next(name for name in "abc" if name != leader)
        wait_until(lambda: cluster.group(follower).state().leader == leader)
        assert propose(cluster.group(follower), b"elsewhere") == NotLeader(leader)


def test_a_follower_that_was_away_gets_a_snapshot(tmp_path: Path) -> None:
    with Cluster(tmp_path, options=TINY_LOG) as cluster:
        leader = cluster.leader()
        away = next(name for name in "abc" if name != leader)
        cluster.hosts[away].stop()
        for number in range(100):
            assert isinstance(propose(cluster.group(leader), b"%d" % number * 50), Applied)
        cluster.start(away)
        wait_until(lambda: cluster.machines[away].commands == cluster.machines[leader].commands)
        assert (tmp_path / away / f"group-{GROUP:05d}" / "snapshot").exists()


def test_a_cut_off_leader_answers_unknown_and_another_takes_over(tmp_path: Path) -> None:
    with Cluster(tmp_path, options=RaftOptions(leader_patience=0.5)) as cluster:
        old = cluster.leader()
        cluster.cut(old)
        assert propose(cluster.group(old), b"lost", timeout=30) == Unknown()  # long before its deadline
        assert isinstance(propose(cluster.group(cluster.leader("abc".replace(old, ""))), b"kept"), Applied)
        cluster.hub.cut.clear()
        wait_until(lambda: all(m.commands == [b"kept"] for m in cluster.machines.values()))


@pytest.mark.parametrize("who", ["follower", "leader"])
def test_one_that_is_cut_off_names_no_leader_after_the_leaders_patience(tmp_path: Path, who: str) -> None:
    """Its look-ups grow stale."""
    patience = RaftOptions().leader_patience + RaftOptions().peer_silence
    with Cluster(tmp_path) as cluster:
        leader = cluster.leader()
        away = leader if who == "leader" else "abc".replace(leader, "")[0]
        rest = "abc".replace(away, "")
        wait_until(lambda: all(cluster.group(name).state().leader == leader for name in "abc"))
        cluster.cut(away)
        wait_until(lambda: cluster.group(away).state().leader is None, patience + 3)
        assert isinstance(propose(cluster.group(cluster.leader(rest)), b"meanwhile"), Applied)
        assert cluster.group(away).state().leader is None
        cluster.hub.cut.clear()
        wait_until(lambda: cluster.group(away).state().leader in tuple(rest))
        wait_until(lambda: cluster.machines[away].commands == [b"meanwhile"])


def test_the_deadline_and_stopping_answer_unknown(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        leader = cluster.leader()
        cluster.cut(*"abc")
        began = time.monotonic()
        assert propose(cluster.group(leader), b"x", timeout=0.2) == Unknown()
        assert 0.19 < time.monotonic() - began < 30
        outcomes: list[object] = []
        for _ in range(20):
            cluster.group(leader).propose(b"x", timeout=60, done=outcomes.append)
        cluster.hosts[leader].stop()
        assert outcomes == [Unknown()] * 20


def test_an_exception_stops_the_replica(tmp_path: Path) -> None:
    with Cluster(tmp_path, "a") as cluster:
        cluster.leader()
        assert propose(cluster.group("a"), b"poison") == Unknown()
        wait_until(lambda: not cluster.hosts["a"].healthy)
        assert isinstance(cluster.hosts["a"].failure, ValueError)
        state = cluster.group("a").state()
        assert not state.healthy
        assert not state.is_leader
        assert propose(cluster.group("a"), b"x") == NotLeader(None)


def test_a_callback_that_raises_stops_nothing(tmp_path: Path) -> None:
    with Cluster(tmp_path, "a") as cluster:
        cluster.leader()
        called = threading.Event()

        def done(_: object) -> None:
            called.set()
            raise RuntimeError("event loop is closed")

        cluster.group("a").propose(b"x", timeout=5, done=done)
        assert called.wait(10)
        assert isinstance(propose(cluster.group("a"), b"y"), Applied)


def test_a_command_too_large_is_refused(tmp_path: Path) -> None:
    with Cluster(tmp_path, "a") as cluster:
        cluster.leader()
        assert isinstance(propose(cluster.group("a"), bytes(COMMAND_BYTES_MAX)), Applied)
        with pytest.raises(ValueError, match="at most"):
            propose(cluster.group("a"), bytes(COMMAND_BYTES_MAX + 1))


def test_many_groups_share_the_thread(tmp_path: Path) -> None:
    machines = {number: Recorder() for number in range(64)}
    threads = threading.active_count()
    with running(host_of("a", tmp_path, machines)) as host:
        assert threading.active_count() == threads + 1
        wait_until(lambda: all(host.group(n).state().is_leader for n in machines))
        for number in machines:
            assert isinstance(propose(host.group(number), b"%d" % number), Applied)
        assert all(machine.commands == [b"%d" % number] for number, machine in machines.items())


@pytest.mark.parametrize("lost", ["replica", f"group-{GROUP:05d}", f"group-{GROUP:05d}/snapshot"])
def test_a_partly_lost_disk_is_refused_at_start(tmp_path: Path, lost: str) -> None:
    with Cluster(tmp_path, "a", TINY_LOG) as cluster:
        cluster.leader()
        for number in range(100):
            propose(cluster.group("a"), b"%d" % number * 50)
    (tmp_path / "a" / lost).rename(tmp_path / "gone")
    again = Cluster(tmp_path, "a", TINY_LOG)
    with pytest.raises(RaftStopped, match=r"missing|lost"):
        again.start("a")


def test_a_wiped_disk_stops_its_replica(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        leader = cluster.leader()
        assert isinstance(propose(cluster.group(leader), b"x"), Applied)
        wait_until(lambda: all(m.commands for m in cluster.machines.values()))
        wiped = "abc".replace(leader, "")[0]
        cluster.wipe(wiped, tmp_path)
        wait_until(lambda: cluster.hosts[wiped].failure is not None)
        assert "another disk" in str(cluster.hosts[wiped].failure)
        assert isinstance(propose(cluster.group(leader), b"y"), Applied)


def test_members_change_only_with_the_epoch(tmp_path: Path) -> None:
    with Cluster(tmp_path, "a"):
        pass
    with pytest.raises(RaftStopped, match="higher epoch"):
        Cluster(tmp_path, "ab").start("a")
    cluster = Cluster(tmp_path, "ab", RaftOptions(epoch=2))
    cluster.start("a").stop()
    with pytest.raises(RaftStopped, match="higher epoch"):
        Cluster(tmp_path, "a").start("a")
