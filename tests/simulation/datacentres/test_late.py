"""Primary events that come late, among events that never find theirs: joined promptly on a quiet day, and exactly
once whatever goes wrong with the news of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import pytest

from photon.dispatcher import core as dispatcher_core
from photon.dispatcher.events import Item
from photon.dispatcher.waiting import ArrivedKeys
from photon.eventstore.api import Came
from photon.eventstore.sought import RING_KEYS, SoughtKeys
from photon.idregistry.api import Kind
from tests.simulation.datacentres import settings
from tests.simulation.datacentres.check import Record, records
from tests.simulation.datacentres.truth import EPOCH_NS, Fate, make_truth
from tests.simulation.datacentres.world import DATACENTRES, Variant, Violation, World, run_seed
from tests.simulation.world.noticed import notice
from tests.simulation.world.seeds import seeds, share

SEEDS = 6
ABLATION_SEEDS = 150
PROMPT_S = 3.0
"""From the moment when both lines are there: a pass over the primary logs, a head start, a registration far away."""
LATE_S = 3.0
"""A primary event that comes so much later is late: back-off alone would mostly take longer than is prompt."""


class LateWorld(World):
    """A quiet day with many hopeless events, and room to read on behind those that wait."""

    def _draw(self) -> None:
        super()._draw()
        self.dispatcher_limits = replace(self.dispatcher_limits, left_events=1000, window_bytes=1 << 20)
        self.quiet = self.tells = True
        self.apart = False
        self.unavailable = self.commit_crashes = 0.0
        self.store_slowness = 1.0
        self.loses_slots = False
        self.truth = make_truth(
            self.random, DATACENTRES, events=60, seconds=settings.GROWTH_S, patience=settings.WAITED_S, future=0.0,
            fates=((Fate.JOINED, 60), (Fate.UNMATCHED, 40)),
        )  # fmt: skip

    def _place(self) -> None:
        super()._place()
        for place in self.places.values():
            place.skew = 0.0


def slow(world: World, record: Record) -> float:
    """How much later than both of its lines an event with a late primary was joined; 0: in time, or not late."""
    event = world.truth.events[record.event_id]
    where = record.fields
    if record.kind is not Kind.JOINED or event.primary is None:
        return 0.0
    foreign = next(log for log in world.truth.foreign if log.name == where["source"]["file"])
    primary = next(log for log in world.truth.primary if log.name == where["primary_source"]["file"])
    read = foreign.arrivals[record.datacentre][foreign.index_of[where["source"]["offset"]]]
    came = primary.arrivals[record.datacentre][primary.index_of[where["primary_source"]["offset"]]]
    joined = datetime.fromisoformat(where["joined_at"]).timestamp() - EPOCH_NS / 1e9
    return max(0.0, joined - came - PROMPT_S) if came > read + LATE_S else 0.0


def run_late(seed: int, variant: Variant | None = None) -> int:
    """How many came late. Raises Violation."""
    world = LateWorld(seed, variant)
    world.run()
    found = list(records(world))
    late = [f"{record.event_id!r} was {by:.1f} s late" for record in found if (by := slow(world, record))]
    if late:
        raise Violation(f"seed {seed}: {', '.join(late)}")
    return len(found)


@pytest.mark.seeded
def test_late_primaries_among_hopeless_events_are_joined_promptly() -> None:
    all_seeds = share(seeds(SEEDS), 10, least=SEEDS)
    assert sum(map(run_late, all_seeds)) > 20 * len(all_seeds)


# -- news of arrivals is a hint: nothing but time depends on it ------------------------------------------------------
class Lost(SoughtKeys):
    """Nothing is told."""

    def since(self, epoch: int, number: int, most: int = RING_KEYS) -> Came:
        return super().since(epoch, number, most)._replace(keys=[])


class InVain(SoughtKeys):
    """Of some keys it is told that they came, though they did not."""

    def missed(self, keys: Sequence[bytes], mark: int) -> bool:
        told = super().missed(keys, mark)
        some = [key for key in keys if key[-1] % 3 == 0]
        self._tell(some)
        return told or bool(some)


@pytest.mark.seeded
@pytest.mark.parametrize("sought", [Lost, InVain])
def test_news_that_is_lost_or_wrong_breaks_nothing(sought: type[SoughtKeys]) -> None:
    for seed in share(seeds(SEEDS), 20, least=3):
        run_seed(2 * seed + 1, Variant(sought=sought))  # one in which stores tell


# -- what makes it prompt --------------------------------------------------------------------------------------------
class NotOnTheWay(ArrivedKeys):
    """What comes while an attempt is on its way wakes nobody."""

    def since(self, items: list[Item], number: int) -> tuple[list[Item], list[Item]]:
        return [], items


ABLATIONS = {
    "news is lost": Variant(sought=Lost),
    "news during an attempt": Variant(patches=((dispatcher_core, "ArrivedKeys", NotOnTheWay),)),
}


@pytest.mark.parametrize("name", ABLATIONS)
def test_the_simulator_notices_that_a_late_primary_is_found_by_back_off(name: str) -> None:
    notice(f"late: {name}", range(ABLATION_SEEDS), lambda seed: run_late(seed, ABLATIONS[name]), "late", Violation)
