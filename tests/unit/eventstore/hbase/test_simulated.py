"""The map on an HBase that loses, moves and refuses at any moment: no complete answer ever lacks an entry.

PHOTON_SIM_SEED=n replays one seed.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from photon.adapters.logs.identity import log_name
from photon.config.disk import RealDisk
from photon.eventstore import hbase_file_map
from photon.eventstore.file_map import FileMap, FileMapUnavailable, MapKind, MappedPlaces, MapSettings, RowsLost
from photon.eventstore.hbase.schema import RegionView, VerifiedRegions, read_instances
from photon.eventstore.hbase_file_map import HBaseFileMap
from photon.eventstore.index import U64, hash_keys
from tests.unit.eventstore.file_map_contract import FileMapContract, event
from tests.unit.eventstore.helpers import ManualClock, block

from .memory import MemoryHBase

BLOCKS = 40
BLOCK_BYTES = 100
LOGS = ("a", "b")


class NoLookAfterMarks(HBaseFileMap):
    """A commit counts although a region was reopened before its marks."""

    def _write_marks(self, verified: VerifiedRegions, closes: bool) -> tuple[bytes, int]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(hbase_file_map, "read_instances", lambda hbase, regions: verified.instances)
            return super()._write_marks(verified, closes)


class NoLookAfterReading(HBaseFileMap):
    """A look-up counts although a region was reopened."""

    def places(self, keys: Sequence[bytes], hashes: U64) -> MappedPlaces:
        verified = self._view.verified
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(hbase_file_map, "read_instances", lambda hbase, regions: verified and verified.instances)
            return super().places(keys, hashes)


class NoMarks(HBaseFileMap):
    """The contents of a reopened region are trusted."""

    def _verify(self) -> VerifiedRegions:
        regions = self.hbase.regions(self._table)
        instances = read_instances(self.hbase, regions)
        assert instances is not None
        verified = VerifiedRegions(regions, instances)
        self._view = RegionView(verified, recovering=False)
        return verified


class NoRecovering(HBaseFileMap):
    """Look-ups are complete as soon as positions were taken back."""

    def _verify(self) -> VerifiedRegions:
        try:
            return super()._verify()
        except RowsLost:
            self._view = RegionView(self._view.verified, recovering=False)
            raise


class TestInMemory(FileMapContract):
    """The same tests as on a real one, without one."""

    @pytest.fixture(autouse=True)
    def _hbase(self) -> None:
        self.hbase = MemoryHBase(random.Random(1))

    def open(self, directory: Path, kind: MapKind, window_micros: int = 1000, window_bytes: int = 100) -> FileMap:
        settings = MapSettings(b"rule", kind, window_micros, window_bytes)
        file_map = HBaseFileMap(
            directory / "map", settings, log_name, RealDisk(), self.hbase, "t",
            clock=ManualClock(), random=self.hbase.rng.randbytes,
        )  # fmt: skip
        file_map.tend()
        return file_map


def keys_of(log: str, number: int) -> list[bytes]:
    process = b"10.0.0.%d:7" % (ord(log))
    return [event(number * 300 + i, process) for i in range(4)] + [b"%s-%d" % (log.encode(), number), b"same"]


class World:
    """A reader without threads: two logs, read from where the map says, restarted when it says so."""

    def __init__(self, seed: int, directory: Path, kind: MapKind, backend: type[HBaseFileMap] = HBaseFileMap) -> None:
        self.rng = random.Random(seed)
        self.hbase = MemoryHBase(self.rng)
        self.clock = ManualClock()
        self.directory, self.kind, self.backend = directory, kind, backend
        self.lost = self.complete = 0
        self.open()

    def open(self) -> None:
        self.map = self.backend(
            self.directory, MapSettings(b"rule", self.kind, 1000, 100), log_name, RealDisk(), self.hbase, "t",
            clock=self.clock, random=self.hbase.rng.randbytes, checkpoint_seconds=2.0,
        )  # fmt: skip
        self.ever = dict.fromkeys(LOGS, 0)  # as far as this process has read
        self.begin()

    def begin(self) -> None:
        at = {position.identity: position.offset for position in self.map.positions()}
        self.next = {log: at.get(log, 0) // BLOCK_BYTES for log in LOGS}

    def read_on(self) -> None:
        log = self.rng.choice(LOGS)
        number = self.next[log]
        if number < BLOCKS:
            at = number * BLOCK_BYTES
            starts = [at + 10 * i for i in range(6)]
            self.next[log] += 1  # the follower has moved, even if the write fails
            self.ever[log] = max(self.ever[log], self.next[log])
            self.map.add(
                block(keys_of(log, number), starts, identity=log, path=f"{log}.log", begin=at, end=at + BLOCK_BYTES)
            )

    def step(self) -> None:
        what = self.rng.random()
        self.clock.ns += self.rng.randrange(10**9)
        try:
            if what < 0.1:
                self.map.tend()
            elif what < 0.6:
                self.read_on()
                if self.next == self.ever:
                    self.map.all_read()
            elif what < 0.75:
                self.map.commit()
            elif what < 0.77:
                self.map.close()
                self.open()
            else:
                self.ask()
        except RowsLost:
            self.lost += 1
            self.begin()
        except FileMapUnavailable:
            pass

    def ask(self) -> None:
        """Everything this process has ever read is there, or the map says that it cannot tell."""
        read = [(log, number) for log in LOGS for number in range(self.ever[log])]
        chosen = self.rng.sample(read, min(len(read), 5))
        keys = [key for log, number in chosen for key in keys_of(log, number)[:5]]
        found = self.map.places(keys, hash_keys(keys))
        columns = (found.rows, found.logs, found.offsets, found.spans)
        places = set(zip(*(column.tolist() for column in columns), strict=True))
        logs = self.map.logs()
        for row in range(len(keys)):
            log, number = chosen[row // 5]
            offset = number * BLOCK_BYTES + 10 * (row % 5)
            there = any(
                at == row and logs[n].identity == log and begin <= offset < begin + max(span, 1)
                for at, n, begin, span in places
            )
            assert there or not found.complete, f"{keys[row]!r} of {log} block {number} is missing"
        self.complete += found.complete

    def settle(self) -> None:
        """Chaos ends: everything is read, committed, and complete."""
        self.hbase.chaos = 0.0
        while True:
            try:
                self.map.tend()
                for log in LOGS:
                    while self.next[log] < BLOCKS:
                        self.read_on()
                self.map.all_read()
                self.map.commit()
                break
            except RowsLost:
                self.begin()
        for _ in range(10):
            complete = self.complete
            self.ask()
            assert self.complete == complete + 1
        assert self.map.totals(exact=True).events == 6 * BLOCKS * len(LOGS)


def run(world: World, chaos: float) -> None:
    world.hbase.chaos = chaos
    for _ in range(250):
        world.step()
        if world.rng.random() < chaos / 2:
            world.hbase.crash(world.rng.choice(world.hbase.parts))


def each_world(directory: Path, kind: MapKind, chaos: float, seeds: range) -> Iterator[World]:
    for seed in seeds:
        print("seed", seed)
        world = World(seed, directory / str(seed), kind)
        run(world, chaos)
        try:
            yield world
            world.settle()
        finally:
            world.map.close()


@pytest.mark.parametrize("kind", MapKind)
@pytest.mark.parametrize("chaos", [0.0, 0.01, 0.1])
def test_no_complete_answer_lacks_an_entry(tmp_path: Path, kind: MapKind, chaos: float) -> None:
    named = os.environ.get("PHOTON_SIM_SEED")
    base = int(named) if named else random.randrange(2**32)
    seeds = 1 if named else 6 if os.environ.get("PHOTON_FULL") else 3
    assert len(list(each_world(tmp_path, kind, chaos, range(base, base + seeds)))) == seeds


@pytest.mark.parametrize("kind", MapKind)
@pytest.mark.parametrize("chaos", [0.01, 0.1])
def test_schedules_reach_what_they_are_for(tmp_path: Path, kind: MapKind, chaos: float) -> None:
    """For chosen seeds: with some others nothing may be lost by chance."""
    assert any(world.lost and world.complete for world in each_world(tmp_path, kind, chaos, range(6)))


def worlds(directory: Path, backend: type[HBaseFileMap], seeds: range) -> None:
    for seed in seeds:
        world = World(seed, directory / str(seed), MapKind.DENSE, backend)
        try:
            run(world, 0.02)
            world.settle()
        finally:
            world.map.close()


@pytest.mark.parametrize("backend", [NoLookAfterMarks, NoLookAfterReading, NoMarks, NoRecovering])
def test_each_rule_is_needed(tmp_path: Path, backend: type[HBaseFileMap]) -> None:
    """The simulation finds the failures that occur without it."""
    with pytest.raises(AssertionError, match="is missing"):
        worlds(tmp_path, backend, range(100))
