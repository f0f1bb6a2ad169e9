"""The promises of every writer of a published log to its readers, and the schedules that test them: killed at any
step, power cut, over and over.

A ``Writer`` is one way in which Photon writes such a log: numbered rows (dispatchers, computations), a joiner's slot,
the copy of a slot, a bucket. Each knows its lines durably before it writes them, and forgets the published ones.
"""

from __future__ import annotations

import gzip
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from photon.idregistry.witness import WitnessLog
from photon.joiner.copies.api import EMPTY, CopyOf, Extension, Part, Status
from photon.joiner.copies.kept import KeptCopy
from photon.joiner.slot.output import OutputDamaged, OutputLimits, SlotLog
from photon.joiner.slot.place import DIRECTORY_OF, KINDS, START
from photon.joiner.slot.recovery import next_numbers, repair_output
from photon.objects import directory
from photon.objects.paths import ObjectPath
from photon.outputs.log.format import OUTPUT_NAME
from photon.outputs.log.writer import LogWriter, NotOfThisState
from photon.outputs.mirrored import MANIFEST, manifest_of
from photon.outputs.output_places import OutputPlace
from photon.outputs.published import PublishedDamaged, read_slot
from photon.sinks.objects import ObjectSink
from tests.simulation.world.disk import PowerOff
from tests.simulation.world.faulty_disk import FaultyDisk
from tests.simulation.world.violation import Violation
from tests.unit.objects.fakes import MemoryBucket

LIVES = 8
ROLL_BYTES = (1, 30, 1 << 20)
WROTE = ("joined", "unmatched")
Lines = list[tuple[str, bytes]]  # kind and line, in the order in which they were given


class Writer(ABC):
    """``state``, ``output``: where readers find the log."""

    state = Path("/state/slots/s")
    output = Path("/out")
    apart = False  # readers see it elsewhere, also while no process runs here

    def __init__(self, disk: FaultyDisk, random: Random) -> None:
        self.disk, self.random = disk, random
        self.given = 0
        # Lines durable with the sender that were not published at the last look.
        self.waiting: dict[int, tuple[str, bytes]] = {}

    def shown(self) -> Iterator[tuple[str, bytes]]:
        """Kind and published bytes of each file."""
        for file in read_slot(self.disk, self.state).files:
            path = self.output / file.name
            data = self.disk.read(path)[: file.length] if self.disk.exists(path) else b""
            if len(data) < file.length:
                raise Violation(f"{file.name}: {file.length} bytes are shown, {len(data)} are there")
            yield file.kind, data

    @abstractmethod
    def start(self) -> None:
        """A new process: finds the log's contents and writes the rest of the waiting lines."""

    @abstractmethod
    def write(self, lines: Lines) -> None:
        """Publishes them."""

    def give(self, n: int) -> Lines:
        found: Lines = []
        for _ in range(n):
            self.given += 1
            found.append((self.random.choice(WROTE), b"line %d\n" % self.given))
            self.waiting[self.given] = found[-1]
        return found


class Numbered(Writer):
    """Rows with numbers, as in an outbox."""

    def __init__(self, disk: FaultyDisk, random: Random, log: type[LogWriter] = LogWriter) -> None:
        super().__init__(disk, random)
        self.type, self.acknowledged, self.lost = log, -1, False
        self.tells = random.random() < 0.5  # the sender says which lines it will write again

    def start(self) -> None:
        self.log = self.type(
            self.disk, self.output, self.state, "s", WROTE, roll_bytes=self.random.choice(ROLL_BYTES)
        )
        self.log.load()
        self.log.expect(self.acknowledged, "the sender")
        self._acknowledge()
        for kind in WROTE:
            lines = [line for of, line in self.waiting.values() if of == kind]
            if not self.log.recover(kind, lines if self.tells else None) and not self.lost:
                raise Violation(f"{kind}: what the sender wrote was taken for somebody else's")
        self.write([])

    def write(self, lines: Lines) -> None:
        rows = {number: row for number, row in self.waiting.items() if number > self.log.upto}
        if not rows:
            return
        for kind in WROTE:
            own = [line for of, line in rows.values() if of == kind]
            for at in range(0, len(own), 2):
                self.log.append(kind, b"".join(own[at : at + 2]))
        self.log.publish(max(rows))
        if self.random.random() < 0.8:
            self._acknowledge()

    def _acknowledge(self) -> None:
        self.acknowledged = max(self.acknowledged, self.log.upto)
        self.waiting = {number: row for number, row in self.waiting.items() if number > self.acknowledged}


class Replaced(Numbered):
    """Now and then a new sender comes that has lost its rows, perhaps with ``durable.json``."""

    def __init__(self, disk: FaultyDisk, random: Random, log: type[LogWriter] = LogWriter) -> None:
        super().__init__(disk, random, log)
        self.tells, self.replaced = True, False

    def start(self) -> None:
        if not self.replaced and self.random.random() >= 0.3:
            super().start()
            return
        self.replaced = self.lost = True  # until it has published what it found
        self.waiting, self.acknowledged = {}, -1
        if self.random.random() < 0.5 and self.disk.exists(self.state / "durable.json"):
            self.disk.remove(self.state / "durable.json")
        self.log = self.type(self.disk, self.output, self.state, "s", WROTE)
        self.log.load()
        for kind in WROTE:
            self.log.recover(kind, ())
        self.log.show()
        self.replaced = False


class OfASlot(Writer):
    """A joiner's slot, with its redo log: unsynced lines are looked for in the output, and the rest is rewritten."""

    def __init__(self, disk: FaultyDisk, random: Random, log: type[LogWriter] = LogWriter) -> None:
        super().__init__(disk, random)
        self.type: Any = SlotLog if log is LogWriter else type(log.__name__, (log, SlotLog), {})

    def start(self) -> None:
        limits = OutputLimits(roll_bytes=self.random.choice(ROLL_BYTES))
        self.log: SlotLog = self.type(self.disk, self.output, self.state, "s", limits)
        self.log.prepare()
        self.log.close_older()
        logged = {line[:-1]: line[:-1] for _, line in self.waiting.values()}
        found = repair_output(self.log, START if logged else None, logged).lines
        self.log.begin(next_numbers(self.log, {}, None))
        self.waiting = {number: row for number, row in self.waiting.items() if row[1][:-1] not in found}
        self.write(list(self.waiting.values()))

    def write(self, lines: Lines) -> None:
        kinds = {DIRECTORY_OF[kind]: kind for kind in KINDS}
        self.log.write([(kinds[kind], line) for kind, line in lines], 0.0)
        self.log.publish()
        self.waiting = {}


class OfACopy(Writer):
    """The keeper of a slot's copy: the slot sends what comes after the part the copy says it has."""

    state = Path("/state/copies/east/s")
    output = state / OUTPUT_NAME
    of = CopyOf("east", "s")

    def __init__(self, disk: FaultyDisk, random: Random) -> None:
        super().__init__(disk, random)
        self.files: dict[str, list[bytes]] = {kind: [] for kind in WROTE}  # the slot's own files
        self.published = EMPTY

    def give(self, n: int) -> Lines:
        found = super().give(n)
        for kind, line in found:
            if not self.files[kind] or self.random.random() < 0.3:
                self.files[kind].append(b"")
            self.files[kind][-1] += line
        return found

    def start(self) -> None:
        self.copy = KeptCopy(self.disk, self.state, self.of)
        self.copy.load()
        if self.copy.open(1).status is not Status.OK:
            raise Violation("the copy does not open")
        self.write([])

    def write(self, lines: Lines) -> None:
        ends, parts = self.copy.look().ends, []
        files = [self.files.get(DIRECTORY_OF[kind], []) for kind in KINDS]
        for at, of_kind in enumerate(files):
            for number, data in enumerate(of_kind, 1):
                begin = ends[at].length if number == ends[at].number else 0
                if number >= ends[at].number and data[begin:]:
                    parts.append(Part(at, number, data[begin:]))
        tells = self.random.random() < 0.7
        if tells:
            self.published = tuple(WitnessLog(len(each), len(each[-1]) if each else 0) for each in files)
        if self.copy.extend(Extension(1, ends, tuple(parts), self.published)).status is not Status.OK:
            raise Violation("the copy does not take what follows on it")
        if tells:
            self.waiting = {}


class InABucket(Numbered):
    """Numbered rows whose log is copied into a bucket. A process ends at any request, too."""

    apart = True
    into = ObjectPath("s3://lake/x")
    sink_type: type[ObjectSink] = ObjectSink

    def __init__(self, disk: FaultyDisk, random: Random) -> None:
        super().__init__(disk, random)
        self.bucket = MemoryBucket(lambda request: PowerOff() if disk.operation() else None)

    def start(self) -> None:
        super().start()
        directory._buckets[self.into.bucket] = directory.Bucket(self.bucket)
        self.sink = self.sink_type(self.disk, OutputPlace(self.output, self.state.parent.parent), self.into, WROTE)
        self.sink.pass_(all_of_it=True)

    def write(self, lines: Lines) -> None:
        super().write(lines)
        if hasattr(self, "sink"):
            self.sink.pass_(all_of_it=True)

    def shown(self) -> Iterator[tuple[str, bytes]]:
        data = {key.removeprefix(f"{self.into.key}/"): data for key, data in self.bucket.data.items()}
        named = manifest_of(data.get(MANIFEST, b""), self.into)
        for _, name in sorted((file.plain, name) for name, file in named.items()):
            if name not in data:
                raise Violation(f"{name}: {named[name].uncompressed_bytes} bytes are shown, none are there")
            yield named[name].kind, gzip.decompress(data[name])


class Schedule:
    """Lives of one writer after another, each ended somewhere; between them, readers look at the published data."""

    def __init__(self, seed: int, writer: type[Writer], *arguments: type[LogWriter]) -> None:
        self.random = Random(seed)
        self.disk = FaultyDisk(self.random)
        self.writer = writer(self.disk, self.random, *arguments)
        self.shown: dict[str, bytes] = dict.fromkeys(WROTE, b"")

    def run(self) -> None:
        for life in range(LIVES):
            last = life == LIVES - 1
            self.disk.crash_after(None if last else self.random.randrange(40))
            with suppress(PowerOff):
                self._life(last)
            self.disk.kill()
            if self.random.random() < 0.4:
                self.disk.power_cut()
            if self.writer.apart:
                self._look()
        self._look()
        if not getattr(self.writer, "lost", False):  # the rows of a lost sender are lost with it
            self._all_stand()

    def _life(self, last: bool) -> None:
        try:
            self.writer.start()
        except (NotOfThisState, PublishedDamaged, OutputDamaged) as refused:
            raise Violation(f"refused: {refused}") from None
        self._look()
        for _ in range(self.random.randrange(5)):
            lines = self.writer.give(self.random.randrange(4))
            if not last and self.random.random() < 0.2:
                return
            self.writer.write(lines)
            self._look()

    def _look(self) -> None:
        found: dict[str, bytes] = dict.fromkeys(WROTE, b"")
        for of_kind, data in self.writer.shown():
            found[of_kind] += data
        for kind, data in self.shown.items():
            if not found[kind].startswith(data):
                raise Violation(f"{kind}: shown {data!r}, now {found[kind]!r}")
        self.shown = found

    def _all_stand(self) -> None:
        standing: set[int] = set()
        for data in self.shown.values():
            numbers = [int(each) for each in re.findall(rb"line (\d+)\n", data)]
            if numbers != sorted(set(numbers)) or data != b"".join(b"line %d\n" % number for number in numbers):
                raise Violation(f"not each line once and in order: {data!r}")
            standing.update(numbers)
        if standing | self.writer.waiting.keys() != set(range(1, self.writer.given + 1)):
            raise Violation(f"{self.writer.given} lines were given, {sorted(standing)} stand there")
