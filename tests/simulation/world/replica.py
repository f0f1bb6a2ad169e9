"""Registry replicas with their real Raft hosts and disks, pumped by the world's loop and connected by its network;
and their world, in which every entry and answer is kept (``history``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextvars import Context, copy_context
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn

from photon.idregistry.core import commands as c
from photon.idregistry.core.commands import CONFIG_GROUP
from photon.idregistry.core.id_table import BUCKET_BITS
from photon.idregistry.core.state_machine import ShardMachine
from photon.idregistry.operate.seeding import GroupSeed
from photon.idregistry.raft.api import Group, GroupState, StateMachine
from photon.idregistry.raft.host import RaftHost
from photon.idregistry.raft.identity import known_groups
from photon.idregistry.raft.options import DiskFull, RaftOptions, RaftStopped
from photon.idregistry.raft.transport import GroupMessage, Hello, Receiver
from photon.idregistry.replica.server import Machines, shards_to_open
from tests.simulation.world.faulty_disk import FaultyDisk
from tests.simulation.world.history import History, Watched, WatchedShard
from tests.simulation.world.loop import Handle
from tests.simulation.world.process import Process, ProcessDisk, Replica
from tests.simulation.world.violation import Violation
from tests.simulation.world.world import Place, World

if TYPE_CHECKING:
    from tests.simulation.world.holders import Slots

DIRECTORY = Path("/data/raft")
SOON_S = 0.0005  # messages that arrive within this time are one round of a host


def draw_options(random: Random) -> RaftOptions:
    """Slower than by default, as heartbeats would otherwise take most of a seed's time; logs short enough that
    snapshots happen."""
    return RaftOptions(
        election_min=1.0,
        election_max=2.0,
        heartbeat=0.3,
        leader_patience=3.0,
        ping=1.0,
        peer_silence=3.5,
        rest_after=0.5,
        timer_grid=0.05,
        log_bytes=random.choice((4000, 1 << 20)),
        log_margin=random.choice((0, 400)),
        log_memory=random.choice((0, 2000, 1 << 20)),
        in_flight=random.choice((1, 4)),
    )


class RaftLink:
    """One replica's end of the network: ``raft.transport.Network``."""

    def __init__(self, process: RaftReplica) -> None:
        self._process = process
        self._hello: Hello | None = None

    def start(self, hello: Hello, receiver: Receiver) -> None:
        self._hello = hello

    def stop(self) -> None:
        self._hello = None

    def send(self, peer: str, messages: Sequence[GroupMessage]) -> None:
        process, world = self._process, self._process.world
        network, random = world.network, world.random
        there = world.kinds[peer][1].region if peer in world.kinds else process.region
        if self._hello is None or not network.passes(process.region, there):
            return
        for _ in range(2 if network.doubling and random.random() < network.doubling else 1):
            if network.loss and random.random() < network.loss:
                continue
            delay = network.delay(process.region, there) + process.disk.stall
            if network.late and random.random() < network.late:
                delay += random.uniform(0.0, 4.0)
            world.loop.later(delay, self._arrive, self._hello, process.region, peer, messages)

    def _arrive(self, hello: Hello, region: str, peer: str, messages: Sequence[GroupMessage]) -> None:
        process = self._process
        other = process.world.running(peer)
        if isinstance(other, RaftReplica) and process.world.network.passes(region, other.region):
            process.world.loop.call_soon(other.receive, hello, messages, process, context=other.context)


class WatchedOpener:
    """A Raft host whose new groups the history sees."""

    def __init__(self, process: RaftReplica, host: RaftHost) -> None:
        self._process, self._host = process, host

    def add_group(self, number: int, machine: StateMachine) -> Future[Group | None]:
        self._process.world.say(f"{self._process.name} opens group {number}")
        return self._host.add_group(number, self._process.watched(number, machine))

    def remove_group(self, number: int) -> Future[Group | None]:
        self._process.world.say(f"{self._process.name} removes group {number}")
        return self._host.remove_group(number)


class RaftReplica(Replica):
    """Like ``photon serve registry``."""

    world: RaftWorld
    host: RaftHost | None = None
    machines: Machines

    async def run(self) -> None:
        world = self.world
        self.epoch = world.epoch
        self.context: Context = copy_context()
        self._next: Handle | None = None
        self._due = float("inf")
        self.disk = self.place.disks[self.name]
        disk: Any = ProcessDisk(self.disk, self)
        self.random = Random(world.random.getrandbits(64))
        try:
            self.machines = Machines(shards_to_open(world.shards, known_groups(disk, DIRECTORY)))
            of_groups = self.machines.by_group()
            self.host = RaftHost(
                name=self.name,
                peers=dict.fromkeys(world.replicas, "simulated"),
                directory=DIRECTORY,
                machines={number: self.watched(number, machine) for number, machine in of_groups.items()},
                disk=disk,
                clock=self.clock,
                options=world.raft_options(),
                network=RaftLink(self),
                random=self.random,
                entropy=self.random.randbytes,
            )
            self.host._wake.set = self._soon  # type: ignore[method-assign]
            self.host.open()
        except RaftStopped as stopped:
            self._refuse(stopped)
        except DiskFull as full:
            self.end(str(full))
        self._soon()
        opener = WatchedOpener(self, self.host)
        await self.serve(self.machines, {number: self.host.group(number) for number in of_groups}, opener)

    def watched(self, group: int, machine: StateMachine) -> Watched:
        kind = WatchedShard if isinstance(machine, ShardMachine) else Watched
        return kind(self.world.history, self.name, group, machine)

    def receive(self, hello: Hello, messages: Sequence[GroupMessage], sender: RaftReplica) -> None:
        """Receives within this process."""
        assert self.host is not None
        refusal = self.guarded(lambda: self.host.receive(hello, messages))  # type: ignore[union-attr]
        if refusal is not None and refusal.fatal and sender.alive and sender.host is not None:
            sender.host.refused(self.name, refusal)

    def guarded(self, act: Any) -> Any:
        """A failed sync or damaged file ends the process."""
        try:
            return act()
        except OSError as error:
            if "simulated" not in str(error):
                raise
            self.end(str(error))
        except RaftStopped as stopped:
            self._refuse(stopped)

    def _refuse(self, stopped: RaftStopped) -> NoReturn:
        if self.name not in self.world.harmed:
            self.world.violated(f"{self.name} refuses to go on though its disk was not harmed: {stopped}", stopped)
        self.world.away.add(self.name)
        self.world.refuses.add(self.name)
        self.end(str(stopped))

    # -- its thread ----------------------------------------------------------------------------------------------
    def _soon(self) -> None:
        self._pump_at(self.world.loop.now + SOON_S)

    def _pump_at(self, when: float) -> None:
        if self._next is not None:
            if self._due <= when:
                return
            self._next.cancel()
        self._due = when
        self._next = self.world.loop.call_at(when, self._pump, context=self.context)

    def _pump(self) -> None:
        self._next, self._due = None, float("inf")
        assert self.host is not None
        due = self.guarded(self.host.pump)
        if stall := self.disk.take_stall():
            self.paused = True
            self.world.loop.later(stall, self.world.loop.thaw, self)
        if due < float("inf"):
            self._pump_at(max(due / self.clock.rate, self.world.loop.now + SOON_S))

    # -- what the world sees ---------------------------------------------------------------------------------------
    @property
    def numbers(self) -> list[int]:
        return self.host.numbers if self.host is not None else []

    def state(self, group: int) -> GroupState:
        assert self.host is not None
        return self.host.group(group).state()

    def seed(self, group: int) -> GroupSeed:
        """Its state of a group, for a new replica."""
        assert self.host is not None
        raft, machine = self.host._groups[group], self.machines.by_group()[group]
        index = raft.state().applied
        return GroupSeed(group, index, raft._journal.term_at(index), list(machine.snapshot()))


class RaftWorld(World):
    """See the module."""

    history: History
    bucket_bits = BUCKET_BITS
    targets: list[int]  # shard counts that operators still want, one after the other
    # When their operator begins, and how often it looks.
    changes_begin_s, changes_looked_at_s = (2.0, 8.0), (0.5, 4.0)
    slots: Slots  # slots of ``holders``, if there are any

    def _draw(self) -> None:
        super()._draw()
        self.options = draw_options(self.random)
        self.epoch = 1
        self.settings = Random(f"{self.seed} settings")
        self.harmed: set[str] = set()  # replicas whose disk was damaged or lost, without a successor yet
        self.refuses: set[str] = set()  # harmed replicas that do not continue
        self.history = History(lambda: self.loop.now, self.bucket_bits)
        self.checks[:0] = [unexplained]
        self.counts |= dict.fromkeys(("replaced", "changes"), 0)

    def raft_options(self) -> RaftOptions:
        return replace(self.options, epoch=self.epoch)

    def _place(self) -> None:
        super()._place()
        for name in self.replicas:
            self._exchange(name, RaftReplica)

    def _exchange(self, name: str, kind: type[Process]) -> None:
        self.kinds[name] = (kind, self.kinds[name][1])

    def _add(self, name: str, kind: type[Process], place: Place) -> None:
        super()._add(name, kind, place)
        if kind is Replica:
            place.disks[name] = self._disk()

    def _begin(self) -> None:
        """Replicas elect a leader among themselves."""

    def shard_machines(self) -> list[Any]:
        return list(shard_machines(self))

    def new_leader(self) -> None:
        if here := replicas(self):
            self.ended(self.random.choice(here), "kill -9: another one is to lead")


# -- the registry as a whole -----------------------------------------------------------------------------------------
def replicas(world: RaftWorld) -> list[RaftReplica]:
    """The running replicas."""
    found = (world.running(name) for name in world.replicas)
    return [each for each in found if isinstance(each, RaftReplica) and each.host is not None and not each.paused]


def leader(world: RaftWorld, group: int) -> RaftReplica | None:
    """The leader of the newest term that has one."""
    here = [(each.state(group), each) for each in replicas(world) if group in each.numbers]
    leading = [(state.term, each.name, each) for state, each in here if state.is_leader]
    return max(leading)[2] if leading else None


def shard_machines(world: RaftWorld) -> list[ShardMachine]:
    """The furthest machine of each shard."""
    found: dict[int, ShardMachine] = {}
    for replica in replicas(world):
        for number, machine in replica.machines.shards.items():
            if number not in found or machine.applied > found[number].applied:
                found[number] = machine
    return [found[number] for number in sorted(found)]


def propose(world: RaftWorld, group: int, command: c.ShardCommand | c.ConfigCommand) -> None:
    """Proposes to the leader; nobody hears the outcome."""
    leading = leader(world, group)
    if leading is not None and leading.host is not None:
        leading.host.group(group).propose(c.encode(command), timeout=1.0, done=lambda outcome: None)


def unexplained(world: RaftWorld) -> Iterator[str]:
    """The history's findings."""
    try:
        world.history.check()
    except Violation as violation:
        yield str(violation)


def unsettled(world: RaftWorld) -> str:
    """All replicas have the same groups, one leader each, and have applied the same entries."""
    here = replicas(world)
    if len(here) < len(world.replicas):
        return f"{len(here)} of {len(world.replicas)} replicas run"
    if len({tuple(each.numbers) for each in here}) > 1:
        return "replicas have other groups than each other"
    for number in here[0].numbers:
        states = [each.state(number) for each in here]
        if sum(state.is_leader for state in states) != 1 or len({state.applied for state in states}) != 1:
            return f"group {number} is not settled"
    return ""


def differing(world: RaftWorld) -> list[str]:
    """Groups whose replicas have reached different states."""
    here = replicas(world)
    found = []
    for number in here[0].numbers:
        states: Mapping[str, Any] = {each.name: _content(each, number) for each in here}
        first = next(iter(states.values()))
        found += [f"group {number}: {name} has another state" for name, state in states.items() if state != first]
    return found


def _content(replica: RaftReplica, number: int) -> Any:
    if number == CONFIG_GROUP:
        return list(replica.machines.config.snapshot())
    return list(replica.machines.shards[number].snapshot())


# -- faults of their disks, and between them -------------------------------------------------------------------------
def cut_replicas(world: RaftWorld) -> None:
    """One is cut off from the others, in one or both directions; clients still reach it."""
    lonely, *others = world.random.sample(world.replicas, len(world.replicas))
    here = world.region_of(lonely)
    cut = {(here, world.region_of(name)) for name in others}
    ways = world.random.choice((cut, {(b, a) for a, b in cut}, cut | {(b, a) for a, b in cut}))
    world.say(f"cut: {sorted(ways)}")
    world.network.cut |= ways
    world.loop.later(world.random.uniform(1.0, 8.0), world.network.cut.difference_update, ways)


def full_disk(world: RaftWorld) -> None:
    """Writes fail halfway for a while."""
    disk = _some_disk(world, "is nearly full")
    disk.room = world.random.choice((0, world.random.randint(0, 2000)))
    world.loop.later(world.random.uniform(0.5, 12.0), setattr, disk, "room", None)


def slow_disk(world: RaftWorld) -> None:
    disk = _some_disk(world, "takes its time")
    disk.sync_seconds = world.random.choice((0.05, 0.5, 3.0))
    world.loop.later(world.random.uniform(1.0, 8.0), setattr, disk, "sync_seconds", 0.0)


def _some_disk(world: RaftWorld, why: str) -> FaultyDisk:
    name = world.random.choice(world.replicas)
    world.say(f"{name}: the disk {why}")
    return world.kinds[name][1].disks[name]
