"""The home of an event, and trust in other datacentres with their events."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from photon.dispatcher.homes import (
    ANSWER_S,
    FIRST_S,
    GRACE_S,
    LEAST_S,
    MOST_S,
    NOBODY,
    PROBE_MASK,
    SPELL_S,
    STRETCH_EVENTS,
    YIELDED,
    Evidence,
    HeadStart,
    Homes,
    Trust,
)

THREE = ["east", "north", "west"]
ROUND = 0.05
COUNTS = st.integers(0, 50)


def digests(n: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(16 * n)


def settled() -> HeadStart:
    """One that has seen some own events, none of them slow."""
    h = HeadStart()
    for _ in range(300):
        h.took(0.01)
    return h


def homes(own: str, names: list[str] | None = None) -> Homes:
    return Homes(own, names or ["east", "west"], HeadStart(0.1))


def lose(h: Homes, name: str, now: float = 0.0) -> float:
    """Removes all trust in a datacentre; returns the time."""
    number = h.number[name]
    while {s.datacentre: s.trusted for s in h.status()}[name]:
        h.observe(Evidence(missed=Counter({number: 8})), now)
        now += ROUND
    return now


def test_every_event_has_one_home_and_all_agree() -> None:
    some = digests(5000)
    placed = [homes(name, THREE).place(some) for name in THREE]
    ranks = np.stack([p.ranks for p in placed])
    assert (np.sort(ranks, axis=0) == np.array([[0], [1], [2]])).all()  # a different place for each
    own = [int((p.ranks == 0).sum()) for p in placed]
    assert all(abs(n - 5000 / 3) < 200 for n in own)
    for at, place in enumerate(placed):
        others = place.homes[place.ranks > 0]
        assert (place.homes[place.ranks == 0] == NOBODY).all()
        assert set(others.tolist()) == {n for n in range(3) if n != at}
        assert (others == np.argmin(ranks, axis=0)[place.ranks > 0]).all()


def test_all_releases_agree_on_the_homes_of_events() -> None:
    """Otherwise two of them would take the same events at once while a deployment is upgraded."""
    assert homes("east", THREE).place(digests(8)).ranks.tolist() == [0, 1, 2, 0, 0, 1, 1, 2]


def test_half_of_the_events_is_each_one_s_of_two() -> None:
    some = digests(20_000)
    east, west = homes("east").place(some), homes("west").place(some)
    assert ((east.ranks == 0) ^ (west.ranks == 0)).all()
    assert 0.48 < (east.ranks == 0).mean() < 0.52


def test_the_events_of_one_that_is_not_trusted_are_taken_at_once_but_for_probes() -> None:
    some = digests(20_000)
    probes = (np.frombuffer(some, "<u8").reshape(-1, 2)[:, 1] & np.uint64(PROBE_MASK)) == 0
    east = homes("east")
    before = east.place(some)
    lose(east, "west")
    after = east.place(some)
    assert (after.ranks[probes] == before.ranks[probes]).all()
    assert (after.ranks[~probes] == 0).all()
    assert 0.05 < probes.mean() < 0.075


def test_the_others_share_the_events_of_one_that_they_do_not_trust() -> None:
    some = digests(20_000)
    east, west = homes("east", THREE), homes("west", THREE)
    for each in (east, west):
        lose(each, "north")
    at_once = np.stack([east.place(some).ranks == 0, west.place(some).ranks == 0])
    assert 0.9 < at_once.any(axis=0).mean() < 1.0  # all except the probes, which remain north's
    assert not at_once.all(axis=0).any()
    assert all(0.44 < share < 0.5 for share in at_once.mean(axis=1))


def test_trust_is_lost_by_misses_that_last_and_returns_with_probes_in_time() -> None:
    trust = Trust()
    trust.observe(0, 100, 0, 10.0, GRACE_S)
    assert trust.trusted  # a hiccup: they came all at once
    trust.observe(100, 0, 0, 10.1, GRACE_S)
    trust.observe(0, 100, 0, 10.2, GRACE_S)
    trust.observe(0, 100, 0, 10.2 + GRACE_S - 0.01, GRACE_S)
    assert trust.trusted
    trust.observe(0, 1, 0, 10.2 + GRACE_S + 0.01, GRACE_S)
    assert not trust.trusted
    for n in range(8):
        trust.observe(1, 0, 0, 12.0 + n, GRACE_S)
    assert trust.trusted
    assert (trust.in_time, trust.left) == (108, 0)


def test_a_datacentre_that_is_ahead_is_trusted_though_nothing_was_left_to_it() -> None:
    h = homes("east")
    now = lose(h, "west") + SPELL_S
    h.observe(Evidence(ahead=Counter({h.number["west"]: 20})), now)
    (west,) = h.status()
    assert (west.trusted, west.in_time) == (True, 0)


def test_one_that_cannot_keep_up_is_asked_to_ever_more_seldom() -> None:
    h, now, returns = homes("east"), 0.0, []
    for _ in range(6):
        now = lost = lose(h, "west", now)
        while not h.status()[0].trusted:
            now += ROUND
            h.observe(Evidence(in_time=Counter({h.number["west"]: 8})), now)
        returns.append(round(now - lost, 3))
    assert returns == sorted(returns)
    assert returns[0] < 2 * SPELL_S
    assert 20.0 < returns[-1] < 40.0


def test_own_events_that_others_take_are_looked_up_first_then_yielded() -> None:
    some = digests(4000)
    h = homes("east")
    mine = h.place(some).ranks == 0
    h.observe(Evidence(own=10, contested=10), 0.0)
    assert h.contested
    h.observe(Evidence(contested=40), 0.0)
    place = h.place(some)
    yielded = place.homes == YIELDED
    assert h.yielding
    assert (place.ranks[yielded] == 1).all()
    assert (yielded <= mine).all()
    assert 0.9 < yielded.sum() / mine.sum() < 0.98  # all except the probes
    assert (h.own_ones(some) == mine).all()
    h.observe(Evidence(own=100), 1.0)  # they came back: nobody took them
    assert not h.yielding
    assert (h.place(some).ranks == 0).sum() == mine.sum()


def test_nothing_is_yielded_when_nobody_is_trusted() -> None:
    h = homes("east")
    h.observe(Evidence(contested=100), 0.0)
    assert h.yielding
    lose(h, "west")
    assert not h.yielding


def test_the_head_start_is_two_commit_times_within_bounds() -> None:
    h = settled()
    assert h.seconds == HeadStart().seconds == FIRST_S
    for commit, expected in ((0.05, 0.1), (0.0001, LEAST_S), (60.0, MOST_S)):
        h.measured(commit)
        assert h.seconds == pytest.approx(expected)


def test_a_configured_head_start_is_that() -> None:
    h = HeadStart(0.3)
    h.measured(1.0)
    h.took(5.0)
    h.observe(STRETCH_EVENTS, STRETCH_EVENTS)
    assert (h.seconds, h.least_s) == (0.3, 0.3)


def test_the_head_start_does_not_fall_at_once_when_the_commit_time_is_known() -> None:
    h = HeadStart()
    h.measured(0.05)
    for _ in range(20):
        h.took(0.05)
    assert 0.3 < h.seconds < FIRST_S
    for _ in range(200):
        h.took(0.05)
    assert h.seconds == pytest.approx(0.1)


def test_the_head_start_grows_with_what_own_events_take_and_with_what_was_wasted() -> None:
    h = settled()
    h.measured(0.05)
    h.took(0.4)
    assert h.seconds == pytest.approx(0.5)
    for _ in range(200):
        h.took(0.01)
    assert h.seconds == pytest.approx(0.1)
    h.observe(STRETCH_EVENTS, STRETCH_EVENTS // 10)
    assert h.seconds == pytest.approx(0.15)
    assert h.least_s == pytest.approx(0.1)
    for _ in range(100):
        h.observe(STRETCH_EVENTS, 0)
    assert h.seconds == pytest.approx(0.1)


def test_a_joiner_may_take_some_commits_and_a_moment_at_least() -> None:
    h = settled()
    h.measured(0.05)
    assert h.answer_s == ANSWER_S
    h.measured(0.4)
    assert h.answer_s == pytest.approx(3 * 0.4)


def test_what_is_yielded_waits_for_what_own_events_usually_take_not_for_the_slowest() -> None:
    h = settled()
    assert h.yielded_s == FIRST_S
    h.measured(0.05)
    assert h.yielded_s == pytest.approx(0.1)
    for _ in range(100):
        h.took(0.16)
    assert 0.18 < h.yielded_s < 0.22
    h.took(4.0)
    assert h.seconds > 1.0
    assert 0.18 < h.yielded_s < 0.25


@given(
    st.lists(st.tuples(COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, st.floats(0, 5), st.booleans()), max_size=60),
    st.integers(0, 2**32),
)
def test_each_event_is_taken_by_somebody_soon(
    seen: list[tuple[int, int, int, int, int, float, bool]], seed: int
) -> None:
    """The rest relies only on bounded waits and sane places."""
    h = Homes("east", THREE, HeadStart())
    now = 0.0
    for in_time, missed, ahead, own, contested, wait, backlog in seen:
        now += wait
        number = 1 + seed % 2
        evidence = Evidence(
            in_time=Counter({number: in_time}),
            missed=Counter({number: missed}),
            ahead=Counter({number: ahead}),
            wasted=in_time // 2,
            own=own,
            contested=contested,
            slowest_s=wait,
        )
        h.observe(evidence, now, backlog=backlog)
    place = h.place(digests(64, seed))
    assert ((place.ranks >= 0) & (place.ranks <= h.ranks)).all()
    assert ((place.homes == NOBODY) == (place.ranks == 0)).all()
    for backlog in (False, True):
        assert all(0 < h.wait_s(rank, backlog=backlog) <= 2 * MOST_S for rank in range(h.ranks + 1))
