"""Several replicas of one Raft group in one process: simulated time, network and disks, and a checker.

The code under test is the whole of ``photon.idregistry.raft`` but its thread and its gRPC. All that happens is drawn
from one Random, so that a seed replays.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from random import Random

from photon.idregistry.raft.api import Applied, ProposalOutcome
from photon.idregistry.raft.host import RaftHost
from photon.idregistry.raft.options import RaftOptions
from photon.idregistry.raft.transport import GroupMessage, Hello, Receiver
from tests.simulation.world.disk import PowerOff, SimulatedDisk

GROUP = 1
DIRECTORY = Path("/data/raft")
_RECORD = struct.Struct("<QI")


class Violation(AssertionError):
    """The system broke a promise."""


class Machine:
    """Keeps every command it applied, so that histories can be compared."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name
        self.history: list[tuple[int, bytes]] = []

    def apply(self, index: int, command: bytes) -> int:
        self._world.applied(self._name, index, command)
        if self.history and index <= self.history[-1][0]:
            raise Violation(f"{self._name} applied entry {index} after {self.history[-1][0]}")
        self.history.append((index, command))
        return index

    def snapshot(self) -> Iterable[bytes]:
        for index, command in self.history:
            yield _RECORD.pack(index, len(command)) + command

    def restore(self, chunks: Iterable[bytes]) -> None:
        self.history = []
        for chunk in chunks:
            index, _ = _RECORD.unpack_from(chunk)
            self.history.append((index, chunk[_RECORD.size :]))


class SimulatedClock:
    """A machine's clock: runs a little fast or slow."""

    def __init__(self, world: World, rate: float, offset: float) -> None:
        self._world = world
        self.rate = rate
        self.offset = offset

    def monotonic(self) -> float:
        return self._world.now * self.rate + self.offset

    def now_ns(self) -> int:
        return int(self.monotonic() * 1e9)


class SimulatedNetwork:
    """One replica's end of the world's network."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name
        self._hello: Hello | None = None

    def start(self, hello: Hello, receiver: Receiver) -> None:
        self._hello = hello

    def send(self, peer: str, messages: Sequence[GroupMessage]) -> None:
        assert self._hello is not None
        self._world.send(self._hello, peer, messages)

    def stop(self) -> None:
        self._hello = None


class Node:
    """One machine: its disk lasts, its replica comes and goes."""

    def __init__(self, world: World, name: str) -> None:
        random = world.random
        self.name = name
        self.world = world
        self.disk = SimulatedDisk(Random(random.getrandbits(64)), lies_about=world.lies_about)
        self.clock = SimulatedClock(world, random.uniform(0.97, 1.03), random.uniform(0, 1e6))
        self.host: RaftHost | None = None
        self.machine: Machine | None = None
        self.paused_until = 0.0
        self.wake_at = float("inf")

    def boot(self) -> None:
        world = self.world
        self.machine = Machine(world, self.name)
        self.host = RaftHost(
            name=self.name,
            peers=dict.fromkeys(world.names, "nowhere:1"),
            directory=DIRECTORY,
            machines={GROUP: self.machine},
            disk=self.disk,
            clock=self.clock,
            options=world.options,
            network=SimulatedNetwork(world, self.name),
            random=Random(world.random.getrandbits(64)),
            entropy=world.random.randbytes,
        )
        if world.stormy and world.random.random() < 0.2:
            self.disk.crash_after(world.random.randint(1, 15))  # in the middle of its start
        if self.guarded(self.host.open):
            world.pump_at(self, world.now)

    def guarded(self, act: Callable[[], object]) -> bool:
        """Runs code of the replica, in which its power may go."""
        try:
            act()
        except PowerOff:
            self.crash(power=self.world.random.random() < 0.7)
            return False
        return True

    def crash(self, *, power: bool) -> None:
        if power:
            self.disk.power_cut()
        else:
            self.disk.kill()
        if self.host is not None:
            self.host = None
            self.world.later(self.world.random.uniform(0.01, 1.2), self.boot_if_down)

    def boot_if_down(self) -> None:
        if self.host is None:
            self.boot()

    def pump(self) -> None:
        if self.host is None:
            return
        if self.paused_until > self.world.now:
            self.world.pump_at(self, self.paused_until)
            return
        due = float("inf")

        def act() -> None:
            nonlocal due
            assert self.host is not None
            due = self.host.pump()

        if self.guarded(act) and due < float("inf"):
            wait = max(0.0002, (due - self.clock.monotonic()) / self.clock.rate)
            self.world.pump_at(self, self.world.now + wait)


class World:
    """Time, the network, the machines, and what must hold."""

    def __init__(self, seed: int, *, replicas: int = 3, lies_about: str | None = None) -> None:
        self.random = random = Random(seed)
        self.now = 0.0
        self.lies_about = lies_about
        self.names = [chr(ord("a") + n) for n in range(replicas)]
        self.options = RaftOptions(
            log_bytes=random.choice((300, 1500, 1 << 20)),
            log_margin=random.choice((0, 100, 400)),
            in_flight=random.choice((1, 4, 8)),
            transfer_retry=0.3,
        )
        self.loss = self.doubling = 0.0
        self.slow = 0.0
        self.stormy = False
        self.cut: set[tuple[str, str]] = set()
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._sequence = 0
        self.by_index: dict[int, bytes] = {}
        self.acknowledged: dict[bytes, int] = {}
        self.proposed = 0
        self.crashes = 0
        self.nodes = {name: Node(self, name) for name in self.names}

    # --- time -------------------------------------------------------------------------------------------------

    def later(self, delay: float, act: Callable[[], object]) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (self.now + delay, self._sequence, act))

    def pump_at(self, node: Node, when: float) -> None:
        if node.wake_at <= when and node.wake_at >= self.now:
            return
        node.wake_at = when

        def wake() -> None:
            if node.wake_at == when:
                node.wake_at = float("inf")
                node.pump()

        self.later(max(0.0, when - self.now), wake)

    def run_until(self, end: float, stop: Callable[[], bool] | None = None) -> bool:
        """Runs events up to a time; True as soon as ``stop`` holds (asked every 20 ms)."""
        ask_at = self.now
        while self._events and self._events[0][0] <= end:
            self.now, _, act = heapq.heappop(self._events)
            act()
            if stop is not None and self.now >= ask_at:
                ask_at = self.now + 0.02
                if stop():
                    return True
        self.now = max(self.now, end)
        return False

    # --- network ----------------------------------------------------------------------------------------------

    def send(self, hello: Hello, peer: str, messages: Sequence[GroupMessage]) -> None:
        if (hello.name, peer) in self.cut:
            return
        random = self.random
        copies = 0 if random.random() < self.loss else 2 if random.random() < self.doubling else 1
        for _ in range(copies):
            delay = random.uniform(0.0002, 0.003)
            if random.random() < self.slow:
                delay = random.uniform(0.0, 1.5)
            self.later(delay, lambda: self._arrive(hello, peer, messages))

    def _arrive(self, hello: Hello, peer: str, messages: Sequence[GroupMessage]) -> None:
        node = self.nodes[peer]
        host = node.host
        if host is None or (hello.name, peer) in self.cut:
            return

        def act() -> None:
            refusal = host.receive(hello, messages)
            if refusal is not None and refusal.fatal:
                raise Violation(f"{peer} refuses {hello.name}: {refusal.reason}")

        if node.guarded(act):
            self.pump_at(node, self.now)

    # --- what must hold ---------------------------------------------------------------------------------------

    def applied(self, name: str, index: int, command: bytes) -> None:
        known = self.by_index.setdefault(index, command)
        if known != command:
            raise Violation(f"entry {index}: {name} applied {command[:8].hex()}, another replica {known[:8].hex()}")

    def propose(self, node: Node, timeout: float = 1.0) -> None:
        host = node.host
        if host is None or node.paused_until > self.now:
            return
        self.proposed += 1
        command = self.proposed.to_bytes(8, "big") + self.random.randbytes(self.random.choice((0, 10, 60)))
        life = node.disk.life

        def done(outcome: ProposalOutcome) -> None:
            if node.disk.life != life:
                raise Violation(f"{node.name} answered after its power went")
            if isinstance(outcome, Applied):
                if self.by_index.get(outcome.result) != command:
                    raise Violation(f"acknowledged as entry {outcome.result}, which is another command")
                self.acknowledged[command] = outcome.result

        def act() -> None:
            host.group(GROUP).propose(command, timeout=timeout, done=strict(done))

        if node.guarded(act):
            self.pump_at(node, self.now)

    def propose_everywhere(self) -> None:
        """To each replica that thinks that it leads: there may be several."""
        for node in self.nodes.values():
            if node.host is not None and node.host.group(GROUP).state().is_leader:
                self.propose(node)

    def check(self) -> None:
        """At rest: every acknowledged command is in every history, at its place, and all histories are one."""
        histories = [node.machine.history for node in self.nodes.values() if node.machine is not None]
        for name, history in zip(self.names, histories, strict=True):
            if history != histories[0]:
                raise Violation(f"the histories of {name} and {self.names[0]} differ")
        where = {command: index for index, command in histories[0]}
        if len(where) != len(histories[0]):
            raise Violation("a command was applied twice")
        for command, index in self.acknowledged.items():
            if where.get(command) != index:
                raise Violation(f"acknowledged command {int.from_bytes(command[:8], 'big')} is lost")

    def settled(self) -> bool:
        states = []
        for node in self.nodes.values():
            if node.host is None:
                return False
            states.append(node.host.group(GROUP).state())
        return (
            sum(s.is_leader for s in states) == 1
            and len({s.applied for s in states}) == 1
            and all(s.applied == s.committed for s in states)
            and len({s.term for s in states}) == 1
        )


def strict(done: Callable[[ProposalOutcome], None]) -> Callable[[ProposalOutcome], None]:
    """The host logs what a callback raises and goes on; a violation must get out."""

    def call(outcome: ProposalOutcome) -> None:
        try:
            done(outcome)
        except Violation as e:
            raise ViolationInCallback(str(e)) from e

    return call


class ViolationInCallback(BaseException):
    """A Violation on its way out through the code under test."""


def faults(world: World, until: float) -> None:
    """Plans what goes wrong up to a time: crashes at any disk operation, power cuts, partitions, pauses, loss."""
    random = world.random
    kinds: list[Callable[[World], None]] = [
        _crash_one,
        _crash_one,
        _crash_soon,
        _crash_soon,
        _power_cut_all,
        _partition,
        _pause,
        _weather,
    ]
    at = random.uniform(0.3, 1.2)
    while at < until:
        world.later(at, partial(random.choice(kinds), world))
        at += random.expovariate(1 / random.choice((0.25, 0.6)))


def _some(world: World) -> Node:
    return world.nodes[world.random.choice(world.names)]


def _crash_one(world: World) -> None:
    node = _some(world)
    if node.host is not None:
        world.crashes += 1
        node.crash(power=world.random.random() < 0.7)


def _crash_soon(world: World) -> None:
    node = _some(world)
    if node.host is not None:
        world.crashes += 1
        node.disk.crash_after(world.random.randint(1, 40))


def _power_cut_all(world: World) -> None:
    for node in world.nodes.values():
        if node.host is not None:
            world.crashes += 1
            node.crash(power=True)


def _partition(world: World) -> None:
    random = world.random
    lonely = random.sample(world.names, random.randint(1, len(world.names) // 2))
    cut = set()
    for a in world.names:
        for b in world.names:
            if (a in lonely) != (b in lonely):
                cut.add((a, b))
    if random.random() < 0.3:  # one way only
        cut = {(a, b) for a, b in cut if a in lonely}
    world.cut |= cut
    world.later(random.uniform(0.2, 2.5), lambda: world.cut.difference_update(cut))


def _pause(world: World) -> None:
    node = _some(world)
    node.paused_until = world.now + world.random.uniform(0.1, 1.5)


def _weather(world: World) -> None:
    random = world.random
    world.loss = random.choice((0, 0, 0.05, 0.3))
    world.doubling = random.choice((0, 0.1, 0.5))
    world.slow = random.choice((0, 0.02, 0.2))


def run(seed: int, *, replicas: int = 3, lies_about: str | None = None, seconds: float = 6.0) -> World:
    """One schedule: boot, propose under faults, heal, converge, check. Raises Violation."""
    world = World(seed, replicas=replicas, lies_about=lies_about)
    for node in world.nodes.values():
        world.later(world.random.uniform(0, 0.2), node.boot)
    faults(world, seconds)
    world.later(0.3, lambda: setattr(world, "stormy", True))

    def client() -> None:
        world.propose_everywhere()
        if world.now < seconds:
            world.later(world.random.expovariate(1 / 0.02), client)

    world.later(0.5, client)
    try:
        world.run_until(seconds + 0.2)
        _heal(world)
    except ViolationInCallback as e:
        raise Violation(str(e)) from e
    world.check()
    return world


def _heal(world: World) -> None:
    world.stormy = False
    world.cut.clear()
    world.loss = world.doubling = world.slow = 0.0
    for node in world.nodes.values():
        node.paused_until = 0.0
        node.disk.crash_after(None)
        world.later(0.0, node.boot_if_down)
        world.pump_at(node, world.now)
    world.run_until(world.now + 2.5)  # delayed messages of the storm arrive, down nodes come back
    before = len(world.acknowledged)
    deadline = world.now + 15
    while len(world.acknowledged) == before and world.now < deadline:
        world.propose_everywhere()
        world.run_until(world.now + 0.3)
    if len(world.acknowledged) == before:
        raise Violation("nothing is acknowledged though all replicas are up and connected")
    if not world.run_until(world.now + 15, stop=world.settled):
        raise Violation("replicas do not converge")
