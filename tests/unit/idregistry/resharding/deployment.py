"""A whole registry's machines without Raft: commands are applied as they are proposed, time is a number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b

import numpy as np

from photon.batch.ids import Ids
from photon.idregistry.api import DIGEST_BYTES, I64, U8, Answer, token_of
from photon.idregistry.core import commands as c
from photon.idregistry.core.config_machine import ConfigMachine
from photon.idregistry.core.former_shards import NotKnown, held_elsewhere
from photon.idregistry.core.reshard_plan import Plan, config_step, plan, seeds, shard_step
from photon.idregistry.core.sharding import single_range, split
from photon.idregistry.core.state_machine import BatchAnswers, ShardMachine

S_NS = 5_000_000_000
CALLER = 1


def digests_of(first: int, count: int) -> bytes:
    return b"".join(blake2b(n.to_bytes(8, "little"), digest_size=16).digest() for n in range(first, first + count))


class Deployment:
    """Config group and shards, and caretakers that work when told to."""

    def __init__(self, shards: int) -> None:
        self.config = ConfigMachine()
        self.shards: dict[int, ShardMachine] = {}
        self._entries = 0
        self.to_config(c.SetUp(single_range(shards)))
        self.care(0)
        opened = self.to_config(c.OpenSlot("slot", "dc", 0, b"n"))
        assert opened.incarnation == CALLER  # type: ignore[union-attr]
        for number in self.shards:
            self.to_shard(number, c.Announce("slot", "dc", [CALLER]))

    def to_config(self, command: c.ConfigCommand) -> object:
        self._entries += 1
        return self.config.apply(self._entries, c.encode(command))

    def to_shard(self, shard: int, command: c.ShardCommand) -> object:
        self._entries += 1
        return self.shards[shard].apply(self._entries, c.encode(command))

    def begin(self, count: int, now_ns: int, lead_s: float = 10.0) -> Plan | str:
        """Plans a change and begins it."""
        facts = {number: machine.sharding for number, machine in self.shards.items()}
        made = plan(self.config.changes, facts, count, now_ns=now_ns, uncertainty_ns=S_NS, lead_s=lead_s)
        if isinstance(made, Plan):
            assert self.to_config(made.intend) == ""
        return made

    def care(self, now_ns: int, *, without: Sequence[int] = (), retention: bool = True) -> None:
        """Runs all caretakers until nothing is left to do; those of some shards have no leader."""
        while self._care_once(now_ns, without, retention):
            pass

    def _care_once(self, now_ns: int, without: Sequence[int], retention: bool) -> bool:
        busy = False
        for number in self.config.changes.live:
            machine = self.shards.setdefault(number, ShardMachine())
            if number in without:
                continue
            if not machine.configured:
                founding = self.config.founding(number)
                for command in (*seeds(founding.slots), founding.configure):
                    assert self.to_shard(number, command) == ""
                busy = True
            step = shard_step(self.config.changes, machine.sharding, retention=retention)
            if step is not None:
                self.to_shard(number, step)
                busy = True
        facts = {number: machine.sharding for number, machine in self.shards.items()}
        decision = config_step(self.config.changes, facts, now_ns)
        if decision is not None:
            assert self.to_config(decision) == ""
            busy = True
        return busy

    def insert(self, digests: bytes, times: I64, batch: int = 1) -> U8:
        """By the active config, as a client does; the slot must have been announced."""
        n = len(times)
        token = np.full(n, token_of(CALLER, batch), np.uint64)
        ids = Ids(digests, times, token, np.ones(n, np.uint8), np.zeros(n, np.uint32))

        def batch_of(rows: I64, config: int) -> c.Batch:
            return c.Batch.of([(CALLER, len(rows))], [ids.take(rows)], [], config)

        return self._asked(digests, batch_of, lambda result: result.inserts.outcomes)

    def insert_at(self, shard: int, digest: bytes, time: int) -> bool:
        """Inserts one id at one shard, even if it belongs to another; true if the shard accepted it."""
        token = token_of(CALLER, 1).to_bytes(8, "little")
        try:
            held, config = held_elsewhere(shard, digest, self.shards, self.config.changes.removed)
        except NotKnown:
            return False
        if held[0]:
            return False
        times = time.to_bytes(8, "little", signed=True)
        result = self.to_shard(shard, c.Batch([(CALLER, 1)], digest, times, token, b"\1", bytes(4), config=config))
        assert isinstance(result, BatchAnswers)
        return int(result.inserts.outcomes[0]) == Answer.COMMITTED

    def clear(self, digests: bytes, times: I64, batch: int = 1) -> U8:
        """As ``insert``."""
        ids = Ids.of(digests, times, np.full(len(times), token_of(CALLER, batch), np.uint64))

        def batch_of(rows: I64, config: int) -> c.Batch:
            return c.Batch.of([], [], [ids.take(rows)], config)

        return self._asked(digests, batch_of, lambda result: result.clears.outcomes)

    def _asked(
        self, digests: bytes, batch_of: Callable[[I64, int], c.Batch], answers_of: Callable[[BatchAnswers], U8]
    ) -> U8:
        answers = np.full(len(digests) // DIGEST_BYTES, Answer.ELSEWHERE, np.uint8)
        for each in reversed(self.config.ranges):
            for part in split(digests, each.shards, np.flatnonzero(answers == Answer.ELSEWHERE)):
                some = c.take(digests, DIGEST_BYTES, part.rows)
                held, config = held_elsewhere(part.shard, some, self.shards, self.config.changes.removed)
                rows = part.rows[~held]
                if len(rows):
                    result = self.to_shard(part.shard, batch_of(rows, config))
                    assert isinstance(result, BatchAnswers)
                    answers[rows] = answers_of(result)
        return answers
