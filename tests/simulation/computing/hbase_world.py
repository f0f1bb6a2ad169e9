"""The world of computations on HBase: each process has its own store and dies within any call, whose write may be
applied later, as may one whose answer is lost."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, contextmanager
from typing import Any

from photon.computing.intervals import Interval
from photon.computing.store import Store, on_hbase, prefix_of
from tests.simulation.computing.world import Killed, Process, Variant, World
from tests.simulation.world.violation import of_seed
from tests.unit.computing.fake_thrift import FakeHBase

NAME = "world"
FAULTS = ("before", "after", "late", "lost", "slow")


class Died(BaseException):
    """Not an ``Exception``, so that retries do not catch it."""


class HBaseWorld(World):
    def __init__(self, seed: int, variant: Variant) -> None:
        super().__init__(seed, variant)
        self.server = FakeHBase()
        self.server.fault = self._call
        self.rows = self.server.opened()
        self.late: list[Callable[[], Any]] = []
        self.armed = False
        self.trouble = self.random.choice((0.01, 0.05, 0.1))
        self.places = {each.id: each for each in self.table.all}
        self.stores: Any = _Opened(self)

    def store(self, interval: str) -> Store:
        return on_hbase(self.rows, NAME, self.places[interval])

    def _call(self, name: str, work: Callable[[], Any]) -> Any:
        if not self.armed or name in ("get", "scan") or self.random.random() >= self.trouble:
            return work()
        what = self.random.choice(FAULTS)
        self.counts[f"{name} {what}"] += 1
        if what in ("after", "lost"):
            work()
        if what in ("late", "slow"):
            self.late.append(work)
        if what in ("lost", "slow"):
            raise TimeoutError("no answer")
        raise Died()

    @contextmanager
    def _trouble(self) -> Any:
        self.armed = self.chaos > 0
        try:
            yield
        finally:
            self.armed = False

    def _step(self) -> None:
        if self.late and self.random.random() < 0.1:
            self.late.pop(self.random.randrange(len(self.late)))()
        super()._step()

    def _start(self, name: str) -> Process | None:
        try:
            with self._trouble():
                return super()._start(name)
        except Died:
            self.processes.pop(name, None)
            return None

    def _act(self, process: Process, what: str) -> None:
        try:
            with self._trouble():
                super()._act(process, what)
        except Died:
            self.tell(f"{process.engine.id} dies in {what}", "killed within")
            self._lose(process)

    def _killable(self, store: Any) -> Store:
        return _Killable(store) if self.random.random() < 0.3 else store

    def _new_store(self, interval: Interval) -> Any:
        if self.random.random() < 0.15 and self.chaos:
            raise Killed()
        for row in [row for row in self.server.rows if row.startswith(prefix_of(NAME, interval.id))]:
            del self.server.rows[row]
        self.places[interval.id] = interval
        return self.store(interval.id)

    def _come_to_rest(self) -> None:
        for work in self.late:
            work()
        self.late.clear()
        super()._come_to_rest()


class _Opened(dict[str, Any]):
    """Each process opens its own store."""

    def __init__(self, world: HBaseWorld) -> None:
        self._world = world

    def __getitem__(self, interval: str) -> Store:
        return self._world.store(interval)


class _Killable(Store):
    """Dies before it is retired."""

    def __init__(self, store: Store) -> None:
        self.__dict__ = store.__dict__

    def retire(self, sequencer: int, successors: tuple[str, ...]) -> None:
        raise Killed()


def run_hbase_seed(seed: int, variant: Variant | None = None) -> HBaseWorld:
    variant = variant or Variant()
    world = HBaseWorld(seed, variant)
    with variant.applied(), closing(world.rows), of_seed(seed):
        world.run()
    return world
