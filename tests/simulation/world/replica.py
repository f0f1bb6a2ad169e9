"""A registry replica with its real Raft host and disk: pumped by the world's loop, heard over its network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import Context, copy_context
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn

from photon.idregistry.core.commands import CONFIG_GROUP
from photon.idregistry.core.state_machine import ShardMachine
from photon.idregistry.operate.seeding import GroupSeed
from photon.idregistry.raft.api import GroupState
from photon.idregistry.raft.host import RaftHost
from photon.idregistry.raft.identity import known_groups
from photon.idregistry.raft.options import RaftOptions, RaftStopped
from photon.idregistry.raft.transport import GroupMessage, Hello, Receiver
from photon.idregistry.replica.server import Machines, shards_to_open
from tests.simulation.world.loop import Handle
from tests.simulation.world.process import ProcessDisk, Replica

if TYPE_CHECKING:
    from tests.simulation.world.joined import JoinedWorld

DIRECTORY = Path("/data/raft")
SOON_S = 0.0005
"""What arrives within it is one round of a host."""


def draw_options(random: Random) -> RaftOptions:
    """Slower than by default, as a seed's time goes into heartbeats else; logs so short that snapshots happen."""
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
            delay = network.delay(process.region, there)
            if network.late and random.random() < network.late:
                delay += random.uniform(0.0, 4.0)
            world.loop.later(delay, self._arrive, self._hello, process.region, peer, messages)

    def _arrive(self, hello: Hello, region: str, peer: str, messages: Sequence[GroupMessage]) -> None:
        process = self._process
        other = process.world.running(peer)
        if isinstance(other, RaftReplica) and process.world.network.passes(region, other.region):
            process.world.loop.call_soon(other.receive, hello, messages, process, context=other.context)


class RaftReplica(Replica):
    """As ``photon serve registry``."""

    world: JoinedWorld
    host: RaftHost | None = None
    machines: Machines

    async def run(self) -> None:
        world = self.world
        self.epoch = world.epoch
        self.context: Context = copy_context()
        self._next: Handle | None = None
        self._due = float("inf")
        disk: Any = ProcessDisk(self.place.disks[self.name], self)
        self.random = Random(world.random.getrandbits(64))
        try:
            self.machines = Machines(shards_to_open(world.shards, known_groups(disk, DIRECTORY)))
            of_groups = self.machines.by_group()
            self.host = RaftHost(
                name=self.name,
                peers=dict.fromkeys(world.replicas, "simulated"),
                directory=DIRECTORY,
                machines=of_groups,
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
        self._soon()
        await self.serve(self.machines, {number: self.host.group(number) for number in of_groups}, self.host)

    def receive(self, hello: Hello, messages: Sequence[GroupMessage], sender: RaftReplica) -> None:
        """In this process."""
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


# -- the registry as a whole -----------------------------------------------------------------------------------------
def replicas(world: JoinedWorld) -> list[RaftReplica]:
    """Those that run."""
    found = (world.running(name) for name in world.replicas)
    return [each for each in found if isinstance(each, RaftReplica) and each.host is not None and not each.paused]


def leader(world: JoinedWorld, group: int) -> RaftReplica | None:
    """The one of the newest term that is one."""
    here = [(each.state(group), each) for each in replicas(world) if group in each.numbers]
    leading = [(state.term, each.name, each) for state, each in here if state.is_leader]
    return max(leading)[2] if leading else None


def shard_machines(world: JoinedWorld) -> list[ShardMachine]:
    """The furthest of each shard."""
    found: dict[int, ShardMachine] = {}
    for replica in replicas(world):
        for number, machine in replica.machines.shards.items():
            if number not in found or machine.applied > found[number].applied:
                found[number] = machine
    return [found[number] for number in sorted(found)]


def unsettled(world: JoinedWorld) -> str:
    """All replicas have the same groups, one leader of each, and applied the same."""
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


def differing(world: JoinedWorld) -> list[str]:
    """Groups whose replicas have come to other states."""
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
