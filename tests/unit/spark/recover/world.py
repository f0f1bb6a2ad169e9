"""A shard with its real state machine, and activity during a repair: joins, clears, collection, faults."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from photon.batch.verdicts import Verdicts
from photon.idregistry.api import I64, U8, U32, U64, Answer
from photon.idregistry.core import commands as c
from tests.unit.idregistry.model import Row, digest, time_of
from tests.unit.idregistry.shard import Shard

TAKER = 2  # incarnation that joins returned events


class Killed(Exception):
    """The repair's process."""


@dataclass
class World:
    """``faults``: share of requests that fail. Implements the registry's methods used by a repair."""

    draw: random.Random
    faults: float
    shard: Shard = field(default_factory=Shard)
    written: Counter[int] = field(default_factory=Counter)  # id -> records written since the export
    ids: int = 0
    may_collect: bool = False
    batch: int = 0

    # -- beside ------------------------------------------------------------------------------------------------
    def live(self) -> None:
        """Some of the rest of the system's work."""
        for page in self.shard.reopened(1 << 14):
            for at, generation in enumerate(page.generations.tolist()):
                number = int.from_bytes(page.digests[16 * at + 8 : 16 * at + 16], "little")
                if self.draw.random() < 0.7:
                    self.take(number, generation)
        if self.may_collect and self.draw.random() < 0.5:
            self.shard.do(c.Boundary(time_of(self.draw.randrange(self.ids + 1))))

    def take(self, number: int, generation: int) -> None:
        self.batch += 1
        row = Row(number, TAKER, self.batch, generation)
        if self.shard.insert(row) == [Answer.COMMITTED]:
            self.written[number] += 1
            if self.draw.random() < 0.8:
                self.shard.clear(row)

    def replay(self, numbers: list[int]) -> None:
        """Like ``photon dispatcher replay``: ids unknown to the registry are joined."""
        for number in numbers:
            if self.shard.look_up(number) == [Answer.ABSENT]:
                self.take(number, 0)

    # -- asked by the repair -----------------------------------------------------------------------------------
    async def look_up(self, digests: bytes, times: I64, *, timeout: float) -> Verdicts:
        self.live()
        found = self.shard.machine.look_up(digests, times)
        return Verdicts.blank(len(times), Answer.UNKNOWN) if self.draw.random() < self.faults else found

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
        fault = self.draw.choice(("killed before", "lost before", "killed after", "lost after"))
        if self.draw.random() >= self.faults:
            fault = ""
        if fault == "killed before":
            raise Killed
        unknown = np.full(len(times), Answer.UNKNOWN, np.uint8)
        if fault == "lost before":
            return unknown
        command = c.Reopen(
            digests, times.astype("<i8").tobytes(), tokens.astype("<u8").tobytes(),
            generations.astype("<u4").tobytes(), operator, retired,
        )  # fmt: skip
        answers = self.shard.do(command)
        self.live()
        if fault == "killed after":
            raise Killed
        return unknown if fault == "lost after" else answers


__all__ = ["Killed", "World", "digest", "time_of"]
