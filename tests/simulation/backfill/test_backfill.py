"""A backfill (``world.backfill``) with only the registry, against a rival that registers some of its ids: seeded
schedules, and with its rules removed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from random import Random

import numpy as np
import pytest

from photon.batch.ids import Ids
from photon.idregistry.api import Answer, Kind, Slot, token_of
from tests.simulation.backfill.ablations import ABLATIONS
from tests.simulation.world import backfill, check, site_faults
from tests.simulation.world.noticed import notice, reach
from tests.simulation.world.process import Process, main
from tests.simulation.world.seeds import seeds, share
from tests.simulation.world.truth import Fate, make_truth
from tests.simulation.world.world import DATACENTRES, World, run_seed

SEEDS = 25
_SEEDS = share(seeds(SEEDS), 4, least=10)
SEEDS_OF_AN_ABLATION = 600  # schedules within which the world must notice a missing rule; most need a few
LIVE = Slot("live-1", "east")


class Live(Process):
    """Registers events one after the other, also ones that the backfill may be working on. It is never killed."""

    async def run(self) -> None:
        world, registry = self.world, self.registry()
        assert isinstance(world, BackfillWorld)
        nonce = self.random.randbytes(8)
        while (opened := await registry.open_slot(LIVE, 0, nonce)) is None:
            pass
        registry.announce(LIVE, [opened.incarnation])
        for number, event in enumerate(world.truth.events.values()):
            if self.random.random() < 0.3:
                ids = Ids(
                    world.digester.digest(event.event_id), np.array([event.time_ns]),
                    np.array([token_of(opened.incarnation, number)], np.uint64), np.array([Kind.JOINED], np.uint8),
                    np.array([7], np.uint32), np.zeros(1, np.uint32),
                )  # fmt: skip
                await asyncio.sleep(self.random.uniform(0.0, 3.0))
                while (answer := (await registry.insert(ids, timeout=2.0)).outcomes[0]) == Answer.UNKNOWN:
                    pass
                if answer == Answer.COMMITTED:
                    world.live.append(event.event_id)
        await asyncio.Event().wait()


class BackfillWorld(World):
    """Most of the logs exist when it begins."""

    faults_s = 25.0
    common_faults = (
        *((fault, 3 * weight) for fault, weight in backfill.FAULTS),
        (site_faults.kill_one, 2),
        (site_faults.pause_one, 4),
        (site_faults.cut_network, 3),
        (site_faults.weather, 3),
        (site_faults.new_leader, 3),
    )

    def _draw(self) -> None:
        super()._draw()
        self.apart = self.loses_slots = False
        self.unrests[:] = [backfill.undone]
        self.checks[:] = [findings]
        self.crash_in = ("backfill", "attempt")
        self.live: list[bytes] = []
        self.truth = make_truth(
            self.random, DATACENTRES, events=self.random.randint(2, 14), seconds=1.0, patience=1.0, future=0.0,
            fates=((Fate.JOINED, 3), (Fate.FILTERED, 1)),
        )  # fmt: skip

    def _place_more(self) -> None:
        self.backfill = backfill.plan(self, Random(self.random.getrandbits(64)))

    def _begin(self) -> None:
        super()._begin()
        live = Live(self, self.places["east"], "east-live")
        self.lives.append(live)
        self.loop.later(backfill.START_S, self.loop.spawn, live, main(live))


def findings(world: BackfillWorld) -> Iterator[str]:
    """Each event is written once, by the backfill or by whoever came first; nothing stays unfinished."""
    assert world.backfill is not None
    times = Counter(record.event_id for record in check.records(world)) + Counter(world.live)
    owners = check.owners(world)
    for event_id, event in world.truth.events.items():
        there = event_id not in world.backfill.late and world.backfill.there(world, event, backfill.START_S)
        read = there or owners[event_id] is not None
        if times[event_id] != read:
            yield (
                f"{event_id!r} is lost" if not times[event_id] else f"{event_id!r} is written {times[event_id]} times"
            )
    yield from (f"invented: {event_id!r}" for event_id in times.keys() - world.truth.events.keys())
    for machine in world.shard_machines():
        if owned := len(machine.owned_page(backfill.SLOT.name, (1 << 24) - 1, b"").times):
            yield f"{owned} ids are owned at rest"


@pytest.mark.seeded
@pytest.mark.parametrize(
    "batch", [_SEEDS[n : n + 5] for n in range(0, len(_SEEDS), 5)], ids=lambda b: f"{b[0]}-{b[-1]}"
)
def test_every_event_is_written_once(batch: list[int]) -> None:
    for seed in batch:
        run_seed(seed, kind=BackfillWorld)


def test_a_seed_replays_exactly() -> None:
    one, other = (run_seed(7, story=True, kind=BackfillWorld) for _ in range(2))
    assert one.story == other.story


@pytest.mark.parametrize("name", sorted(ABLATIONS))
def test_the_simulator_notices_a_missing_rule(name: str) -> None:
    ablation = ABLATIONS[name]
    tried = range(SEEDS_OF_AN_ABLATION)
    notice(
        f"backfill: {name}", tried, lambda seed: run_seed(seed, ablation.variant, kind=BackfillWorld),
        ablation.finds,
    )  # fmt: skip


def test_schedules_reach_what_they_are_for() -> None:
    """The faults really happen: a simulator that does nothing finds nothing."""
    speculated = 0

    def told(seed: int) -> list[str]:
        nonlocal speculated
        world = run_seed(seed, story=True, kind=BackfillWorld)
        assert world.backfill is not None
        speculated += world.backfill.speculated
        return world.story or []

    killed = ("backfill is no more: kill", "attempt is no more: kill", "in the middle of a write", "has no power")
    reach("backfill", range(30), told, killed, lambda: speculated > 10)
