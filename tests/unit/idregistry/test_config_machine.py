"""Slots, incarnations and set-up in the config group."""

from __future__ import annotations

import pytest

from photon.idregistry import commands as c
from photon.idregistry.api import Opened
from photon.idregistry.config_machine import INCARNATION_MAX, ConfigMachine
from photon.idregistry.shard_snapshot import SnapshotError
from photon.idregistry.sharding import single_range


def do(machine: ConfigMachine, command: c.ConfigCommand) -> Opened | str:
    return machine.apply(1, c.encode(command))


def opened(machine: ConfigMachine, slot: str, last: int, nonce: bytes, datacentre: str = "dc1") -> Opened:
    result = do(machine, c.OpenSlot(slot, datacentre, last, nonce, "host:1"))
    assert isinstance(result, Opened)
    return result


def test_each_open_gets_a_number_of_its_own() -> None:
    machine = ConfigMachine()
    assert opened(machine, "a", 0, b"n1") == Opened(1, 1)
    assert opened(machine, "b", 0, b"n2", "dc2") == Opened(2, 2)
    assert opened(machine, "a", 1, b"n3") == Opened(3, 3)
    assert machine.newest("a") == 3


def test_the_same_nonce_learns_the_same_number() -> None:
    machine = ConfigMachine()
    assert opened(machine, "a", 0, b"n1") == opened(machine, "a", 0, b"n1") == Opened(1, 1)
    assert opened(machine, "a", 1, b"n2").incarnation == 2
    late = opened(machine, "a", 0, b"n1")  # a duplicate of the first, delayed
    assert (late.incarnation, late.newest) == (0, 2)


def test_a_copied_or_lost_directory_is_refused() -> None:
    machine = ConfigMachine()
    opened(machine, "a", 0, b"n1")
    for last in (0, 7):
        refused = opened(machine, "a", last, b"other")
        assert (refused.incarnation, refused.newest) == (0, 1)
        assert "opened as incarnation 1 by host:1" in refused.reason
    assert "never opened" in opened(machine, "new", 5, b"n").reason
    assert "belongs to datacentre dc1" in opened(machine, "a", 1, b"n", "dc2").reason


def test_a_retired_slot_stays_closed() -> None:
    machine = ConfigMachine()
    opened(machine, "a", 0, b"n1")
    assert do(machine, c.RetireSlot("a")) == ""
    assert "no slot" in str(do(machine, c.RetireSlot("z")))
    assert "retired" in opened(machine, "a", 1, b"n2").reason
    assert "retired" in opened(machine, "a", 0, b"n1").reason
    assert machine.retired() == ["a"]


def test_numbers_run_out_cleanly() -> None:
    machine = ConfigMachine()
    machine._last_incarnation = INCARNATION_MAX - 1
    assert opened(machine, "a", 0, b"n1").incarnation == INCARNATION_MAX
    assert "used up" in opened(machine, "a", INCARNATION_MAX, b"n2").reason


def test_the_first_set_up_wins() -> None:
    machine = ConfigMachine()
    assert do(machine, c.SetUp(single_range(4))) == ""
    assert do(machine, c.SetUp(single_range(4), b"rule one")) == ""
    assert do(machine, c.SetUp(single_range(4))) == ""
    assert (machine.ranges, machine.id_rule) == (single_range(4), b"rule one")
    assert "4 shards, the configuration says 8" in str(do(machine, c.SetUp(single_range(8), b"rule one")))
    assert "id rule" in str(do(machine, c.SetUp(single_range(4), b"rule two")))
    assert (machine.ranges, machine.id_rule) == (single_range(4), b"rule one")


def test_announcements_come_from_the_config_group() -> None:
    machine = ConfigMachine()
    opened(machine, "a", 0, b"n1")
    opened(machine, "b", 0, b"n2")
    opened(machine, "a", 1, b"n3")
    assert machine.announcement("a", [1]) == c.Announce("a", "dc1", [1, 3], "host:1")
    assert machine.announcement("a", [4]) is None
    assert "belongs to slot b" in str(machine.announcement("a", [2]))


def test_snapshot_round_trip() -> None:
    machine = ConfigMachine()
    do(machine, c.SetUp(single_range(3), b"rule"))
    for i in range(600):
        opened(machine, f"slot {i}", 0, b"n")
    opened(machine, "slot 5", 6, b"m")
    do(machine, c.RetireSlot("slot 7"))
    chunks = list(machine.snapshot())
    assert max(map(len, chunks)) <= 1 << 20
    other = ConfigMachine()
    other.restore(chunks)
    assert list(other.snapshot()) == chunks
    assert opened(other, "slot 5", 601, b"k").incarnation == 602
    for damaged in ([], chunks[:-1], chunks[1:], [b"\xc1"], [chunks[0], chunks[-1]]):
        with pytest.raises(SnapshotError, match="config snapshot"):
            ConfigMachine().restore(damaged)
