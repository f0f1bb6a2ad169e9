"""The whole registry in one process: replicas of all groups, clients by the protocol's rules, and what must hold.

Only sockets, threads, disks and clocks are simulated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from photon.idregistry.api import incarnation_of
from photon.idregistry.core import commands as c
from photon.idregistry.core.commands import CONFIG_GROUP
from photon.idregistry.core.config_machine import ConfigMachine
from photon.idregistry.core.id_bucket import OWNED
from photon.idregistry.core.sharding import single_range
from photon.idregistry.core.state_machine import ShardMachine
from photon.idregistry.raft.api import StateMachine
from photon.idregistry.raft.options import RaftOptions
from photon.idregistry.replica.server import Machines, RegistryReplica
from photon.idregistry.replica.service import RegistryServicer
from tests.simulation.registry.clients import Client, Operator, digest_of
from tests.simulation.registry.history import History
from tests.simulation.world import faults
from tests.simulation.world.clock import NS, SimulatedClock
from tests.simulation.world.cluster import Cluster, Node, Violation
from tests.simulation.world.processes import ProcessLoop

UNCERTAINTY_NS = 1 * NS
RETENTION_NS = 2 * NS
SECONDS = 3.0
LIVENESS_SECONDS = 20.0
"""After the faults end every client that retries has its answer within this."""


class Watched:
    """A state machine whose every step the history sees."""

    def __init__(self, world: RegistryWorld, name: str, group: int, machine: StateMachine) -> None:
        self._world, self._name, self._group = world, name, group
        self.machine = machine

    def apply(self, index: int, command: bytes) -> Any:
        result = self.machine.apply(index, command)
        self._world.history.applied(self._name, self._group, index, command, result, self._world.now)
        return result

    def apply_run(self, first: int, commands: Sequence[bytes]) -> None:
        """Singly, for their results; a copy applies them together and must have the same state afterwards."""
        together = None
        if isinstance(self.machine, ShardMachine):
            together = ShardMachine()
            together.restore(self.machine.snapshot())
            together.apply_run(first, commands)
        for index, command in enumerate(commands, first):
            self.apply(index, command)
        if together is not None and list(together.snapshot()) != list(self.machine.snapshot()):
            raise Violation(f"{self._name}: entries {first} to {index} come to another state as one run")

    def snapshot(self) -> Iterable[bytes]:
        return self.machine.snapshot()

    def restore(self, chunks: Iterable[bytes]) -> None:
        self.machine.restore(chunks)


@dataclass
class Server:
    """What serves requests on a replica, for one life of it."""

    loop: ProcessLoop
    replica: RegistryReplica
    servicer: RegistryServicer


def draw_options(random: Random) -> RaftOptions:
    """Logs so short that snapshots happen, in some schedules."""
    aside = Random(random.getstate()[1][0])  # no draw: known seeds stay what they are
    return RaftOptions(
        log_memory=aside.choice((0, 2000, 1 << 20)),
        log_bytes=random.choice((1500, 6000, 1 << 20)),
        log_margin=random.choice((0, 400)),
        in_flight=random.choice((1, 4)),
        transfer_retry=0.3,
    )


class RegistryWorld(Cluster):
    """See the module."""

    epoch_ns = 1_700_000_000 * NS

    def __init__(self, seed: int, *, replicas: int = 3) -> None:
        super().__init__(seed, draw_options, replicas=replicas)
        random = self.random
        self.shards = range(1, 1 + random.choice((2, 2, 3)))
        self.retention_ns = random.choice((None, RETENTION_NS, RETENTION_NS))
        self.set_up = c.SetUp(single_range(len(self.shards)))
        self.history = History()
        self.clock = SimulatedClock(lambda: self.now, rate=1.0, offset=0.0, epoch_ns=self.epoch_ns)
        """The clients': their wall clocks are not asked."""
        self.machines: dict[str, Machines] = {}
        self.servers: dict[str, Server] = {}
        self.reopened: dict[bytes, int] = {}
        self.calm = False
        self.serving: dict[int, object] = {}
        """Which life of which process each incarnation is."""
        self.lateness: dict[str, float] = {}
        """Client -> up to how many seconds longer its requests take."""
        self._retiring: set[str] = set()
        self.nodes = {name: Node(self, name) for name in self.names}
        for node in self.nodes.values():
            node.clock.skew = random.uniform(-0.4, 0.4)
        self.clients = [Client(self, f"s{n}") for n in range(3)]

    # --- replicas ---------------------------------------------------------------------------------------------

    def machines_of(self, node: Node) -> Mapping[int, StateMachine]:
        self.machines[node.name] = machines = Machines(self.shards)
        return {number: Watched(self, node.name, number, machine) for number, machine in machines.by_group().items()}

    def booted(self, node: Node) -> None:
        assert node.host is not None
        loop = ProcessLoop(self, lambda: node.paused_until)
        machines = self.machines[node.name]
        replica = RegistryReplica(
            name=node.name,
            groups={number: node.host.group(number) for number in machines.by_group()},
            machines=machines,
            set_up=self.set_up,
            clock=node.clock,
            uncertainty_ns=UNCERTAINTY_NS,
            retention_ns=self.retention_ns,
        )
        node.host._wake.set = lambda: self.pump_at(node, self.now)  # type: ignore[method-assign]
        self.servers[node.name] = Server(loop, replica, RegistryServicer(replica))
        loop.call_soon(replica.start)

    def crashed(self, node: Node) -> None:
        server = self.servers.pop(node.name, None)
        if server is not None:
            self.check_loop(server.loop, node.name)
            server.loop.kill()

    def is_cut(self, sender: str, receiver: str) -> bool:
        return (sender, receiver) in self.cut

    def retiring(self, client: Client) -> bool:
        """Whether the slot is being retired already; it is from now on."""
        known = client.name in self._retiring
        self._retiring.add(client.name)
        return known

    def check_loop(self, loop: ProcessLoop, name: str) -> None:
        if loop.errors:
            raise Violation(f"{name}: {loop.errors[0]}")

    def owned_by(self, shard: int, slot: str) -> list[tuple[bytes, int, int, int]]:
        """(digest, number, token, generation) of what a slot owns in a shard, as the furthest replica sees it."""
        machine = max((self.machines[name].shards[shard] for name in self.names), key=lambda each: each.applied)
        out = []
        for number in range(-30, int(self.now * 10) + 20):
            entry = machine._table.get(digest_of(number))
            holder = machine._state.incarnations.get(incarnation_of(entry.token)) if entry is not None else None
            if entry is not None and entry.state == OWNED and holder == slot:
                out.append((digest_of(number), number, entry.token, entry.generation))
        return out

    # --- what must hold ---------------------------------------------------------------------------------------

    def check(self) -> None:
        """At rest."""
        for name, server in self.servers.items():
            self.check_loop(server.loop, name)
        for client in self.clients:
            if client.loop is not None:
                self.check_loop(client.loop, client.name)
        able = [name for name, node in self.nodes.items() if not node.broken]
        for group in (CONFIG_GROUP, *self.shards):
            states = [self._state(name, group) for name in able]
            for name, state in zip(able, states, strict=True):
                if state != states[0]:
                    raise Violation(f"group {group}: the states of {name} and {able[0]} differ")
        self.history.check()

    def _state(self, name: str, group: int) -> Any:
        machine = self.machines[name].by_group()[group]
        if isinstance(machine, ConfigMachine):
            slots = {each: (s.incarnations, s.nonce, s.retired) for each, s in machine._slots.items()}
            return slots, machine._last_incarnation, machine.ranges
        assert isinstance(machine, ShardMachine)
        state = machine._state
        numbers = range(-30, int(self.now * 10) + 20)
        entries = [machine._table.get(digest_of(n)) for n in numbers]
        slots = {each: (s.newest, s.fenced) for each, s in state.slots.items()}
        return entries, state.boundary, state.sharding.number, slots, state.incarnations


# --- faults of the clients' side ----------------------------------------------------------------------------------
def client_killed(world: Cluster) -> None:
    assert isinstance(world, RegistryWorld)
    client = world.random.choice(world.clients)
    client.kill()
    world.later(world.random.uniform(0.0, 0.8), client.start)


def client_cut(world: Cluster) -> None:
    """A client does not reach some replicas, or does not hear them."""
    assert isinstance(world, RegistryWorld)
    client, name = world.random.choice(world.clients).name, world.random.choice(world.names)
    cut = {world.random.choice([(client, name), (name, client)])}
    world.cut |= cut
    world.later(world.random.uniform(0.2, 2.0), lambda: world.cut.difference_update(cut))


def slot_retired(world: Cluster) -> None:
    """For ever; its process may go on for a while. One of the slots stays."""
    assert isinstance(world, RegistryWorld)
    client = world.clients[world.random.randint(1, 2)]
    if not client.last or world.retiring(client):
        return
    if world.random.random() < 0.5:
        client.kill()
    Operator(world, client).start()


def late_boundary(world: Cluster) -> None:
    """A caretaker that decided long ago, and stood still since, proposes the boundary of then."""
    assert isinstance(world, RegistryWorld)
    if world.retention_ns is None:
        return
    long_ago = int((world.now - world.random.uniform(0.0, 3.0)) * NS)
    command = c.encode(c.Boundary(world.epoch_ns + long_ago - world.retention_ns - UNCERTAINTY_NS))
    for node in world.nodes.values():
        for shard in world.shards if node.host is not None else ():
            assert node.host is not None
            if shard in node.host.numbers and node.host.group(shard).state().is_leader:
                node.host.group(shard).propose(command, timeout=1.0, done=lambda outcome: None)


def small_clock_jump(world: Cluster) -> None:
    """Of a wall clock, beyond S or within it."""
    node = world.nodes[world.random.choice(world.names)]
    seconds = world.random.choice((-1, 1)) * world.random.choice((0.3, 2.0, 10.0))
    node.clock.skew += seconds
    world.tell(f"{node.name}: the wall clock jumps by {seconds:+} s")


REGISTRY_FAULTS: Sequence[faults.Fault] = (
    *faults.RAFT_FAULTS,
    client_killed,
    client_killed,
    client_cut,
    slot_retired,
    small_clock_jump,
    late_boundary,
)


def run(
    seed: int,
    *,
    replicas: int = 3,
    story: list[str] | None = None,
    kinds: Sequence[faults.Fault] = REGISTRY_FAULTS,
) -> RegistryWorld:
    """One schedule. Raises Violation."""
    world = RegistryWorld(seed, replicas=replicas)
    world.story = story
    for node in world.nodes.values():
        world.later(world.random.uniform(0, 0.1), node.boot)
    for client in world.clients:
        world.later(world.random.uniform(0.3, 0.8), client.start)
    faults.plan(world, SECONDS, kinds)
    world.later(0.3, lambda: setattr(world, "stormy", True))
    try:
        world.run_until(SECONDS)
        _heal(world)
        world.check()
    except Violation as e:
        world.tell(f"VIOLATION: {e}")
        raise
    finally:
        for client in world.clients:
            if client.loop is not None:
                client.loop.kill()
        for server in world.servers.values():
            server.loop.kill()
    done = sum(client.finished for client in world.clients)
    world.tell(f"{done} batches, {len(world.history.asked)} answers, all as the log gave them")
    return world


def _heal(world: RegistryWorld) -> None:
    faults.heal(world)
    world.calm = True
    world.lateness.clear()
    for client in world.clients:
        world.later(0.0, client.start)
    before = {client.name: client.finished for client in world.clients}
    end = world.now + LIVENESS_SECONDS

    def answered() -> bool:
        return all(client.retired or client.finished > before[client.name] for client in world.clients)

    if not world.run_until(end, stop=answered):
        late = (client for client in world.clients if client.finished == before[client.name])
        waiting = [client.name for client in late if not client.retired]
        raise Violation(f"{waiting} have no answer {LIVENESS_SECONDS} s after the faults ended")
    for client in world.clients:
        client.kill()
    if not world.run_until(world.now + LIVENESS_SECONDS, stop=world.settled):
        raise Violation("replicas do not converge")
