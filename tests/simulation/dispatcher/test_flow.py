"""If some joiners fail, the others get the work. PHOTON_SEED replays one seed."""

from __future__ import annotations

import os
import random

import pytest

from tests.simulation.dispatcher.joiners import Run, SimulatedJoiner

SEEDS = [int(os.environ["PHOTON_SEED"])] if "PHOTON_SEED" in os.environ else list(range(8))
SPEED = 20_000.0


def run(seed: int, *joiners: SimulatedJoiner) -> Run:
    print(f"PHOTON_SEED={seed}")
    return Run(list(joiners), seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_equal_joiners_share_equally(seed: int) -> None:
    r = run(seed, *(SimulatedJoiner(SPEED) for _ in range(3)))
    r.until(30.0)
    assert r.throughput(1.0, 30.0) > 0.99 * 3 * SPEED
    assert max(r.done.values()) < 1.05 * min(r.done.values())


@pytest.mark.parametrize("seed", SEEDS)
def test_a_slow_joiner_gets_what_it_can_do_and_costs_the_others_nothing(seed: int) -> None:
    r = run(seed, SimulatedJoiner(SPEED / 10), SimulatedJoiner(SPEED), SimulatedJoiner(SPEED))
    r.until(60.0)
    assert r.throughput(5.0, 60.0) > 0.98 * 2 * SPEED
    assert r.done[0] < 1.1 * 60.0 * SPEED / 10


@pytest.mark.parametrize("seed", SEEDS)
def test_a_broken_joiner_is_only_probed_and_comes_back_by_itself(seed: int) -> None:
    broken = SimulatedJoiner(SPEED, broken=True)
    r = run(seed, broken, SimulatedJoiner(SPEED))

    def mend() -> None:
        broken.broken = False

    r.changes.append((100.0, mend))
    r.until(200.0)
    assert r.throughput(0.0, 100.0) > 0.99 * SPEED
    assert r.lost[0] < 0.005 * r.done[1]
    assert r.throughput(140.0, 200.0) > 1.98 * SPEED


@pytest.mark.parametrize("seed", SEEDS)
def test_a_silent_joiner_holds_back_its_first_batches_only(seed: int) -> None:
    silent = SimulatedJoiner(SPEED)

    def fall_silent() -> None:
        silent.silent = True

    r = run(seed, silent, SimulatedJoiner(SPEED), SimulatedJoiner(SPEED))
    r.changes.append((10.0, fall_silent))
    r.until(120.0)
    assert r.throughput(10.0, 120.0) > 0.99 * 2 * SPEED
    assert r.lost[0] <= r.in_flight * 1000 + 10 * 100  # what was there, and some probes


@pytest.mark.parametrize("seed", SEEDS)
def test_all_fail_and_the_first_that_is_back_is_found_within_a_second(seed: int) -> None:
    joiners = [SimulatedJoiner(SPEED, broken=True) for _ in range(3)]
    r = run(seed, *joiners)

    def mend() -> None:
        joiners[2].broken = False

    r.changes.append((60.0, mend))
    r.until(90.0)
    assert r.lost.total() < 3 * 60 * 3 * 100  # each is probed two or three times a second
    first = min(at for at, _ in r.done_at)
    assert 60.0 < first < 61.5
    assert r.throughput(62.0, 90.0) > 0.98 * SPEED


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_befalls_them_what_can_work_does(seed: int) -> None:
    """Random moods of four joiners; the last one always works."""
    draw = random.Random(seed)
    joiners = [SimulatedJoiner(SPEED * draw.choice([0.1, 0.5, 1.0])) for _ in range(3)] + [SimulatedJoiner(SPEED)]
    r = run(seed, *joiners)
    for _ in range(40):
        chosen, mood = draw.choice(joiners[:3]), draw.choice(["broken", "silent", "well"])

        def change(chosen: SimulatedJoiner = chosen, mood: str = mood) -> None:
            chosen.broken, chosen.silent = mood == "broken", mood == "silent"

        r.changes.append((draw.random() * 200.0, change))
    r.until(240.0)
    for begin in range(0, 240, 10):
        assert r.throughput(begin, begin + 10.0) > 0.95 * SPEED, begin
    assert r.lost.total() < 0.1 * r.done.total()
