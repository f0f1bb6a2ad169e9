"""Schedules in which processes other than its owner redo a slot (rule 13): the adopter takes no work, redoes the
log's frames, drains, rolls and lets go, at any moment; the owner returns when the lock is free, or not for long."""

from __future__ import annotations

from tests.simulation.joiner.process import Process, Site, Variant
from tests.simulation.joiner.world import World
from tests.simulation.world.violation import of_seed

AT_ONCE_MAX = 3


class Adopter(Process):
    """A joiner of the datacentre in a slot that is not its own."""


class AdoptingWorld(World):
    """``locked`` False: adopters do not take the slot's lock."""

    def __init__(self, seed: int, *, locked: bool = True, story: bool = False) -> None:
        super().__init__(seed, Variant(), story=story)
        self._locked = locked
        self.adoptions = 0  # completed adoptions
        self.redone = 0  # completed adoptions that had something to redo

    def _act(self, site: Site) -> None:
        alive = [process for process in site.processes if process.alive]
        if not self._locked and self.faults and 0 < len(alive) < AT_ONCE_MAX and self.random.random() < 0.05:
            self._guard(site, self._adopt, site)
            return
        super()._act(site)

    def _start(self, site: Site) -> None:
        if self.random.random() < 0.5:
            self._adopt(site)
        else:
            super()._start(site)

    def _adopt(self, site: Site) -> None:
        self.say(f"{site.name} is adopted")
        process = Adopter(self, site)
        site.processes.append(process)
        process.step_opening()

    def _submit(self, site: Site, process: Process) -> None:
        if not isinstance(process, Adopter):
            super()._submit(site, process)

    def _act_of(self, site: Site, process: Process) -> None:
        super()._act_of(site, process)
        if isinstance(process, Adopter) and process.alive and self._may_go(process):
            process.store.roll_output()
            self.adoptions += 1
            self.redone += process.serving._next_frame > 0  # frames found in the log
            self.say(f"{site.name} is let go")
            self._end(site, power=False)

    def _may_go(self, process: Adopter) -> bool:
        """Its log is empty and its output durable; it need not wait until all is final."""
        core = process.core
        idle = core is not None and core.empty and process.opening is None and process.extending is None
        return idle and not process.appends and not process.writes and self.random.random() < 0.3


def run_seed(seed: int, *, locked: bool = True, story: bool = False) -> AdoptingWorld:
    """Runs one schedule; raises Violation, with the seed in it."""
    world = AdoptingWorld(seed, locked=locked, story=story)
    with of_seed(seed, world.story):
        world.run()
    return world
