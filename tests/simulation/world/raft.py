"""One Raft group under faults: commands are proposed everywhere, every history is kept, and the checker verifies that
all acknowledged commands are in each history, at their place."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random

from photon.idregistry.raft.api import Applied, ProposalOutcome, StateMachine, Unknown
from photon.idregistry.raft.options import RaftOptions
from tests.simulation.world import faults
from tests.simulation.world.cluster import Cluster, Node
from tests.simulation.world.violation import Violation, ViolationInCallback

GROUP = 1
PROPOSAL_SECONDS = 1.0
_RECORD = struct.Struct("<QI")


class Machine:
    """Keeps every command it applied, so that histories can be compared."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name
        self.history: list[tuple[int, bytes]] = []
        self._records: list[bytes] = []  # records of ``history``: snapshots come all the time

    def apply(self, index: int, command: bytes) -> int:
        self._world.applied(self._name, index, command)
        if self.history and index <= self.history[-1][0]:
            raise Violation(f"{self._name} applied entry {index} after {self.history[-1][0]}")
        self.history.append((index, command))
        self._records.append(_RECORD.pack(index, len(command)) + command)
        return index

    def apply_run(self, first: int, commands: Sequence[bytes]) -> None:
        for index, command in enumerate(commands, first):
            self.apply(index, command)

    def snapshot(self) -> Iterable[bytes]:
        return self._records

    def restore(self, chunks: Iterable[bytes]) -> None:
        self.history, self._records = [], []
        for chunk in chunks:
            index, _ = _RECORD.unpack_from(chunk)
            command = chunk[_RECORD.size :]
            if self._world.by_index.get(index) != command:
                raise Violation(f"{self._name} restores entry {index} as nobody ever applied it")
            self.history.append((index, command))
            self._records.append(chunk)


def draw_options(random: Random) -> RaftOptions:
    """In some schedules, logs short enough that snapshots happen all the time."""
    aside = Random(random.getstate()[1][0])  # no draws: known seeds stay what they are
    return RaftOptions(
        log_bytes=random.choice((300, 1500, 1 << 20)),
        log_margin=random.choice((0, 100, 400)),
        in_flight=random.choice((1, 4, 8)),
        transfer_retry=0.3,
        rest_after=aside.choice((0.0, 0.3, 1.0)),
        log_memory=aside.choice((0, 500, 1 << 20)),
    )


class World(Cluster):
    """Invariants of one group."""

    def __init__(
        self,
        seed: int,
        *,
        replicas: int = 3,
        lies_about: str | None = None,
        options: Callable[[Random], RaftOptions] = draw_options,
    ) -> None:
        super().__init__(seed, options, replicas=replicas)
        self.lies_about = lies_about
        self.by_index: dict[int, bytes] = {}
        self.acknowledged: dict[bytes, int] = {}
        self.proposed = self.unknown = 0
        self.acknowledged_in: dict[int, int] = {}  # term -> the last entry that its leader acknowledged
        self._known_current: set[tuple[str, int, int]] = set()
        # Proposals without an outcome: where, in which life, until when.
        self.waiting: dict[int, tuple[Node, int, float]] = {}
        self.machines: dict[str, Machine] = {}
        self.nodes = {name: Node(self, name) for name in self.names}

    def machines_of(self, node: Node) -> Mapping[int, StateMachine]:
        self.machines[node.name] = Machine(self, node.name)
        return {GROUP: self.machines[node.name]}

    def applied(self, name: str, index: int, command: bytes) -> None:
        known = self.by_index.setdefault(index, command)
        if known != command:
            raise Violation(f"entry {index}: {name} applied {command[:8].hex()}, another replica {known[:8].hex()}")

    def pumped(self, node: Node) -> None:
        """A leader that claims to be current has applied everything that leaders before it acknowledged."""
        super().pumped(node)
        state = node.host.group(GROUP).state() if node.host is not None else None
        if state is None or not state.is_leader or not state.current:
            return
        led = node.name, node.disk.life, state.term
        if led not in self._known_current:
            self._known_current.add(led)
            before = max((last for term, last in self.acknowledged_in.items() if term < state.term), default=0)
            if before > state.applied:
                raise Violation(f"{node.name} leads and is current at {state.applied}, {before} was acknowledged")

    def propose(self, node: Node) -> None:
        host = node.host
        if host is None or node.paused_until > self.now:
            return
        self.proposed += 1
        number = self.proposed
        command = number.to_bytes(8, "big") + self.random.randbytes(self.random.choice((0, 10, 60)))
        life = node.disk.life
        self.waiting[number] = (node, life, self.now + PROPOSAL_SECONDS)

        def done(outcome: ProposalOutcome) -> None:
            if node.disk.life != life:
                raise Violation(f"{node.name} answered after its power went")
            if self.waiting.pop(number, None) is None:
                raise Violation(f"proposal {number} was answered twice")
            if isinstance(outcome, Applied):
                if self.by_index.get(outcome.result) != command:
                    raise Violation(f"acknowledged as entry {outcome.result}, which is another command")
                self.acknowledged[command] = outcome.result
                term = host.group(GROUP).state().term
                self.acknowledged_in[term] = max(outcome.result, self.acknowledged_in.get(term, 0))
            self.unknown += isinstance(outcome, Unknown)

        def act() -> None:
            host.group(GROUP).propose(command, timeout=PROPOSAL_SECONDS, done=strict(done))

        if node.guarded(act):
            self.pump_at(node, self.now)

    def propose_everywhere(self) -> None:
        """Proposes to each replica that believes it leads: there may be several."""
        for node in self.nodes.values():
            if node.host is not None and node.host.group(GROUP).state().is_leader:
                self.propose(node)

    def check(self) -> None:
        """At rest: every acknowledged command is in every history, at its place, and all histories are identical."""
        able = [name for name, node in self.nodes.items() if not node.broken]
        histories = [self.machines[name].history for name in able]
        for name, history in zip(able, histories, strict=True):
            if history != histories[0]:
                raise Violation(f"the histories of {name} and {able[0]} differ")
        where = {command: index for index, command in histories[0]}
        if len(where) != len(histories[0]):
            raise Violation("a command was applied twice")
        for command, index in self.acknowledged.items():
            if where.get(command) != index:
                raise Violation(f"acknowledged command {int.from_bytes(command[:8], 'big')} is lost")
        for number, (node, life, until) in self.waiting.items():
            if node.up and node.disk.life == life and until + 1.0 < self.now:
                raise Violation(f"proposal {number} to {node.name} never had an outcome")


def strict(done: Callable[[ProposalOutcome], None]) -> Callable[[ProposalOutcome], None]:
    """The host logs a callback's exception and continues; a violation must get out."""

    def call(outcome: ProposalOutcome) -> None:
        try:
            done(outcome)
        except Violation as e:
            raise ViolationInCallback(str(e)) from e

    return call


def run(
    seed: int,
    *,
    replicas: int = 3,
    lies_about: str | None = None,
    seconds: float = 6.0,
    story: list[str] | None = None,
    kinds: Sequence[faults.Fault] = faults.RAFT_FAULTS,
    options: Callable[[Random], RaftOptions] = draw_options,
) -> World:
    """One schedule: boot, propose under faults, heal, converge, check. Raises Violation."""
    world = World(seed, replicas=replicas, lies_about=lies_about, options=options)
    world.story = story
    for node in world.nodes.values():
        world.later(world.random.uniform(0, 0.2), node.boot)
    faults.plan(world, seconds, kinds)
    world.later(0.3, lambda: setattr(world, "stormy", True))

    def client() -> None:
        world.propose_everywhere()
        if world.now < seconds:
            quiet = world.random.random() < quiet_share
            world.later(world.random.uniform(0.2, 1.5) if quiet else world.random.expovariate(1 / 0.02), client)

    quiet_share = world.random.choice((0.0, 0.0, 0.02))  # groups without requests go to rest
    world.later(0.5, client)
    try:
        world.run_until(seconds + 0.2)
        _heal(world)
        world.check()
    except (Violation, ViolationInCallback) as e:
        world.tell(f"VIOLATION: {e}")
        raise Violation(str(e)) from e
    world.tell(f"{len(world.acknowledged)} of {world.proposed} commands were acknowledged, and all are there")
    return world


def _heal(world: World) -> None:
    faults.heal(world)
    world.run_until(world.now + world.slow_seconds + 1.0)  # late messages arrive, down replicas come back
    before = len(world.acknowledged)
    deadline = world.now + 15
    while len(world.acknowledged) == before and world.now < deadline:
        world.propose_everywhere()
        world.run_until(world.now + 0.3)
    if len(world.acknowledged) == before:
        raise Violation("nothing is acknowledged though all replicas are up and connected")
    if not world.run_until(world.now + 15, stop=world.settled):
        raise Violation("replicas do not converge")
