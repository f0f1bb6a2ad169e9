"""Datacentres that share the work, in simulated time: each one's share, and the waste."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.unit.dispatcher.sharing_world import Counts, World

BOTH = ["east", "west"]


@pytest.fixture(params=[1, 2, 3] if os.environ.get("PHOTON_FULL") else [1])
def seed(request: pytest.FixtureRequest) -> int:
    return request.param


def even(seen: Counts, *, wasted: float = 0.01) -> bool:
    """Each does about a half, and hardly more than that is tried."""
    return 0.45 < seen.share("east") < 0.55 and seen.wasted_share < wasted


def two(seed: int, *, rate: float = 0.0, speed: float = 5000.0, **of_world: Any) -> World:
    world = World(seed, rate=rate, **of_world)
    for name in BOTH:
        world.add(name, BOTH, speed=speed)
    return world


def p99(world: World) -> float:
    waits = sorted(wait for _, wait in world.latencies)
    world.latencies.clear()
    return waits[int(0.99 * (len(waits) - 1))]


def done(world: World) -> bool:
    return len(world.owners) == world.written


def test_two_healthy_ones_do_half_each_and_waste_nothing(seed: int) -> None:
    world = two(seed, rate=500)
    assert even(world.run(5))
    assert p99(world) < 0.15


def test_the_first_seconds_waste_little_though_the_commit_time_is_not_known_yet(seed: int) -> None:
    world = two(seed, rate=1000, jitter_s=0.05, measured_s=3.0)
    assert world.run(2).wasted_share < 0.01
    assert even(world.run(8), wasted=0.03)


def test_an_event_whose_primary_comes_late_is_joined_once(seed: int) -> None:
    """Both try it from time to time, and the first to try after the primary has come joins it."""
    world = two(seed, rate=500, jitter_s=0.01, late_share=0.07, late_s=0.6)
    world.run(2)
    assert even(world.run(5), wasted=0.025)


@pytest.mark.parametrize("pause_s", [0.2, 0.4, 0.6, 1.0] if os.environ.get("PHOTON_FULL") else [0.2, 1.0])
def test_one_that_was_paused_does_its_half_again(seed: int, pause_s: float) -> None:
    world = two(seed, rate=1000, jitter_s=0.01)
    world.run(3)
    world.sites["east"].pause(pause_s)
    assert world.run(4).wasted_share < 0.1  # what it costs once, until it is trusted
    assert even(world.run(4))


def test_one_dies_and_returns(seed: int) -> None:
    world = two(seed, rate=500)
    world.run(5)
    world.latencies.clear()
    west = world.sites["west"]
    west.stop()
    world.run(1)
    assert p99(world) < 0.5  # the first ones wait for it
    world.run(0.5)
    assert world.run(5).all >= 2490
    waits = sorted(wait for when, wait in world.latencies if when > world.now - 5)
    assert waits[len(waits) // 2] < 0.1  # at once
    assert sum(wait > 0.1 for wait in waits) < 0.05 * len(waits)  # probes
    west.start()
    back = world.run(3)
    assert back.wasted_share < 0.1  # what it costs once, until it is trusted
    assert even(world.run(5))
    assert west.core.queues.left < 200


def test_both_begin_with_the_same_backlog(seed: int) -> None:
    world = two(seed)
    world.append(20_000)
    seen = world.run(2.5)  # one alone would take four seconds
    assert done(world)
    assert even(seen, wasted=0.05)


@pytest.mark.parametrize(("speed", "later_s"), [(5000.0, 0.5), (5000.0, 1.5), (2500.0, 0.0)])
def test_a_backlog_is_shared_though_one_comes_later_or_is_slower(seed: int, speed: float, later_s: float) -> None:
    """The faster one takes some of the other's half: from its far end, so that they meet once."""
    world = World(seed, jitter_s=0.03, measured_s=1.0, window_bytes=64 << 20)
    world.append(20_000)
    world.add("east", BOTH, speed=5000)
    alone = world.run(later_s).all
    world.add("west", BOTH, speed=speed)
    seen = world.run(1.3 * (20_000 - alone) / (5000 + speed) + 0.5)
    assert done(world)
    assert sum(seen.wasted.values()) < 0.12 * 20_000


def test_both_die_and_return(seed: int) -> None:
    world = two(seed, rate=1000)
    world.run(3)
    for site in world.sites.values():
        site.stop()
    world.run(4)
    for site in world.sites.values():
        site.start()
    assert world.run(3).wasted_share < 0.05
    assert even(world.run(5), wasted=0.05)
    assert len(world.owners) > world.written - 200


def test_one_that_sees_everything_too_late_is_not_waited_for_until_it_is_in_time_again(seed: int) -> None:
    world = World(seed, rate=500)
    world.add("east", BOTH, speed=5000)
    west = world.add("west", BOTH, speed=5000, lag_s=0.4)
    world.run(3)
    behind = world.run(5)
    assert behind.share("east") > 0.99
    assert behind.wasted_share < 0.01
    west.lag_s = 0.0
    assert world.run(3).wasted_share < 0.1
    assert even(world.run(5))


def test_a_slower_one_does_its_half_while_it_can(seed: int) -> None:
    world = World(seed, rate=500)
    world.add("east", BOTH, speed=5000)
    world.add("west", BOTH, speed=600)
    world.run(3)
    assert even(world.run(4), wasted=0.05)


def test_one_that_cannot_do_its_half_slows_nobody_down(seed: int) -> None:
    """Its tries are partly wasted, mostly its own capacity: it is asked less and less often."""
    world = World(seed, rate=1000)
    world.add("east", BOTH, speed=1500)
    west = world.add("west", BOTH, speed=300)
    world.run(20)
    late = world.run(10)
    assert late.all > 0.9 * 10_000
    assert late.wasted["east"] < 0.03 * late.all
    assert late.wasted["west"] <= 10 * west.speed
    assert len(world.owners) > world.written - 1500


def test_what_one_has_done_the_other_runs_past(seed: int) -> None:
    world = World(seed)
    world.append(20_000)
    world.add("east", BOTH, speed=5000)
    world.run(6)
    assert done(world)
    world.add("west", BOTH, speed=5000)
    seen = world.run(2)
    assert world.sites["west"].committed == len(world.data)
    assert seen.wasted == {"east": 0, "west": 0}
