"""When a slot is an orphan: the decision from the disk's contents and the time."""

from __future__ import annotations

from photon.joiner.adopter import PAUSES, Orphans, Seen


def free(slot: str, taken: int = 1, *, left: bool = True) -> Seen:
    return Seen(slot, held=False, taken=taken, left=left)


def held(slot: str, taken: int = 1) -> Seen:
    return Seen(slot, held=True, taken=taken, left=True)


def test_a_slot_is_due_once_its_lock_was_free_for_so_long() -> None:
    orphans = Orphans(60.0)
    assert orphans.look([free("a")], 100.0) == []
    assert orphans.look([free("a")], 159.0) == []
    assert orphans.look([free("a")], 160.0) == ["a"]


def test_an_owner_that_was_back_meanwhile_begins_the_time_anew() -> None:
    orphans = Orphans(60.0)
    orphans.look([free("a")], 0.0)
    assert orphans.look([held("a", 2)], 30.0) == []
    assert orphans.look([free("a", 2)], 65.0) == []
    assert orphans.look([free("a", 2)], 124.0) == []
    assert orphans.look([free("a", 3)], 126.0) == []  # it was here between two looks
    assert orphans.look([free("a", 3)], 186.0) == ["a"]


def test_a_slot_that_was_left_empty_is_never_due() -> None:
    orphans = Orphans(0.0)
    assert orphans.look([free("a", left=False), free("b")], 0.0) == ["b"]
    assert orphans.look([free("a", left=False)], 1e6) == []


def test_what_waits_longest_comes_first() -> None:
    orphans = Orphans(10.0)
    orphans.look([free("z")], 0.0)
    orphans.look([free("z"), free("a")], 1.0)
    assert orphans.look([free("z"), free("a")], 20.0) == ["z", "a"]


def test_tries_become_rarer_and_begin_anew_with_another_owner() -> None:
    orphans = Orphans(0.0)
    assert orphans.look([free("a", 1)], 0.0) == ["a"]
    assert orphans.tried("a", 2, 0.0) == PAUSES.first  # our own try took the lock: that is not another owner
    assert orphans.look([free("a", 2)], PAUSES.first - 1) == []
    assert orphans.look([free("a", 2)], PAUSES.first) == ["a"]
    pauses = [orphans.tried("a", 2, 100.0) for _ in range(10)]
    assert (pauses[0], pauses[-1]) == (2 * PAUSES.first, PAUSES.most)
    assert orphans.tried("a", 2, 100.0, moved=True) == PAUSES.first  # a large log is redone in parts
    assert orphans.tried("a", 2, 100.0) == 2 * PAUSES.first
    assert orphans.look([free("a", 3)], 101.0) == ["a"]
