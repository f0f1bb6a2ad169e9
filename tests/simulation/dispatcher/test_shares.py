"""Fresh events keep their latency while a backlog is worked off, and the backlog gets the remaining capacity.

PHOTON_SEED replays one seed; with PHOTON_FULL=1 the backlog has a million events.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation.dispatcher.shared_site import SharedSite

SEEDS = [int(os.environ["PHOTON_SEED"])] if "PHOTON_SEED" in os.environ else [1]
BACKLOG = 1_000_000 if os.environ.get("PHOTON_FULL") == "1" else 80_000
SPEED = 50_000.0


def site(seed: int, *, fresh: float, backlog: int = BACKLOG, share: float | None = 0.05) -> SharedSite:
    print(f"PHOTON_SEED={seed}")
    return SharedSite(seed, fresh=fresh, speed=SPEED, backlog=backlog, share=share)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("fresh", [2_000.0, 20_000.0])
def test_fresh_events_keep_their_latency_while_a_backlog_is_worked_off(seed: int, fresh: float) -> None:
    alone = site(seed, fresh=fresh, backlog=0)
    alone.run(3.0)
    usual = alone.p99()
    shared = site(seed, fresh=fresh)
    shared.run(1.0)  # the first fresh events find all places taken
    shared.p99()
    begun, done = shared.now, shared.behind_done
    while shared.rows:
        shared.run(1.0)
    assert shared.p99() < usual + 0.05  # of an eighth of 8,000 places, at this speed: 20 ms, and a little
    worked = (shared.behind_done - done) / (shared.now - begun)
    assert worked > 0.6 * (SPEED - fresh)  # the remaining capacity is used


def test_without_shares_they_would_not() -> None:
    shared = site(1, fresh=20_000.0, share=None)
    shared.run(1.0)
    shared.p99()
    shared.run(1.0)
    assert shared.p99() > 0.1


@pytest.mark.parametrize("seed", SEEDS)
def test_more_fresh_events_than_can_be_done_leave_the_backlog_its_share(seed: int) -> None:
    shared = site(seed, fresh=1.5 * SPEED)
    shared.run(2.0)
    done = shared.behind_done
    shared.run(8.0)
    part = (shared.behind_done - done) / (8.0 * SPEED)
    assert 0.01 < part < 0.03  # rows count as three


@pytest.mark.parametrize("seed", SEEDS)
def test_with_nothing_fresh_the_backlog_gets_everything(seed: int) -> None:
    shared = site(seed, fresh=0.0)
    shared.run(1.0)
    assert shared.behind_done > 0.9 * SPEED
