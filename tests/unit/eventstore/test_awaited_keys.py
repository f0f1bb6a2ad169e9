"""Keys requested events in vain, and the news when they come."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from photon.eventstore import awaited_keys
from photon.eventstore.awaited_keys import GENERATION_S, AwaitedKeys
from photon.eventstore.index import hash_keys

EPOCH = 7


class Counted(deque[Any]):
    """Counts what is looked at."""

    looked = 0

    def __iter__(self) -> Iterator[Any]:
        for each in super().__iter__():
            self.looked += 1
            yield each

    def __reversed__(self) -> Iterator[Any]:
        for each in super().__reversed__():
            self.looked += 1
            yield each


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Rig:
    def __init__(self, most: int = 1000) -> None:
        self.clock = Clock()
        self.awaited = AwaitedKeys(EPOCH, self.clock, most)
        self.number = 0

    def missed(self, *keys: bytes, mark: int | None = None) -> bool:
        return self.awaited.missed(keys, self.awaited.mark() if mark is None else mark)

    def read(self, *keys: bytes) -> bool:
        hashes = hash_keys(keys)
        order = np.argsort(hashes, kind="stable")
        return self.awaited.read(keys, hashes[order], order)

    def told(self) -> list[bytes]:
        came = self.awaited.since(EPOCH, self.number)
        assert not came.lost
        self.number = came.next
        return came.keys


def test_what_was_asked_for_in_vain_is_told_once_when_it_comes() -> None:
    rig = Rig()
    assert not rig.read(b"early")
    assert not rig.missed(b"a", b"b", b"a")
    assert rig.read(b"x", b"b", b"y", b"b")
    assert rig.told() == [b"b"]
    assert not rig.read(b"b")
    assert rig.told() == []
    assert rig.awaited.counts() == (1, 0, 1)
    rig.missed(b"b")  # and again, when it is asked for again
    assert rig.read(b"b")
    assert rig.told() == [b"b"]


def test_a_miss_looks_at_no_block_from_before_its_look_up() -> None:
    rig = Rig()
    rig.awaited._recent = recent = Counted()
    for _ in range(100):
        rig.read(b"old")
    mark = rig.awaited.mark()
    rig.read(b"a")
    assert rig.missed(b"a", mark=mark)
    assert recent.looked == 2


def test_what_comes_between_a_look_up_and_its_miss_is_told() -> None:
    rig = Rig()
    mark = rig.awaited.mark()
    rig.read(b"a", b"b")
    assert rig.missed(b"a", b"c", mark=mark)
    assert rig.told() == [b"a"]
    assert not rig.missed(b"b")  # a later look-up has seen everything


def test_what_was_read_since_a_look_up_began_and_is_not_kept_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(awaited_keys, "RECENT_HASHES", 3)
    rig = Rig()
    assert not rig.awaited.forgot(rig.awaited.mark())
    mark = rig.awaited.mark()
    rig.read(b"a", b"b")
    rig.read(b"c")
    assert not rig.awaited.forgot(mark)
    rig.read(b"d")
    assert rig.awaited.forgot(mark)
    assert not rig.awaited.forgot(mark + 1)
    assert not rig.missed(b"a", b"x", mark=mark)
    rig.awaited.come([b"a"])  # so says the map
    rig.awaited.come([])
    assert rig.told() == [b"a"]
    assert rig.awaited.counts() == (1, 0, 1)


def test_who_comes_from_another_start_or_too_far_back_has_lost_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(awaited_keys, "RING_KEYS", 10)
    rig = Rig()
    assert rig.awaited.since(0, 0) == (EPOCH, 0, [], True)
    assert rig.awaited.since(EPOCH + 1, 0).lost
    keys = [b"%d" % n for n in range(25)]
    rig.missed(*keys)
    rig.read(*keys)
    assert rig.awaited.since(EPOCH, 14) == (EPOCH, 25, [], True)
    assert len(rig.awaited.since(EPOCH, 15).keys) == 10
    assert rig.awaited.since(EPOCH, 25) == (EPOCH, 25, [], False)
    assert rig.awaited.since(EPOCH, 26).lost
    part = rig.awaited.since(EPOCH, 15, most=4)
    assert (part.next, part.keys) == (19, rig.awaited.since(EPOCH, 15).keys[:4])


def test_the_oldest_are_forgotten_where_there_are_too_many() -> None:
    rig = Rig(most=100)
    for n in range(1000):
        rig.missed(b"%d" % n)
        assert rig.awaited.counts().sought_keys <= 100
    assert rig.awaited.counts().sought_keys + rig.awaited.counts().sought_dropped == 1000
    rig.read(*[b"%d" % n for n in range(1000)])
    told = sorted(map(int, rig.told()))
    assert told[0] >= 900
    assert told[-1] == 999


def test_what_is_asked_for_again_is_not_forgotten_for_those_that_are_not() -> None:
    rig = Rig(most=100)
    for n in range(1000):
        rig.missed(b"%d" % n, b"kept")
    assert rig.read(b"kept")
    assert rig.told() == [b"kept"]


def test_many_more_at_once_than_there_is_room_for() -> None:
    rig = Rig(most=100)
    rig.missed(*[b"%d" % n for n in range(5000)])
    assert rig.awaited.counts().sought_keys <= 100


def test_what_nobody_asks_for_any_more_is_forgotten_in_time() -> None:
    rig = Rig()
    rig.missed(b"left", b"kept")
    for _ in range(4):
        rig.clock.now += GENERATION_S * 0.9
        rig.missed(b"kept")
    assert rig.awaited.counts() == (1, 0, 0)
    assert rig.read(b"left", b"kept")
    assert rig.told() == [b"kept"]


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["miss", "read", "late"]), st.lists(st.integers(0, 8), max_size=6)), max_size=60
    )
)
def test_it_tells_what_a_set_would(steps: list[tuple[str, list[int]]]) -> None:
    """``late``: missed keys were looked up before the last block came."""
    rig, waited, expected, last = Rig(), set[bytes](), list[bytes](), set[bytes]()
    mark = 0
    for what, numbers in steps:
        keys = [b"%d" % n for n in numbers]
        if what == "read":
            mark = rig.awaited.mark()
            rig.read(*keys)
            expected += sorted(waited & set(keys))
            waited -= set(keys)
            last = set(keys) or last
        else:
            late = what == "late"
            rig.missed(*keys, mark=mark if late else rig.awaited.mark())
            come = set(keys) & last if late and rig.awaited.mark() > mark else set()
            expected += sorted(come)
            waited = (waited | set(keys)) - come
    assert sorted(rig.told()) == sorted(expected)
    assert rig.awaited.counts().sought_keys == len(waited)


def test_a_generation_gives_back_what_came() -> None:
    rig = Rig(most=1_000_000)
    for first in range(0, 100_000, 1000):
        keys = [b"%d" % n for n in range(first, first + 1000)]
        rig.missed(*keys)
        rig.read(*keys)
    assert rig.awaited.counts() == (0, 0, 100_000)
    assert len(rig.awaited._young) <= 12_000
