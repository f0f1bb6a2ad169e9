"""A shard and a config group that come from a backup."""

from __future__ import annotations

import numpy as np
import pytest

from photon.idregistry.api import Answer, Opened
from photon.idregistry.core import commands as c
from photon.idregistry.core.config_machine import INCARNATION_MAX, ConfigMachine
from photon.idregistry.core.id_bucket import OWNED
from photon.idregistry.core.restored_shard import CLOSED
from photon.idregistry.core.shard_snapshot import SnapshotError, held_head, read_shard
from photon.idregistry.core.state_machine import ShardMachine
from tests.unit.idregistry.model import BASE_TIME, Row, digest, reopen, time_of
from tests.unit.idregistry.shard import Shard

A = Answer


def restored(shard: Shard) -> Shard:
    """The same shard, from its backup."""
    first, *rest = list(shard.machine.snapshot())
    shard.machine = ShardMachine()
    shard.machine.restore([held_head(first), *rest])
    return shard


@pytest.fixture
def shard() -> Shard:
    """From a backup with one id."""
    shard = Shard()
    shard.insert(Row(1))
    return restored(shard)


def again(*rows: Row, slot: str = "a", datacentre: str = "dc1", cleared: bool = False) -> c.RegisterAgain:
    return c.RegisterAgain(
        slot,
        datacentre,
        b"".join(digest(row.id) for row in rows),
        np.array([time_of(row.id) for row in rows], "<i8").tobytes(),
        np.array([row.token for row in rows], "<u8").tobytes(),
        np.ones(len(rows), np.uint8).tobytes(),
        bytes(4 * len(rows)),
        cleared=cleared,
    )


def test_while_closed_nothing_new_is_given_away(shard: Shard) -> None:
    assert shard.machine.closed
    assert shard.insert(Row(1), Row(2), Row(3, incarnation=2)) == [CLOSED] * 3
    assert shard.do(reopen([Row(1)])).tolist() == [CLOSED]
    assert shard.clear(Row(1)) == [A.CLEARED]
    shard.reload()
    assert shard.machine.closed
    assert shard.machine.ids == 1


def test_what_was_written_since_is_registered_under_its_own_token(shard: Shard) -> None:
    since = Row(2, incarnation=7, batch=3)
    assert shard.do(again(Row(1), since)).tolist() == [A.COMMITTED] * 2
    assert shard.do(again(since)).tolist() == [A.COMMITTED]
    assert shard.do(again(Row(1), Row(4), cleared=True)).tolist() == [A.DONE] * 2
    assert shard.do(again(Row(4, batch=9))).tolist() == [A.TAKEN]
    assert shard.do(c.OpenShard()) == ""
    assert not shard.machine.closed
    shard.do(c.Announce("a", "dc1", [8]))
    assert shard.insert(since, callers=[(8, 1)]) == [A.COMMITTED]
    assert shard.insert(Row(2, incarnation=8), Row(5, incarnation=8)) == [A.TAKEN, A.COMMITTED]
    assert shard.do(c.OpenShard()) == ""  # asked again
    assert shard.do(c.OpenShard(boundary_ns=5)) == "shard 1 is already open"
    assert "is open" in shard.do(again(Row(6)))


def test_an_id_that_was_reopened_before_the_backup_and_taken_after_it_stays_taken() -> None:
    shard = Shard()
    shard.insert(Row(1), Row(2))
    assert shard.do(reopen([Row(1), Row(2)])).tolist() == [A.REOPENED] * 2
    restored(shard)
    by_another = Row(1, incarnation=2, batch=4)
    assert shard.do(again(by_another, slot="b", datacentre="dc2")).tolist() == [A.COMMITTED]
    assert shard.do(again(Row(2))).tolist() == [A.TAKEN]  # its former owner's record is the reason for reopening it
    shard.do(c.OpenShard())
    assert shard.insert(Row(1, incarnation=1, generation=1), Row(2, generation=1)) == [A.TAKEN, A.COMMITTED]


def test_an_accepted_boundary_refuses_what_nobody_registered_again(shard: Shard) -> None:
    assert shard.do(c.OpenShard(boundary_ns=BASE_TIME + 1_000)) == ""
    assert shard.insert(Row(1), Row(2), Row(500)) == [A.COMMITTED, A.BELOW_BOUNDARY, A.COMMITTED]


def test_refusals_of_registering_again() -> None:
    shard = restored(Shard())
    assert shard.do(again(Row(1, incarnation=2))) == "incarnation 2 belongs to slot b, not to a"
    shard.do(c.Boundary(10**6))
    assert shard.do(again(Row(1))).tolist() == [A.BELOW_BOUNDARY]
    assert shard.machine.ids == 0
    with pytest.raises(c.CommandError, match="times: 0 bytes for 1 ids"):
        c.decode_shard(c.encode(c.RegisterAgain("a", "dc1", digest(1), b"", b"", b"", b"")))


def test_a_mark_keeps_the_state_as_of_its_entry() -> None:
    shard = Shard()
    shard.insert(Row(1), Row(2))
    index = shard.do(c.Barrier(b"mark"))
    assert index == shard.index
    shard.insert(Row(3))
    shard.clear(Row(1))
    assert shard.machine.marks.take(b"other") is None
    marked = shard.machine.marks.take(b"mark")
    assert marked.applied == index
    assert shard.machine.marks.take(b"mark") is None
    then = read_shard(marked.chunks)
    assert (then.applied, len(then.table)) == (index, 2)
    assert then.table.get(digest(1)).state == OWNED
    shard.do(c.Barrier(b"next"))
    shard.machine.marks.take(b"next")
    assert shard.machine.marks.mark == b""


# -- the config group -----------------------------------------------------------------------------------------------
def opened(machine: ConfigMachine, slot: str, last: int, nonce: bytes) -> Opened:
    found = machine.apply(1, c.encode(c.OpenSlot(slot, "dc1", last, nonce)))
    assert isinstance(found, Opened)
    return found


def test_incarnations_given_out_after_the_backup_are_not_given_again() -> None:
    machine = ConfigMachine()
    assert opened(machine, "a", 0, b"1").incarnation == 1
    later = ConfigMachine()
    later.restore(list(machine.snapshot()))
    later.begin_restored(100)
    again = ConfigMachine()
    again.restore(list(later.snapshot()))
    # Slot a was opened twice after the backup, as 2 and 4, slot b as 3.
    assert again.announcement("a", [4]) is not None
    assert opened(again, "a", 4, b"2").incarnation == 102
    assert again.announcement("a", [1, 2, 4, 102]).incarnations == [1, 2, 4, 102]
    assert opened(again, "b", 4, b"3").reason  # it is slot a's
    assert opened(again, "b", 3, b"3").incarnation == 103
    assert opened(again, "a", 200, b"4").reason  # nobody can have been given that
    assert opened(again, "c", 0, b"5").incarnation == 104
    # Restored once more, from an earlier backup: ids given out after the first may still come.
    again.begin_restored(100)
    assert again.announcement("c", [5, 104]) is not None
    assert again.announcement("unheard-of", [5]) is None


def test_a_restore_that_would_use_up_all_incarnations_is_refused() -> None:
    machine = ConfigMachine()
    with pytest.raises(SnapshotError, match="incarnations are left"):
        machine.begin_restored(INCARNATION_MAX)
