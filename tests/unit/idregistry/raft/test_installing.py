"""A leader's snapshot is read a few chunks a step, and takes effect at once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from photon.idregistry.raft.codec import NO_OP, AppendAck, Chunk, ChunkAck
from photon.idregistry.raft.driver import Core
from photon.idregistry.raft.journal import Journal
from photon.idregistry.raft.snapshot import SnapshotStore
from photon.idregistry.raft.snapshot_install import CHUNKS_A_STEP, Installer
from tests.simulation.world.disk import SimulatedDisk

HERE, THERE = Path("/raft/here"), Path("/raft/there")
STATE = [b"chunk %d" % n for n in range(3 * CHUNKS_A_STEP)]


class Replica:
    """The parts of its group that an installer uses."""

    def __init__(self) -> None:
        self.at = 3

    def committed(self) -> int:
        return self.at

    def jump(self, index: int) -> None:
        self.at = index


class Machine:
    """Restores at once."""

    def __init__(self) -> None:
        self.state: list[bytes] = [b"old"]

    def apply(self, index: int, command: bytes) -> Any:
        raise AssertionError("nothing is applied here")

    def snapshot(self) -> Iterable[bytes]:
        return self.state

    def restore(self, chunks: Iterable[bytes]) -> None:
        self.state = list(chunks)


class Patient(Machine):
    """Restores chunk by chunk."""

    def restoring(self) -> Beside:
        return Beside(self)


class Beside:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.taken: list[bytes] = []

    def take(self, chunk: bytes) -> None:
        assert self.machine.state == [b"old"]
        self.taken.append(chunk)

    def finish(self) -> None:
        self.machine.state = self.taken


class World:
    def __init__(self, machine: Machine) -> None:
        self.disk = SimulatedDisk(Random(3))
        for directory in (HERE, THERE):
            self.disk.make_dir(directory)
        self.source, self.store = SnapshotStore(THERE, self.disk), SnapshotStore(HERE, self.disk)
        self.journal = Journal(HERE, self.disk)
        for index in range(1, 4):
            self.journal.add(NO_OP, index, 1)
        self.replica, self.machine = Replica(), machine
        self.installer = Installer(self.store, self.journal, machine, cast(Core, self.replica))

    def ends(self) -> list[Any]:
        """The answer after some steps without one."""
        while not (answers := self.installer.step()):
            pass
        return answers

    def arrives(self, index: int = 9) -> None:
        self.source.begin(index, 2, STATE)
        while not self.source.step():
            pass
        info = self.source.info
        assert info is not None
        offset = 0
        while offset < info.size:
            self.last = Chunk(5, info.index, info.term, offset, info.size, self.source.read(offset))
            answers = self.installer.receive("a", self.last)
            offset = info.size
            for _, answer in answers:
                assert isinstance(answer, ChunkAck)
                offset = answer.offset


@pytest.mark.parametrize("machine", [Machine, Patient])
def test_it_takes_effect_at_once(machine: type[Machine]) -> None:
    world = World(machine())
    assert world.installer.step() == []
    world.arrives()
    steps = 0
    while not (answers := world.installer.step()):
        steps += 1
        assert world.installer.busy
        assert (world.machine.state, world.replica.at, world.journal.last) == ([b"old"], 3, 3)
        assert world.installer.receive("a", world.last) == []  # its last piece was sent again
    assert steps == 3
    assert answers == [("a", AppendAck(5, 10, True))]
    assert (world.machine.state, world.replica.at, world.journal.last) == (STATE, 9, 9)
    assert not world.installer.busy
    assert list(SnapshotStore(HERE, world.disk).chunks()) == STATE


@pytest.mark.parametrize("machine", [Machine, Patient])
def test_a_damaged_one_changes_nothing(machine: type[Machine]) -> None:
    world = World(machine())
    world.arrives()
    assert world.installer.step() == []
    path = HERE / "snapshot.incoming"
    world.disk.corrupt(path, world.disk.size(path) - 30)
    assert world.ends() == [("a", ChunkAck(5, 9, 0, damaged=True))]
    assert (world.machine.state, world.replica.at) == ([b"old"], 3)
    assert not world.installer.busy
    world.arrives()  # from the beginning
    assert world.ends() == [("a", AppendAck(5, 10, True))]
    assert world.machine.state == STATE


def test_one_that_is_overtaken_is_given_up() -> None:
    world = World(Patient())
    world.arrives()
    assert world.installer.step() == []
    world.replica.at = 9  # the log came to it by itself
    assert world.installer.step() == []
    assert not world.installer.busy
    assert world.machine.state == [b"old"]


def test_a_newer_one_takes_its_place() -> None:
    world = World(Patient())
    world.arrives()
    assert world.installer.step() == []
    world.arrives(index=12)
    assert world.ends() == [("a", AppendAck(5, 13, True))]
    assert world.replica.at == 12
