"""A match in one datacentre and a time-out in the other: one verdict, on time even if nothing more is written."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

import pytest

from photon.dispatcher.ledger import Verdict
from photon.idregistry.api import Kind
from tests.simulation.world import settings
from tests.simulation.world.check import Record, records
from tests.simulation.world.seeds import seeds, share
from tests.simulation.world.truth import EPOCH_NS
from tests.simulation.world.world import World, run_seed

SEEDS = 4
# A quiet day's verdict comes within this time after the end of patience: a pass over the primary logs, a head start,
# an attempt, each over a far-away registry.
SLOW_S = 20.0


@pytest.mark.seeded
def test_one_verdict_whoever_is_first_and_on_time() -> None:
    kinds: Counter[Kind] = Counter()
    wasted = 0
    all_seeds = share(seeds(SEEDS), 5, least=SEEDS)
    for seed in all_seeds:
        world = run_seed(seed, races=True)  # raises when an event has no verdict, or two
        kinds.update(record.kind for record in records(world))
        wasted += sum(_wasted(world, place.name) for place in world.datacentres)
        if world.quiet:
            late = [found for record in records(world) if (found := _late(world, record))]
            assert not late, f"seed {seed}: {late}"
    print(f"{dict(kinds)}, {wasted} registrations lost the race")
    if len(all_seeds) < SEEDS:
        return  # replayed
    assert kinds[Kind.JOINED] > SEEDS
    assert kinds[Kind.UNMATCHED] > SEEDS
    assert wasted > SEEDS // 2, "the two hardly ever met: nothing was shown"


def _wasted(world: World, datacentre: str) -> int:
    """Registrations of this datacentre that came second."""
    process: Any = world.processes[f"{datacentre}-dispatcher"]
    return int(process.engine._before[Verdict.WASTED] + process.engine._core.counting.live[Verdict.WASTED])


def _late(world: World, record: Record) -> str:
    """True if an unmatched event's verdict took longer than patience plus the allowed extra."""
    if record.kind is not Kind.UNMATCHED:
        return ""
    event = world.truth.events[record.event_id]
    source = record.fields["source"]
    log = next(log for log in world.truth.foreign if log.name == source["file"])
    line = log.index_of[source["offset"]]
    there = max(arrivals[line] for arrivals in log.arrivals.values())
    ahead = max(0.0, (event.time_ns - EPOCH_NS) / 1e9 - there)  # an event from the future is parked until its time
    decided = datetime.fromisoformat(record.fields["decided_at"]).timestamp() - EPOCH_NS / 1e9
    waited = decided - there - ahead
    if waited <= settings.WAITED_S + settings.UNCERTAINTY_S + SLOW_S:
        return ""
    return f"{record.event_id!r} waited for {waited:.1f} s"
