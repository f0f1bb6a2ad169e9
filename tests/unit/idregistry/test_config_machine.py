"""Slots, incarnations and set-up in the config group."""

from __future__ import annotations

import msgspec
import pytest

from photon.idregistry.api import Opened
from photon.idregistry.core import commands as c
from photon.idregistry.core.config_machine import INCARNATION_MAX, MAGIC, ConfigMachine
from photon.idregistry.core.shard_snapshot import SnapshotError
from photon.idregistry.core.sharding import single_range
from photon.idregistry.core.state_machine import MAX_DATACENTRES


@pytest.fixture
def machine() -> ConfigMachine:
    return ConfigMachine()


def do(machine: ConfigMachine, command: c.ConfigCommand) -> Opened | str:
    return machine.apply(1, c.encode(command))


def opened(machine: ConfigMachine, slot: str, last: int, nonce: bytes, datacentre: str = "dc1") -> Opened:
    result = do(machine, c.OpenSlot(slot, datacentre, last, nonce, "host:1"))
    assert isinstance(result, Opened)
    return result


def test_each_open_gets_a_number_of_its_own(machine: ConfigMachine) -> None:
    assert opened(machine, "a", 0, b"n1") == Opened(1, 1)
    assert opened(machine, "b", 0, b"n2", "dc2") == Opened(2, 2)
    assert opened(machine, "a", 1, b"n3") == Opened(3, 3)
    assert machine.witnessed("a").newest == 3


def test_the_same_nonce_learns_the_same_number(machine: ConfigMachine) -> None:
    assert opened(machine, "a", 0, b"n1") == opened(machine, "a", 0, b"n1") == Opened(1, 1)
    assert opened(machine, "a", 1, b"n2").incarnation == 2
    late = opened(machine, "a", 0, b"n1")  # a duplicate of the first, delayed
    assert (late.incarnation, late.newest) == (0, 2)


def test_a_copied_or_lost_directory_is_refused(machine: ConfigMachine) -> None:
    opened(machine, "a", 0, b"n1")
    for last in (0, 7):
        refused = opened(machine, "a", last, b"other")
        assert (refused.incarnation, refused.newest) == (0, 1)
        assert "opened as incarnation 1 by host:1" in refused.reason
    assert "never opened" in opened(machine, "new", 5, b"n").reason
    assert "belongs to datacentre dc1" in opened(machine, "a", 1, b"n", "dc2").reason


def test_a_retired_slot_stays_closed(machine: ConfigMachine) -> None:
    opened(machine, "a", 0, b"n1")
    assert do(machine, c.RetireSlot("a")) == ""
    assert "no slot" in str(do(machine, c.RetireSlot("z")))
    assert "retired" in opened(machine, "a", 1, b"n2").reason
    assert "retired" in opened(machine, "a", 0, b"n1").reason
    assert machine.retired() == ["a"]


def test_numbers_run_out_cleanly(machine: ConfigMachine) -> None:
    machine._last_incarnation = INCARNATION_MAX - 1
    assert opened(machine, "a", 0, b"n1").incarnation == INCARNATION_MAX
    assert "used up" in opened(machine, "a", INCARNATION_MAX, b"n2").reason


def test_there_are_so_many_datacentres_and_no_more(machine: ConfigMachine) -> None:
    for n in range(MAX_DATACENTRES):
        assert opened(machine, f"s{n}", 0, b"n", f"dc{n}").incarnation
    assert opened(machine, "of another", 0, b"n", "another").reason == f"more than {MAX_DATACENTRES} datacentres"
    assert opened(machine, "of one of them", 0, b"n", "dc7").incarnation


def test_the_first_set_up_wins(machine: ConfigMachine) -> None:
    assert do(machine, c.SetUp(single_range(4))) == ""
    assert do(machine, c.SetUp(single_range(4), {"clicks": b"rule one"})) == ""
    assert do(machine, c.SetUp(single_range(4))) == ""
    known = (single_range(4), {"clicks": b"rule one"})
    assert (machine.ranges, machine.id_rules) == known
    assert "4 shards, but the configuration says 8" in str(do(machine, c.SetUp(single_range(8), {"orders": b"x"})))
    assert "id rule" in str(do(machine, c.SetUp(single_range(4), {"clicks": b"rule two"})))
    assert (machine.ranges, machine.id_rules) == known


def test_a_new_join_is_added_and_a_changed_rule_of_a_known_one_is_refused_by_its_name(machine: ConfigMachine) -> None:
    one = c.SetUp(single_range(1), {"clicks": b"rule one"})
    both = c.SetUp(single_range(1), {"clicks": b"rule one", "orders": b"rule two"})
    assert machine.lacks(one)
    do(machine, one)
    assert (machine.lacks(one), machine.lacks(both), machine.conflict(both)) == (False, True, "")
    assert do(machine, both) == ""
    assert machine.id_rules == {"clicks": b"rule one", "orders": b"rule two"}
    changed = c.SetUp(single_range(1), {"clicks": b"rule one", "orders": b"rule 2", "views": b"rule three"})
    assert "of join orders" in machine.conflict(changed)
    assert do(machine, changed) == machine.conflict(changed)
    assert machine.id_rules == {"clicks": b"rule one", "orders": b"rule two"}
    assert do(machine, one) == ""  # a replica with the older file
    assert machine.id_rules == {"clicks": b"rule one", "orders": b"rule two"}


def test_joins_have_a_limit(machine: ConfigMachine) -> None:
    for start in range(0, c.MAX_JOINS, 256):
        assert do(machine, c.SetUp(single_range(1), {f"join {n}": b"r" for n in range(start, start + 256)})) == ""
    assert "at most" in str(do(machine, c.SetUp(single_range(1), {"one more": b"r"})))
    assert len(machine.id_rules) == c.MAX_JOINS
    assert max(map(len, machine.snapshot())) <= 1 << 20


def test_announcements_come_from_the_config_group(machine: ConfigMachine) -> None:
    opened(machine, "a", 0, b"n1")
    opened(machine, "b", 0, b"n2")
    opened(machine, "a", 1, b"n3")
    assert machine.announcement("a", [1]) == c.Announce("a", "dc1", [1, 3], "host:1")
    assert machine.announcement("a", [4]) is None
    assert "belongs to slot b" in str(machine.announcement("a", [2]))


def test_snapshot_round_trip(machine: ConfigMachine) -> None:
    do(machine, c.SetUp(single_range(3), {"b": b"rule", "a": b"other"}))
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
    assert other.id_rules == {"a": b"other", "b": b"rule"}
    for damaged in ([], chunks[:-1], chunks[1:], [b"\xc1"], [chunks[0], chunks[-1]]):
        with pytest.raises(SnapshotError, match="config snapshot"):
            ConfigMachine().restore(damaged)


def test_a_snapshot_of_another_release_says_so() -> None:
    head = {"k": "head", "magic": MAGIC, "version": 1}
    with pytest.raises(SnapshotError, match="config snapshot: version 1, this release reads version 3"):
        ConfigMachine().restore([msgspec.msgpack.encode(head)])
