"""Processes that use the registry by the protocol's rules: a joiner with its slot, and an operator who retires slots.

What a slot keeps on its disk (the log of batches, the last incarnation, a drawn nonce) lasts over kills; all else is
the life of a process.
"""

from __future__ import annotations

import asyncio
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from photon.batch.ids import Ids
from photon.idregistry.api import Answer, Opened, Slot, incarnation_of, token_of
from photon.idregistry.client.grpc_client import GrpcBackend
from photon.idregistry.client.routing import RoutedRegistry
from photon.idregistry.core import commands as c
from photon.idregistry.raft.api import Applied
from photon.idregistry.replica.proposing import proposed
from tests.simulation.registry.channels import SimulatedChannels
from tests.simulation.registry.history import Asked, LookedUp, Opening, tag_of
from tests.simulation.world.clock import NS
from tests.simulation.world.cluster import Violation
from tests.simulation.world.processes import ProcessLoop

if TYPE_CHECKING:
    from tests.simulation.registry.world import RegistryWorld

IDS_PER_SECOND = 10
"""Of event time; an id's time is a function of the id."""
HOUR_AHEAD = 3_600 * IDS_PER_SECOND
"""From here on an id's time is that of an event server whose clock is wrong by an hour and more."""
_SETTLED = (Answer.COMMITTED, Answer.TAKEN, Answer.DONE, Answer.BELOW_BOUNDARY)


@lru_cache(maxsize=100_000)
def digest_of(number: int) -> bytes:
    return blake2b(number.to_bytes(8, "little", signed=True), digest_size=16).digest()


def time_of(world: RegistryWorld, number: int) -> int:
    return world.epoch_ns + number * NS // IDS_PER_SECOND


def time_given(world: RegistryWorld, number: int) -> int:
    """What an id comes with: now and then another time than before, near or in another bucket."""
    other = world.random.choice((-1, 1, -30, -9_000, -90_000)) if world.random.random() < 0.2 else 0
    return time_of(world, number) + other * NS


@dataclass
class Batch:
    """Of a slot's log: ids under one token, and which of them are not yet known."""

    token: int
    numbers: list[int]
    times: list[int]
    """Event times that the ids come with."""
    generations: list[int]
    open: set[int] = field(default_factory=set)
    owned: set[int] = field(default_factory=set)


class Client:
    """A slot and the process that holds it now."""

    def __init__(self, world: RegistryWorld, name: str) -> None:
        self.world = world
        self.name = name
        self.slot = Slot(name, "east" if name < "s2" else "west")
        self.last = 0
        self.nonce = b""
        self.log: list[Batch] = []
        self.loop: ProcessLoop | None = None
        self.retired = False
        self.copied = False
        """Its directory was copied: another process may have the slot."""
        self.finished = 0
        """Batches of which everything became known, ever."""

    def start(self) -> None:
        """A process takes the slot; the one before it is dead."""
        if self.loop is not None or self.retired:
            return
        self.loop = ProcessLoop(self.world)
        self.world.tell(f"{self.name} starts")
        self.loop.start(self._serve(self.loop))

    def kill(self) -> None:
        if self.loop is not None:
            self.world.check_loop(self.loop, self.name)
            self.loop.kill()
            self.loop = None
            self.world.tell(f"{self.name} is killed")

    # --- one life ---------------------------------------------------------------------------------------------

    async def _serve(self, loop: ProcessLoop) -> None:
        world = self.world
        backend = GrpcBackend(dict.fromkeys(world.names, "nowhere:1"), world.clock)
        backend._channels = SimulatedChannels(world, self.name, loop)
        self.registry = RoutedRegistry(backend, world.clock)
        if self.nonce:  # a process before this one may have opened with it
            learnt = await self._open()
            if learnt is None:
                return
            self.last = learnt.newest
        self.nonce = world.random.randbytes(8)
        opened = await self._open()
        if opened is None:
            return
        if not opened.incarnation:
            if not self.copied:
                raise Violation(f"{self.name} was refused though nobody else has its slot: {opened.reason}")
            self._give_up(opened.reason)
            return
        if world.serving.setdefault(opened.incarnation, loop) is not loop:
            raise Violation(f"two processes serve as incarnation {opened.incarnation} of {self.name}")
        self.last, self.nonce = opened.incarnation, b""
        carried = sorted({incarnation_of(batch.token) for batch in self.log} - {self.last})
        self.registry.announce(self.slot, [*carried, self.last])
        world.tell(f"{self.name} serves as incarnation {self.last}, redoes {len(self.log)} batches")
        number = 0
        while True:
            if not self.log:
                self.log.append(self._draw(number))
                number += 1
            if not await self._settle(self.log[0]):
                return
            del self.log[0]
            self.finished += 1
            if world.random.random() < 0.3:
                await self._look_up()
            await asyncio.sleep(world.random.uniform(0.0, 0.3))

    def copy(self) -> Client:
        """Somebody starts a process on a copy of the slot's directory."""
        other = Client(self.world, self.name)
        other.last, other.nonce = self.last, self.nonce
        other.log = deepcopy(self.log)
        self.copied = other.copied = True
        return other

    def _give_up(self, why: str) -> None:
        self.world.tell(f"a process of {self.name} ends for good: {why}")
        self.retired = True

    async def _open(self) -> Opened | None:
        """None: the slot is retired."""
        world = self.world
        while True:
            invoked = world.now
            opened = await self.registry.open_slot(self.slot, self.last, self.nonce)
            if opened is None:
                continue
            if opened.newest or opened.incarnation:
                world.history.openings.append(Opening(self.name, self.last, self.nonce, opened, invoked, world.now))
            if "was retired" in opened.reason:
                self.retired = True
                return None
            return opened

    def _draw(self, number: int) -> Batch:
        random = self.world.random
        around = int(self.world.now * IDS_PER_SECOND)
        numbers = sorted({around + random.randint(-25, 8) for _ in range(random.randint(1, 5))})
        if random.random() < 0.1:
            numbers.append(around + HOUR_AHEAD * random.randint(1, 30))
        generations = [self.world.reopened.get(digest_of(n), 0) for n in numbers]
        times = [time_given(self.world, n) for n in numbers]
        return Batch(token_of(self.last, number), numbers, times, generations, set(range(len(numbers))))

    async def _settle(self, batch: Batch) -> bool:
        """Inserts until all is known, then clears some of it. False: this process must end."""
        world = self.world
        while batch.open:
            rows = sorted(batch.open)
            if not await self._insert(batch, rows):
                return False
            if batch.open:
                await asyncio.sleep(0.05)
        owned = sorted(batch.owned)
        while owned and world.random.random() < 0.6:
            answers = await self._clear(batch, owned)
            owned = [row for row, answer in zip(owned, answers, strict=True) if answer == Answer.UNKNOWN]
        return True

    async def _insert(self, batch: Batch, rows: list[int]) -> bool:
        world = self.world
        n = len(rows)
        numbers = [batch.numbers[row] for row in rows]
        invoked = world.now
        for row in rows:
            key = (digest_of(batch.numbers[row]), batch.token, batch.generations[row])
            world.history.begun[key].append(invoked)
        found = await self.registry.insert(
            Ids(
                b"".join(map(digest_of, numbers)),
                np.array([batch.times[row] for row in rows], np.int64),
                np.full(n, batch.token, np.uint64),
                np.ones(n, np.uint8),
                np.full(n, tag_of(batch.token), np.uint32),
                np.array([batch.generations[row] for row in rows], np.uint32),
            ),
            timeout=world.random.choice((0.3, 1.0, 3.0)),
        )
        for at, row in enumerate(rows):
            answer, owner = int(found.outcomes[at]), int(found.owner_tokens[at])
            asked = Asked(
                "insert",
                digest_of(numbers[at]),
                batch.token,
                batch.generations[row],
                answer,
                owner,
                invoked,
                world.now,
            )
            world.history.asked.append(asked)
            if answer in (Answer.FENCED, Answer.STALE_INCARNATION):
                world.tell(f"{self.name} hears {Answer(answer).name}")
                if answer == Answer.FENCED or self.copied:
                    self._give_up(Answer(answer).name)
                return False
            far = numbers[at] > int(world.now * IDS_PER_SECOND) + HOUR_AHEAD // 2
            if answer in _SETTLED or (answer == Answer.TOO_NEW and (world.calm or far)):
                batch.open.discard(row)  # too new is the dispatcher's: it comes again with another batch
            if answer == Answer.COMMITTED:
                batch.owned.add(row)
        return True

    async def _look_up(self) -> None:
        """At whichever replica is nearest."""
        world = self.world
        around = int(world.now * IDS_PER_SECOND)
        numbers = sorted({around + world.random.randint(-35, 8) for _ in range(4)})
        times = [time_given(world, each) for each in numbers]
        invoked = world.now
        found = await self.registry.look_up(
            b"".join(map(digest_of, numbers)),
            np.array(times, np.int64),
            timeout=1.0,
        )
        rows = zip(numbers, times, found.outcomes.tolist(), found.owner_tags.tolist(), strict=True)
        for number, time, answer, tag in rows:
            seen = LookedUp(digest_of(number), time, answer, tag, invoked, world.now)
            world.history.looked_up.append(seen)

    async def _clear(self, batch: Batch, rows: list[int]) -> list[int]:
        world = self.world
        numbers = [batch.numbers[row] for row in rows]
        invoked = world.now
        answers = await self.registry.clear(
            b"".join(map(digest_of, numbers)),
            np.array([batch.times[row] for row in rows], np.int64),
            np.full(len(rows), batch.token, np.uint64),
            timeout=1.0,
        )
        for number, answer in zip(numbers, answers.tolist(), strict=True):
            world.history.asked.append(
                Asked("clear", digest_of(number), batch.token, 0, answer, 0, invoked, world.now)
            )
        return answers.tolist()


class Operator:
    """Retires a slot: intent in the config group, fences in every shard, and only then its ids are reopened."""

    def __init__(self, world: RegistryWorld, client: Client) -> None:
        self.world = world
        self.client = client
        self.loop = ProcessLoop(world)

    def start(self) -> None:
        self.world.tell(f"{self.client.name} is to be retired")
        self.loop.start(self._retire())

    async def _retire(self) -> None:
        world, name = self.world, self.client.name
        await self._until_applied(0, c.RetireSlot(name))
        for shard in world.shards:
            await self._until_applied(shard, c.Fence(name))
        world.tell(f"{name} is fenced everywhere")
        for shard in world.shards:
            for digest, number, token, generation in world.owned_by(shard, name):
                columns = (np.array([time_of(world, number)], "<i8"), np.array([token], "<u8"))
                await self._until_applied(
                    shard,
                    c.Reopen(digest, *(x.tobytes() for x in columns), np.array([generation], "<u4").tobytes()),
                )
                world.reopened[digest] = generation + 1

    async def _until_applied(self, group: int, command: c.ShardCommand | c.ConfigCommand) -> None:
        """At whoever leads now; an unknown outcome is tried again, as every one of these commands may be repeated."""
        world = self.world
        while True:
            await asyncio.sleep(0.05)
            for name in world.names:
                host = world.nodes[name].host
                if host is not None and host.group(group).state().is_leader:
                    outcome = await proposed(host.group(group), c.encode(command), timeout=1.0)
                    if isinstance(outcome, Applied):
                        return
