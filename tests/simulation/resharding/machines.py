"""Rule 16 in state machines alone: every proposal and every insert may come late, twice, or in another order.

The machines and the plans are the production's; Raft, network and clocks are replaced by a bag of entries in flight.
A schedule takes some hundredths of a second, so that rare orders are found.
"""

from __future__ import annotations

from collections import defaultdict
from random import Random
from typing import Any

from photon.idregistry.api import Answer, token_of
from photon.idregistry.core import commands as c
from photon.idregistry.core import reshard_plan, shard_changes
from photon.idregistry.core.config_machine import ConfigMachine
from photon.idregistry.core.former_shards import NotKnown, held_elsewhere
from photon.idregistry.core.sharding import shards_of, single_range
from photon.idregistry.core.state_machine import BatchAnswers, ShardMachine
from tests.simulation.world.holders import digest_of
from tests.simulation.world.violation import Violation

CONFIG_GROUP = 0
SECOND = 1_000_000_000
BEGIN = 10**18
SLOTS = ("s1", "s2", "s3")
STEPS = 400
IDS = 80
ROUNDS_MAX = 60
# One second of event time: a shard's entries from before a change are dropped, and not asked for, by buckets.
BUCKET_BITS = 30


class MachinesWorld:
    """See the module."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = BEGIN
        self.config = ConfigMachine()
        self.shards: dict[int, ShardMachine] = {}
        self.flying: list[tuple[int, Any]] = []
        self.accepted: dict[int, set[tuple[int, bytes]]] = defaultdict(set)
        # Retired slots, and the shards of that time in which they are not fenced yet.
        self.to_fence: dict[str, set[int]] = {}
        self.configs: list[tuple[c.Range, ...]] = []
        self.ended: dict[int, bool] = {}
        self._entries = 0
        self.apply(CONFIG_GROUP, c.SetUp(single_range(2)))
        for number, slot in enumerate(SLOTS, start=1):
            opened = self.apply(CONFIG_GROUP, c.OpenSlot(slot, "dc", 0, b"n"))
            assert opened.incarnation == number

    # --- entries ----------------------------------------------------------------------------------------------
    def apply(self, group: int, command: Any) -> Any:
        """A committed entry is applied."""
        self._entries += 1
        if group == CONFIG_GROUP:
            result = self.config.apply(self._entries, c.encode(command))
            if isinstance(command, c.RetireSlot):
                self.to_fence.setdefault(command.slot, set(self.config.changes.live))
            if isinstance(command, c.Decide) and not result:
                was = self.ended.setdefault(command.config, command.activate)
                if was != command.activate:
                    raise Violation(f"change {command.config} ended twice, otherwise")
            self._remember()
            return result
        machine = self.shards.get(group)
        if machine is None or group not in self.known_shards():
            return None  # a group that is not on this replica
        result = machine.apply(self._entries, c.encode(command))
        if isinstance(result, BatchAnswers):
            self._inserted(group, command, result)
        return result

    def _remember(self) -> None:
        for ranges in self.told():
            if ranges and ranges not in self.configs:
                self.configs.append(ranges)

    def told(self) -> list[tuple[c.Range, ...]]:
        """The configs that callers may have heard of by now."""
        return [self.config.changes.ranges]

    def known_shards(self) -> tuple[int, ...]:
        """Shards whose groups are on the replicas."""
        return self.config.changes.live

    def _inserted(self, shard: int, command: c.Batch, result: BatchAnswers) -> None:
        if result.inserts.outcomes[0] != Answer.COMMITTED:
            return
        slot = SLOTS[command.callers[0][0] - 1]
        if slot in self.to_fence and not self.to_fence[slot]:
            raise Violation(f"shard {shard} accepted from {slot}, which is fenced everywhere")
        number = next(n for n in range(IDS) if digest_of(n) == command.digests)
        self.accepted[number].add((shard, command.tokens))
        if len({shard for shard, _ in self.accepted[number]}) > 1:
            raise Violation(f"id {number} was accepted by shards {sorted(self.accepted[number])}")
        if len(self.accepted[number]) > 1:
            raise Violation(f"id {number} was accepted twice: {sorted(self.accepted[number])}")

    def deliver(self, *, again: float = 0.2) -> None:
        """Delivers one of the entries in flight; it may come again later."""
        if self.flying:
            # The latest more often than others, or nothing would ever finish.
            at = max(self.random.randrange(len(self.flying)) for _ in range(2))
            group, command = self.flying[at] if self.random.random() < again else self.flying.pop(at)
            self.apply(group, command)
            for slot, missing in self.to_fence.items():
                missing -= {n for n in missing if n in self.shards and self.shards[n].is_fenced(slot)}
                missing &= {*self.config.changes.live}

    # --- who proposes -----------------------------------------------------------------------------------------
    def care_for_shard(self, number: int) -> None:
        machine = self.shards.setdefault(number, ShardMachine(BUCKET_BITS))
        founding = self.config.founding(number)
        if not machine.configured:
            missing = [slot for slot in founding.slots if not machine.has_heard(slot)]
            for command in (*reshard_plan.seeds(missing), founding.configure):
                self.apply(number, command)  # one after the other: each is waited for
            return
        todo: list[Any] = [reshard_plan.shard_step(self.config.changes, machine.sharding, retention=False)]
        todo += [c.Fence(slot) for slot in self.config.retired() if not machine.is_fenced(slot)]
        todo += [
            c.Announce(name, dc, [newest]) for name, dc, newest, _ in founding.slots if not machine.knows([newest])
        ]
        self.flying += [(number, command) for command in todo if command is not None]

    def care_for_changes(self) -> None:
        facts = {number: machine.sharding for number, machine in self.shards.items()}
        step = reshard_plan.config_step(self.config.changes, facts, self.now)
        if step is not None:
            self.flying.append((CONFIG_GROUP, step))

    def begin(self) -> None:
        """Begins a change whose start was chosen without looking at anything."""
        changes = self.config.changes
        wanted = shard_changes.new_shards(changes, self.random.randint(1, 5))
        starts = self.now + self.random.randint(-1, 8) * SECOND
        self.flying.append((CONFIG_GROUP, c.Intend(changes.decided + 1, starts, wanted)))

    def insert(self) -> None:
        """Inserts by a caller with a config of any age, of an event of any time; the same id comes with several
        times."""
        random = self.random
        around = (self.now - BEGIN) // SECOND + 5 + random.randint(-6, 4)
        number = random.randrange(IDS) if random.random() < 0.01 else min(max(around, 0), IDS - 1)
        time = BEGIN + (number - 5) * SECOND
        if random.random() < 0.3:
            time += random.randint(-20, 8) * SECOND
        self.ask(int(shards_of(digest_of(number), random.choice(self.configs)[-1].shards)[0]), number, time)

    def ask(self, shard: int, number: int, time: int) -> None:
        """As a shard's leader does: it looks up the id before it proposes."""
        known = {number: machine for number, machine in self.shards.items() if machine.configured}
        if shard not in known:
            return
        try:
            held, config = self.former(shard, digest_of(number), known, self.config.changes.removed)
        except NotKnown:
            return
        if not held[0]:
            batch = self._batch(digest_of(number), time, self.random.randint(1, len(SLOTS)), config)
            self.flying.append((shard, batch))

    former = staticmethod(held_elsewhere)

    def _batch(self, digest: bytes, time: int, caller: int, config: int) -> c.Batch:
        token = token_of(caller, self.random.randrange(1_000)).to_bytes(8, "little")
        at = time.to_bytes(8, "little", signed=True)
        return c.Batch([(caller, 1)], digest, at, token, b"\1", bytes(4), config=config)

    # --- a schedule -------------------------------------------------------------------------------------------
    def step(self) -> None:
        random = self.random
        what = random.random()
        if what < 0.35:
            self.deliver()
        elif what < 0.65:
            self.insert()
        elif what < 0.85:
            self.care_for_shard(random.choice(self.known_shards()))
        elif what < 0.92:
            self.care_for_changes()
        elif what < 0.95:
            self.begin()
        elif what < 0.96 and self.config.changes.pending is not None:
            self.flying.append((CONFIG_GROUP, c.Decide(self.config.changes.pending.config, False, "given up")))
        elif what < 0.965:
            self.flying.append((CONFIG_GROUP, c.RetireSlot(random.choice(SLOTS[1:]))))
        else:
            self.now += random.randrange(3 * SECOND)
            if len(self.flying) > 30:
                del self.flying[random.randrange(len(self.flying))]

    def come_to_rest(self) -> None:
        """All entries in flight arrive and caretakers work; then every change has ended and every id has a place."""
        while self.flying:
            self.deliver(again=0.0)
        self.now += 3_600 * SECOND
        for _ in range(ROUNDS_MAX):
            for number in self.config.changes.live:
                self.care_for_shard(number)
            self.care_for_changes()
            if not self.flying:
                break
            while self.flying:
                self.deliver(again=0.0)
        changes = self.config.changes
        if self.flying or changes.pending is not None:
            raise Violation(f"the changes do not end: {changes.pending}, on their way {self.flying[:3]}")
        for number in changes.live:
            known = self.shards[number].sharding.standing
            if known.decided != changes.decided or known.prepared is not None:
                raise Violation(f"shard {number} stands at {known}, changes at {changes.decided}")
        for number in range(IDS):
            digest, time = digest_of(number), BEGIN + (number - 5) * SECOND
            shard = int(shards_of(digest, changes.ranges[-1].shards)[0])
            held, config = self.former(shard, digest, self.shards, changes.removed)
            if held[0]:
                continue
            result = self.apply(shard, self._batch(digest, time, 1, config))
            assert isinstance(result, BatchAnswers)
            if result.inserts.outcomes[0] not in (Answer.COMMITTED, Answer.TAKEN):
                raise Violation(f"id {number} is refused for good: {result.inserts.outcomes[0]}")


def run(seed: int) -> MachinesWorld:
    """One schedule. Raises Violation."""
    world = MachinesWorld(seed)
    for number in world.config.changes.live:
        world.care_for_shard(number)
    for _ in range(STEPS):
        world.step()
    world.come_to_rest()
    return world
