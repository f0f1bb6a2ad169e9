"""Simulated joiners behind the real ``Flow``: a queue of batches, answers in simulated time. Nothing sleeps."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from photon.dispatcher.flow import Flow, Target
from photon.joiner.api import JoinAnswers, Outcome

BATCH = 1000
TIMEOUT_S = 30.0  # a call without an answer breaks after this time


@dataclass
class SimulatedJoiner:
    """``speed``: events a second. ``broken``: calls fail at once; ``silent``: they are never answered."""

    speed: float
    broken: bool = False
    silent: bool = False
    free_at: float = 0.0

    def answer_at(self, events: int, now: float) -> tuple[float, bool]:
        """When its answer to a batch comes, and whether there is one."""
        if self.broken:
            return now + 0.001, False
        if self.silent:
            return now + TIMEOUT_S, False
        self.free_at = max(self.free_at, now) + events / self.speed
        return self.free_at, True


@dataclass
class Run:
    """A dispatcher that always has events, and its joiners. ``changes``: changes by their time in seconds."""

    joiners: list[SimulatedJoiner]
    seed: int
    in_flight: int = 8
    changes: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    done: Counter[int] = field(default_factory=Counter)  # events answered, by joiner
    lost: Counter[int] = field(default_factory=Counter)  # events of calls that broke
    done_at: list[tuple[float, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        draw = random.Random(self.seed).random
        self.flow = Flow(len(self.joiners), in_flight=self.in_flight, random=draw, batch_events=BATCH)

    def until(self, end: float) -> None:
        """Runs until ``end``, in seconds of simulated time."""
        numbers = count()
        pending: list[tuple[float, int, Target, int, float, bool]] = []
        changes = sorted(self.changes, key=lambda change: change[0])
        now = 0.0
        while now < end:
            while changes and changes[0][0] <= now:
                changes.pop(0)[1]()
            while (target := self.flow.choose(now)) is not None:
                events = self.flow.most_events(target)
                self.flow.sent(target, events, now)
                at, well = self.joiners[target.number].answer_at(events, now)
                heapq.heappush(pending, (at, next(numbers), target, events, now, well))
            moments = [end, *(entry[0] for entry in pending[:1]), *(change[0] for change in changes[:1])]
            if (back := self.flow.next_free(now)) is not None:
                moments.append(back)
            now = min(moments)
            while pending and pending[0][0] <= now:
                _, _, target, events, sent_at, well = heapq.heappop(pending)
                answers = JoinAnswers.alike(events, Outcome.JOINED) if well else None
                self.flow.answered(target, events, answers, sent_at, now)
                (self.done if well else self.lost)[target.number] += events
                if well:
                    self.done_at.append((now, events))

    def throughput(self, begin: float, end: float) -> float:
        """Events answered per second in a time span."""
        return sum(events for at, events in self.done_at if begin <= at < end) / (end - begin)
