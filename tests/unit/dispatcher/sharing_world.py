"""Datacentres that share a log, simulated: pure cores, joiners with a speed, a registry with a commit time.

Registrations are decided in the order in which they reach the leader, and every replica knows of them one commit time
later. Nothing else connects the datacentres.
"""

from __future__ import annotations

import heapq
import random
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import itemgetter

import numpy as np

from photon.dispatcher.events import Batch
from photon.dispatcher.flow import Flow
from photon.dispatcher.homes import HeadStart, Homes
from photon.dispatcher.ledger import Verdict, split_cell
from photon.dispatcher.limits import Limits
from photon.dispatcher.lookups import Behind, settle
from photon.dispatcher.retry import Patience
from photon.idregistry.api import Answer, Kind
from photon.joiner.api import JoinAnswers, Outcome
from tests.unit.dispatcher.world import block, core, looked_up, take
from tests.unit.joiner.told import TakenBy, answers_of

SCAN_S = 0.02
COMMIT_S = 0.2
LOOK_UP_S = 0.001
IN_FLIGHT = 8
QUESTIONS = 4
BATCH_EVENTS = 200
BLOCK = 1000  # lines


@dataclass
class Counts:
    """Outcomes of events in a span of time."""

    joined: dict[str, int]
    wasted: dict[str, int]

    @property
    def all(self) -> int:
        return sum(self.joined.values())

    def share(self, name: str) -> float:
        return self.joined[name] / max(self.all, 1)

    @property
    def wasted_share(self) -> float:
        return sum(self.wasted.values()) / max(self.all, 1)


@dataclass
class World:
    """``round_trip_s``, ``commit_s``: to the registry's leader, and from there to a majority.

    ``jitter_s``: extra time of a joiner now and then, on average. ``measured_s``: from a datacentre's start until it
    knows the commit time. ``late_share`` of the events have a primary that comes ``late_s`` later.
    """

    seed: int
    round_trip_s: float = 0.03
    commit_s: float = 0.04
    jitter_s: float = 0.0
    measured_s: float = 0.0
    late_share: float = 0.0
    late_s: float = 0.0
    window_bytes: int = 3 << 20
    now: float = 0.0
    written: int = 0
    rate: float = 0.0
    sites: dict[str, Site] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.owners: dict[bytes, tuple[str, float]] = {}  # digest -> (datacentre, when every replica knows)
        self.latencies: list[tuple[float, float]] = []  # (when joined, after how long)
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._rest = 0.0
        self.lines: list[tuple[int, float]] = []  # (offset behind it, when written)
        self.data = b""
        self.primaries: list[float] = []  # when each event's comes
        self.after(SCAN_S, self._write)

    def after(self, delay: float, what: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._queue, (self.now + delay, self._number, what))

    def run(self, seconds: float) -> Counts:
        """Runs for ``seconds``; returns the events joined and wasted in that time."""
        before = {name: (site.joined, site.wasted) for name, site in self.sites.items()}
        end = self.now + seconds
        while self._queue and self._queue[0][0] <= end:
            self.now, _, what = heapq.heappop(self._queue)
            what()
        self.now = end
        return Counts(
            {name: site.joined - before[name][0] for name, site in self.sites.items()},
            {name: site.wasted - before[name][1] for name, site in self.sites.items()},
        )

    def add(self, name: str, names: list[str], *, speed: float, lag_s: float = 0.0) -> Site:
        site = self.sites[name] = Site(self, name, names, speed, lag_s)
        site.start()
        return site

    def append(self, count: int) -> None:
        more = b"".join(b"%d k 1\n" % n for n in range(self.written, self.written + count))
        at = len(self.data)
        for line in more.splitlines(keepends=True):
            at += len(line)
            self.lines.append((at, self.now))
            late = self.late_share and self.random.random() < self.late_share
            self.primaries.append(self.now + (self.late_s if late else 0.0))
        self.data += more
        self.written += count

    def _write(self) -> None:
        due = self._rest + self.rate * SCAN_S
        self._rest = due % 1
        if due >= 1:
            self.append(int(due))
        self.after(SCAN_S, self._write)


class Site:
    """One datacentre. ``speed``: events a second of its joiners. ``lag_s``: delay of its copy of the log."""

    def __init__(self, world: World, name: str, names: list[str], speed: float, lag_s: float) -> None:
        self.world, self.name, self.names, self.speed, self.lag_s = world, name, names, speed, lag_s
        self.committed = 0  # offset
        self.joined = self.wasted = self.read = 0
        self.life = 0
        self.alive = False
        self.paused_until = 0.0

    def start(self) -> None:
        world = self.world
        self.life += 1
        self.alive = True
        self.homes = Homes(self.name, self.names, HeadStart())
        self._measured(world.measured_s)
        limits = Limits(BATCH_EVENTS, window_bytes=world.window_bytes, hold_bytes=world.window_bytes)
        self.core = core(
            patience=Patience(), limits=limits, datacentre=self.name, random=world.random.random,
            highs={"log1": self.committed}, homes=self.homes,
        )  # fmt: skip
        self.at = self.committed
        self.line = sum(1 for end, _ in world.lines if end <= self.at)
        self.core.waiting.progressed(int(world.now * 1e9))
        self.behind = Behind(several=True)
        self.caught_up = False
        self.questions = 0
        self._due = 0.0
        head_start = self.homes.head_start
        self.flow = Flow(
            1,
            in_flight=IN_FLIGHT,
            random=world.random.random,
            batch_events=BATCH_EVENTS,
            soon=lambda: head_start.answer_s,
        )
        self.free_at = world.now
        self._alone(world.random.random() * SCAN_S, self._scan)
        self._alone(COMMIT_S, self._commit)

    def stop(self) -> None:
        """Like kill -9 of the whole datacentre; entries that have reached the registry stay."""
        self.alive = False
        self.life += 1

    def pause(self, seconds: float) -> None:
        """Stops its dispatcher for ``seconds``."""
        self.paused_until = self.world.now + seconds

    def _measured(self, delay: float) -> None:
        world, head_start = self.world, self.homes.head_start
        if delay:
            self._alone(delay, lambda: head_start.measured(world.round_trip_s + world.commit_s))
        else:
            head_start.measured(world.round_trip_s + world.commit_s)

    def _alone(self, delay: float, what: Callable[[], None], *, paused: bool = True) -> None:
        """Unless it dies before. ``paused``: it waits while the dispatcher does."""
        life, world = self.life, self.world

        def run() -> None:
            if self.life != life:
                return
            if paused and world.now < self.paused_until:
                world.after(self.paused_until - world.now, run)
            else:
                what()

        world.after(delay, run)

    # -- what the engine does
    def _scan(self) -> None:
        world = self.world
        lines = world.lines
        seen = bisect_right(lines, world.now - self.lag_s, self.line, key=itemgetter(1))
        unread = (lines[seen - 1][0] if seen else 0) - self.at
        caught_up = self.caught_up and not self.core.queues.long
        unread *= 20  # short lines: as if they were long
        self.core.queues.look_first = self.behind.look(unread, caught_up, world.now, self.homes.head_start.seconds)
        while self.line < seen and self.core.intake.room():
            upto = min(seen, self.line + BLOCK)
            end = lines[upto - 1][0]
            take(self.core, block(world.data[self.at : end], self.at), int(world.now * 1e9), world.now)
            self.at, self.line = end, upto
        self.caught_up = self.line == seen
        self.core.waiting.progressed(int(world.now * 1e9))
        self._send()
        self._alone(SCAN_S, self._scan)

    def _send(self) -> None:
        own, now = self.core, self.world.now
        own.queues.batch_events = self.flow.batch_events()
        while self.questions < QUESTIONS and (asked := own.next_question(now)) is not None:
            self.questions += 1
            self._alone(LOOK_UP_S, lambda asked=asked: self._look_up(asked))  # type: ignore[misc]
        while (target := self.flow.choose(now)) is not None:
            batch = own.next_batch(now, flush=self.caught_up)
            self.flow.sent(target, len(batch) if batch is not None else 0, now)
            if batch is None:
                break
            self.free_at = max(self.free_at, now) + len(batch) / self.speed
            arrives = self.free_at - now + self.world.round_trip_s / 2
            if self.world.jitter_s:
                arrives += self.world.random.expovariate(1 / self.world.jitter_s)
            register = lambda batch=batch: self._register(batch, now)  # noqa: E731
            self._alone(arrives, register, paused=False)
        due = own.queues.next_due(now)
        if due is not None and self.questions < QUESTIONS:
            self._due = due
            self._alone(max(due - now, 0.0) + 1e-6, lambda: self._send() if self._due == due else None)

    def _look_up(self, asked: Batch) -> None:
        world = self.world
        n, digests = len(asked), asked.events.digests
        answers, owners = np.full(n, Answer.ABSENT, np.uint8), np.zeros(n, np.uint8)
        names = tuple(world.sites)
        for row in range(n):
            owner = world.owners.get(digests[16 * row : 16 * row + 16])
            if owner is not None and owner[1] <= world.now:
                answers[row], owners[row] = Answer.PRESENT, names.index(owner[0])
        found = looked_up(answers, Kind.JOINED, 0, owners, names)
        self.questions -= 1
        left = settle(self.core, asked, found, int(world.now * 1e9), world.now)
        self.core.queues.asked(left, len(asked), world.now, patient=asked.patient)
        self._send()

    def _register(self, batch: Batch, sent_at: float) -> None:
        world = self.world
        outcomes, taken = [], {}
        for row, event in enumerate(batch.events.rows()):
            if world.now < world.primaries[int(event.event_id)]:
                outcomes.append(Outcome.NOT_YET)
                continue
            owner = world.owners.setdefault(event.digest, (self.name, world.now + world.commit_s))
            if owner[0] == self.name:
                outcomes.append(Outcome.JOINED)
                self.joined += 1
                written = world.lines[int(event.event_id)][1]
                world.latencies.append((world.now, world.now - written))
            else:
                outcomes.append(Outcome.TAKEN)
                taken[row] = TakenBy(owner[0], Kind.JOINED, False)
                self.wasted += 1
        answered = world.commit_s + world.round_trip_s / 2
        self._alone(answered, lambda: self._answered(batch, answers_of(outcomes, taken), sent_at))

    def _answered(self, batch: Batch, answers: JoinAnswers, sent_at: float) -> None:
        self.flow.answered(self.flow.targets[0], len(batch), answers, sent_at, self.world.now)
        self.core.answered(batch, answers, int(self.world.now * 1e9), self.world.now)
        self._send()

    def _commit(self) -> None:
        changes = self.core.committing.changes(int(self.world.now * 1e9), self.world.now)
        if (position := changes.positions.get("log1")) is not None:
            self.committed = position.offset
        assert not changes.stored  # nothing waits for a primary here
        self.read += sum(n for number, n in changes.cells.items() if split_cell(number)[1] is Verdict.READ)
        self.core.committing.committed()
        self._alone(COMMIT_S, self._commit)
