"""Primary events that come late, among events that never find theirs: joined promptly on a quiet day, and exactly
once no matter what goes wrong with the news of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np
import pytest

from photon.batch.columns import Mask
from photon.config.back_off import BackOff
from photon.dispatcher import core as dispatcher_core
from photon.dispatcher import retry
from photon.dispatcher import waiting as dispatcher_waiting
from photon.dispatcher.retry import Attempt, Likeness, NextTries, NextTry
from photon.dispatcher.waiting import ArrivedKeys, Waiting
from photon.eventstore.api import KeyArrivals
from photon.eventstore.awaited_keys import RING_KEYS, AwaitedKeys
from photon.idregistry.api import Kind
from tests.simulation.world import settings, site_faults
from tests.simulation.world.check import Record, records
from tests.simulation.world.noticed import notice
from tests.simulation.world.process import DispatcherProcess, JoinerProcess, Process
from tests.simulation.world.seeds import seeds, share
from tests.simulation.world.truth import EPOCH_NS, Fate, Fates, make_truth
from tests.simulation.world.violation import Violation
from tests.simulation.world.world import DATACENTRES, Place, Variant, World, run_seed

SEEDS = 6
ABLATION_SEEDS = 150
# Counted from when both lines are there and everything is up: a pass over the primary logs, a head start, a far
# registration.
PROMPT_S = 3.0
LATE_S = 3.0  # a primary event later than this is late: back-off alone would mostly take longer than is prompt


IN_VAIN_A_SECOND = 10


LONG = BackOff(first=30.0, most=30.0, floor=30.0)


class ListensFirst(JoinerProcess):
    listens_first = True


class LateWorld(World):
    """A quiet day with many hopeless events, and room to read on behind the waiting ones. In half of the seeds
    back-off is long enough that only news lets an event be tried in time."""

    long_back_off = 0.5
    prompt_s = PROMPT_S
    fates: Fates = ((Fate.JOINED, 60), (Fate.UNMATCHED, 40))
    late_s = settings.WAITED_S

    def _draw(self) -> None:
        super()._draw()
        self.dispatcher_limits = replace(self.dispatcher_limits, left_events=1000, window_bytes=1 << 20)
        self.quiet = self.tells = True
        self.apart = False
        self.unavailable = self.commit_crashes = 0.0
        self.store_slowness = 1.0
        self.loses_slots = False
        self.truth = make_truth(
            self.random, DATACENTRES, events=60, seconds=settings.GROWTH_S, patience=self.late_s, future=0.0,
            fates=self.fates,
        )  # fmt: skip
        self.up_at = dict.fromkeys(DATACENTRES, 0.0)
        if self.random.random() < self.long_back_off:
            self.variant = replace(self.variant, patches=(*self.variant.patches, (retry, "NOT_YET_BACKOFF", LONG)))

    def _place(self) -> None:
        super()._place()
        for place in self.places.values():
            place.skew = 0.0


class RestartedWorld(LateWorld):
    """Everything is killed while many events wait, and restarted; one datacentre stays away, or it would join in time
    what the other joins late."""

    long_back_off = 0.0
    prompt_s = PROMPT_S + 1.0
    fates = ((Fate.JOINED, 20), (Fate.RACED, 50), (Fate.UNMATCHED, 30))
    late_s = 0.6 * settings.WAITED_S

    def _draw(self) -> None:
        super()._draw()
        self.answers_take_s = 0.5  # much may arrive during one attempt, and is then sent in few batches
        self.dispatcher_limits = replace(self.dispatcher_limits, batch_events=1000)

    def _place(self) -> None:
        super()._place()
        for name, (kind, place) in self.kinds.items():
            if kind is JoinerProcess:
                self.kinds[name] = ListensFirst, place
        self.loop.later(self.random.uniform(10.0, 20.0), self._restart)

    def _restart(self) -> None:
        one, other = self.datacentres
        site_faults.down(self, other, power=False, choice=(settings.FAULTS_S,))
        site_faults.down(self, one, power=False, choice=(0.5, 3.0))
        self._look_whether_up(one)
        self._look_whether_up(other)

    def _look_whether_up(self, place: Place) -> None:
        """``up_at``: when the last of its processes was ready."""
        lives = [self.running(name) for name in place.names]
        if not all(life is not None and _is_up(life) for life in lives):
            self.up_at[place.name] = self.loop.now
            self.loop.later(0.1, self._look_whether_up, place)


def _is_up(process: Process) -> bool:
    if isinstance(process, JoinerProcess):
        return process.serving
    return process.engine is not None if isinstance(process, DispatcherProcess) else bool(process.handlers)


def slow(world: LateWorld, record: Record) -> float:
    """Delay from when both lines are there and everything is up until an event with a late primary was joined; 0: in
    time, or not late."""
    event = world.truth.events[record.event_id]
    where = record.fields
    if record.kind is not Kind.JOINED or event.primary is None:
        return 0.0
    foreign = next(log for log in world.truth.foreign if log.name == where["source"]["file"])
    primary = next(log for log in world.truth.primary if log.name == where["primary_source"]["file"])
    read = foreign.arrivals[record.datacentre][foreign.index_of[where["source"]["offset"]]]
    came = primary.arrivals[record.datacentre][primary.index_of[where["primary_source"]["offset"]]]
    joined = datetime.fromisoformat(where["joined_at"]).timestamp() - EPOCH_NS / 1e9
    ready = max(came, world.up_at[record.datacentre])
    return max(0.0, joined - ready - world.prompt_s) if came > read + LATE_S else 0.0


def run_late(seed: int, variant: Variant | None = None, kind: type[LateWorld] = LateWorld) -> int:
    """Returns the number of events with a verdict. Raises Violation."""
    world = kind(seed, variant)
    world.run()
    found = list(records(world))
    late = [f"{record.event_id!r} was {by:.1f} s late" for record in found if (by := slow(world, record))]
    if late:
        raise Violation(f"seed {seed}: {', '.join(late)}")
    return len(found)


@pytest.mark.seeded
def test_late_primaries_among_hopeless_events_are_joined_promptly() -> None:
    all_seeds = share(seeds(SEEDS), 10, least=3)
    assert sum(map(run_late, all_seeds)) > 20 * len(all_seeds)


@pytest.mark.seeded
def test_so_are_they_when_everything_is_started_again() -> None:
    for seed in share(seeds(SEEDS), 20, least=2):
        run_late(seed, kind=RestartedWorld)


# -- news of arrivals is a hint: nothing but time depends on it ------------------------------------------------------
class Lost(AwaitedKeys):
    """No news is sent."""

    def since(self, epoch: int, number: int, most: int = RING_KEYS) -> KeyArrivals:
        return super().since(epoch, number, most)._replace(keys=[])


class InVain(AwaitedKeys):
    """Announces some keys that did not come, each several times at once. They are looked for immediately and missed:
    without an end, a schedule would be nothing else."""

    def __init__(self, epoch: int, monotonic: Callable[[], float]) -> None:
        super().__init__(epoch, monotonic)
        self._told: Counter[tuple[bytes, int]] = Counter()

    def missed(self, keys: Sequence[bytes], mark: int) -> bool:
        told, second = super().missed(keys, mark), int(self._monotonic())
        some = [key for key in keys if key[-1] % 3 == 0 and self._told[key, second] < IN_VAIN_A_SECOND]
        self._told.update((key, second) for key in some)
        self._tell(some)
        return told or bool(some)


@pytest.mark.seeded
@pytest.mark.parametrize("sought", [Lost, InVain])
def test_news_that_is_lost_or_wrong_breaks_nothing(sought: type[AwaitedKeys]) -> None:
    for seed in share(seeds(SEEDS), 20, least=2):
        run_seed(2 * seed + 1, Variant(sought=sought))  # one in which stores tell


# -- what makes it prompt --------------------------------------------------------------------------------------------
class NotOnTheWay(ArrivedKeys):
    """News that arrives during an attempt wakes nobody."""

    def since(self, keys: Sequence[bytes], number: int) -> Mask:
        return np.zeros(len(keys), np.bool_)


class AllTriesCount(NextTries):
    """Failed tries back off by the number of all earlier tries, as those without a primary event do."""

    def after(self, attempt: Attempt, likeness: Likeness) -> NextTry:
        return super().after(attempt, likeness._replace(failed=likeness.attempts))


class NotUncommitted(Waiting):
    """A row whose last try is not committed hears no news."""

    def arrived(self, keys: Sequence[bytes]) -> None:
        updates, self._to_update = self._to_update, {}
        super().arrived(keys)
        self._to_update = updates


ABLATIONS = {
    "news is lost": Variant(sought=Lost),
    "news during an attempt": Variant(patches=((dispatcher_waiting, "ArrivedKeys", NotOnTheWay),)),
    "tries without a primary event put off those that fail": Variant(
        patches=((dispatcher_core, "NextTries", AllTriesCount),)
    ),
    "news between an answer and its commit": Variant(patches=((dispatcher_core, "Waiting", NotUncommitted),)),
}


@pytest.mark.parametrize("name", ABLATIONS)
def test_the_simulator_notices_that_a_late_primary_is_found_by_back_off(name: str) -> None:
    def run(seed: int) -> None:
        run_late(seed, ABLATIONS[name], RestartedWorld)

    notice(f"late: {name}", range(ABLATION_SEEDS), run, "late")
