"""A changed file reaches one process after the other, in bad weather: with the old file, some events have no primary.

No event is called unmatched if the new file finds its primary event, in any order of starts, with either file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from photon.assembly import verdict_rule
from photon.assembly.verdict_rule import Unmatched, named
from photon.eventstore.api import EventLookUps, LookUpCode
from photon.idregistry.core.verdict_rules import RULES_MAX, VerdictRules
from photon.joiner import engine as joiner_engine
from tests.simulation.world.noticed import notice
from tests.simulation.world.process import JOIN, DispatcherProcess, JoinerProcess, Process, Store
from tests.simulation.world.seeds import seeds, share
from tests.simulation.world.store import StoreModel
from tests.simulation.world.violation import of_seed
from tests.simulation.world.world import Variant, World

SEEDS = 8
ABLATION_SEEDS = 150
ASK_S, HEARD_S = 1.0, 3.0
# The first process has the new file by then; each further one follows within ``STEP_MOST_S``.
CHANGED_MOST_S, STEP_MOST_S = 12.0, 15.0
OLD, NEW = b"old", b"new"


def hidden(key: bytes) -> bool:
    """True if the old file does not lead to the primary event."""
    return key[-1] % 2 == 1


async def announced(process: Process) -> Unmatched:
    """The process has told the registry of the file present at its start."""
    kind, at = process.name.rpartition("-")[2], process.place.name
    own = named("joiner", at, kind) if kind.startswith("joiner") else named(kind, at)
    world = process.world
    assert isinstance(world, ChangedWorld)
    rule = world.files[process.name]
    its = Unmatched(
        process.registry(), process.clock, join=JOIN, datacentre=at, process=own, rule=rule, others=world.others(at)
    )
    await its.begin(asyncio.Event())
    if rule == NEW:
        world.changed_at = min(world.changed_at, world.loop.now)
    return its


class FileStore(StoreModel):
    """With the old file it finds less, once one process has the new file and all others may know it: before that, the
    logs hold nothing that only the new file leads to."""

    narrow = True

    async def look_up(
        self, keys: Sequence[bytes], as_of: Sequence[int], times: Sequence[int] | None = None
    ) -> EventLookUps:
        read_past_ns = self._read_past_ns
        found = await super().look_up(keys, as_of)
        world = self._world
        assert isinstance(world, ChangedWorld)
        if not self.narrow:
            return found
        known = world.loop.now > world.changed_at + ASK_S + HEARD_S
        answers, records = found.answers, found.records
        for row, key in enumerate(keys):
            if answers[row] is LookUpCode.FOUND and hidden(key):
                answers[row] = LookUpCode.ABSENT if known and read_past_ns >= as_of[row] else LookUpCode.NOT_YET
                records[row] = None
        return EventLookUps.of(answers, records)


class ChangedStore(Store):
    async def run(self) -> None:
        world = self.world
        assert isinstance(world, ChangedWorld)
        rule = world.files[self.name]
        await announced(self)
        if world.mapped_by[self.place.name] != rule:  # other logs are read from the start
            world.mapped_by[self.place.name] = rule
            self.place.mapped = [0] * len(self.place.mapped)
        self.narrow = rule == OLD
        await super().run()

    def model(self) -> StoreModel:
        store = FileStore(self)
        store.narrow = self.narrow
        return store


class ChangedJoiner(JoinerProcess):
    async def run(self) -> None:
        self.unmatched = await announced(self)
        await asyncio.gather(super().run(), self.unmatched.run(asyncio.Event()))

    def make_engine(self, *given: Any, **more: Any) -> joiner_engine.JoinerEngine:
        engine = super().make_engine(*given, **more)
        engine.withholds = lambda: self.unmatched.waits
        return engine


class ChangedDispatcher(DispatcherProcess):
    async def run(self) -> None:
        await announced(self)
        await super().run()


KINDS: dict[type[Process], type[Process]] = {
    Store: ChangedStore, JoinerProcess: ChangedJoiner, DispatcherProcess: ChangedDispatcher,
}  # fmt: skip


class ChangedWorld(World):
    changed_at = float("inf")  # when the first process had announced the new file
    patches = ((verdict_rule, "ASK_S", ASK_S), (verdict_rule, "HEARD_S", HEARD_S))

    def _draw(self) -> None:
        super()._draw()
        self.apart = False

    def _place(self) -> None:
        super()._place()
        self.kinds = {name: (KINDS.get(kind, kind), place) for name, (kind, place) in self.kinds.items()}
        self.files = {name: OLD for name, (kind, _) in self.kinds.items() if kind in KINDS.values()}
        self.mapped_by = {place.name: OLD for place in self.datacentres}
        at = self.random.uniform(1.0, CHANGED_MOST_S)
        for place in self.random.sample(self.datacentres, 2):
            names = [name for name in self.files if name in place.names]
            for name in self.order(names):
                self.loop.later(at, self._change, name)
                at += self.step_s()

    def order(self, names: list[str]) -> list[str]:
        """Returns the order in which processes of a datacentre get the new file."""
        return self.random.sample(names, len(names))

    def step_s(self) -> float:
        return self.random.choice((0.1, self.random.uniform(0.0, STEP_MOST_S)))

    def others(self, datacentre: str) -> tuple[str, ...]:
        """The processes on which a joiner's verdicts depend."""
        return named("store", datacentre), named("dispatcher", datacentre)

    def _change(self, name: str) -> None:
        self.say(f"{name} has the new file")
        self.files[name] = NEW
        if (process := self.running(name)) is not None:
            self.ended(process, "started again with the new file")


def run_changed(seed: int, variant: Variant | None = None, kind: type[ChangedWorld] = ChangedWorld) -> ChangedWorld:
    """Raises Violation."""
    world = kind(seed, variant)
    with of_seed(seed):
        world.run()
    return world


@pytest.mark.seeded
def test_no_event_is_unmatched_whose_primary_the_new_file_finds() -> None:
    worlds = [run_changed(seed) for seed in share(seeds(SEEDS, world="changed file"), 10, least=3)]
    assert any(world.changed_at < world.rested_at for world in worlds)


# -- what each measure is for ------------------------------------------------------------------------------------
def last_one_counts(self: VerdictRules, process: str, rule: bytes) -> VerdictRules:
    """The rule of the process that started last is the newest."""
    rules = (*(each for each in self.rules if each != rule), rule)[-RULES_MAX:]
    return VerdictRules(rules, process, self.processes | {process: rule})


class OwnFileOnly(ChangedWorld):
    """A joiner does not look at its event store's file, which changes last."""

    def others(self, datacentre: str) -> tuple[str, ...]:
        return ()

    def order(self, names: list[str]) -> list[str]:
        return sorted(names, key=lambda name: name.endswith("store"))

    def step_s(self) -> float:
        return STEP_MOST_S


ABLATIONS = {
    "an unmatched verdict under the old file": (
        Variant(patches=((Unmatched, "waits", property(lambda self: "")),)), ChangedWorld,
    ),
    "a start with the old file makes it the newest": (
        Variant(patches=((VerdictRules, "announced", last_one_counts),)), ChangedWorld,
    ),
    "the event store's file is not looked at": (None, OwnFileOnly),
}  # fmt: skip


@pytest.mark.parametrize("name", ABLATIONS)
def test_the_simulator_notices_a_missing_measure(name: str) -> None:
    variant, kind = ABLATIONS[name]
    notice(
        f"changed file: {name}", range(ABLATION_SEEDS), lambda seed: run_changed(seed, variant, kind), "wrong verdict"
    )
