"""Replicas' clocks that step, drift and cannot always be read, and the production code that watches them.

Time is simulated; nothing runs beside it. A clock is *right* when it is within S / 4 of the true time: two right ones
are within S of each other, with room for a round trip. Fewer than half are wrong at any moment; one that was wrong
counts as wrong until readings of it are too old to be used.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from photon.config.interval_clock import IntervalClock
from photon.idregistry.core.clock_offsets import READING_S_MAX, Agreement, Reading
from photon.idregistry.replica.clocks import ClockWatch

NS = 1_000_000_000
S_NS = 2 * NS
RIGHT_NS = S_NS // 4
TICK_S = 0.5
TICKS = 400
ASK_EVERY_S = 2.0
DELAY_S_MAX = 0.4
"""One way."""
DRIFT = 0.0004
"""Of the monotonic clocks, either way: within the kernel's 500 ppm."""
SLACK_NS = int(0.1 * NS)
"""What readings of 30 s and drifts add to the bounds."""
WRONG_S = (1.5 * S_NS / NS, 3.0, 60.0, 86_400.0, 1e9)


class Violation(AssertionError):
    """A promise was broken."""


@dataclass
class SteppedClock:
    """One machine's clocks."""

    world: World
    rate: float
    booted_s: float
    ahead_ns: int = 0

    def now_ns(self) -> int:
        return self.world.true_ns + self.ahead_ns

    def monotonic(self) -> float:
        return (self.world.now_s + self.booted_s) * self.rate


@dataclass
class Machine:
    """One replica."""

    name: str
    clock: SteppedClock
    watch: ClockWatch
    wrong: bool = False
    wrong_until_s: float = -1e9
    """Readings of its wrong clock may be in use until then."""
    cut: bool = False
    next_ask_s: float = 0.0


@dataclass
class World:
    """All machines and the true time."""

    seed: int
    trusting: bool = False
    """The ablation: objections are not heard."""
    now_s: float = 0.0
    machines: list[Machine] = field(default_factory=list)
    proposals: int = 0
    refusals: int = 0
    boundary_ns: int = -(1 << 62)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        names = [f"r{n + 1}" for n in range(self.random.choice([3, 5]))]
        for name in names:
            clock = SteppedClock(self, 1 + self.random.uniform(-DRIFT, DRIFT), self.random.uniform(0, 1e6))
            watch = ClockWatch(IntervalClock(clock, S_NS), [other for other in names if other != name])
            self.machines.append(Machine(name, clock, watch))
            self._right(self.machines[-1])

    @property
    def true_ns(self) -> int:
        return 1_800_000_000 * NS + int(self.now_s * NS)

    def run(self) -> None:
        """A random schedule, then all is healed: every clock is right and can be read."""
        for _ in range(TICKS):
            self._tick()
            self._fault()
        for machine in self.machines:
            machine.cut = False
            self._right(machine)
        for _ in range(int(2 * ASK_EVERY_S / TICK_S) + 1):
            self._tick()
        for machine in self.machines:
            if machine.watch.facts().agreement is not Agreement.AGREES:
                raise Violation(f"{machine.name} still objects when all is well: {machine.watch.objection()}")

    def _tick(self) -> None:
        self.now_s += TICK_S
        for machine in self.machines:
            if machine.wrong:
                machine.wrong_until_s = self.now_s + READING_S_MAX + 1
            if self.now_s >= machine.next_ask_s:
                machine.next_ask_s = self.now_s + ASK_EVERY_S
                self._ask_all(machine)
        self._lead(self.random.choice(self.machines))

    def _ask_all(self, machine: Machine) -> None:
        """Each peer reads its clock somewhere between question and answer. The others' clocks stand meanwhile."""
        asked_s = self.now_s
        for peer in self.machines:
            if peer is machine or peer.cut or machine.cut or self.random.random() < 0.1:
                continue
            there, back = (self.random.uniform(0, DELAY_S_MAX) for _ in range(2))
            question = machine.clock.monotonic()
            self.now_s = asked_s + there
            wall = peer.clock.now_ns()
            self.now_s = asked_s + there + back
            machine.watch.read(peer.name, Reading(wall, question, machine.clock.monotonic()))
            self.now_s = asked_s

    def _lead(self, leader: Machine) -> None:
        """As the caretaker: reckon, then ask whether there is an objection."""
        boundary = leader.watch.not_after_ns()
        if leader.watch.objection() and not self.trusting:
            self.refusals += 1
            return
        if boundary > self.boundary_ns:
            self.boundary_ns = boundary
            self.proposals += 1
        # The leader is within S of the median, that within S / 4 of the truth; it reckons with S less than it shows.
        if self.boundary_ns > self.true_ns + RIGHT_NS + SLACK_NS:
            over = (self.boundary_ns - self.true_ns) / NS
            raise Violation(f"{leader.name} moved the boundary {over:.1f} s beyond what it may be")

    def _fault(self) -> None:
        draw, machine = self.random.random(), self.random.choice(self.machines)
        if draw < 0.03:
            doubtful = sum(each.wrong or self.now_s < each.wrong_until_s for each in self.machines)
            counted = machine.wrong or self.now_s < machine.wrong_until_s
            if counted or 2 * (doubtful + 1) < len(self.machines):
                self._wrong(machine)
        elif draw < 0.06:
            self._right(machine)
        elif draw < 0.10:
            machine.cut = not machine.cut

    def _wrong(self, machine: Machine) -> None:
        machine.wrong = True
        machine.clock.ahead_ns = int(self.random.choice(WRONG_S) * NS) * self.random.choice([1, -1])

    def _right(self, machine: Machine) -> None:
        """Also a small step: what a time daemon does."""
        machine.wrong = False
        machine.clock.ahead_ns = self.random.randint(-RIGHT_NS, RIGHT_NS)
