"""Groups that come and go on replicas under faults: each replica follows a list of decisions at its own pace.

As in the registry, where the config group says which shards there are: a replica that starts may know less of it than
before it fell, and each opens and removes groups at another moment.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from random import Random

from photon.idregistry.raft.api import Applied, ProposalOutcome, StateMachine
from photon.idregistry.raft.identity import known_groups
from photon.idregistry.raft.options import RaftStopped
from tests.simulation.world import faults
from tests.simulation.world.cluster import DIRECTORY, Cluster, Node
from tests.simulation.world.raft import PROPOSAL_SECONDS, draw_options, strict
from tests.simulation.world.violation import Violation, ViolationInCallback

FIRST = 1  # the group that exists from the start
_RECORD = struct.Struct("<QI")


class History:
    """Knowledge about one group: who applied what, and which entries were acknowledged."""

    def __init__(self) -> None:
        self.by_index: dict[int, bytes] = {}
        self.acknowledged: dict[bytes, int] = {}
        self.machines: dict[str, _Machine] = {}


class _Machine:
    """Keeps every command it applied."""

    def __init__(self, number: int, name: str, history: History) -> None:
        self._where = f"group {number}, {name}"
        self._history = history
        self.applied: list[tuple[int, bytes]] = []

    def apply(self, index: int, command: bytes) -> int:
        if self._history.by_index.setdefault(index, command) != command:
            raise Violation(f"{self._where}: entry {index} is another one than elsewhere")
        if self.applied and index <= self.applied[-1][0]:
            raise Violation(f"{self._where}: entry {index} after {self.applied[-1][0]}")
        self.applied.append((index, command))
        return index

    def snapshot(self) -> Iterable[bytes]:
        for index, command in self.applied:
            yield _RECORD.pack(index, len(command)) + command

    def restore(self, chunks: Iterable[bytes]) -> None:
        self.applied = [(_RECORD.unpack_from(chunk)[0], chunk[_RECORD.size :]) for chunk in chunks]
        for index, command in self.applied:
            if self._history.by_index.get(index) != command:
                raise Violation(f"{self._where}: restores entry {index} as nobody ever applied it")


class World(Cluster):
    """Decisions (+number: add the group, -number: remove it), and invariants of all groups."""

    def __init__(self, seed: int, *, replicas: int = 3) -> None:
        super().__init__(seed, draw_options, replicas=replicas)
        self.decisions: list[int] = [FIRST]
        self.histories: dict[int, History] = {}
        self.seen: dict[str, int] = {}  # number of decisions that a replica knows in this life
        self.pace = self.random.choice((0.5, 0.1, 0.03))  # chance that a replica learns of one more decision per look
        self.take_care_of = set(self.names)  # replicas that follow the decisions
        self.refused = 0  # refused additions of a group that was removed on that disk
        self.proposed = 0
        self.nodes = {name: Node(self, name) for name in self.names}

    # --- what there is ----------------------------------------------------------------------------------------

    def wanted(self, seen: int | None = None) -> set[int]:
        """Groups after the first ``seen`` decisions, or after all."""
        wanted: set[int] = set()
        for decision in self.decisions[:seen]:
            (wanted.add if decision > 0 else wanted.discard)(abs(decision))
        return wanted

    def gone(self, seen: int | None = None) -> set[int]:
        return {-decision for decision in self.decisions[:seen] if decision < 0}

    def decide(self) -> None:
        """One group more or less; the first stays."""
        old = sorted(self.wanted() - {FIRST})
        if old and self.random.random() < 0.45:
            self.decisions.append(-self.random.choice(old))
        else:
            self.decisions.append(max(map(abs, self.decisions)) + 1)
        self.tell(f"decided: {self.decisions[-1]:+}")

    def machine(self, node: Node, number: int) -> _Machine:
        history = self.histories.setdefault(number, History())
        return _Machine(number, node.name, history)

    def put(self, node: Node, number: int, machine: _Machine) -> _Machine:
        """The replica's current machine."""
        self.histories[number].machines[node.name] = machine
        return machine

    # --- replicas ---------------------------------------------------------------------------------------------

    def machines_of(self, node: Node) -> Mapping[int, StateMachine]:
        known_before = len(self.decisions)
        self.seen[node.name] = self.random.choice((1, self.random.randint(1, known_before), known_before))
        try:
            known = known_groups(node.disk, DIRECTORY)
        except RaftStopped:  # a damaged disk: the host says the same as it opens
            return {FIRST: self.machine(node, FIRST)}
        numbers = sorted({FIRST, *known.present})
        return {number: self.put(node, number, self.machine(node, number)) for number in numbers}

    def booted(self, node: Node) -> None:
        self.later(self.random.uniform(0, 0.1), lambda life=node.disk.life: self.take_care(node, life))

    def take_care(self, node: Node, life: int) -> None:
        """Adds and removes groups as far as the replica knows; repeats in a moment."""
        if node.host is None or node.disk.life != life:
            return
        if node.paused_until <= self.now and node.name in self.take_care_of:
            seen = self.seen[node.name]
            seen = self.seen[node.name] = min(len(self.decisions), seen + (self.random.random() < self.pace))
            self._follow(node, seen)
        self.later(self.random.uniform(0.02, 0.2), lambda: self.take_care(node, life))

    def _follow(self, node: Node, seen: int) -> None:
        host = node.host
        assert host is not None
        here = set(host.numbers)
        for number in sorted(self.wanted(seen) - here):
            machine = self.machine(node, number)
            try:
                done = host.add_group(number, machine)
            except ValueError:
                continue  # it is in flight
            self.put(node, number, machine)
            done.add_done_callback(lambda future: self._added(bool(future.exception())))
        for number in sorted(self.gone(seen) & here):
            try:
                host.remove_group(number)
            except KeyError:
                continue  # likewise
        self.pump_at(node, self.now)

    def _added(self, refused: bool) -> None:
        self.refused += refused

    # --- clients ----------------------------------------------------------------------------------------------

    def propose_everywhere(self) -> None:
        """Proposes to each replica that believes it leads a group."""
        for node in self.nodes.values():
            for number in node.host.numbers if node.host is not None else ():
                if node.host is not None and node.host.group(number).state().is_leader:
                    self._propose(node, number)

    def _propose(self, node: Node, number: int) -> None:
        host = node.host
        if host is None or node.paused_until > self.now:
            return
        self.proposed += 1
        command = self.proposed.to_bytes(8, "big")
        history = self.histories[number]

        def done(outcome: ProposalOutcome) -> None:
            if isinstance(outcome, Applied):
                if history.by_index.get(outcome.result) != command:
                    raise Violation(
                        f"group {number}: acknowledged as entry {outcome.result}, which is another command"
                    )
                history.acknowledged[command] = outcome.result

        if node.guarded(lambda: host.group(number).propose(command, timeout=PROPOSAL_SECONDS, done=strict(done))):
            self.pump_at(node, self.now)

    # --- rest -------------------------------------------------------------------------------------------------

    def able(self) -> list[Node]:
        return [node for node in self.nodes.values() if not node.broken]

    def settled(self) -> bool:
        """Every replica that can run has exactly the wanted groups, and all have converged."""
        wanted = sorted(self.wanted())
        if any(node.host is None or node.host.numbers != wanted for node in self.able()):
            return False
        return super().settled()

    def acknowledged(self, numbers: Iterable[int]) -> dict[int, int]:
        return {number: len(self.histories[number].acknowledged) for number in numbers}

    def check(self) -> None:
        """At rest: in every existing group, all acknowledged commands are in all histories, which are identical."""
        for number in sorted(self.wanted()):
            history = self.histories[number]
            applied = {name: history.machines[name].applied for name in (node.name for node in self.able())}
            first = next(iter(applied.values()))
            if any(each != first for each in applied.values()):
                raise Violation(f"group {number}: histories differ")
            where = {command: index for index, command in first}
            for command, index in history.acknowledged.items():
                if where.get(command) != index:
                    raise Violation(f"group {number}: acknowledged command {int.from_bytes(command, 'big')} is lost")
        for node in self.able():
            if node.harmed:
                continue  # the file may be the one that rotted: its process lives on from what it read before
            known = known_groups(node.disk, DIRECTORY)
            if set(known.present) != self.wanted() or set(known.removed) - self.gone():
                raise Violation(f"{node.name}: its disk says {known}")


def run(
    seed: int,
    *,
    replicas: int = 3,
    seconds: float = 6.0,
    kinds: Sequence[faults.Fault] = faults.RAFT_FAULTS,
) -> World:
    """One schedule: groups come and go under faults; heal, converge, check. Raises Violation."""
    world = World(seed, replicas=replicas)
    random: Random = world.random
    for node in world.nodes.values():
        world.later(random.uniform(0, 0.2), node.boot)
    faults.plan(world, seconds, kinds)
    world.later(0.3, lambda: setattr(world, "stormy", True))
    for _ in range(random.randint(2, 6)):
        world.later(random.uniform(0.3, seconds), world.decide)

    def client() -> None:
        world.propose_everywhere()
        if world.now < seconds:
            world.later(random.expovariate(1 / 0.03), client)

    world.later(0.5, client)
    try:
        world.run_until(seconds + 0.2)
        _heal(world)
        world.check()
    except (Violation, ViolationInCallback) as e:
        raise Violation(str(e)) from e
    return world


def _heal(world: World) -> None:
    faults.heal(world)
    world.pace = 1.0
    world.run_until(world.now + world.slow_seconds + 1.0)
    before = world.acknowledged(world.wanted())
    deadline = world.now + 25
    while world.now < deadline:
        world.propose_everywhere()
        world.run_until(world.now + 0.3)
        now = world.acknowledged(world.wanted())
        if all(now[number] > before[number] for number in before):
            break
    else:
        stuck = sorted(number for number in before if now[number] == before[number])
        raise Violation(f"nothing is acknowledged in groups {stuck} though all replicas are up and connected")
    if not world.run_until(world.now + 20, stop=world.settled):
        raise Violation("replicas do not converge")
