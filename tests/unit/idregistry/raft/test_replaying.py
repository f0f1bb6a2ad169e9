"""A start over a log of many small entries: it is short, and the replica is not silent meanwhile."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from photon.config.clock import SystemClock
from photon.idregistry.raft.api import Applied
from photon.idregistry.raft.host import RaftHost
from photon.idregistry.raft.options import APPLIED_AT_ONCE, ENTRY_COST, RaftOptions
from tests.unit.idregistry.raft.cluster import GROUP, Cluster, Recorder, host_of, propose, wait_until

COMMANDS = 3 * APPLIED_AT_ONCE + 7


class RunRecorder(Recorder):
    """Applies runs, and keeps how long they were."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[int] = []

    def apply_run(self, first: int, commands: Sequence[bytes]) -> None:
        self.runs.append(len(commands))
        for index, command in enumerate(commands, first):
            self.apply(index, command)


def written(directory: Path, options: RaftOptions) -> None:
    """A single replica has proposed COMMANDS, one entry each, and ended."""
    with Cluster(directory, "a", options) as cluster:
        cluster.leader()
        for number in range(COMMANDS):
            propose(cluster.group("a"), b"%d" % number)


def opened(directory: Path, machine: Recorder) -> RaftHost:
    """The same replica again, without a thread: the test pumps."""
    host = host_of("a", directory / "a", {GROUP: machine})
    host.open()
    return host


def test_a_step_replays_a_bounded_number_of_entries(tmp_path: Path) -> None:
    written(tmp_path, RaftOptions())
    machine = Recorder()
    host = opened(tmp_path, machine)
    applied = [0]

    def all_there() -> bool:
        due = host.pump()
        applied.append(len(machine.commands))
        if 0 < applied[-1] < COMMANDS:
            assert due <= SystemClock().monotonic(), "there is more to do at once"
        return applied[-1] == COMMANDS

    wait_until(all_there)
    host.close()
    assert max(after - before for before, after in itertools.pairwise(applied)) <= APPLIED_AT_ONCE
    assert machine.commands == [b"%d" % number for number in range(COMMANDS)]


def test_what_nobody_waits_for_is_applied_in_runs(tmp_path: Path) -> None:
    written(tmp_path, RaftOptions())
    machine = RunRecorder()
    host = opened(tmp_path, machine)
    wait_until(lambda: host.pump() > 0 and len(machine.commands) == COMMANDS)
    host.close()
    assert machine.commands == [b"%d" % number for number in range(COMMANDS)]
    assert sum(machine.runs) >= COMMANDS - APPLIED_AT_ONCE
    assert max(machine.runs) <= APPLIED_AT_ONCE


def test_a_proposer_has_the_result_of_its_own_entry(tmp_path: Path) -> None:
    with Cluster(tmp_path, machine=RunRecorder) as cluster:
        group = cluster.group(cluster.leader())
        outcomes = [propose(group, b"%d" % number) for number in range(20)]
        assert [outcome.result[1] for outcome in outcomes if isinstance(outcome, Applied)] == list(range(1, 21))
        machines = cluster.machines.values()
        wait_until(lambda: all(len(machine.commands) == len(outcomes) for machine in machines))
        assert len({tuple(machine.commands) for machine in machines}) == 1


def test_many_small_entries_are_reason_for_a_snapshot(tmp_path: Path) -> None:
    written(tmp_path, RaftOptions(log_bytes=ENTRY_COST * APPLIED_AT_ONCE, log_margin=0))
    machine = Recorder()
    host = opened(tmp_path, machine)
    restored = len(machine.commands)
    host.close()
    assert restored > 0
    assert COMMANDS - restored <= 2 * APPLIED_AT_ONCE
