"""A backfill under faults: real driver, attempts, files and shards; processes are coroutines that a seed schedules.

Between any two steps an attempt or the driver may be killed, the power of the shared file system may go, Spark may
start an attempt of a task twice, and attempts that it gave up on live on as zombies, also beyond the run.
"""

from __future__ import annotations

import zlib
from collections.abc import Coroutine, Generator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from photon.config.errors import PhotonError
from photon.idregistry.api import Answer, Kind, Slot
from photon.joiner.rows import Rows
from photon.spark.backfill.attempt import BatchShell
from photon.spark.backfill.batch_names import ATTEMPT_WRITER, HOUR_NS, BackfillPaths, BatchName
from photon.spark.backfill.core import BatchCore
from photon.spark.backfill.driver import Driver, DriverLimits
from photon.spark.backfill.manifest import read_manifest
from photon.spark.backfill.parts import PartWriter, join_lines
from tests.simulation.backfill.registry import BackfillNetwork, BackfillRegistry, MachineRegistry, live_insert
from tests.simulation.world.disk import PowerOff, SimulatedDisk
from tests.simulation.world.registry import Call

SLOT = Slot("backfill-1", "east")
LIVE_INCARNATION = 1
STEPS_MAX = 20_000
FAULTY_STEPS = 400
PATIENCE_S = 40.0
BATCH_ROWS = 3


class Violation(AssertionError):
    """A promise was broken."""


@dataclass(frozen=True)
class Event:
    """A foreign event of the range."""

    digest: bytes
    time: int


class Wait:
    """Awaiting it gives the turn to the scheduler; ``ready`` says when it may come back."""

    def __init__(self, ready: Any = None) -> None:
        self.ready = ready or (lambda: True)

    def __await__(self) -> Generator[Wait, None, None]:
        yield self


@dataclass(frozen=True)
class Variant:
    """The protocol, or one with a rule taken out."""

    driver: type[Driver] = Driver
    core: type[BatchCore] = BatchCore
    shell: type[BatchShell] = BatchShell
    batch: type[BatchName] = BatchName


@dataclass(eq=False)
class Process:
    """A coroutine: the driver or an attempt."""

    name: str
    work: Coroutine[Any, Any, Any]
    waits: Wait | Call | None = None
    started: bool = False
    task: int = -1


@dataclass
class Clock:
    """Advances with the steps."""

    seconds: float = 0.0

    def now_ns(self) -> int:
        return int(self.seconds * 1e9)

    def monotonic(self) -> float:
        return self.seconds


@dataclass
class Run:
    """Tasks of the present run of the driver."""

    incarnation: int = 0
    finished: set[int] = field(default_factory=set)
    wanted: bool = False


class World:
    """One schedule."""

    def __init__(self, seed: int, variant: Variant | None = None) -> None:
        self.random = random = Random(seed)
        self.variant = variant or Variant()
        self.clock = Clock()
        self.disk = SimulatedDisk(random)
        self.model = MachineRegistry(random.randint(1, 3))
        self.network = BackfillNetwork(self.model, random)
        self.model.open_slot(Slot("live-1", "east"), 0, b"live")
        self.places = BackfillPaths(Path("/out"))
        self.disk.make_dir(self.places.output)
        events = [
            Event(bytes([random.randrange(256), n]) + bytes(14), random.randrange(3) * HOUR_NS + n)
            for n in range(random.randint(2, 14))
        ]
        self.events = events
        # An event that stands twice in the logs may come to two tasks, or to two batches of one.
        read = events + random.sample(events, random.randint(0, 2))
        random.shuffle(read)
        tasks = random.randint(1, 4)
        self.tasks = [read[n::tasks] for n in range(tasks)]
        self.late = {event.digest for event in events if random.random() < 0.2}
        """Written to the logs while the backfill runs: some attempts read them."""
        self.live: set[bytes] = set()
        self.processes: list[Process] = []
        self.run = Run()
        self.attempts = 0
        self.faults = True
        self.done = False
        self.told: list[str] = []
        self._nonces = 0

    # -- processes ----------------------------------------------------------------------------------------------
    def _nonce(self) -> bytes:
        self._nonces += 1
        return self._nonces.to_bytes(16, "big")

    async def _pause(self, seconds: float) -> None:
        await Wait()

    async def _drive(self) -> None:
        registry = BackfillRegistry(self.network, SLOT)
        driver = self.variant.driver(
            self.disk, self.places, SLOT, registry, self.clock, encode=join_lines, suffix="jsonl",
            draw_nonce=self._nonce, pause=self._pause, limits=DriverLimits(registry_s=PATIENCE_S),
        )  # fmt: skip
        manifest = await driver.begin()
        if manifest is None:
            run = self.run = Run(driver.incarnation, wanted=True)
            await Wait(lambda: len(run.finished) == len(self.tasks))
            run.wanted = False
            await driver.settle()
            manifest = await driver.publish({})
            self.tell("published")
        await driver.clear(manifest)
        await driver.tidy(manifest)
        self.done = True

    async def _attempt(self, task: int, run: Run, number: int) -> None:
        registry = BackfillRegistry(self.network, SLOT)
        registry.announce(SLOT, [run.incarnation])
        parts = PartWriter(self.disk, self.places, ATTEMPT_WRITER, join_lines, "jsonl")
        shell = self.variant.shell(
            self.disk, self.places, registry, self.clock, parts, writer=ATTEMPT_WRITER, pause=self._pause
        )
        skipped = {digest for digest in sorted(self.late) if self.random.random() < 0.5}
        events = [event for event in self.tasks[task] if event.digest not in skipped]
        for n, start in enumerate(range(0, len(events), BATCH_ROWS)):
            batch = self.variant.batch(run.incarnation, number, n)
            unique = {event.digest: event for event in events[start : start + BATCH_ROWS]}
            rows = rows_of(list(unique.values()), batch.token)
            core = self.variant.core(rows, [run.incarnation], self.clock.monotonic() + PATIENCE_S)
            await shell.run(batch, core, rows)
        run.finished.add(task)

    # -- schedule -----------------------------------------------------------------------------------------------
    def run_all(self) -> None:
        for step in range(STEPS_MAX):
            self.clock.seconds += 0.05
            if step == FAULTY_STEPS:
                self.faults = self.network.faults = False
            if self.done:
                break
            self._fault() if self.faults else None
            self._start()
            self._step()
        else:
            raise Violation("it never comes to its end")
        self._zombies_end()
        self.check()

    def tell(self, what: str) -> None:
        self.told.append(what)

    def _start(self) -> None:
        if not any(process.name == "driver" for process in self.processes):
            self.tell("driver starts")
            self.processes.append(Process("driver", self._drive()))
            return
        run = self.run
        if not run.wanted:
            return
        for task in range(len(self.tasks)):
            running = [p for p in self.processes if p.task == task and p.name == f"run {run.incarnation}"]
            second = self.faults and len(running) == 1 and self.random.random() < 0.02
            if task not in run.finished and (not running or second):
                self.tell("speculates") if second else None
                number, self.attempts = self.attempts, self.attempts + 1
                work = self._attempt(task, run, number)
                self.processes.append(Process(f"run {run.incarnation}", work, task=task))

    def _fault(self) -> None:
        random = self.random
        if random.random() < 0.03:
            event = random.choice(self.events)
            if live_insert(self.model, LIVE_INCARNATION, random, event.digest, event.time) is Answer.COMMITTED:
                self.live.add(event.digest)
        if self.processes and random.random() < 0.015:
            self._kill(random.choice(self.processes))
        if random.random() < 0.003:
            self._power_cut()

    def _kill(self, process: Process) -> None:
        self.tell(f"kill {process.name.split()[0]}")
        self.processes.remove(process)
        process.work.close()
        if process.name == "driver":
            self.run.wanted = False  # its attempts live on for a while: zombies

    def _power_cut(self) -> None:
        self.tell("power cut")
        for process in list(self.processes):
            self.processes.remove(process)
            process.work.close()
        self.run.wanted = False
        self.disk.power_cut()

    def _step(self) -> None:
        random = self.random
        if self.network.messages and random.random() < 0.4:
            self.network.deliver_one()
            return
        able = [process for process in self.processes if self._able(process)]
        if not able:
            self.network.deliver_one()
            return
        self._resume(random.choice(able))

    def _able(self, process: Process) -> bool:
        waits = process.waits
        if isinstance(waits, Call):
            return self.network.settled(waits) or (self.faults and self.random.random() < 0.05)
        return waits is None or bool(waits.ready())

    def _resume(self, process: Process) -> None:
        if isinstance(process.waits, Call):
            self.network.finish(process.waits)
        if self.faults and self.random.random() < 0.01:
            self.disk.crash_after(self.random.randint(1, 6))
        try:
            process.waits = process.work.send(None)
        except StopIteration:
            self.processes.remove(process)
        except PowerOff:
            self.processes.remove(process)
            if self.random.random() < 0.5:
                self._power_cut()
            elif process.name == "driver":
                self.run.wanted = False
        except PhotonError as error:
            self.tell(f"{process.name.split()[0]} ends: {type(error).__name__}")
            self.processes.remove(process)
            if process.name == "driver":
                self.run.wanted = False
        finally:
            self.disk.crash_after(None)

    def _zombies_end(self) -> None:
        """What lives on after the last run changes nothing any more."""
        for _ in range(STEPS_MAX):
            if not self.processes and not self.network.messages:
                return
            self.clock.seconds += 0.05
            self._step()
        raise Violation("zombies never end")

    # -- promises -----------------------------------------------------------------------------------------------
    def check(self) -> None:
        manifest = read_manifest(self.disk, self.places.manifest)
        if manifest is None:
            raise Violation("nothing was published")
        lines: list[bytes] = []
        for file in manifest.files:
            path = self.places.output / file.name
            data = self.disk.read(path) if self.disk.exists(path) else b""
            if (len(data), zlib.crc32(data)) != (file.bytes, file.crc32) or data.count(b"\n") != file.records:
                raise Violation(f"{file.name} is not what the manifest says")
            lines += data.splitlines()
        written = [bytes.fromhex(line.split()[0].decode()) for line in lines]
        events = [e for e in self.events if e.digest not in self.late or self.model.knows(e.digest, e.time)]
        for event in events:
            times = written.count(event.digest) + (event.digest in self.live)
            if times != 1:
                raise Violation(f"{event.digest.hex()} {'lost' if not times else 'written ' + str(times) + ' times'}")
        if len(written) + len(self.live) != len(events):
            raise Violation("invented")
        if owned := self.model.owned_of(SLOT.name):
            raise Violation(f"{owned} ids are owned at rest")


def rows_of(events: list[Event], token: int) -> Rows:
    """Would-be records of these events."""
    n = len(events)
    return Rows(
        digests=b"".join(event.digest for event in events),
        times=np.array([event.time for event in events], np.int64),
        tokens=np.full(n, token, np.uint64),
        kinds=np.array([Kind.JOINED if event.time % 2 else Kind.REJECTED for event in events], np.uint8),
        tags=np.zeros(n, np.uint32),
        generations=np.zeros(n, np.uint32),
        lines=[b"%b %016x\n" % (event.digest.hex().encode(), token) for event in events],
    )


def run_seed(seed: int, variant: Variant | None = None) -> World:
    """One schedule; raises Violation."""
    world = World(seed, variant)
    try:
        world.run_all()
    except Violation as violation:
        raise Violation(f"seed {seed}: {violation}") from None
    finally:
        for process in world.processes:
            process.work.close()
    return world
