"""A model of the IdRegistry for simulations: the answer table of the protocol, shards, and a bad network."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np

from photon.batch.ids import Ids
from photon.batch.verdicts import Verdicts
from photon.idregistry.api import I64, U8, U32, U64, Answer, Opened, Slot, incarnation_of
from photon.idregistry.core.outcomes import Refusal, Status
from photon.idregistry.core.scans import EntryPage
from photon.idregistry.witness import Witness, Witnessed, refusal

OWNED, CLEARED, REOPENED = "owned", "cleared", "reopened"
# How often an applied message comes once more, much later. There are few questions about reopening.
SELDOM, OFTEN = 0.1, 0.5
CONFIG_CALLS = ("open", "witness", "extend")


@dataclass
class Entry:
    """A shard's entry for an id."""

    state: str
    token: int
    kind: int
    tag: int
    datacentre: str
    time: int
    generation: int = 0


@dataclass
class Shard:
    """One shard's state, changed by applied messages only."""

    entries: dict[bytes, Entry] = field(default_factory=dict)
    newest: dict[str, int] = field(default_factory=dict)  # slot -> incarnation
    boundary: int = -(2**62)


class ModelRegistry:
    """The replicated state. ``checks_stale``: the alarm for old incarnations is on; the protocol must not need it."""

    def __init__(self, shards: int, *, checks_stale: bool) -> None:
        self.shards = [Shard() for _ in range(shards)]
        self.slots: dict[str, tuple[int, bytes]] = {}
        self.witnesses: dict[str, Witness] = {}
        self._checks_stale = checks_stale
        self._incarnations = 0
        self._slot_of: dict[int, str] = {}

    def shard_of(self, digest: bytes) -> int:
        return digest[0] % len(self.shards)

    def open_slot(self, slot: Slot, last: int, nonce: bytes) -> Opened:
        newest, known = self.slots.get(slot.name, (0, b""))
        witness = self.witnesses.get(slot.name, ())
        if known == nonce:
            return Opened(newest, newest, witness=witness)
        if newest != last:
            return Opened(0, newest, "not the newest")
        self._incarnations += 1  # one sequence over all slots: a token names one batch of the whole deployment
        self.slots[slot.name] = (self._incarnations, nonce)
        self._slot_of[self._incarnations] = slot.name
        return Opened(self._incarnations, self._incarnations, witness=witness)

    def read_witness(self, slot: str) -> Witnessed:
        return Witnessed(self.slots.get(slot, (0, b""))[0], self.witnesses.get(slot, ()))

    def extend_witness(self, slot: str, incarnation: int, end: Witness, to: Witness) -> Witnessed:
        """By the production rule, which is two comparisons."""
        newest, cell = self.slots[slot][0], self.witnesses.get(slot, ())
        reason = refusal(cell, newest, incarnation, end, to)
        if not reason:
            self.witnesses[slot] = cell = to
        return Witnessed(newest, cell, reason)

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
        shard = self.shards[self.shard_of(digest)]
        newest = max(shard.newest.get(slot.name, 0), caller)
        shard.newest[slot.name] = newest
        if self._checks_stale and caller < newest:
            return Answer.STALE_INCARNATION, None
        entry = shard.entries.get(digest)
        if entry is not None:
            if entry.state == REOPENED:
                if entry.generation != generation:
                    return Answer.TAKEN, entry
                shard.entries[digest] = Entry(OWNED, token, kind, tag, slot.datacentre, entry.time, generation)
                return Answer.COMMITTED, None
            if entry.token != token:
                return Answer.TAKEN, entry
            return (Answer.COMMITTED, None) if entry.state == OWNED else (Answer.DONE, entry)
        if time < shard.boundary:
            return Answer.BELOW_BOUNDARY, None
        shard.entries[digest] = Entry(OWNED, token, kind, tag, slot.datacentre, time)
        return Answer.COMMITTED, None

    def clear(self, digest: bytes, time: int, token: int) -> Answer:
        shard = self.shards[self.shard_of(digest)]
        entry = shard.entries.get(digest)
        if entry is None:
            return Answer.NO_OP if time < shard.boundary else Answer.REFUSED
        if entry.token != token or entry.state == REOPENED:
            return Answer.REFUSED
        entry.state = CLEARED
        return Answer.CLEARED

    def reopen(self, digest: bytes, time: int, token: int, generation: int) -> Answer:
        """Reopens by compare on the token (rule 13)."""
        entry = self.shards[self.shard_of(digest)].entries.get(digest)
        if entry is None or entry.state != OWNED or entry.token != token:
            return Answer.NO_OP
        self.give_up(entry)
        return Answer.REOPENED

    def give_up(self, entry: Entry) -> None:
        """Anyone with the next generation may have it."""
        entry.state = REOPENED
        entry.generation += 1

    def scan_owned(self, shard: int, slot: str, upto: int, cursor: bytes, limit: int) -> EntryPage:
        """In the order of digests; a cursor is the last one seen."""
        entries = self.shards[shard].entries
        owned = sorted(
            digest
            for digest, entry in entries.items()
            if entry.state == OWNED
            and incarnation_of(entry.token) <= upto
            and self._slot_of.get(incarnation_of(entry.token)) == slot
            and digest > cursor
        )
        found = [entries[digest] for digest in owned[:limit]]
        return EntryPage(
            b"".join(owned[:limit]),
            np.array([each.time for each in found], np.int64),
            np.array([each.token for each in found], np.uint64),
            np.array([each.kind for each in found], np.uint8),
            np.array([each.tag for each in found], np.uint32),
            np.array([each.generation for each in found], np.uint32),
            owned[limit - 1] if len(owned) > limit else b"",
        )

    def collect(self, number: int, boundary: int) -> None:
        """Raises a shard's boundary; only cleared entries below it are removed (rule 9)."""
        shard = self.shards[number]
        shard.boundary = max(shard.boundary, boundary)
        entries = shard.entries
        gone = [d for d, entry in entries.items() if entry.state == CLEARED and entry.time < shard.boundary]
        for digest in gone:
            del entries[digest]

    def owned(self) -> list[bytes]:
        return [digest for shard in self.shards for digest, entry in shard.entries.items() if entry.state == OWNED]

    def reopened(self) -> dict[bytes, int]:
        """Digest -> generation of the ids that wait for an owner."""
        return {
            digest: entry.generation
            for shard in self.shards
            for digest, entry in shard.entries.items()
            if entry.state == REOPENED
        }


class Message:
    """A request to one shard about some rows of a call."""

    def __init__(self, call: Call, shard: int, rows: list[int], *, replies: bool) -> None:
        self.call = call
        self.shard = shard
        self.rows = rows
        self.replies = replies
        self.answers: list[Any] | None = None


class Call:
    """A call in flight; awaiting it suspends the coroutine until the world finishes it."""

    def __init__(self, what: str, slot: Slot, caller: int, rows: list[tuple[Any, ...]]) -> None:
        self.what = what
        self.slot = slot
        self.caller = caller
        self.rows = rows
        self.messages: list[Message] = []
        self.result: Any = None

    def __await__(self) -> Generator[Call, None, Any]:
        yield self
        return self.result


class Network:
    """Carries calls as messages: applied in any order, late, or never; replies get lost."""

    def __init__(self, model: ModelRegistry, random: Random, *, too_new: float = 0.0, late: float = 0.0) -> None:
        """``late``: share of the inserts that come once more even after the faults."""
        self.model = model
        self._random = random
        self._too_new = too_new
        self._late = late
        self.calls: list[Call] = []
        self.messages: list[Message] = []
        self.stragglers: list[Message] = []
        self.down: set[int] = set()
        self.faults = True

    def send(self, call: Call) -> Call:
        by_shard: dict[int, list[int]] = {}
        for row, fields in enumerate(call.rows):
            by_shard.setdefault(self._shard_of(call, fields), []).append(row)
        for shard, rows in by_shard.items():
            replies = not self.faults or self._random.random() < 0.8
            message = Message(call, shard, rows, replies=replies)
            call.messages.append(message)
            if not self.faults or self._random.random() < 0.9:
                self.messages.append(message)
        self.calls.append(call)
        return call

    def _shard_of(self, call: Call, fields: tuple[Any, ...]) -> int:
        if call.what in CONFIG_CALLS:
            return 0
        if call.what == "scan":
            return int(fields[0])
        return self.model.shard_of(fields[0])

    def deliver_one(self) -> bool:
        """Applies some message in flight; now and then it comes a second time, soon or late."""
        if self.stragglers and self._random.random() < 0.05:
            self.messages.append(self.stragglers.pop(self._random.randrange(len(self.stragglers))))
        able = [message for message in self.messages if message.shard not in self.down]
        if not able:
            return False
        message = self._random.choice(able)
        call = message.call
        if (
            self.faults
            and call.what == "insert"
            and message.answers is None
            and self._random.random() < self._too_new
        ):
            # The connection carries a request once: TOO_NEW on a first request is its outcome.
            self.messages.remove(message)
            message.answers = [(Answer.TOO_NEW, None) for _ in message.rows]
            return True
        self.messages.remove(message)
        if self._random.random() < self._comes_again(call):
            self.stragglers.append(message)
        message.answers = [self._apply(call, call.rows[row]) for row in message.rows]
        return True

    def _comes_again(self, call: Call) -> float:
        if call.what == "reopen":  # mostly asked after the faults
            return OFTEN
        if not self.faults:
            return self._late if call.what == "insert" else 0.0
        return SELDOM if call.what != "open" else 0.0

    def _apply(self, call: Call, row: tuple[Any, ...]) -> Any:
        if call.what == "open":
            return self.model.open_slot(call.slot, *row)
        if call.what == "witness":
            return self.model.read_witness(call.slot.name)
        if call.what == "extend":
            return self.model.extend_witness(call.slot.name, *row)
        if call.what == "clear":
            return self.model.clear(*row)
        if call.what == "scan":
            return self.model.scan_owned(*row)
        if call.what == "reopen":
            return self.model.reopen(*row)
        return self.model.insert(call.slot, call.caller, *row)

    def finish(self, call: Call) -> None:
        """The caller has its answers, or gives up waiting for them: UNKNOWN, per id."""
        self.calls.remove(call)
        answers: dict[int, Any] = {}
        for message in call.messages:
            if message.replies and message.answers is not None:
                answers.update(zip(message.rows, message.answers, strict=True))
        if call.what in CONFIG_CALLS:
            call.result = answers.get(0)
        elif call.what == "scan":
            call.result = answers.get(0, Refusal(Status.UNKNOWN))
        elif call.what in ("clear", "reopen"):
            call.result = np.array(
                [answers.get(row, Answer.UNKNOWN) for row in range(len(call.rows))], dtype=np.uint8
            )
        else:
            call.result = _insert_answers(len(call.rows), answers)

    def settled(self, call: Call) -> bool:
        """All replies that will come are there."""
        return not any(message.answers is None and message in self.messages for message in call.messages)


def _insert_answers(n: int, answers: dict[int, tuple[Answer, Entry | None]]) -> Verdicts:
    found = Verdicts.blank(n)
    names: list[str] = []
    for row, (code, owner) in answers.items():
        found.outcomes[row] = code
        if owner is not None:
            found.owner_tokens[row], found.owner_kinds[row], found.owner_tags[row] = (
                owner.token,
                owner.kind,
                owner.tag,
            )
            if owner.datacentre not in names:
                names.append(owner.datacentre)
            found.owner_datacentres[row] = names.index(owner.datacentre)
    return replace(found, datacentres=tuple(names))


class SimulatedRegistry:
    """Implements ``idregistry.api.Registry`` over the network, for one process."""

    def __init__(self, network: Network, slot: Slot) -> None:
        self._network = network
        self._slot = slot
        self.caller = 0

    async def open_slot(self, slot: Slot, last: int, nonce: bytes) -> Opened | None:
        return await self._network.send(Call("open", slot, 0, [(last, nonce)]))

    async def read_witness(self, slot: str) -> Witnessed | None:
        return await self._network.send(Call("witness", self._slot, 0, [()]))

    def start_extension(self, incarnation: int, end: Witness, to: Witness) -> Call:
        return self._network.send(Call("extend", self._slot, incarnation, [(incarnation, end, to)]))

    async def extend_witness(self, slot: str, incarnation: int, end: Witness, to: Witness) -> Witnessed | None:
        return await self.start_extension(incarnation, end, to)

    def announce(self, slot: Slot, incarnations: Any) -> None:
        self.caller = incarnations[-1]

    def start_insert(self, inserts: Ids) -> Call:
        digests = [inserts.digests[at : at + 16] for at in range(0, len(inserts.digests), 16)]
        assert inserts.generations is not None
        columns = (inserts.times, inserts.tokens, inserts.kinds, inserts.tags, inserts.generations)
        rows = list(zip(digests, *(column.tolist() for column in columns), strict=True))
        assert all(incarnation_of(row[2]) <= self.caller for row in rows)
        return self._network.send(Call("insert", self._slot, self.caller, rows))

    async def insert(self, inserts: Ids, *, timeout: float) -> Verdicts:
        return await self.start_insert(inserts)

    async def clear(self, digests: bytes, times: I64, tokens: U64, *, timeout: float) -> U8:
        split = [digests[at : at + 16] for at in range(0, len(digests), 16)]
        rows = list(zip(split, times.tolist(), tokens.tolist(), strict=True))
        return await self._network.send(Call("clear", self._slot, self.caller, rows))

    async def shards(self, *, timeout: float) -> tuple[int, ...]:
        return tuple(range(len(self._network.model.shards)))

    async def scan_owned(
        self, shard: int, slot: str, upto: int, *, cursor: bytes = b"", limit: int = 0, timeout: float
    ) -> EntryPage | Refusal:
        return await self._network.send(Call("scan", self._slot, 0, [(shard, slot, upto, cursor, limit)]))

    async def reopen(
        self,
        digests: bytes,
        times: I64,
        tokens: U64,
        generations: U32,
        *,
        operator: bool = False,
        retired: bool = False,
        timeout: float,
    ) -> U8:
        split = [digests[at : at + 16] for at in range(0, len(digests), 16)]
        rows = list(zip(split, times.tolist(), tokens.tolist(), generations.tolist(), strict=True))
        return await self._network.send(Call("reopen", self._slot, 0, rows))

    async def look_up(self, digests: bytes, times: I64, *, timeout: float) -> Verdicts:
        raise NotImplementedError("the joiner does not look up")

    async def close(self) -> None:
        return None
