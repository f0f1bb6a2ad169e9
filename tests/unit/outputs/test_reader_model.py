"""Readers of a real slot on a simulated disk: written, synced, rolled, made final, killed, its power cut.

Readers look between any two disk operations of the slot, and the slot works between any two looks of a reader. Each
is stopped and resumed anywhere. At every moment the data of each reader is a beginning of the final output, log by
log: nothing twice, nothing left out, nothing that was taken back.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import msgspec
import pytest

from photon.config.errors import PhotonError
from photon.idregistry.api import Kind
from photon.joiner.slot.finals import Finals
from photon.joiner.slot.output import OutputLimits
from photon.joiner.slot.slot import SlotPaths, SlotStore
from photon.outputs import Cursor, OutputLog, OutputPlace, Reader, content
from photon.outputs.content import FileContent
from photon.outputs.output_places import SLOTS_DIRECTORY
from tests.simulation.world.disk import PowerOff
from tests.simulation.world.faulty_disk import FaultyDisk
from tests.simulation.world.seeds import seeds
from tests.unit.joiner.helpers import rows_for

PLACE = OutputPlace(Path("/out"), Path("/state"))
STATE = PLACE.state / SLOTS_DIRECTORY / "s0"
READ = ("joined", "unmatched")
KIND_OF = (Kind.JOINED, Kind.UNMATCHED, Kind.FILTERED)


class WatchedDisk(FaultyDisk):
    """Calls back before each of the slot's operations."""

    watch: Callable[[], None] | None = None

    def operation(self) -> bool:
        if self.watch is not None:
            self.watch()
        return super().operation()


class ReadersDisk:
    """The same disk as readers see it: the slot works between any two of their looks."""

    def __init__(self, disk: WatchedDisk, work: Callable[[], None]) -> None:
        self._disk, self._work = disk, work

    def __getattr__(self, name: str) -> object:
        self._work()
        return getattr(self._disk, name)


class ReaderAtWork:
    """One consumer: its data, and the matching cursor."""

    def __init__(self, world: World, *, cleared_only: bool) -> None:
        self.world, self.cleared_only = world, cleared_only
        self.cursor = Cursor()
        self.has: dict[OutputLog, bytes] = {}
        self.reader = self.resumed()

    def resumed(self) -> Reader:
        block = self.world.random.choice((1, 64, 5000))
        cursor = Cursor.decode(self.cursor.encode(), "test")
        disk = self.world.readers_disk
        return Reader(disk, PLACE, READ, cursor=cursor, cleared_only=self.cleared_only, block_bytes=block)  # type: ignore[arg-type]

    def step(self) -> None:
        if self.world.random.random() < 0.2:
            self.reader = self.resumed()
        for block in self.reader.read():
            size = len(block.data)
            stop = self.world.random.random() < 0.2
            if stop and self.world.random.random() < 0.5:  # after some of its lines
                size = block.data.find(b"\n") + 1
            self.has[block.place] = self.has.get(block.place, b"") + block.data[:size]
            self.cursor = self.cursor.moved(block.place, block.end(size))
            if stop:
                self.reader = self.resumed()
                return


class World:
    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.disk = WatchedDisk(random)
        self.disk.make_dir(PLACE.output)
        self.limits = OutputLimits(roll_bytes=random.choice((1, 150, 400, 100_000)))
        self.forms = Random(f"{seed} forms")
        self.compressed = self.forms.choice((0.0, 0.5, 1.0))  # share of the starts that compress final files
        self.power_cuts = random.random() < 0.5
        self.store: SlotStore | None = None
        self.token = self.frame = 0
        self.open: list[int] = []
        self.final: set[bytes] = set()
        self.readers_disk = ReadersDisk(self.disk, self._meanwhile)
        self.busy = False
        self.readers = [ReaderAtWork(self, cleared_only=random.random() < 0.3) for _ in range(2)]
        self.disk.watch = self._look_in

    # -- readers and slot, one within the other ----------------------------------------------------------------
    def _look_in(self) -> None:
        """A reader looks between two operations of the slot."""
        if not self.busy and self.random.random() < 0.1:
            self.busy = True
            try:
                self.random.choice(self.readers).step()
            finally:
                self.busy = False

    def _meanwhile(self) -> None:
        """The slot works between two looks of a reader."""
        if not self.busy and self.random.random() < 0.05:
            self.work(self.random.choice((1, 5, 30)))

    def work(self, steps: int) -> None:
        self.busy = True
        try:
            for _ in range(steps):
                self.step()
        finally:
            self.busy = False

    # -- the slot ----------------------------------------------------------------------------------------------
    def step(self) -> None:
        try:
            if self.store is None:
                self.start()
            else:
                self.random.choice((self.write, self.write, self.sync, self.sync, self.finish, self.roll, self.end))()
        except PowerOff:
            self.down()

    def down(self) -> None:
        self.store = None
        if self.power_cuts and self.random.random() < 0.5:
            self.disk.power_cut()
        else:
            self.disk.kill()

    def end(self) -> None:
        if self.random.random() < 0.7:
            self.disk.crash_after(self.random.randint(1, 15))
        else:
            self.down()

    def start(self) -> None:
        limits = replace(self.limits, compress=self.forms.random() < self.compressed)
        store = SlotStore(self.disk, SlotPaths(STATE, PLACE.output), "s0", output_limits=limits)
        recovered = store.recover()
        self.open = []
        for number, rows in recovered.kept:
            lines = [line for line in rows.lines if line not in self.final]  # the registry knows these as done
            store.write([(Kind(int(rows.kinds[0])), b"".join(lines))], 0.0)
            self.open.append(number)
            self.frame = max(self.frame, number + 1)
        self.store = store

    def write(self) -> None:
        assert self.store is not None
        self.token += 1
        self.frame += 1
        kind = self.random.choice(KIND_OF)
        ids = [b"%d" % n for n in range(self.random.randint(1, 5))]
        rows = rows_for(ids, self.token, kind=int(kind), text=b',"x":"%b"' % (b"x" * self.random.choice((0, 9, 99))))
        self.store.log([(self.frame, rows)])
        self.store.write([(kind, b"".join(rows.lines))], 0.0)
        self.open.append(self.frame)

    def sync(self) -> None:
        assert self.store is not None
        self.store.sync_output(0.0)
        self.store.release(self.open)
        self.open = []

    def roll(self) -> None:
        assert self.store is not None
        self.store.roll_output()

    def finish(self) -> None:
        assert self.store is not None
        published = msgspec.json.decode(self.disk.read(STATE / "durable.json"))["files"]
        cleared = {name: length for name, length in published.items() if self.random.random() < 0.8}
        self.disk.make_dir(STATE / "verifier")
        self.disk.replace(STATE / "verifier/cleared.json", msgspec.json.encode({"version": 1, "files": cleared}))
        for name in self.store.cleared():
            self.final.update(self.disk.read(PLACE.output / name).splitlines(keepends=True))
            self.store.finish(name)
            self.store.forget([name])

    # -- the end -----------------------------------------------------------------------------------------------
    def settle(self) -> None:
        """All logged lines are written, durable and published; everything is cleared."""
        self.busy = True
        self.disk.crash_after(None)
        if self.store is None:
            self.start()
        self.sync()
        published = msgspec.json.decode(self.disk.read(STATE / "durable.json"))["files"]
        self.disk.make_dir(STATE / "verifier")
        self.disk.replace(STATE / "verifier/cleared.json", msgspec.json.encode({"version": 1, "files": published}))

    def written(self, kind: str) -> bytes:
        """The whole output of a kind, read without the code under test."""
        names: Sequence[str] = self.disk.names(PLACE.output / kind)
        plain = sorted({name.removesuffix(".gz") for name in names if ".tmp" not in name})
        parts = []
        for name in plain:
            data = self.disk.read(PLACE.output / kind / (name if name in names else f"{name}.gz"))
            parts.append(data if name in names else gzip.decompress(data))
        return b"".join(parts)


@pytest.mark.parametrize("seed", seeds(6))
def test_each_reader_has_each_record_once(seed: int) -> None:
    world = World(seed)
    seen: list[tuple[OutputLog, bytes]] = []
    for _ in range(120):
        world.work(1)
        if world.random.random() < 0.5:
            world.random.choice(world.readers).step()
        seen += [(place, data) for reader in world.readers for place, data in reader.has.items()][-2:]
    world.settle()
    for reader in world.readers:
        before = None
        while reader.cursor != before:
            before = reader.cursor
            reader.step()
    whole = {OutputLog("s0", kind): world.written(kind) for kind in READ}
    for place, data in seen:
        assert whole[place].startswith(data), f"seed {seed}: {place} was changed under its reader"
    for reader in world.readers:
        assert {place: data for place, data in reader.has.items() if data} == {
            place: data for place, data in whole.items() if data
        }, f"seed {seed}"
    records = b"".join(whole.values()).splitlines()
    assert len(records) == len(set(records))


DEFECTS: dict[str, tuple[type, str, Callable[..., object]]] = {
    "a final file from its beginning": (content._Unpacking, "skip", lambda unpacking, length: None),
    "what was not used is lost": (FileContent, "give_back", lambda reading, data: None),
    "a start goes on in a final file": (Finals, "highest", lambda finals: {}),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_the_model_finds_a_reader_that_is_wrong(monkeypatch: pytest.MonkeyPatch, defect: str) -> None:
    monkeypatch.setattr(*DEFECTS[defect])
    for seed in range(20):
        try:
            test_each_reader_has_each_record_once(seed)
        except (AssertionError, PhotonError):
            return
    raise AssertionError("not found in 20 schedules")
