"""A follower over the world's logs, with the surface of ``adapters.logs.follower`` (which has its own tests)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from photon.adapters.logs.api import Block, LogPosition
from photon.adapters.logs.lag import NO_LAG, Lag, Unread
from photon.adapters.logs.problems import ProblemKind
from photon.dispatcher.replay.coverage import Chunk

if TYPE_CHECKING:
    from tests.simulation.world.truth import GrowingLog, Line
    from tests.simulation.world.world import Place, World


class _Unread(Unread):
    """Results of one scan."""

    def __init__(self, follower: SimulatedFollower, seen: Sequence[int]) -> None:
        super().__init__(())
        object.__setattr__(self, "_of", (follower, seen))

    def next(self) -> str:
        follower, seen = self._of  # type: ignore[attr-defined]
        return "" if all(at >= there for at, there in zip(follower._next, seen, strict=True)) else "a log"


class SimulatedFollower:
    """Hands out lines that have arrived in this datacentre's copies, from committed positions on."""

    def __init__(
        self,
        world: World,
        place: Place,
        logs: Sequence[GrowingLog],
        positions: Sequence[LogPosition],
        random: Random,
    ) -> None:
        self._world = world
        self._place = place
        self._random = random
        self._logs = logs
        offsets = {p.identity: p.offset for p in positions}
        self._next = [log.index_of[offsets.get(log.name, 0)] for log in self._logs]
        self._visible = [0] * len(self._logs)
        self.problems: Counter[ProblemKind] = Counter()
        self.lost_bytes = 0

    def scan(self) -> None:
        now = self._world.loop.now
        self._visible = [log.visible(self._place.name, now) for log in self._logs]

    def poll(self, max_bytes: int, *, final: bool = False) -> list[Block]:
        for number, log in enumerate(self._logs):
            start = self._next[number]
            if start < self._visible[number]:
                stop = min(self._visible[number], start + self._random.choice((1, 3, 50)))
                self._next[number] = stop
                data = _bytes_of(self._world, self._place, log, log.lines[start:stop])
                at, end = log.offset_at(start), log.offset_at(stop)
                return [Block(log.name, log.file, at, data, end, before=_before(log, at))]
        return []

    def caught_up(self) -> bool:
        return all(at >= seen for at, seen in zip(self._next, self._visible, strict=True))

    def backlog(self) -> tuple[int, int]:
        known = sum(log.offset_at(seen) for log, seen in zip(self._logs, self._visible, strict=True))
        return sum(log.offset_at(at) for log, at in zip(self._logs, self._next, strict=True)), known

    def seen_ns(self, scanned_ns: int) -> int:
        return scanned_ns

    def unread_now(self) -> Unread:
        return _Unread(self, list(self._visible))

    def look_at_others(self) -> None:
        return None

    def lag(self) -> Lag:
        return NO_LAG

    def unread(self, kinds: Sequence[ProblemKind] = ()) -> list[Any]:
        return []

    def speak(self) -> None:
        return None

    def close(self) -> None:
        return None


def _before(log: GrowingLog, at: int) -> bytes:
    """Bytes standing for those before a block: the log's own, and the same in all copies."""
    return log.name.encode().ljust(at, b".")[:at]


def _bytes_of(world: World, place: Place, log: GrowingLog, lines: Sequence[Line]) -> bytes:
    return b"".join(world.truth.in_copy(log.name, place.name, line.record) + b"\n" for line in lines)


class SimulatedReads:
    """Chunks of the world's logs, as they have arrived in this datacentre's copies (``reading`` has tests)."""

    def __init__(self, world: World, place: Place) -> None:
        self._world = world
        self._place = place

    async def blocks(self, chunk: Chunk) -> list[Block] | None:
        world = self._world
        await asyncio.sleep(world.random.choice((0.0, 0.01, 0.2)))
        (log,) = [each for each in world.truth.foreign if each.name == chunk.identity]
        there = log.lines[: log.visible(self._place.name, world.loop.now)]
        lines = [line for line in there if chunk.begin <= line.offset < chunk.end]
        data = _bytes_of(world, self._place, log, lines)
        if not lines:
            return []
        at = lines[0].offset
        return [Block(log.name, log.file, at, data, at + len(data), before=_before(log, at))]

    async def live(self) -> set[str]:
        return {log.name for log in self._world.truth.foreign}

    async def rest(self) -> None:
        return None
