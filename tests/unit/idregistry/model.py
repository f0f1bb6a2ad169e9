"""The answer table in a few lines, one id after the other, and helpers to make commands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from photon.config.interval_clock import Interval
from photon.idregistry.api import Answer, incarnation_of, token_of
from photon.idregistry.core import commands as c
from photon.idregistry.core.clock_offsets import ANYWHERE, Agreement, ClockFacts
from photon.idregistry.core.sharding import FOREVER
from photon.idregistry.core.state_machine import UNKNOWN_CALLER

BUCKET_BITS = 4  # 16 ns a bucket: small times exercise many buckets
CLOCK = ClockFacts(Interval(0, 1, synchronised=True), Agreement.AGREES, ANYWHERE, {}, "")
ALL_OF_TIME = (c.Range(*FOREVER, (1,)),)
BASE_TIME = 1_000


def digest(number: int) -> bytes:
    """A digest; numbers that agree modulo 8 collide in a small index."""
    return (number % 8).to_bytes(8, "little") + number.to_bytes(8, "little")


def time_of(number: int) -> int:
    """An id's time is a function of the id."""
    return BASE_TIME + number * 5


@dataclass(frozen=True)
class Row:
    """One id of an insert."""

    id: int
    incarnation: int = 1
    batch: int = 0
    generation: int = 0
    kind: int = 1

    @property
    def token(self) -> int:
        return token_of(self.incarnation, self.batch)


def batch(
    rows: Sequence[Row], callers: Sequence[tuple[int, int]] | None = None, clears: Sequence[Row] = ()
) -> c.Batch:
    """A Batch command; by default each row's caller is its token's incarnation."""
    if callers is None:
        callers = [(row.incarnation, 1) for row in rows]
    return c.Batch(
        callers=list(callers),
        digests=b"".join(digest(row.id) for row in rows),
        times=np.array([time_of(row.id) for row in rows], "<i8").tobytes(),
        tokens=np.array([row.token for row in rows], "<u8").tobytes(),
        kinds=np.array([row.kind for row in rows], np.uint8).tobytes(),
        tags=np.array([row.id for row in rows], "<u4").tobytes(),
        generations=np.array([row.generation for row in rows], "<u4").tobytes()
        if any(row.generation for row in rows)
        else b"",
        clear_digests=b"".join(digest(row.id) for row in clears),
        clear_times=np.array([time_of(row.id) for row in clears], "<i8").tobytes(),
        clear_tokens=np.array([row.token for row in clears], "<u8").tobytes(),
        config=1,
    )


def reopen(rows: Sequence[Row], operator: bool = False, retired: bool = False) -> c.Reopen:
    return c.Reopen(
        b"".join(digest(row.id) for row in rows),
        np.array([time_of(row.id) for row in rows], "<i8").tobytes(),
        np.array([row.token for row in rows], "<u8").tobytes(),
        np.array([row.generation for row in rows], "<u4").tobytes(),
        operator,
        retired,
    )


def xor_of(ids: Iterable[int]) -> bytes:
    """XOR of the ids' digests."""
    whole = 0
    for each in ids:
        whole ^= int.from_bytes(digest(each), "little")
    return whole.to_bytes(16, "little")


@dataclass
class Model:
    """The protocol's table, without batches, buckets or bytes."""

    entries: dict[int, tuple[str, int, int]] = field(default_factory=dict)  # id -> (state, token, generation)
    boundary: int = -(2**63)
    newest: dict[str, int] = field(default_factory=dict)
    slot_of: dict[int, str] = field(default_factory=dict)
    fenced: set[str] = field(default_factory=set)
    watermarks: dict[int, int] = field(default_factory=dict)

    def insert(self, row: Row, caller: int) -> int:
        slot = self.slot_of.get(caller)
        if slot is None:
            return UNKNOWN_CALLER
        if slot in self.fenced:
            return Answer.FENCED
        if caller != self.newest[slot]:
            return Answer.STALE_INCARNATION
        if self.slot_of.get(row.incarnation) != slot:
            return UNKNOWN_CALLER
        if row.batch < self.watermarks.get(row.incarnation, 0):
            return Answer.DONE
        state, token, generation = self.entries.get(row.id, ("absent", 0, 0))
        if state == "owned":
            return Answer.COMMITTED if token == row.token else Answer.TAKEN
        if state == "cleared":
            return Answer.DONE if token == row.token else Answer.TAKEN
        if state == "reopened" and generation != row.generation:
            return Answer.TAKEN
        if state == "absent" and time_of(row.id) < self.boundary:
            return Answer.BELOW_BOUNDARY
        self.entries[row.id] = ("owned", row.token, row.generation)
        return Answer.COMMITTED

    def clear(self, row: Row) -> Answer:
        state, token, generation = self.entries.get(row.id, ("absent", 0, 0))
        if state == "cleared":
            return Answer.CLEARED
        if state == "owned" and token == row.token:
            self.entries[row.id] = ("cleared", token, generation)
            return Answer.CLEARED
        return Answer.NO_OP if state == "absent" and time_of(row.id) < self.boundary else Answer.REFUSED

    def clear_below(self, incarnation: int, batch: int, count: int, xor: bytes) -> bool:
        if incarnation not in self.slot_of:
            return False
        if batch <= self.watermarks.get(incarnation, 0):
            return True
        below = self.owned_below(incarnation, batch)
        if (len(below), xor_of(below)) != (count, xor):
            return False
        for number in below:
            self.entries[number] = ("cleared", *self.entries[number][1:])
        self.watermarks[incarnation] = batch
        return True

    def owned_below(self, incarnation: int, batch: int) -> list[int]:
        first, end = token_of(incarnation, 0), token_of(incarnation, batch)
        return [i for i, (state, token, _) in self.entries.items() if state == "owned" and first <= token < end]

    def owned_by(self, slot: str, upto: int) -> set[int]:
        """Ids that tokens of the slot's incarnations up to this one own."""
        return {
            i
            for i, (state, token, _) in self.entries.items()
            if state == "owned" and incarnation_of(token) <= upto and self.slot_of[incarnation_of(token)] == slot
        }

    def reopen(self, row: Row, operator: bool, retired: bool = False) -> Answer:
        if retired and self.slot_of.get(row.incarnation) not in self.fenced:
            return Answer.NO_OP
        state, token, generation = self.entries.get(row.id, ("absent", 0, 0))
        collected = state == "absent" and time_of(row.id) < self.boundary and operator
        owned = state == "owned" and token == row.token
        cleared = state == "cleared" and operator and (token, generation) == (row.token, row.generation)
        if not (collected or owned or cleared):
            return Answer.NO_OP
        self.entries[row.id] = ("reopened", 0, (row.generation if collected else generation) + 1)
        return Answer.REOPENED

    def collect(self, time_ns: int) -> None:
        """Cleared ids go once their whole bucket is below."""
        if time_ns <= self.boundary:
            return
        self.boundary = time_ns
        for number in [i for i, entry in self.entries.items() if entry[0] == "cleared"]:
            if (time_of(number) >> BUCKET_BITS) + 1 << BUCKET_BITS <= time_ns:
                del self.entries[number]

    def look_up(self, number: int) -> Answer:
        state = self.entries.get(number, ("absent", 0, 0))[0]
        if state == "absent" and time_of(number) < self.boundary:
            return Answer.BELOW_BOUNDARY
        return Answer.PRESENT if state in ("owned", "cleared") else Answer.ABSENT
