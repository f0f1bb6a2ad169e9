"""A model of the event store, honest about its contract; the real one (``eventstore/``) has its own tests.

It reads the datacentre's primary logs in order, some lines at a time. Its map outlives the process; the moment up to
which everything has been read does not. A miss is ABSENT only when a pass that began at or after the asked time found
nothing more.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from photon.batch.records import Records
from photon.eventstore.api import EventLookUps, KeyArrivals, LookUpCode, PrimaryRecord, Progress
from photon.eventstore.index import hash_keys
from photon.eventstore.tiered import NOTHING_READ_NS

if TYPE_CHECKING:
    from tests.simulation.world.process import Store

PASS_S = 0.6


class StoreModel:
    """Implements ``eventstore.api.EventStore`` for one process."""

    def __init__(self, process: Store) -> None:
        self._process = process
        self._world = process.world
        self._place = process.place
        self._read_past_ns = NOTHING_READ_NS
        self._read_past_at = process.clock.monotonic()
        epoch = process.random.getrandbits(63) | 1 if process.world.tells else 1
        self.sought = process.world.variant.sought(epoch, process.clock.monotonic)
        self._news = asyncio.Event()

    async def read(self) -> None:
        """Reads forever."""
        random, place, logs = self._process.random, self._place, self._world.truth.primary
        while True:
            began, began_at = self._process.clock.now_ns(), self._process.clock.monotonic()
            seen = [log.visible(place.name, self._world.loop.now) for log in logs]
            while any(mapped < there for mapped, there in zip(place.mapped, seen, strict=True)):
                for number, there in enumerate(seen):
                    before = place.mapped[number]
                    place.mapped[number] += min(max(0, there - before), random.choice((1, 10, 40)))
                    self._mapped([line.record for line in logs[number].lines[before : place.mapped[number]]])
                await asyncio.sleep(random.choice((0.01, 0.1)) * self._world.store_slowness)
            self._read_past_ns, self._read_past_at = began, began_at
            await asyncio.sleep(random.uniform(0.5, 1.5) * PASS_S)

    def _mapped(self, records: Sequence[bytes]) -> None:
        adapter, file = self._world.adapter, self._world.truth.primary[0].file
        keys = [key for record in records if (key := adapter.primary_key(record, file))]
        hashes = hash_keys(keys)
        order = np.argsort(hashes, kind="stable")
        if self.sought.read(keys, hashes[order], order):
            self._news.set()

    def _missed(self, keys: Sequence[bytes], mark: int) -> None:
        if self.sought.missed(keys, mark):
            self._news.set()

    def _is_there(self, key: bytes) -> bool:
        found = self._world.truth.first_primary(key)
        return found is not None and found[1] < self._place.mapped[found[0]]

    async def arrived(self, epoch: int, number: int, wait_s: float) -> KeyArrivals | None:
        came = self.sought.since(epoch, number)
        if not (came.keys or came.lost):
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._news.wait()
            came = self.sought.since(epoch, number)
        return came

    async def seek(self, keys: Sequence[bytes]) -> list[int] | None:
        mark = self.sought.mark()
        there = [row for row, key in enumerate(keys) if self._is_there(key)]
        self._missed([key for row, key in enumerate(keys) if row not in there], mark)
        return there

    async def look_up(
        self, keys: Sequence[bytes], as_of: Sequence[int], times: Sequence[int] | None = None
    ) -> EventLookUps:
        read_past_ns = self._read_past_ns
        world, logs = self._world, self._world.truth.primary
        if world.variant.sets:
            return self._sets(keys, as_of)
        answers: list[LookUpCode] = []
        records: list[PrimaryRecord | None] = []
        for key, until in zip(keys, as_of, strict=True):
            record = None
            if world.faults and self._process.random.random() < world.unavailable:
                answer = LookUpCode.UNAVAILABLE
            else:
                found = world.truth.first_primary(key)
                if found is not None and found[1] < self._place.mapped[found[0]]:
                    answer, line = LookUpCode.FOUND, logs[found[0]].lines[found[1]]
                    record = PrimaryRecord(line.record, logs[found[0]].file, line.offset)
                else:
                    answer = LookUpCode.ABSENT if read_past_ns >= until else LookUpCode.NOT_YET
            answers.append(answer)
            records.append(record)
        missed = [
            key for key, its in zip(keys, answers, strict=True) if its in (LookUpCode.NOT_YET, LookUpCode.ABSENT)
        ]
        self._missed(missed, self.sought.mark())
        if world.answers_take_s:
            await asyncio.sleep(self._process.random.uniform(0.0, world.answers_take_s))
        return EventLookUps.of(answers, records)

    def _sets(self, keys: Sequence[bytes], as_of: Sequence[int]) -> EventLookUps:
        """Like ``whole_sets``."""
        world, logs = self._world, self._world.truth.primary
        answers: list[LookUpCode] = []
        records: list[PrimaryRecord] = []
        counts: list[int] = []
        for key, until in zip(keys, as_of, strict=True):
            its = [at for at in world.truth.primaries(key) if at[1] < self._place.mapped[at[0]]]
            if world.faults and self._process.random.random() < world.unavailable:
                answers.append(LookUpCode.UNAVAILABLE)
            elif until == NOTHING_READ_NS or until > self._read_past_ns:
                answers.append(LookUpCode.NOT_YET)
            else:
                answers.append(LookUpCode.FOUND if its else LookUpCode.ABSENT)
            if answers[-1] is LookUpCode.FOUND:
                counts.append(len(its))
                lines = [(logs[log].file, logs[log].lines[at]) for log, at in its]
                records += [PrimaryRecord(line.record, file, line.offset) for file, line in lines]
        return EventLookUps(bytes(answers), Records.of(records), {}, np.array(counts, np.uint32))

    async def progress(self) -> Progress:
        age_ns = int((self._process.clock.monotonic() - self._read_past_at) * 1e9)
        return Progress(self._read_past_ns, age_ns, now_ns=self._process.clock.now_ns())

    async def close(self) -> None:
        return None
