"""Watermarks of each datacentre, sampled while the world runs, and their invariants at the end.

No record whose line kept the promise is behind the cursor of a pair with a newer time; lines that broke it are
counted. ``waiting`` is the truth: when it is said, it is the number of lines before the percentile that were read and
have no verdict, plus one for each slot that has not published such a record (``Sampler._check``); and each record
that still comes later, of a line that had been read, belongs to one of these lines or slots (``_waited``).
``Sampler`` takes each step separately, so that the world runs between them, as it does between real processes.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from photon.config.clock import NEVER_NS, NS_PER_S
from photon.dispatcher.database import show_together
from photon.dispatcher.undecided import Undecided, undecided
from photon.joiner.slot.place import DIRECTORY_OF
from photon.outputs.cursor import Cursor, OutputLog
from photon.outputs.next_read import end_of
from photon.outputs.published import read_slot
from photon.outputs.watermarks import Pair
from photon.verifier.watermark import Sample, SlotShown, Watermarks
from tests.simulation.world import settings
from tests.simulation.world.check import output_files
from tests.simulation.world.disk import PowerOff
from tests.simulation.world.state import Images, Lines, reopened_before
from tests.simulation.world.truth import EPOCH_NS

if TYPE_CHECKING:
    from tests.simulation.world.world import Place, World

WRITTEN_WITHIN_S = 3.0  # lines that take longer from their event time to their log's copy break the promise
WITHIN_NS = int((WRITTEN_WITHIN_S + settings.UNCERTAINTY_S) * NS_PER_S)


class Told(NamedTuple):
    """The inputs of a pair."""

    read_ns: int  # all lines present by then had been read, some time before
    # Lines without a verdict; ``None`` means that the claim was of another moment, counted more, or does not reach
    # the percentile, as the dispatcher lost its state: then lines said to wait before may still wait.
    lines: Lines | None
    showing: frozenset[str]  # slots that had something before the percentile to publish, or were not heard


@dataclass
class Sampler:
    """One pipeline's sampler: each step of a sample, in execution order."""

    world: World
    place: Place
    watermarks: Watermarks = field(default_factory=lambda: Watermarks(WITHIN_NS))
    pairs: list[Pair] = field(default_factory=list)
    # Journals the pair. ``False`` means that this failed, and the pair was never said.
    keep: Callable[[Pair], bool] = lambda pair: True
    told: list[Told] = field(default_factory=list)  # inputs of each pair

    steps = ("dispatcher", "slots", "published")

    def begin(self) -> None:
        self.asked: Undecided | None = None
        self.lines: Lines | None = None
        self.reopened: Callable[[int], int] = lambda time_ns: 0
        self.slots: list[SlotShown] = []
        self.cursor = Cursor()

    def dispatcher(self) -> None:
        db = sqlite3.connect(":memory:", isolation_level=None)
        images = [each.history[-1] for each in self.place.images.values() or [Images()]]  # none: nobody has begun
        for number, image in enumerate(images):
            db.execute(f"ATTACH ':memory:' AS p{number}")
            db.deserialize(image.data, name=f"p{number}")
        show_together(db, len(images))
        lines = [image.lines for image in images if image.lines is not None]
        self.lines = {line: at for each in lines for line, at in each.items()} if len(lines) == len(images) else None
        self.asked = undecided(db, len(images))
        self.reopened = partial(reopened_before, db)

    def slots_of(self) -> Iterator[SlotShown]:
        for name in self.place.joiners:
            process: Any = self.world.running(name)
            slot = self.place.slots.get(name, name)
            up = process is not None and process.serving and not process.paused
            yield SlotShown(slot, process.engine.shell.oldest_unshown_ns if up else None, "" if up else "down")
        for lost in self.world.lost:
            if lost.place is self.place and not lost.retired:
                yield SlotShown(lost.slot, None, "its directory is not there")

    def states(self) -> list[tuple[Any, Path]]:
        """Disk and state directory of each slot."""
        return [(self.place.disks[name], Path(f"/{name}/slot")) for name in self.place.joiners]

    def published(self) -> None:
        self.cursor = end_of([read_slot(disk, path) for disk, path in self.states()])

    def step(self, name: str) -> None:
        if name == "slots":
            self.slots = list(self.slots_of())
        else:
            getattr(self, name)()

    def end(self) -> None:
        asked = self.asked
        if asked is None:
            return
        before = self.watermarks.last
        pair = self.watermarks.take(Sample(0, asked, self.slots, self.cursor))
        told = self._told(asked, pair)
        if pair.percentile_ns is not None and self.lines is not None:
            self._check(self.lines, pair, told, 0 if before is None else before.waiting)
        if self.keep(pair):
            self.watermarks.journaled(pair)
            self.pairs.append(pair)
            self.told.append(told)

    def _told(self, asked: Undecided, pair: Pair) -> Told:
        before_ns = -NEVER_NS if pair.percentile_ns is None else pair.percentile_ns
        showing = [each.slot for each in self.slots if each.unshown_ns is None or each.unshown_ns < before_ns]
        if asked.read_ns is not None and asked.read_ns >= before_ns:
            return Told(asked.read_ns, self.lines, frozenset(showing))
        read_ns = max([asked.read_ns or 0, *(each.read_ns for each in self.told[-1:])])
        return Told(read_ns, None, frozenset(showing))

    def _check(self, lines: Lines, pair: Pair, told: Told, before: int) -> None:
        """The number said to wait is true."""
        time_ns = pair.percentile_ns or 0
        truth = sum(each < time_ns for each in lines.values()) + self.reopened(time_ns) + len(told.showing)
        if told.lines is None:
            truth = max(truth, before)
        if pair.waiting != truth:
            said = f"{pair.waiting} are said before {time_ns}, not {truth}"
            self.world.violated(f"waiting of {self.place.name}: {said}")


class WorldWatermarks:
    def __init__(self, world: World, sampler: type[Sampler]) -> None:
        self._world = world
        self._random = Random(world.seed)
        self.samplers = [sampler(world, place) for place in world.datacentres]
        self.moved = 0  # seconds that the exact watermarks moved, of all datacentres
        self.came = 0  # number of records that came and were known to wait

    def begin(self) -> None:
        if not self._world.apart:  # a clock that is wrong by days promises nothing
            for sampler in self.samplers:
                self._later(0.5, self._begin, sampler)

    def _later(self, most_s: float, act: Any, *args: Any) -> None:
        self._world.loop.later(self._random.uniform(0.0, most_s), act, *args)

    def _begin(self, sampler: Sampler) -> None:
        if any("dispatcher" in name for name in sampler.place.misled):
            return  # nor does one that is wrong by more than S: it is no longer sampled
        sampler.begin()
        self._step(sampler, 0)

    def _step(self, sampler: Sampler, number: int) -> None:
        if number == len(sampler.steps):
            sampler.end()
            self._later(1.0, self._begin, sampler)
            return
        try:
            sampler.step(sampler.steps[number])
        except (PowerOff, OSError):  # its disk is dead for now
            self._later(1.0, self._begin, sampler)
            return
        self._later(self._random.choice((0.0, 0.02, 0.5, 1.5)), self._step, sampler, number + 1)

    # -- in the end --------------------------------------------------------------------------------------------------
    def findings(self, generations: dict[bytes, int]) -> list[str]:
        """``generations``: those of the ids; reopened ones come late, if at all."""
        found: list[str] = []
        for sampler in self.samplers:
            exact = [pair.exact_ns for pair in sampler.pairs if pair.exact_ns is not None]
            self.moved += (exact[-1] - exact[0]) // NS_PER_S if exact else 0
            if exact != sorted(exact):
                found.append(f"the watermark of {sampler.place.name} went back")
            found += self._late(sampler, generations)
            found += self._waited(sampler, generations)
        return found

    def _late(self, sampler: Sampler, generations: dict[bytes, int]) -> Iterator[str]:
        late: Counter[str] = Counter()
        of_file: dict[str, tuple[list[int], list[int]]] = {}
        for file, number, log, offset, record in records_of(sampler.place):
            time_ns = record.get("event_time_ns")
            offsets, times = of_file.setdefault(file, ([], []))
            offsets.append(offset)
            times.append(time_ns)
            over = [p for p in sampler.pairs if p.exact_ns is not None and time_ns < p.exact_ns]
            passed = [p for p in over if p.cursor.positions.get(log, (0, 0)) <= (number, offset)]
            if not passed:
                continue
            late[file] += 1
            if not generations.get(record["event_id"].encode()) and self._kept(sampler.place, record):
                yield (
                    f"late: {record['event_id']} of {sampler.place.name} at {(time_ns - EPOCH_NS) / 1e9:.1f}, "
                    f"after {(passed[0].exact_ns - EPOCH_NS) / 1e9:.1f} was said in {file} at {offset}"
                )
        for file, (offsets, times) in of_file.items():
            counted = sampler.watermarks.published(file, offsets, np.array(times, np.int64), 0.0)
            if (counted.records if counted else 0) != late[file]:
                yield f"{late[file]} records of {file} are late, {counted} counted"

    def _waited(self, sampler: Sampler, generations: dict[bytes, int]) -> Iterator[str]:
        """Records that came behind a pair and had been read are those said to wait; if none were, none came."""
        for file, number, log, offset, record in records_of(sampler.place):
            if generations.get(record["event_id"].encode()):
                continue
            time_ns, there_ns = record["event_time_ns"], self._there_ns(sampler.place, record)
            line = (record["source"]["file"], record["source"]["offset"])
            for pair, told in zip(sampler.pairs, sampler.told, strict=True):
                if pair.cursor.positions.get(log, (0, 0)) > (number, offset):
                    break
                before = pair.percentile_ns is not None and time_ns < pair.percentile_ns
                waits = pair.waiting if told.lines is None else line in told.lines or log.slot in told.showing
                self.came += before and told.lines is not None and bool(waits)
                if before and not waits and there_ns + settings.UNCERTAINTY_NS < told.read_ns:
                    said_s = ((pair.percentile_ns or 0) - EPOCH_NS) / 1e9
                    yield (
                        f"waited: {record['event_id']} of {sampler.place.name} had been read when it was not "
                        f"among those before {said_s:.1f} that wait; it is in {file} at {offset}"
                    )
                    break

    def _kept(self, place: Place, record: dict[str, Any]) -> bool:
        """True if its line was in the log's copy in time."""
        return self._there_ns(place, record) - record["event_time_ns"] <= int(WRITTEN_WITHIN_S * NS_PER_S)

    def _there_ns(self, place: Place, record: dict[str, Any]) -> int:
        """Time at which its line was in the log's copy, by a correct clock."""
        source = record["source"]
        (log,) = [each for each in self._world.truth.foreign if each.name == source["file"]]
        return EPOCH_NS + int(log.arrivals[place.name][log.index_of[source["offset"]]] * 1e9)


def records_of(place: Place) -> Iterator[tuple[str, int, OutputLog, int, dict[str, Any]]]:
    """File, its number, its log, offset in it, and the record."""
    for joiner in place.joiners:
        disk = place.disks[joiner]
        for directory in DIRECTORY_OF.values():
            for name, data in output_files(disk, joiner, directory):
                plain = name.removesuffix(".gz")
                slot, _, number = plain.removesuffix(".jsonl").rpartition("-")
                at = 0
                for line in data.splitlines(keepends=True):
                    yield f"{directory}/{plain}", int(number), OutputLog(slot, directory), at, json.loads(line)
                    at += len(line)
