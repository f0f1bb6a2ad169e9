"""Replicas of Raft groups in one process: simulated time, network, clocks and disks.

Subclasses define the replicated state and its invariants (``raft.py``, and the registry's world).

The code under test is all of ``photon.idregistry.raft`` except its thread and its gRPC. Everything that happens is
drawn from one Random, so that a seed replays.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random

from photon.idregistry.raft import driver, journal, snapshot
from photon.idregistry.raft.api import StateMachine
from photon.idregistry.raft.host import RaftHost
from photon.idregistry.raft.options import DiskFull, RaftOptions, RaftStopped
from photon.idregistry.raft.transport import GroupMessage, Hello, Receiver
from tests.simulation.world.clock import SimulatedClock
from tests.simulation.world.disk import PowerOff
from tests.simulation.world.faulty_disk import FaultyDisk
from tests.simulation.world.speed import Speed
from tests.simulation.world.violation import Violation

DIRECTORY = Path("/data/raft")
# Snapshots of a few thousand bytes, logs of a few hundred, and a few entries still take several slices and messages.
SMALL = (
    (driver, "ENTRIES_MAX", 3),
    (journal, "FRAME_TARGET", 150),
    (journal, "SLICE_BYTES", 200),
    (snapshot, "SNAPSHOT_SLICE_BYTES", 600),
    (snapshot, "TRANSFER_BYTES", 300),
)
SKEW_MAX = 4.0  # error in seconds of a healthy wall clock; below S of the registry


class SimulatedNetwork:
    """One replica's end of the world's network."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._hello: Hello | None = None

    def start(self, hello: Hello, receiver: Receiver) -> None:
        self._hello = hello

    def send(self, peer: str, messages: Sequence[GroupMessage]) -> None:
        assert self._hello is not None
        self._node.world.send(self._hello, peer, messages, after=self._node.disk.stall)

    def stop(self) -> None:
        self._hello = None


class Node:
    """One machine: its disk lasts, its replica comes and goes."""

    def __init__(self, world: Cluster, name: str) -> None:
        random = world.random
        self.name = name
        self.world = world
        self.disk = FaultyDisk(Random(random.getrandbits(64)), lies_about=world.lies_about)
        self.clock = SimulatedClock(
            lambda: world.now,
            rate=random.uniform(0.97, 1.03),
            offset=random.uniform(0, 1e6),
            skew=random.uniform(-SKEW_MAX, SKEW_MAX),
            epoch_ns=world.epoch_ns,
        )
        self.host: RaftHost | None = None
        self.paused_until = 0.0
        self.wake_at = float("inf")
        self.harmed = ""  # damage to its disk that no replica need survive; it may refuse to continue then
        self.broken = ""  # why it refuses to continue, permanently

    @property
    def up(self) -> bool:
        return self.host is not None

    def boot(self) -> None:
        world = self.world
        self.host = RaftHost(
            name=self.name,
            peers=dict.fromkeys(world.names, "nowhere:1"),
            directory=DIRECTORY,
            machines=world.machines_of(self),
            disk=self.disk,
            clock=self.clock,
            options=world.options,
            network=SimulatedNetwork(self),
            random=Random(world.random.getrandbits(64)),
            entropy=world.random.randbytes,
        )
        if world.stormy and world.random.random() < 0.2:
            self.disk.crash_after(world.random.randint(1, 15))  # in the middle of its start
        if self.guarded(self._open):
            world.tell(f"{self.name} is up")
            world.booted(self)
            world.pump_at(self, world.now)

    def _open(self) -> None:
        assert self.host is not None
        try:
            self.host.open()
        except DiskFull as e:
            raise OSError(str(e)) from e  # no room for a start: the process ends, and is restarted

    def guarded(self, act: Callable[[], object]) -> bool:
        """Runs the replica's code, in which its power may fail, its disk fail, or it may refuse to continue."""
        try:
            act()
        except PowerOff:
            self.crash(power=self.world.random.random() < 0.7)
            return False
        except OSError as e:
            self.stop(str(e))
            return False
        except RaftStopped as e:
            if not self.harmed:
                raise Violation(f"{self.name} refuses to go on though its disk was not harmed: {e}") from e
            self.broken = str(e)
            self.stop(self.broken)
            return False
        return True

    def stop(self, why: str) -> None:
        """The process ends itself."""
        self.world.tell(f"{self.name} stops: {why}")
        if self.host is not None:
            self.host.close()
        self.crash(power=False)

    def crash(self, *, power: bool) -> None:
        if power:
            self.disk.power_cut()
            self.clock.reboot(self.world.random.uniform(0, 1e6))
        else:
            self.disk.kill()
        if self.host is not None:
            self.world.tell(f"{self.name} is down ({'power cut' if power else 'killed'})")
            self.host = None
            self.world.crashed(self)
            self.world.crashes += 1
            self.world.later(self.world.random.uniform(0.01, 1.2), self.boot_if_down)

    def boot_if_down(self) -> None:
        if self.host is None and not self.broken:
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

        if self.guarded(act):
            self.world.pumped(self)
            stall = self.disk.take_stall()
            if stall:
                self.paused_until = max(self.paused_until, self.world.now + stall)
            if due < float("inf"):
                wait = max(0.0002, (due - self.clock.monotonic()) / self.clock.rate)
                self.world.pump_at(self, self.world.now + wait)


class Cluster:
    """Time, the network and the machines."""

    epoch_ns = 0  # start of the wall clocks

    def __init__(self, seed: int, options: Callable[[Random], RaftOptions], *, replicas: int = 3) -> None:
        self.random = random = Random(seed)
        self.now = 0.0
        self.names = [chr(ord("a") + n) for n in range(replicas)]
        self.options = options(random)
        self.lies_about: str | None = None
        self.loss = self.doubling = 0.0
        self.slow = 0.0  # share of messages that take up to ``slow_seconds``
        self.slow_seconds = 1.5
        self.stormy = False
        self.cut: set[tuple[str, str]] = set()
        self.met: set[tuple[str, str]] = set()  # (who, by whom): replicas whose disks the others know
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._sequence = 0
        self.crashes = 0
        self.story: list[str] | None = None
        self._leads: dict[str, tuple[int, ...]] = {}
        self.nodes: dict[str, Node] = {}

    def tell(self, line: str) -> None:
        """A line of the schedule's story."""
        if self.story is not None:
            self.story.append(f"{self.now:9.4f}  {line}")

    # --- what a subclass adds ---------------------------------------------------------------------------------

    def machines_of(self, node: Node) -> Mapping[int, StateMachine]:
        """Fresh state machines for a replica that starts."""
        raise NotImplementedError

    def booted(self, node: Node) -> None:
        """A replica has read its disk."""

    def crashed(self, node: Node) -> None:
        """A replica is gone; nothing of its process may act any more."""

    def pumped(self, node: Node) -> None:
        """A replica did a round."""
        if self.story is not None and node.host is not None:
            groups = node.host._groups
            leads = tuple(number for number, group in groups.items() if group.state().is_leader)
            if leads != self._leads.get(node.name, ()):
                terms = ", ".join(f"group {n} in term {groups[n].state().term}" for n in leads)
                self.tell(f"{node.name} leads {terms or 'nothing any more'}")
                self._leads[node.name] = leads

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
        """Runs events up to a time; True as soon as ``stop`` holds (checked every 20 ms)."""
        ask_at = began = self.now
        cpu_s, events = time.process_time(), 0
        try:
            while self._events and self._events[0][0] <= end:
                self.now, _, act = heapq.heappop(self._events)
                events += 1
                act()
                if stop is not None and self.now >= ask_at:
                    ask_at = self.now + 0.02
                    if stop():
                        return True
            self.now = max(self.now, end)
            return False
        finally:
            Speed.total += Speed(events, self.now - began, time.process_time() - cpu_s)

    # --- network ----------------------------------------------------------------------------------------------

    def delay(self) -> float:
        """Seconds that a message takes."""
        if self.random.random() < self.slow:
            return self.random.uniform(0.0, self.slow_seconds)
        return self.random.uniform(0.0002, 0.003)

    def copies(self) -> int:
        """Number of times a message arrives."""
        random = self.random
        return 0 if random.random() < self.loss else 2 if random.random() < self.doubling else 1

    def send(self, hello: Hello, peer: str, messages: Sequence[GroupMessage], *, after: float = 0.0) -> None:
        if (hello.name, peer) in self.cut:
            return
        for _ in range(self.copies()):
            self.later(after + self.delay(), lambda: self._arrive(hello, peer, messages))

    def _arrive(self, hello: Hello, peer: str, messages: Sequence[GroupMessage]) -> None:
        node = self.nodes[peer]
        host = node.host
        if host is None or (hello.name, peer) in self.cut:
            return

        def act() -> None:
            refusal = host.receive(hello, messages)
            if refusal is None:
                self.met.add((hello.name, peer))
            elif refusal.fatal:
                sender = self.nodes[hello.name]
                if sender.host is not None and sender.host._identity.hello.disk == hello.disk:
                    sender.host.refused(peer, refusal)
                    self.pump_at(sender, self.now)

        if node.guarded(act):
            self.pump_at(node, self.now)

    # --- rest -------------------------------------------------------------------------------------------------

    def settled(self) -> bool:
        """All replicas that can run do, have one leader per group, and have applied everything."""
        able = [node for node in self.nodes.values() if not node.broken]
        hosts = [node.host for node in able if node.host is not None]
        if len(hosts) < len(able):
            return False
        for number in hosts[0]._groups:
            states = [host.group(number).state() for host in hosts]
            if (
                sum(s.is_leader for s in states) != 1
                or len({s.applied for s in states}) != 1
                or any(s.applied != s.committed for s in states)
                or len({s.term for s in states}) != 1
            ):
                return False
        return True
