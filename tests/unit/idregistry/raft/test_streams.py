"""A stream of entries: most followers get several as one message, and apply small ones as one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.stages import ReplicaGroup
from photon.idregistry.raft.api import Applied
from photon.idregistry.raft.host import RaftHost
from photon.idregistry.raft.options import APPLIED_BYTES, APPLIED_FEW, RaftOptions
from tests.unit.idregistry.raft.test_replaying import RunRecorder

GAP_S = 0.02
HEARTBEAT_S = RaftOptions().heartbeat


@contextmanager
def replicas(directory: Path, names: str) -> Iterator[tuple[ReplicaGroup, dict[str, RunRecorder]]]:
    machines = {name: RunRecorder() for name in names}
    group = ReplicaGroup(directory, {name: {1: machine} for name, machine in machines.items()})
    try:
        group.rest(1.0)
        yield group, machines
    finally:
        group.close()


def stream(group: ReplicaGroup, entries: int, command: bytes = b"some") -> None:
    for _ in range(entries):
        group.propose(command)
        group.rest(GAP_S)


def followers(group: ReplicaGroup) -> list[RaftHost]:
    return [host for host in group.hosts if host is not group.leader]


def reached(group: ReplicaGroup) -> list[RaftHost]:
    """Followers that have the leader's last entry."""
    last = group.leader.group(1)._journal.last  # type: ignore[attr-defined]
    return [host for host in followers(group) if host.group(1)._journal.last == last]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("names", "asked"), [("ab", 1), ("abc", 1), ("abcde", 2)])
def test_in_a_stream_a_majority_gets_each_entry_at_once(tmp_path: Path, names: str, asked: int) -> None:
    with replicas(tmp_path, names) as (group, machines):
        stream(group, 20)
        counts = []
        for _ in range(10):
            stream(group, 1)
            counts.append(len(reached(group)))
        assert min(counts) == asked
        group.rest(2 * HEARTBEAT_S)
        assert len(reached(group)) == len(names) - 1
        assert [len(machine.commands) for machine in machines.values()] == [30] * len(names)
        assert all(isinstance(outcome, Applied) for outcome in group.outcomes)


def test_a_single_entry_reaches_all_at_once(tmp_path: Path) -> None:
    with replicas(tmp_path, "abc") as (group, machines):
        for number in range(1, 4):
            stream(group, 1)
            assert len(reached(group)) == 2
            assert [len(machine.commands) for machine in machines.values()] == [number] * 3
            group.rest(1.0)


def test_a_follower_that_falls_silent_is_replaced_within_a_heartbeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with replicas(tmp_path, "abc") as (group, _):
        stream(group, 20)
        while len(reached(group)) == 2:
            stream(group, 1)
        (silent,) = reached(group)
        monkeypatch.setattr(silent, "pump", lambda: float("inf"))
        done = len(group.outcomes)
        group.propose(b"waits")
        group.rest(1.5 * HEARTBEAT_S)
        assert len(group.outcomes) == done + 1
        for number in range(2, 12):
            stream(group, 1)
            assert len(group.outcomes) == done + number, "the other one is asked first now"


def test_followers_apply_small_entries_of_a_stream_as_one(tmp_path: Path) -> None:
    with replicas(tmp_path, "abc") as (group, machines):
        stream(group, 50)
        for machine, host in zip(machines.values(), group.hosts, strict=True):
            if host is group.leader:
                assert not machine.runs
            else:
                assert len(machine.runs) < 50 / (APPLIED_FEW / 2)
                assert 50 - len(machine.commands) <= 2 * APPLIED_FEW


def test_followers_apply_large_entries_at_once(tmp_path: Path) -> None:
    with replicas(tmp_path, "ab") as (group, machines):
        stream(group, 20, bytes(APPLIED_BYTES))
        assert min(len(machine.commands) for machine in machines.values()) == 19  # the last one's commit is not told
