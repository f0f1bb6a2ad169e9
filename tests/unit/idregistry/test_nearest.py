"""The replica asked for look-ups."""

from __future__ import annotations

from photon.idregistry.client.nearest_replica import BEHIND_ENTRIES, BEHIND_S, SAMPLES, Nearest

NEAR, FAR, FURTHER = 0.001, 0.030, 0.100


def measured(**round_trips_s: float) -> Nearest:
    nearest = Nearest(["r1", "r2", "r3"])
    for name, round_trip_s in round_trips_s.items():
        nearest.answered(name, round_trip_s)
    return nearest


def test_the_smallest_round_trip_wins_and_the_first_name_while_nothing_is_known() -> None:
    assert Nearest(["r1", "r2", "r3"]).choose(1) == "r1"
    nearest = measured(r2=FAR)
    assert nearest.choose(1) == "r2"
    nearest.answered("r3", NEAR)
    assert nearest.choose(1) == "r3"
    assert nearest.round_trip_s("r3") == NEAR
    assert nearest.round_trip_s("r1") == float("inf")


def test_one_slow_answer_changes_nothing_and_a_lasting_change_does() -> None:
    nearest = measured(r1=FURTHER, r2=NEAR, r3=FAR)
    for _ in range(SAMPLES):
        nearest.answered("r2", NEAR)
    nearest.answered("r2", 5.0)
    assert nearest.choose(1) == "r2"
    for _ in range(SAMPLES):
        nearest.answered("r2", FURTHER)
    assert nearest.choose(1) == "r3"


def test_nearly_the_same_is_no_reason_to_move() -> None:
    nearest = measured(r1=0.030, r2=0.040)
    for round_trip_s in (0.024, 0.036) * SAMPLES:
        nearest.answered("r2", round_trip_s)
        assert nearest.choose(1) == "r1"
    nearest = measured(r1=0.0012, r2=0.0004)
    assert nearest.choose(1) == "r1"  # half a millisecond is noise
    assert measured(r1=0.030, r2=0.018).choose(1) == "r2"


def test_a_failing_one_is_left_at_once_and_taken_again_when_it_answers() -> None:
    nearest = measured(r1=NEAR, r2=FAR, r3=FURTHER)
    nearest.failed("r1")
    assert nearest.choose(1) == "r2"
    nearest.failed("r2")
    assert nearest.choose(1) == "r3"
    nearest.failed("r3")
    assert nearest.choose(1) == "r1"  # none is better
    nearest.answered("r2", FAR)
    assert nearest.choose(1) == "r2"
    nearest.answered("r1", NEAR)
    assert nearest.choose(1) == "r1"


def test_the_way_before_a_failure_counts_no_more() -> None:
    nearest = measured(r1=NEAR, r2=FAR)
    for _ in range(SAMPLES):
        nearest.answered("r1", NEAR)
    nearest.failed("r1")
    nearest.answered("r1", FURTHER)
    assert nearest.choose(1) == "r2"


def test_one_that_hears_no_leader_is_asked_last_for_that_group_only() -> None:
    nearest = measured(r1=NEAR, r2=FAR, r3=FURTHER)
    nearest.led("r1", 1, led=False)
    assert (nearest.choose(1), nearest.choose(2)) == ("r2", "r1")
    nearest.led("r2", 1, led=False)
    nearest.failed("r3")
    assert nearest.choose(1) == "r1"  # better than one that does not answer
    nearest.led("r1", 1, led=True)
    assert (nearest.choose(1), nearest.doubtful("r1", 1), nearest.doubtful("r2", 1)) == ("r1", False, True)


def test_one_that_comes_back_long_behind_is_not_asked_until_it_has_caught_up() -> None:
    nearest = measured(r1=NEAR, r2=FAR)
    nearest.applied("r1", 1, 5, 10.0)
    nearest.applied("r2", 1, 5 + BEHIND_ENTRIES, 10.0)
    assert nearest.choose(1) == "r1"
    nearest.applied("r2", 1, 6 + BEHIND_ENTRIES, 10.1)
    assert nearest.choose(1) == "r2"
    nearest.applied("r1", 1, 6 + BEHIND_ENTRIES, 10.2)
    assert nearest.choose(1) == "r1"


def test_one_that_stands_still_is_behind_after_a_while_and_a_short_lag_is_none() -> None:
    nearest = measured(r1=NEAR, r2=FAR)
    for tick in range(100):  # r1 always three entries late: a far leader commits more within one round trip
        nearest.applied("r2", 1, 10 * tick, tick * 0.1)
        nearest.applied("r1", 1, max(10 * tick - 3, 0), tick * 0.1)
        assert nearest.choose(1) == "r1", tick
    now = 10.0
    while nearest.choose(1) == "r1":
        now += 0.5
        nearest.applied("r2", 1, int(now * 100), now)
        nearest.applied("r1", 1, 987, now)
        assert now <= 10.0 + 3 * BEHIND_S
    assert now >= 10.0 + BEHIND_S
