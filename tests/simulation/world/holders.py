"""Processes that hold a slot and use the registry by the protocol's rules, without joining anything: ids are drawn,
of any time, even hours ahead. Now and then they use a config of any age.

A slot's data on disk (the log of batches, the last incarnation, a drawn nonce) survives kills; everything else is
part of a process's life.
"""

from __future__ import annotations

import asyncio
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from random import Random
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from photon.batch.ids import Ids
from photon.config.clock import NS_PER_S
from photon.idregistry.api import Answer, Opened, Slot, incarnation_of, token_of
from photon.idregistry.client.routing import RoutedRegistry
from photon.idregistry.core import commands as c
from photon.idregistry.core.id_bucket import REOPENED
from photon.idregistry.core.outcomes import Description, Refusal
from tests.simulation.world import settings
from tests.simulation.world.faulty_disk import FaultyDisk
from tests.simulation.world.process import Process
from tests.simulation.world.replica import leader, propose
from tests.simulation.world.retiring import ALL, LostSlot
from tests.simulation.world.truth import EPOCH_NS
from tests.simulation.world.violation import Violation
from tests.simulation.world.world import Place

if TYPE_CHECKING:
    from tests.simulation.world.replica import RaftWorld

IDS_PER_SECOND = 2  # per second of event time; an id's time is a function of the id
HOUR_IDS = 3_600 * IDS_PER_SECOND
AHEAD = (1, 3, 6, HOUR_IDS - 1, HOUR_IDS)
DATACENTRES = ("east", "west")
ASK_S = (1.5, 3.0, 6.0)
AT_REST = 2  # batches that each slot settles after the faults: the first may have begun before
# A too-new id is left to the dispatcher: it comes again with another batch.
SETTLED = (Answer.COMMITTED, Answer.TAKEN, Answer.DONE, Answer.BELOW_BOUNDARY, Answer.TOO_NEW)


@lru_cache(maxsize=100_000)
def digest_of(number: int) -> bytes:
    return blake2b(number.to_bytes(8, "little", signed=True), digest_size=16).digest()


@dataclass
class Batch:
    """A batch in a slot's log: ids under one token, and those not yet known."""

    ids: Ids
    open: list[int]
    owned: list[int] = field(default_factory=list)

    @property
    def token(self) -> int:
        return int(self.ids.tokens[0])


@dataclass
class Directory:
    """A slot's data on disk."""

    slot: Slot
    last: int = 0
    nonce: bytes = b""
    log: list[Batch] = field(default_factory=list)
    copied: bool = False  # another process may have the slot
    settled: int = 0  # batches since the faults ended


@dataclass
class Slots:
    """All that holders own, and know of each other."""

    directories: dict[str, Directory] = field(default_factory=dict)
    serving: dict[int, Process] = field(default_factory=dict)  # process of each incarnation
    descriptions: list[Description] = field(default_factory=list)  # every config that some holder ever had


def place(world: RaftWorld, count: int) -> None:
    """Places each holder in its own region, so that it may be cut off from any replica."""
    world.slots = Slots()
    for number in range(count):
        name = f"holder{number}"
        for region in world.places:
            world.network.round_trip[frozenset((name, region))] = world.random.uniform(0.002, 0.1)
        world.places[name] = Place(name, name)
        world.slots.directories[name] = Directory(Slot(name, DATACENTRES[number % 2]))
        world._add(name, Holder, world.places[name])
    world.unrests[:0] = [unanswered]


def number_now(world: RaftWorld) -> int:
    return int(world.loop.now * IDS_PER_SECOND)


def times_given(random: Random, numbers: list[int]) -> np.ndarray:
    """Times that come with ids: now and then different from before, in a near or another bucket."""
    others = [random.choice((-1, 1, -30, -9_000, -90_000)) if random.random() < 0.2 else 0 for _ in numbers]
    seconds = [number / IDS_PER_SECOND + other for number, other in zip(numbers, others, strict=True)]
    return EPOCH_NS + np.array([int(each * NS_PER_S) for each in seconds], np.int64)


def generations(world: RaftWorld, digests: list[bytes]) -> np.ndarray:
    """Generations that dispatchers hear from the list of reopened ids."""
    tables = [machine._table for machine in world.shard_machines()]
    found = [[entry for table in tables if (entry := table.get(digest)) is not None] for digest in digests]
    return np.array(
        [max([e.generation for e in each if e.state == REOPENED], default=0) for each in found], np.uint32
    )


class Holder(Process):
    """One life of a process that holds a slot."""

    world: RaftWorld

    def __init__(self, world: RaftWorld, place: Place, name: str) -> None:
        super().__init__(world, place, name)
        self.kept = world.slots.directories[name]

    async def run(self) -> None:
        world, kept = self.world, self.kept
        self.client = self.registry()
        if kept.nonce:  # a process before this one may have opened with it
            kept.last = (await self._open()).newest
        kept.nonce = self.random.randbytes(8)
        opened = await self._open()
        if not opened.incarnation:
            if not kept.copied:
                raise Violation(f"{self.name} was refused though nobody else has its slot: {opened.reason}")
            self._give_up(opened.reason)
        if world.slots.serving.setdefault(opened.incarnation, self) is not self:
            raise Violation(f"two processes serve as incarnation {opened.incarnation} of {self.name}")
        kept.last, kept.nonce = opened.incarnation, b""
        carried = sorted({incarnation_of(batch.token) for batch in kept.log} - {kept.last})
        self.client.announce(kept.slot, [*carried, kept.last])
        world.say(f"{self.name} serves as incarnation {kept.last}, redoes {len(kept.log)} batches")
        number = 0
        while world.faults or kept.log or kept.settled < AT_REST:
            if not kept.log:
                kept.log.append(self._draw(number))
                number += 1
            await self._settle(kept.log[0])
            del kept.log[0]
            kept.settled += not world.faults
            if self.random.random() < 0.3:
                around = number_now(world)
                numbers = sorted({around + self.random.randint(-35, 8) for _ in range(4)})
                digests = b"".join(map(digest_of, numbers))
                await self.client.look_up(digests, times_given(self.random, numbers), timeout=5.0)
            await asyncio.sleep(self.random.uniform(0.0, 1.5))
        await self._clear_all()
        kept.settled += 1
        await asyncio.Event().wait()

    async def _open(self) -> Opened:
        kept, opened = self.kept, None
        while opened is None:
            opened = await self.client.open_slot(kept.slot, kept.last, kept.nonce)
            await asyncio.sleep(0.1)
        if "was retired" in opened.reason:
            self._give_up(opened.reason)
        return opened

    def _give_up(self, why: str) -> NoReturn:
        self.world.away.add(self.name)
        self.end(f"ends for good: {why}")

    def _draw(self, number: int) -> Batch:
        random, around = self.random, number_now(self.world)
        numbers = {around + random.randint(-25, 8) for _ in range(random.randint(1, 5))}
        if random.random() < 0.1:  # from an event server whose clock is wrong
            numbers.add(around + HOUR_IDS * random.randint(1, 30))
        if random.random() < 0.3:
            ahead = random.choice(AHEAD)
            numbers |= {each + ahead for each in numbers}
        drawn = sorted(numbers)
        digests, token = [digest_of(each) for each in drawn], token_of(self.kept.last, number)
        ids = Ids(
            b"".join(digests),
            times_given(random, drawn),
            np.full(len(drawn), token, np.uint64),
            np.ones(len(drawn), np.uint8),
            np.full(len(drawn), random.getrandbits(32), np.uint32),
            generations(self.world, digests),
        )
        return Batch(ids, list(range(len(drawn))))

    async def _settle(self, batch: Batch) -> None:
        """Inserts until all is known, then clears part of it."""
        slots, random = self.world.slots, self.random
        while batch.open:
            if slots.descriptions and self.world.faults and random.random() < 0.3:
                self.client._description = random.choice(slots.descriptions)
            await self._insert(batch)
            found = self.client._description
            if found is not None and all(found.config != each.config for each in slots.descriptions):
                slots.descriptions.append(found)
            if batch.open:
                await asyncio.sleep(0.25)
        owned = batch.owned
        while owned and (not self.world.faults or random.random() < 0.6):
            ids = batch.ids.take(np.array(owned))
            answers = await self.client.clear(ids.digests, ids.times, ids.tokens, timeout=5.0)
            owned = [row for row, answer in zip(owned, answers.tolist(), strict=True) if answer == Answer.UNKNOWN]

    async def _insert(self, batch: Batch) -> None:
        rows = batch.open[:]
        found = await self.client.insert(batch.ids.take(np.array(rows)), timeout=self.random.choice(ASK_S))
        for row, answer in zip(rows, found.outcomes.tolist(), strict=True):
            if answer in (Answer.FENCED, Answer.STALE_INCARNATION):
                why = f"hears {Answer(answer).name}"
                if answer == Answer.FENCED or self.kept.copied:
                    self._give_up(why)
                self.end(why)
            if answer in SETTLED:
                batch.open.remove(row)
            if answer == Answer.COMMITTED:
                batch.owned.append(row)

    async def _clear_all(self) -> None:
        """Everything the slot still owns, as its verifier and recovery would."""
        client: RoutedRegistry = self.client
        left: set[int] | None = None
        while left is None or left:
            await asyncio.sleep(0.5)
            left = left or {*await client.recovery.shards(timeout=5.0)} or None
            for shard in left or set():
                page = await client.recovery.scan_owned(shard, self.kept.slot.name, ALL, timeout=5.0)
                if not isinstance(page, Refusal):
                    answers = await client.clear(page.digests, page.times, page.tokens, timeout=5.0)
                    if not page.cursor and Answer.UNKNOWN not in answers:
                        left = left - {shard} if left else set()


def unanswered(world: RaftWorld) -> str:
    """Every slot that is not given up has its answers, and owns nothing; slots to be retired are."""
    for name, kept in world.slots.directories.items():
        if name not in world.away and kept.settled <= AT_REST:
            return f"{name} has no answer"
    waiting = [lost.slot for lost in world.lost if not lost.retired and lost.slot in world.slots.directories]
    return f"{waiting} are not retired" if waiting else ""


# -- faults ----------------------------------------------------------------------------------------------------------
def _one(world: RaftWorld) -> str:
    return world.random.choice(list(world.slots.directories))


def kill_holder(world: RaftWorld) -> None:
    if (process := world.running(_one(world))) is not None:
        world.ended(process, "kill -9")


def cut_holder(world: RaftWorld) -> None:
    """It does not reach a replica, or does not hear from it."""
    pair = world.kinds[_one(world)][1].region, world.region_of(world.random.choice(world.replicas))
    cut = {world.random.choice((pair, pair[::-1]))}
    world.say(f"cut: {cut}")
    world.network.cut |= cut
    world.loop.later(world.random.uniform(1.0, 8.0), world.network.cut.difference_update, cut)


def retire_holder(world: RaftWorld) -> None:
    """Retires it permanently; its process may run on for a while. The first slot stays."""
    name = world.random.choice(list(world.slots.directories)[1:3])
    kept = world.slots.directories[name]
    if not kept.last or any(lost.slot == kept.slot.name for lost in world.lost):
        return
    world.say(f"{name} is to be retired")
    if world.random.random() < 0.5 and (process := world.running(name)) is not None:
        world.ended(process, "its disk is permanently gone")
    world.lost.append(LostSlot(kept.slot.name, name, world.places[name], FaultyDisk(Random(0))))


def copy_slot(world: RaftWorld) -> None:
    """A directory is copied with its contents, and a process starts on the copy while the first one serves."""
    name = _one(world)
    kept = world.slots.directories[name]
    if name in world.away or kept.copied:
        return
    world.say(f"{name} is copied")
    kept.copied = True
    world.slots.directories[f"{name}-copy"] = deepcopy(kept)
    world._add(f"{name}-copy", Holder, world.places[name])
    world.loop.later(world.random.uniform(0.0, 1.5), world.boot, f"{name}-copy")


def open_late(world: RaftWorld) -> None:
    """A process asks to open its slot, dies, and its successors have opened when the request arrives."""
    name = _one(world)
    process = world.running(name)
    if process is None:
        return
    region = process.region
    world.ended(process, "kill -9")
    world.network.lateness[region] = 8.0
    world.boot(name)

    def again() -> None:
        world.network.lateness.pop(region, None)
        if world.faults and (there := world.running(name)) is not None:
            world.ended(there, "kill -9")
            world.boot(name)

    world.loop.later(world.random.uniform(0.05, 0.5), again)


def ask_late(world: RaftWorld) -> None:
    """One holder's requests are in flight for seconds; it dies meanwhile."""
    name = _one(world)
    region = world.kinds[name][1].region
    world.network.lateness[region] = world.random.choice((2.0, 12.0))

    def ends() -> None:
        world.network.lateness.pop(region, None)
        if world.faults and (process := world.running(name)) is not None:
            world.ended(process, "kill -9")

    world.loop.later(world.random.uniform(0.8, 3.0), ends)


def jump_clock(world: RaftWorld) -> None:
    """Sets a replica's clock, beyond S or within it."""
    name = world.random.choice(world.replicas)
    _set_clock(world, name, world.random.choice((-1, 1)) * world.random.choice((1.5, 10.0, 50.0)))


def hours_ahead(world: RaftWorld) -> None:
    """A replica's clock is an hour wrong for a while: if it leads, events of that time are entered."""
    if world.retention_ns is not None:
        return  # the boundary would follow it, and nothing be entered any more
    name = world.random.choice(world.replicas)
    _set_clock(world, name, 3600.0)
    world.loop.later(world.random.uniform(1.0, 5.0), _set_clock, world, name, 0.0)


def unheard_and_set_back(world: RaftWorld) -> None:
    """A leader's answers are lost, it hears late about the others' entries, and its clock is set back: is what it
    accepted too new now?"""
    leading = leader(world, world.random.randint(1, world.shards))
    if leading is None:
        return
    unheard = {(leading.region, world.kinds[name][1].region) for name in world.slots.directories}
    unknowing = {(world.region_of(name), leading.region) for name in world.replicas if name != leading.name}
    world.network.cut |= unheard | unknowing
    world.say(f"{leading.name} is not heard")
    world.loop.later(1.0, _set_clock, world, leading.name, -50.0)
    world.loop.later(1.25, world.network.cut.difference_update, unheard)
    world.loop.later(2.5, world.network.cut.difference_update, unknowing)
    world.loop.later(12.0, _set_clock, world, leading.name, 0.0)


def _set_clock(world: RaftWorld, name: str, wrong_s: float) -> None:
    if name in world.kinds and world.faults:
        world.kinds[name][1].wrong[name] = wrong_s
        world.say(f"{name}: the clock is wrong by {wrong_s:g} s")


def late_boundary(world: RaftWorld) -> None:
    """A caretaker that decided long ago, and has been stalled since, proposes its old boundary."""
    if world.retention_ns is None:
        return
    then = world.loop.now - world.random.uniform(0.0, 15.0) - settings.UNCERTAINTY_S
    command = c.Boundary(EPOCH_NS + int(then * NS_PER_S) - world.retention_ns)
    for shard in world.history.shards:
        propose(world, shard, command)


def late_entry(world: RaftWorld) -> None:
    """A stalled caretaker or operator repeats an old proposal."""
    kinds = (c.Prepare, c.Activate, c.Abort, c.Configure, c.Seed, c.Intend, c.Decide, c.Close, c.Drop)
    entries = [
        (group, entry.command)
        for group in world.history.logs
        for entry in world.history.log(group)
        if isinstance(entry.command, kinds)
    ]
    for group, command in world.random.sample(entries, min(len(entries), 4)):
        propose(world, group, command)
