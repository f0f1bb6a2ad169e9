"""Agreement of a clock with the others: the pure part, against worlds whose true clocks are known."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from photon.config.interval_clock import Interval, KernelTime, interval
from photon.idregistry.core.clock_offsets import (
    ANYWHERE,
    OWN,
    READING_S_MAX,
    Agreement,
    Offset,
    Reading,
    ahead_by,
    judged,
    median,
    middle_s,
    not_after,
    objection,
    surely_apart_s,
    too_new_after,
)

SECOND = 10**9
S = 5 * SECOND
DAY = 86_400 * SECOND
NOW = Interval(1_700_000_000 * SECOND, S, synchronised=False)
OFFSETS = st.integers(-2 * DAY, 2 * DAY)


def exactly(offset_ns: int, error_ns: int = 0) -> Offset:
    return Offset(offset_ns - error_ns, offset_ns + error_ns)


@given(
    offset=OFFSETS,
    out_s=st.floats(0, 3),
    back_s=st.floats(0, 3),
    since_s=st.floats(0, READING_S_MAX - 6),
    drift=st.floats(-0.0009, 0.0009),
    step=OFFSETS,
)
def test_the_true_offset_is_within_what_is_said_whatever_each_way_took(
    offset: int, out_s: float, back_s: float, since_s: float, drift: float, step: int
) -> None:
    """``drift``: the peer's clock, while the reading grows old; ``step``: the own wall clock, since then."""
    asked = 100.0
    own_wall_when_asked = NOW.now_ns
    peers_reading = own_wall_when_asked + int(out_s * SECOND) + offset
    reading = Reading(peers_reading, asked, asked + out_s + back_s)
    later = out_s + back_s + since_s
    own_wall_now = own_wall_when_asked + int(later * SECOND) + step
    peers_wall_now = peers_reading + int((back_s + since_s) * (1 + drift) * SECOND)
    said = ahead_by(reading, Interval(own_wall_now, S, False), asked + later)
    truth = peers_wall_now - own_wall_now
    assert said.low_ns - 1000 <= truth <= said.high_ns + 1000  # floats count microseconds over such times
    assert said.high_ns - said.low_ns <= (out_s + back_s + 0.0021 * later) * SECOND + 1000


def test_an_old_reading_says_nothing() -> None:
    reading = Reading(NOW.now_ns, 10.0, 10.1)
    assert ahead_by(reading, NOW, 10.0 + READING_S_MAX).known
    assert ahead_by(reading, NOW, 10.1 + READING_S_MAX) == ANYWHERE
    assert ahead_by(reading, NOW, 9.0) == ANYWHERE  # of a monotonic clock that is another one now


def test_a_clock_of_another_age_does_not_overflow() -> None:
    assert ahead_by(Reading(-(2**63), 0.0, 1.0), NOW, 1.0).low_ns >= ANYWHERE.low_ns
    assert ahead_by(Reading(2**63 - 1, 0.0, 1.0), NOW, 1.0).high_ns <= ANYWHERE.high_ns


@given(st.data(), st.sampled_from([1, 3, 5]))
def test_the_median_of_all_true_clocks_is_within_the_one_that_is_known(data: st.DataObject, replicas: int) -> None:
    """Even if some are unknown and may have any value."""
    truth = [0, *data.draw(st.lists(OFFSETS, min_size=replicas - 1, max_size=replicas - 1))]
    errors = data.draw(st.lists(st.none() | st.integers(0, S), min_size=replicas - 1, max_size=replicas - 1))
    said = [OWN] + [
        ANYWHERE if e is None else exactly(t + data.draw(st.integers(-e, e)), e)
        for t, e in zip(truth[1:], errors, strict=True)
    ]
    middle = median(said)
    assert middle.low_ns <= statistics.median(truth) <= middle.high_ns


@given(st.data(), st.sampled_from([3, 5]))
def test_a_minority_of_wrong_clocks_stops_no_right_one_and_none_of_it_goes_on(
    data: st.DataObject, replicas: int
) -> None:
    wrong = data.draw(st.integers(0, replicas // 2))
    far = st.integers(3 * S, 2 * DAY)
    clocks = [data.draw(st.integers(0, S)) for _ in range(replicas - wrong)]
    clocks += [data.draw(far) * data.draw(st.sampled_from([1, -1])) for _ in range(wrong)]
    for own, clock in enumerate(clocks):
        said = [exactly(other - clock) for other in clocks]
        assert judged(median(said), S) is (Agreement.AGREES if own < replicas - wrong else Agreement.APART)


@given(st.data(), st.sampled_from([3, 5]))
def test_it_never_agrees_while_half_of_the_clocks_are_unknown(data: st.DataObject, replicas: int) -> None:
    known = data.draw(st.integers(0, replicas // 2))
    peers = [exactly(data.draw(OFFSETS)) for _ in range(known - 1)] + [ANYWHERE] * (replicas - max(known, 1))
    assert judged(median([OWN, *peers]), S) is Agreement.UNCERTAIN


def test_a_single_replica_agrees_with_itself() -> None:
    assert median([OWN]) == OWN
    assert objection(NOW, OWN, {}, uncertainty_ns=S, require_sync=False) == ""


@given(clocks=st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 9), st.integers(-9, 9)), min_size=1, max_size=7))
def test_no_clock_is_said_to_be_further_from_the_median_than_it_is(clocks: list[tuple[int, int, int]]) -> None:
    """Each is told within its error: (true, error, told - true, cut to the error)."""
    middle = statistics.median(true for true, _, _ in clocks)
    told = [(true + max(-error, min(by, error)), error) for true, error, by in clocks]
    within = middle_s(told)
    assert within[0] <= middle <= within[1]
    for (true, _, _), (ahead, error) in zip(clocks, told, strict=True):
        assert surely_apart_s(ahead, error, within) <= abs(true - middle)


def test_of_two_clocks_both_belong_to_the_median() -> None:
    assert median([OWN, exactly(DAY)]) == Offset(0, DAY)
    with pytest.raises(ValueError, match="no clocks"):
        median([])


@pytest.mark.parametrize(
    ("peers", "words"),
    [
        ({"r2": exactly(SECOND), "r3": exactly(-SECOND)}, ""),
        ({"r2": exactly(S), "r3": ANYWHERE}, ""),
        ({"r2": exactly(SECOND), "r3": exactly(DAY)}, ""),
        ({"r2": exactly(DAY), "r3": exactly(DAY + 7)}, "86400.000 s behind the median of all replicas (S = 5 s)"),
        ({"r2": exactly(-6 * SECOND), "r3": exactly(-DAY)}, "6.000 s ahead of the median"),
        ({"r2": ANYWHERE, "r3": ANYWHERE}, "no reading of r2, r3"),
        ({"r2": exactly(DAY), "r3": ANYWHERE}, "too few replicas agree within S = 5 s: no reading of r3"),
        (
            {"r2": exactly(0, 6 * SECOND), "r3": exactly(0, 7 * SECOND)},
            "unknown whether this clock is within S = 5 s of the others: correct",
        ),
    ],
)
def test_why_nothing_is_proposed(peers: dict[str, Offset], words: str) -> None:
    said = objection(NOW, median([OWN, *peers.values()]), peers, uncertainty_ns=S, require_sync=False)
    assert words in said
    assert bool(said) == bool(words)
    assert "\n" not in said


def test_a_clock_that_is_not_synchronised_proposes_nothing_only_where_that_is_demanded() -> None:
    synchronised = interval(NOW.now_ns, KernelTime(True, 1000), S)
    said = [
        objection(now, OWN, {}, uncertainty_ns=S, require_sync=required)
        for now, required in ((NOW, False), (NOW, True), (synchronised, True))
    ]
    assert [bool(each) for each in said] == [False, True, False]
    assert "clock.require_sync" in said[1]


@given(error=st.integers(0, 16 * SECOND), offset=st.integers(-S, S))
def test_what_is_within_s_of_a_clock_that_agrees_is_never_too_new_beyond_it_always(error: int, offset: int) -> None:
    now = interval(NOW.now_ns, KernelTime(True, error), S)
    assert too_new_after(now, exactly(offset), S) == now.now_ns + max(S, error)
    assert not_after(now, S) == now.now_ns - max(S, error)
    assert too_new_after(NOW, exactly(offset), S) == NOW.now_ns + S


@pytest.mark.parametrize("offset", [DAY, -DAY])
def test_a_clock_that_is_surely_wrong_does_not_decide_what_is_too_new(offset: int) -> None:
    assert too_new_after(NOW, exactly(offset, 10), S) == NOW.now_ns + offset + 10 + S
    for perhaps in (Offset(S, DAY), Offset(-DAY, -S), ANYWHERE):
        assert too_new_after(NOW, perhaps, S) == NOW.now_ns + S
