"""Kinds of join under the faults of two datacentres: keys of two parts, and pairs out of bounds. These are unmatched
at once, exactly once, with the reason and the place of the primary event that they do not pair with."""

from __future__ import annotations

from collections import Counter

import pytest

from photon.adapters.bounds import Bounds, bounded_adapter
from photon.adapters.contract import Adapter
from photon.idregistry.api import Kind
from photon.joiner import engine as joiner_engine
from photon.joiner.api import Outcome
from photon.joiner.verdicts import Decided, Judge
from tests.simulation.datacentres.ablations import ABLATIONS as OF_ALL_JOINS
from tests.simulation.world import settings
from tests.simulation.world.check import records
from tests.simulation.world.noticed import notice
from tests.simulation.world.seeds import seeds, share
from tests.simulation.world.truth import HOUR_S, Fate, Fates, KindsAdapter, make_truth
from tests.simulation.world.violation import of_seed
from tests.simulation.world.world import DATACENTRES, Variant, World

SEEDS = 3
ABLATION_SEEDS = 60
FATES: Fates = (
    (Fate.JOINED, 40),
    (Fate.UNPAIRED, 35),
    (Fate.UNMATCHED, 10),
    (Fate.RACED, 5),
    (Fate.FILTERED, 5),
    (Fate.REJECTED, 5),
)
BOUNDS = Bounds(200 * HOUR_S * 1_000_000_000, 200 * HOUR_S * 1_000_000_000)


class KindsWorld(World):
    def _draw(self) -> None:
        super()._draw()
        self.truth = make_truth(
            self.random, DATACENTRES, events=self.random.choice((10, 30, 60)), seconds=settings.GROWTH_S,
            patience=settings.WAITED_S, future=settings.UNCERTAINTY_S + 6.0, fates=FATES, timed=True,
        )  # fmt: skip
        self.adapter = self.joins()

    def joins(self) -> Adapter:
        return bounded_adapter(KindsAdapter({}), BOUNDS, "kinds")


class Unbounded(KindsWorld):
    """Bounds are not checked."""

    def joins(self) -> Adapter:
        return KindsAdapter({})


def run_kinds(seed: int, variant: Variant | None = None, kind: type[KindsWorld] = KindsWorld) -> Counter[Kind]:
    """Returns the number of events for each outcome. Raises Violation."""
    world = kind(seed, variant)
    with of_seed(seed):
        world.run()
    return Counter(record.kind for record in records(world))


@pytest.mark.seeded
def test_every_event_of_these_joins_has_one_verdict() -> None:
    kinds: Counter[Kind] = Counter()
    for seed in share(seeds(SEEDS), 10, least=SEEDS):
        kinds += run_kinds(seed)
    assert kinds[Kind.JOINED] > SEEDS
    assert kinds[Kind.UNMATCHED] > SEEDS


class OutOfBoundsWaits(Judge):
    """Events out of bounds are tried again, as if their primary event were still to come."""

    def decide(self, *given: object) -> Decided:
        decided = super().decide(*given)  # type: ignore[arg-type]
        for row in decided.unpaired:
            decided.kinds[row] = 0
            decided.outcomes[row] = Outcome.NOT_YET
            del decided.undone[row], decided.reasons[row]
        return decided


def test_the_simulator_notices_that_bounds_are_not_checked() -> None:
    notice(
        "kinds: bounds are not checked", range(ABLATION_SEEDS), lambda seed: run_kinds(seed, kind=Unbounded),
        "wrong verdict: .* is JOINED, not UNPAIRED",
    )  # fmt: skip


def test_the_simulator_notices_that_what_is_out_of_bounds_waits() -> None:
    waits = Variant(patches=((joiner_engine, "Judge", OutOfBoundsWaits),))
    notice("kinds: out of bounds waits", range(ABLATION_SEEDS), lambda seed: run_kinds(seed, waits), ".")


def test_the_simulator_notices_that_what_is_out_of_bounds_is_not_registered() -> None:
    [name] = [each for each in OF_ALL_JOINS if "unmatched" in each and "regist" in each]
    variant = OF_ALL_JOINS[name].variant
    notice("kinds: not registered", range(ABLATION_SEEDS), lambda seed: run_kinds(seed, variant), "twice")
