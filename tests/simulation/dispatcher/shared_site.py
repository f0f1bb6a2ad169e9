"""A dispatcher's core, flow and loader over a simulated joiner: fresh events come steadily, a backlog waits.

The joiner works on one event after the other, so a fresh event waits for all that was sent before it. Simulated time.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from itertools import count

import numpy as np

from photon.adapters.contract import ForeignHeader, LogFile
from photon.adapters.envelope import Envelope
from photon.adapters.logs.api import Block
from photon.batch.events import Events
from photon.dispatcher.core import Core
from photon.dispatcher.events import Batch
from photon.dispatcher.flow import Flow, Target
from photon.dispatcher.intake import LineRules
from photon.dispatcher.limits import Limits
from photon.dispatcher.open_events import StoredEvents
from photon.dispatcher.queues import Shares
from photon.dispatcher.retry import Patience
from photon.joiner.api import WAIT_NS, ForeignEvent, JoinAnswers, Outcome
from tests.unit.dispatcher.world import DIGESTER, HERE, Words

TURN_S = 0.002
COMMIT_S = 0.2
START_NS = 1_000_000 * 3_600 * 10**9
BASE_S = 0.01  # time for an answer in addition to the work


class FreshWords(Words):
    """``ID KEY NANOSECONDS``."""

    def foreign_header(self, record: bytes, file: LogFile) -> ForeignHeader:
        event_id, key, time_ns = record.split(b" ")
        return ForeignHeader(key, int(time_ns), event_id)


class SharedSite:
    """``fresh``: events a second. ``speed``: the joiner's. ``backlog``: rows of the retry store, all due."""

    def __init__(self, seed: int, *, fresh: float, speed: float, backlog: int, share: float | None) -> None:
        draw = random.Random(seed)
        self.limits = Limits()
        in_flight = 8
        shares = Shares(1.0, 0) if share is None else Shares(share, in_flight * self.limits.batch_events)
        self.core = Core(
            LineRules(FreshWords({}), DIGESTER, Patience()), Envelope(), self.limits, HERE,
            random=draw.random, highs={}, shares=shares,
        )  # fmt: skip
        self.flow = Flow(1, in_flight=in_flight, random=draw.random)
        self.fresh, self.speed, self.share = fresh, speed, share
        self.rows = deque(range(1, backlog + 1))
        self.now = self.free_at = 0.0
        self.offset = self.read = 0
        self.latencies: list[float] = []
        self.behind_done = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._next_commit = COMMIT_S
        self._row_file = LogFile("old.log")

    def run(self, seconds: float) -> None:
        """Runs for some simulated seconds."""
        end = self.now + seconds
        while self.now < end:
            while self._events and self._events[0][0] <= self.now:
                heapq.heappop(self._events)[2]()
            self._read()
            self._load()
            self._send()
            if self.now >= self._next_commit:
                self._next_commit = self.now + COMMIT_S
                changes = self.core.committing.changes(self._wall(), self.now)
                assert not changes.stored
                self.core.committing.committed()
            self.now += TURN_S

    def _wall(self) -> int:
        return START_NS + int(self.now * 1e9)

    def _read(self) -> None:
        due = int(self.now * self.fresh)
        if due <= self.read:
            return
        data = b"".join(b"f%d k %d\n" % (n, self._wall()) for n in range(self.read, due))
        block = Block(
            "log1",
            LogFile("new.log"),
            self.offset,
            data,
            self.offset + len(data),
            before=bytes(min(self.offset, 4096)),
        )
        self.offset, self.read = block.end, due
        for _ in self.core.intake.take(block, self._wall(), self.now):
            pass

    def _load(self) -> None:
        room = min(
            2000, 20_000 - len(self.core.waiting.loaded), self.core.waiting.room_for_rows(self.now), len(self.rows)
        )
        ids = [self.rows.popleft() for _ in range(room)]
        file = self._row_file
        events = [ForeignEvent(b"o%d" % n, b"%16d" % n, 1, b"k", b"x" * 100, file, n, WAIT_NS) for n in ids]
        ones = np.ones(room, np.int64)
        stored = StoredEvents(np.array(ids, np.int64), Events.of(events), ones, 3 * ones, ones, ones)
        self.core.waiting.load(stored, self._wall(), 0.0)

    def _send(self) -> None:
        while (target := self.flow.choose(self.now)) is not None:
            batch = self.core.next_batch(self.now, flush=True, most=self.flow.most_events(target))
            self.flow.sent(target, len(batch) if batch is not None else 0, self.now)
            if batch is None:
                break
            self._sent(target, batch, self.now)

    def _sent(self, target: Target, batch: Batch, sent_at: float) -> None:
        self.free_at = max(self.free_at, self.now) + len(batch) / self.speed

        def answered() -> None:
            answers = JoinAnswers.alike(len(batch), Outcome.JOINED)
            self.flow.answered(target, len(batch), answers, sent_at, self.now)
            self.core.answered(batch, answers, self._wall(), self.now)
            if batch.events.ids[0].startswith(b"o"):
                self.behind_done += len(batch)
            else:
                self.latencies += ((self._wall() - batch.events.times) / 1e9).tolist()

        heapq.heappush(self._events, (self.free_at + BASE_S, next(self._numbers), answered))

    def p99(self) -> float:
        """99th percentile, in seconds, over the fresh events answered since the last call."""
        ordered = sorted(self.latencies)
        self.latencies = []
        return ordered[int(len(ordered) * 0.99)]
