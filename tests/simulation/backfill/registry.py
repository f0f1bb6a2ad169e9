"""Production's shard state machines behind the simulations' bad network, and the fencing that a backfill asks for."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from photon.idregistry.api import Answer, Slot, incarnation_of
from photon.idregistry.core import commands as c
from photon.idregistry.core.state_machine import UNKNOWN_CALLER, BatchAnswers, ShardMachine
from tests.simulation.world.registry import OWNED, Call, Entry, ModelRegistry, Network, SimulatedRegistry
from tests.unit.idregistry.model import ALL_OF_TIME

LIVE = Slot("live-1", "east")


class MachineRegistry(ModelRegistry):
    """The config group is the model's, the shards are real."""

    def __init__(self, shards: int) -> None:
        super().__init__(shards, checks_stale=True)
        self.machines = [_machine() for _ in range(shards)]
        self._applied = 10

    def _apply(self, shard: int, command: Any) -> Any:
        self._applied += 1
        return self.machines[shard].apply(self._applied, c.encode(command))

    def announce(self, shard: int, slot: Slot, incarnations: list[int]) -> None:
        """As a shard's leader does before the first insert of a caller that it does not know."""
        if not self.machines[shard].knows(incarnations):
            assert self._apply(shard, c.Announce(slot.name, slot.datacentre, incarnations)) == ""

    def insert(
        self,
        slot: Slot,
        caller: int,
        digest: bytes,
        time: int,
        token: int,
        kind: int,
        tag: int,
        generation: int = 0,
    ) -> tuple[Answer, Entry | None]:
        shard = self.shard_of(digest)
        self.announce(shard, slot, sorted({caller, incarnation_of(token)}))
        answers = self._apply(
            shard,
            c.Batch(
                callers=[(caller, 1)],
                digests=digest,
                times=np.array([time], "<i8").tobytes(),
                tokens=np.array([token], "<u8").tobytes(),
                kinds=bytes([kind]),
                tags=np.array([tag], "<u4").tobytes(),
                generations=np.array([generation], "<u4").tobytes(),
            ),
        )
        assert isinstance(answers, BatchAnswers)
        found = answers.inserts
        assert found.outcomes[0] != UNKNOWN_CALLER
        owner = None
        if found.owner_tokens[0]:
            where = found.datacentres[int(found.owner_datacentres[0])]
            owner = Entry(
                OWNED, int(found.owner_tokens[0]), int(found.owner_kinds[0]), int(found.owner_tags[0]), where, time
            )
        return Answer(int(found.outcomes[0])), owner

    def clear(self, digest: bytes, time: int, token: int) -> Answer:
        answers = self._apply(
            self.shard_of(digest),
            c.Batch(
                clear_digests=digest,
                clear_times=np.array([time], "<i8").tobytes(),
                clear_tokens=np.array([token], "<u8").tobytes(),
            ),
        )
        assert isinstance(answers, BatchAnswers)
        return Answer(int(answers.clears.outcomes[0]))

    def knows(self, digest: bytes, time: int) -> bool:
        """Somebody has registered it."""
        found = self.machines[self.shard_of(digest)].look_up(digest, np.array([time], np.int64))
        return bool(found.outcomes[0] == Answer.PRESENT)

    def owned_of(self, slot: str) -> int:
        """Ids that a slot owns."""
        return sum(len(m.owned_page(slot, (1 << 24) - 1, b"").times) for m in self.machines)


def _machine() -> ShardMachine:
    """Each is the only shard as far as it knows: the model routes."""
    machine = ShardMachine()
    machine.apply(1, c.encode(c.Configure(1, ALL_OF_TIME)))
    return machine


class BackfillNetwork(Network):
    """Carries introductions as well."""

    model: MachineRegistry

    def _apply(self, call: Call, row: tuple[Any, ...]) -> Any:
        if call.what == "introduce":
            digest, incarnations = row
            self.model.announce(self.model.shard_of(digest), call.slot, incarnations)
            return True
        return super()._apply(call, row)

    def finish(self, call: Call) -> None:
        if call.what != "introduce":
            super().finish(call)
            return
        self.calls.remove(call)
        call.result = all(message.replies and message.answers is not None for message in call.messages)


class BackfillRegistry(SimulatedRegistry):
    """One process's view."""

    def __init__(self, network: BackfillNetwork, slot: Slot) -> None:
        super().__init__(network, slot)
        self._own: list[int] = []

    def announce(self, slot: Slot, incarnations: Any) -> None:
        super().announce(slot, incarnations)
        self._own = list(incarnations)

    async def introduce(self, *, timeout: float) -> bool:
        shards = len(self._network.model.shards)
        rows = [(bytes([number]) + bytes(15), self._own) for number in range(shards)]
        return await self._network.send(Call("introduce", self._slot, self.caller, rows))  # type: ignore[no-any-return]


def live_insert(model: MachineRegistry, incarnation: int, random: Random, digest: bytes, time: int) -> Answer:
    """The live pipeline registers an event that the backfill may be at as well."""
    answer, _ = model.insert(LIVE, incarnation, digest, time, incarnation << 40 | random.getrandbits(32), 1, 7)
    return answer
