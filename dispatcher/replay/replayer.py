"""Executes requests to replay a time range (``requests``), alongside fresh events.

Each log that may hold events of the range (``coverage``) is read again, chunk by chunk. Events that the registry
knows are done; the others go to a joiner (``redispatch``). A replay's position in a log moves past its first chunks
once all their events have a verdict, in one transaction with their counts in the ledger. Replays take at most SHARE
of the time, so that fresh events keep their latency.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from dataclasses import dataclass, field

import numpy as np

from photon.adapters.logs.api import Block
from photon.config.clock import Clock
from photon.config.structured import get_logger
from photon.dispatcher.calls import RegistryLookUps
from photon.dispatcher.counting import Counting
from photon.dispatcher.events import Stretch
from photon.dispatcher.intake import LineRules
from photon.dispatcher.ledger import HOUR_NS, VERDICT_BITS, Verdict
from photon.dispatcher.replay import requests
from photon.dispatcher.replay.coverage import Chunk, chunks_between, read_up_to
from photon.dispatcher.replay.reading import Reads
from photon.dispatcher.replay.redispatch import Redispatcher
from photon.dispatcher.state import Changes, State
from photon.idregistry.api import I64, Answer

SHARE = 0.5
LOOK_S = 1.0  # new requests, and cancelled ones, are noticed within this time
CHUNKS_MAX = 64  # most chunks in flight at a time
READ_ATTEMPTS = 3  # a log is given up after this many attempts to read it, LOOK_S apart: it may just be rotated


@dataclass(slots=True)
class _Work:
    """A chunk of a log.

    ``known``: number of its events in the range with a verdict; ``asked``: of those without, which are in ``sent``.
    """

    part: requests.Part
    end: int
    known: int = 0
    asked: int = 0
    sent: list[Stretch] = field(default_factory=list)
    cells: Counter[int] = field(default_factory=Counter)

    @property
    def done(self) -> bool:
        return not any(stretch.left for stretch in self.sent)

    @property
    def events(self) -> int:
        return self.known + self.asked


@dataclass(eq=False)
class Replayer:
    """Executes one dispatcher's replays. ``run`` it until cancelled."""

    counting: Counting
    state: State
    look_ups: RegistryLookUps
    reads: Reads
    redispatcher: Redispatcher
    clock: Clock
    rules: LineRules

    def __post_init__(self) -> None:
        self._log = get_logger("photon.dispatcher")
        self._request: requests.Request | None = None
        self._parts: deque[requests.Part] = deque()  # still to be read, the one in front from ``_at``
        self._chunks: deque[Chunk] | None = None  # chunks of the part in front
        self._failed: list[requests.Part] = []
        self._works: deque[_Work] = deque()
        self._next_look = float("-inf")
        self._attempts = 0

    async def run(self) -> None:
        """Runs until cancelled. Raises StateError."""
        while True:
            begun = self.clock.monotonic()
            self._look(begun)
            worked = self._request is not None and await self._read_next(self._request)
            if self._commit():
                await self.reads.rest()
            spent = self.clock.monotonic() - begun
            await asyncio.sleep(
                spent * (1 / SHARE - 1) if worked else LOOK_S if self._request is None else LOOK_S / 5
            )

    # -- requests --------------------------------------------------------------------------------------------------
    def _look(self, now: float) -> None:
        """Starts the oldest unfinished request, and stops one that was cancelled."""
        if now < self._next_look:
            return
        self._next_look = now + LOOK_S
        request = requests.current(self.state.database)
        if self._request is not None and (request is None or request.number != self._request.number):
            self._let_go()
        if request is None or self._request is not None:
            return
        if request.step is requests.Step.ASKED:
            self._plan(request)
        self._request = request
        self._parts = deque(
            p for p in requests.parts(self.state.database, request.number) if p.step is requests.Step.RUNNING
        )
        self._log.info("replay", number=request.number, logs=len(self._parts))

    def _let_go(self) -> None:
        self._request = self._chunks = None
        self._parts.clear()
        self._works.clear()
        self._failed.clear()

    def _plan(self, request: requests.Request) -> None:
        positions = read_up_to(self.state.database)
        chunks = chunks_between(self.state.database, positions, request.from_ns, request.to_ns)
        found = requests.plan(request, chunks, {position.identity: position.path for position in positions})
        self.state.commit(Changes(also=requests.planned(request.number, found)))

    # -- reading ---------------------------------------------------------------------------------------------------
    async def _read_next(self, request: requests.Request) -> bool:
        """Reads the next chunk, if there is one and room for its events. Returns True if it read one."""
        if not self._parts or len(self._works) >= CHUNKS_MAX or not self.redispatcher.room():
            return False
        part = self._parts[0]
        if self._chunks is None:
            self._chunks = self._chunks_of(part, request)
        if not self._chunks:
            self._works.append(_Work(part, part.stop))
            self._next_part()
            return True
        try:
            blocks = await self.reads.blocks(self._chunks[0])
        except OSError as error:
            self._log.warning("replay: a log cannot be read", log=part.path, error=str(error))
            blocks = None
        if self._request is not request:
            return False
        if blocks is None:
            self._attempts += 1
            if self._attempts >= READ_ATTEMPTS:
                self._failed.append(part)
                self._next_part()
            return False
        self._attempts = 0
        work = _Work(part, self._chunks.popleft().end)
        for block in blocks:
            await self._take(work, block, request)
        self._works.append(work)
        return True

    def _next_part(self) -> None:
        self._parts.popleft()
        self._chunks, self._attempts = None, 0

    def _chunks_of(self, part: requests.Part, request: requests.Request) -> deque[Chunk]:
        own = [position for position in read_up_to(self.state.database) if position.identity == part.identity]
        found = chunks_between(self.state.database, own, request.from_ns, request.to_ns)
        return deque(chunk for chunk in found if part.at < chunk.end and chunk.begin < part.stop)

    async def _take(self, work: _Work, block: Block, request: requests.Request) -> None:
        """Looks up a block's events in the range, and sends those that the registry does not know."""
        events = self.rules.events(block)
        inside = (events.times >= request.from_ns) & (events.times < request.to_ns)
        events = events.take(np.flatnonzero(inside))
        await asyncio.sleep(0)
        if not len(events):
            return
        found = await self.look_ups.look_up(events.digests, events.times)
        if found is not None:
            known = (found.outcomes == Answer.PRESENT) | (found.outcomes == Answer.BELOW_BOUNDARY)
            self._know(work, events.times[known])
            events = events.take(np.flatnonzero(~known))
        if len(events):
            work.asked += len(events)
            work.sent.append(self.redispatcher.send(events, request.asked_ns))

    def _know(self, work: _Work, times: I64) -> None:
        work.known += len(times)
        self.counting.live[Verdict.REREAD] += len(times)
        hours, counts = np.unique(times // HOUR_NS, return_counts=True)
        for hour, count in zip(hours.tolist(), counts.tolist(), strict=True):
            work.cells[hour << VERDICT_BITS | Verdict.REREAD] += count

    # -- committing ------------------------------------------------------------------------------------------------
    def _commit(self) -> bool:
        """Moves each log's position past its first finished chunks. Returns True if the request is done."""
        request = self._request
        if request is None:
            return False
        also: list[requests.Statement] = []
        cells: Counter[int] = Counter()
        while self._works and self._works[0].done:
            work = self._works.popleft()
            step = requests.Step.DONE if work.end >= work.part.stop else requests.Step.RUNNING
            also.append(requests.moved(request.number, work.part, work.end, work.events, work.known, step))
            cells.update(work.cells)
            for stretch in work.sent:
                cells.update(stretch.cells)
        done = not self._works and not self._parts
        if not self._works:
            also += [requests.unread(request.number, part) for part in self._failed]
        if done:
            also.append(requests.ended(request.number, self.clock.now_ns()))
        if also:
            self.state.commit(Changes(cells=cells, also=also))
        if not self._works:
            self._tell_failed(request)
        if done:
            self._log.info("replay is done", number=request.number)
            self._let_go()
            self._next_look = float("-inf")
        return done

    def _tell_failed(self, request: requests.Request) -> None:
        for part in self._failed:
            self._log.warning("replay: no file holds this log any more", number=request.number, log=part.path)
        self._failed.clear()
