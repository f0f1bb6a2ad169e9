"""A replica loses its disk and another takes its place, by the procedure of ``idregistry/operate/replacing.py``.

The survivors restart in the next epoch at random moments, and the new replica starts at any moment among them, while
clients propose. ``Skips`` leaves out a step of the procedure: then something that was acknowledged can be lost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from photon.idregistry.operate.seeding import GroupSeed, write_group
from photon.idregistry.raft.host import RaftHost
from photon.idregistry.raft.identity import Identity, group_directory
from tests.simulation.world.cluster import DIRECTORY, Node, SimulatedNetwork, Violation
from tests.simulation.world.raft import GROUP, World

NEW = "z"
EPOCH = 2


@dataclass(frozen=True)
class Skips:
    """Which steps are left out."""

    barrier: bool = False


class Member(Node):
    """A machine that is told its members and their epoch."""

    members: tuple[str, ...] = ()
    epoch = 1

    def boot(self) -> None:
        world = self.world
        self.host = RaftHost(
            name=self.name,
            peers=dict.fromkeys(self.members, "nowhere:1"),
            directory=DIRECTORY,
            machines=world.machines_of(self),
            disk=self.disk,
            clock=self.clock,
            options=replace(world.options, epoch=self.epoch),
            network=SimulatedNetwork(self),
            random=Random(world.random.getrandbits(64)),
            entropy=world.random.randbytes,
        )
        if self.guarded(self._open):
            world.tell(f"{self.name} is up in epoch {self.epoch}")
            world.pump_at(self, world.now)


class ReplacingWorld(World):
    """``replicas`` machines, of which one will be lost."""

    def __init__(self, seed: int, replicas: int) -> None:
        super().__init__(seed, replicas=replicas)
        made = {name: Member(self, name) for name in self.names}
        for node in made.values():
            node.members = tuple(self.names)
        self.nodes = dict(made)
        self.proposing = True

    def members(self) -> list[Member]:
        return [node for node in self.nodes.values() if isinstance(node, Member)]


def run(seed: int, skips: Skips | None = None) -> World:
    """One replacement. Raises Violation."""
    skips = skips or Skips()
    world = ReplacingWorld(seed, Random(seed).choice((3, 3, 5)))
    random = world.random
    for node in world.nodes.values():
        world.later(random.uniform(0, 0.2), node.boot)
    _propose(world)
    world.run_until(10, stop=lambda: len(world.acknowledged) > 5)
    old = _lose_one(world)
    world.run_until(world.now + random.uniform(0, 2.0))
    _mend(world)
    if not skips.barrier:
        _barrier(world, old)
    _next_epoch(world, old, filled=not skips.barrier)
    world.run_until(world.now + 6.0)
    known = len(world.acknowledged)
    if not world.run_until(world.now + 20, stop=lambda: len(world.acknowledged) > known):
        raise Violation("nothing is acknowledged in the new epoch")
    world.proposing = False
    world.run_until(world.now + 2.0)
    if not world.run_until(world.now + 20, stop=world.settled):
        raise Violation("replicas do not converge")
    world.check()
    return world


def _propose(world: ReplacingWorld) -> None:
    def client() -> None:
        if not world.proposing:
            return
        world.propose_everywhere()
        world.later(world.random.expovariate(1 / 0.02), client)

    client()


def _lose_one(world: ReplacingWorld) -> Member:
    """Some survivors were cut off for a while: what was acknowledged then lies on the lost disk and few others."""
    random = world.random
    behind = random.sample(world.names, (len(world.names) - 1) // 2)
    world.cut |= {(a, b) for a in world.names for b in world.names if (a in behind) != (b in behind)}
    before = len(world.acknowledged)
    world.run_until(world.now + 8, stop=lambda: len(world.acknowledged) > before + 5)
    old = random.choice([node for node in world.members() if node.name not in behind])
    world.tell(f"{old.name} and its disk are lost")
    old.broken = "lost"
    old.harmed = "lost"
    if old.host is not None:
        old.crash(power=True)
    return old


def _mend(world: ReplacingWorld) -> None:
    """The operators wait for the network."""
    world.cut.clear()


def _leader(world: ReplacingWorld) -> Member | None:
    leading = [node for node in world.members() if node.host and node.host.group(GROUP).state().is_leader]
    return max(leading, key=lambda node: node.host.group(GROUP).state().term if node.host else 0, default=None)


def _barrier(world: ReplacingWorld, old: Member) -> None:
    """Until every survivor has applied what a leader had applied of its own term."""
    survivors = [node for node in world.members() if node is not old]
    assert world.run_until(world.now + 20, stop=lambda: _leader(world) is not None)
    known = len(world.acknowledged)
    assert world.run_until(world.now + 20, stop=lambda: len(world.acknowledged) > known)
    index = max(world.acknowledged.values())
    world.tell(f"a barrier at entry {index}")

    def reached() -> bool:
        return all(node.host is not None and node.host.group(GROUP).state().applied >= index for node in survivors)

    assert world.run_until(world.now + 30, stop=reached), "a survivor does not reach the barrier"


def _next_epoch(world: ReplacingWorld, old: Member, *, filled: bool) -> None:
    random = world.random
    names = tuple(sorted([*(name for name in world.names if name != old.name), NEW]))
    new = Member(world, NEW)
    new.members, new.epoch = names, EPOCH
    if filled:
        _fill(world, new)
    world.nodes[NEW] = new
    world.names.append(NEW)
    world.later(random.uniform(0, 2.0), new.boot)
    for node in world.members():
        if node is not old and node is not new:
            world.later(random.uniform(0, 2.0), lambda node=node: _restart(node, names))


def _fill(world: ReplacingWorld, new: Member) -> None:
    assert world.run_until(world.now + 20, stop=lambda: _leader(world) is not None)
    leader = _leader(world)
    assert leader is not None
    assert leader.host is not None
    group = leader.host._groups[GROUP]
    index = group.state().applied
    seed = GroupSeed(GROUP, index, group._journal.term_at(index), list(world.machines[leader.name].snapshot()))
    identity = Identity(
        disk=new.disk, directory=DIRECTORY, name=NEW, members=new.members, epoch=EPOCH, groups=(),
        entropy=world.random.randbytes,
    )  # fmt: skip
    write_group(new.disk, group_directory(DIRECTORY, GROUP), seed)
    identity.made([GROUP])


def _restart(node: Member, names: tuple[str, ...]) -> None:
    node.members, node.epoch = names, EPOCH
    if node.host is not None:
        node.crash(power=node.world.random.random() < 0.5)
