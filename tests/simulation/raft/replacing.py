"""A replica loses its disk and another takes its place, by the procedure of ``idregistry/operate/replacing.py``.

The survivors note the next membership and restart at random moments, and the new replica starts at any moment among
them, while clients propose. Sometimes the operator's call is cut short: some survivors have not noted it, the new
replica is empty, and the file's epoch takes the others along. ``Skips`` leaves out a step: then something
acknowledged can be lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from photon.idregistry.operate.seeding import GroupSeed, write_group
from photon.idregistry.raft.host import RaftHost
from photon.idregistry.raft.identity import Identity, Membership, group_directory, membership
from tests.simulation.world.cluster import DIRECTORY, Node, SimulatedNetwork
from tests.simulation.world.raft import GROUP, World
from tests.simulation.world.violation import Violation

NEW = "z"
EPOCH = 2


@dataclass(frozen=True)
class Skips:
    """The steps that are left out."""

    barrier: bool = False


class Member(Node):
    """A machine whose deployment file says ``configured``."""

    configured: Membership

    def boot(self) -> None:
        world = self.world
        found = membership(self.disk, DIRECTORY, self.configured)
        self.host = RaftHost(
            name=self.name,
            peers=found.members,
            directory=DIRECTORY,
            machines=world.machines_of(self),
            disk=self.disk,
            clock=self.clock,
            options=replace(world.options, epoch=found.epoch),
            network=SimulatedNetwork(self),
            random=Random(world.random.getrandbits(64)),
            entropy=world.random.randbytes,
        )
        if self.guarded(self._open):
            world.tell(f"{self.name} is up in epoch {found.epoch}")
            world.pump_at(self, world.now)

    def follow(self, members: Mapping[str, str]) -> bool:
        """True if it says that it has noted the membership; its power may fail meanwhile."""
        if self.host is None:
            return False
        if self.world.random.random() < 0.2:
            self.disk.crash_after(self.world.random.randint(1, 6))
        said = [""]

        def ask() -> None:
            assert self.host is not None
            said[0] = self.host.follow(EPOCH, members)

        return self.guarded(ask) and not said[0]


class ReplacingWorld(World):
    """``replicas`` machines, of which one will be lost."""

    def __init__(self, seed: int, replicas: int) -> None:
        super().__init__(seed, replicas=replicas)
        made = {name: Member(self, name) for name in self.names}
        for node in made.values():
            node.configured = Membership(1, dict.fromkeys(self.names, "nowhere:1"))
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
    _next_epoch(world, old, filled=not skips.barrier and random.random() < 0.7)
    world.run_until(world.now + 6.0)
    known = len(world.acknowledged)
    if not world.run_until(world.now + 20, stop=lambda: len(world.acknowledged) > known):
        raise Violation("nothing is acknowledged in the new epoch")
    world.proposing = False
    old.broken = "lost"
    if old.host is not None:
        old.crash(power=True)
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
    """Some survivors were cut off for a while: entries acknowledged then are on the lost disk and few others."""
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
    """Waits until every survivor has applied all entries that a leader had applied of its own term."""
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
    survivors = [node for node in world.members() if node is not old]
    members = {node.name: "nowhere:1" for node in survivors} | {NEW: "nowhere:1"}
    asked = survivors if filled else random.sample(survivors, random.randint(0, len(survivors)))
    noted = [node.follow(members) for node in asked]
    new = Member(world, NEW)
    new.configured = Membership(EPOCH, members)
    world.nodes[NEW] = new
    world.names.append(NEW)
    whole = len(asked) == len(survivors) and all(noted) and _fill(world, new)
    if whole and random.random() < 0.5:
        old.broken = ""  # its disk was not lost: it is started meanwhile, against the operator's word
        world.later(random.uniform(0, 2.0), old.boot_if_down)
    if not whole:
        world.tell("some have not noted the next membership: the file's epoch takes them along")
    world.later(random.uniform(0, 2.0), new.boot)
    for node in survivors:
        if not whole and random.random() < 0.3:
            world.later(random.uniform(0, 2.0), partial(_restart, node, node.configured))
        world.later(random.uniform(0, 2.0), partial(_restart, node, node.configured if whole else new.configured))


def _fill(world: ReplacingWorld, new: Member) -> bool:
    """Fills the new replica. ``False`` means that there is no leader, as a survivor has already restarted in the next
    epoch."""
    world.run_until(world.now + 5, stop=lambda: _leader(world) is not None)
    leader = _leader(world)
    if leader is None or leader.host is None:
        return False
    group = leader.host._groups[GROUP]
    index = group.state().applied
    seed = GroupSeed(GROUP, index, group._journal.term_at(index), list(world.machines[leader.name].snapshot()))
    identity = Identity(
        disk=new.disk, directory=DIRECTORY, name=NEW, members=new.configured.members, epoch=EPOCH, groups=(),
        entropy=world.random.randbytes,
    )  # fmt: skip
    write_group(new.disk, group_directory(DIRECTORY, GROUP), seed)
    identity.made([GROUP])
    return True


def _restart(node: Member, configured: Membership) -> None:
    if configured.epoch > node.configured.epoch:
        node.configured = configured
    if node.host is not None:
        node.crash(power=node.world.random.random() < 0.5)
