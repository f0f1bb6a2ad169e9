"""The registry's world with shards that grow and shrink while everything else happens."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from photon.idregistry.api import incarnation_of
from photon.idregistry.core import commands as c
from photon.idregistry.core import shard_changes
from photon.idregistry.core.commands import CONFIG_GROUP
from photon.idregistry.core.id_bucket import OWNED
from photon.idregistry.core.outcomes import Description
from photon.idregistry.core.shard_changes import Changes
from photon.idregistry.core.sharding import single_range
from photon.idregistry.core.state_machine import ShardMachine
from photon.idregistry.raft.api import Group, StateMachine
from photon.idregistry.raft.identity import KnownGroups, known_groups
from photon.idregistry.raft.options import RaftStopped
from photon.idregistry.replica.server import Machines, RegistryReplica, shards_to_open
from photon.idregistry.replica.service import RegistryServicer
from photon.idregistry.replica.shard_keeper import problems
from tests.simulation.registry.clients import digest_of
from tests.simulation.registry.world import (
    LIVENESS_SECONDS,
    UNCERTAINTY_NS,
    RegistryWorld,
    Server,
    Watched,
    client_cut,
    client_killed,
    late_boundary,
    small_clock_jump,
)
from tests.simulation.resharding.clients import HOUR_IDS, Resharder, Retirement, StaleClient
from tests.simulation.resharding.history import ReshardingHistory
from tests.simulation.world import faults
from tests.simulation.world.clock import NS
from tests.simulation.world.cluster import DIRECTORY, Cluster, Node, Violation

FIRST_SHARDS = 2
SECONDS = 5.0
TARGETS = ([3, 5, 2], [3, 2], [1, 3], [5, 2], [3, 5])


class WatchedOpener:
    """A Raft host whose new groups the history sees, too."""

    def __init__(self, world: ReshardingWorld, node: Node) -> None:
        assert node.host is not None
        self._world, self._node, self._host = world, node, node.host

    def add_group(self, number: int, machine: StateMachine) -> Future[Group | None]:
        self._world.tell(f"{self._node.name} opens group {number}")
        return self._host.add_group(number, Watched(self._world, self._node.name, number, machine))

    def remove_group(self, number: int) -> Future[Group | None]:
        self._world.tell(f"{self._node.name} removes group {number}")
        return self._host.remove_group(number)


class ReshardingWorld(RegistryWorld):
    """See the module."""

    history: ReshardingHistory

    def __init__(self, seed: int, *, replicas: int = 3) -> None:
        super().__init__(seed, replicas=replicas)
        random = self.random
        self.set_up = c.SetUp(single_range(FIRST_SHARDS))
        self.history = ReshardingHistory()
        self.descriptions: list[Description] = []
        """Every config that some caller ever had."""
        self.clients = [StaleClient(self, f"s{n}") for n in range(3)]
        self.resharder = Resharder(self, list(random.choice(TARGETS)))

    # --- replicas ---------------------------------------------------------------------------------------------
    @property
    def changes(self) -> Changes:
        """As the furthest replica knows them."""
        machines: dict[str, Machines] = self.__dict__.get("machines", {})  # asked for while the world is made, too
        known = [each.config.changes for each in machines.values() if each.config.changes.ranges]
        ahead = max(known, key=lambda each: (each.decided, len(each.removed)), default=None)
        return ahead or shard_changes.set_up(single_range(FIRST_SHARDS))

    @property
    def shards(self) -> Sequence[int]:  # type: ignore[override]
        return self.changes.live

    @shards.setter
    def shards(self, value: Sequence[int]) -> None:
        """The config group says."""

    def removed(self) -> Sequence[int]:
        return self.changes.removed

    def machines_of(self, node: Node) -> Mapping[int, StateMachine]:
        try:
            known = known_groups(node.disk, DIRECTORY)
        except RaftStopped:  # its host will say the same, and not start
            known = KnownGroups((), ())
        here = shards_to_open(FIRST_SHARDS, known)
        self.machines[node.name] = machines = Machines(here)
        return {number: Watched(self, node.name, number, machine) for number, machine in machines.by_group().items()}

    def booted(self, node: Node) -> None:
        super().booted(node)
        assert node.host is not None
        server = self.servers[node.name]
        server.loop.kill()
        machines = self.machines[node.name]
        loop = type(server.loop)(self, lambda: node.paused_until)
        replica = RegistryReplica(
            name=node.name,
            groups={number: node.host.group(number) for number in machines.by_group()},
            machines=machines,
            set_up=self.set_up,
            clock=node.clock,
            uncertainty_ns=UNCERTAINTY_NS,
            retention_ns=self.retention_ns,
            opener=WatchedOpener(self, node),
        )
        self.servers[node.name] = Server(loop, replica, RegistryServicer(replica))
        loop.call_soon(replica.start)

    def owned_by(self, shard: int, slot: str) -> list[tuple[bytes, int, int, int]]:
        here = [self.machines[name].shards[shard] for name in self.names if shard in self.machines[name].shards]
        machine = max(here, key=lambda each: each.applied)
        out = []
        around = range(-30, int(self.now * 10) + 60)
        for number in (*around, *(each + HOUR_IDS for each in around)):
            entry = machine._table.get(digest_of(number))
            holder = machine._state.incarnations.get(incarnation_of(entry.token)) if entry is not None else None
            if entry is not None and entry.state == OWNED and holder == slot:
                out.append((digest_of(number), number, entry.token, entry.generation))
        return out

    # --- what must hold ---------------------------------------------------------------------------------------
    def settled(self) -> bool:
        """No change is under way, every shard has heard of the last one, on every replica."""
        able = [node for node in self.nodes.values() if not node.broken]
        if any(node.host is None for node in able):
            return False
        if len({tuple(node.host.numbers) for node in able if node.host is not None}) != 1:
            return False
        changes = self.changes
        if changes.pending is not None:
            return False
        for node in able:
            shards = self.machines[node.name].shards
            for number in changes.live:
                if number not in shards or shards[number].sharding.standing.decided != changes.decided:
                    return False
        return super().settled()

    def check(self) -> None:
        super().check()
        for name, server in self.servers.items():
            found = self._problems(server)
            if found:
                raise Violation(f"{name}: {found}")

    def _problems(self, server: Server) -> list[str]:
        async def collect() -> list[str]:
            return [each async for each in problems(server.replica.config.changes, server.replica._shards)]

        return asyncio.run(collect())

    def _state(self, name: str, group: int) -> Any:
        if group == CONFIG_GROUP:
            return super()._state(name, group), self.machines[name].config.changes
        machine = self.machines[name].shards[group]
        return super()._state(name, group), machine._state.sharding


# --- faults -------------------------------------------------------------------------------------------------------
def slot_retired(world: Cluster) -> None:
    """As the registry's fault."""
    assert isinstance(world, ReshardingWorld)
    client = world.clients[world.random.randint(1, 2)]
    if not client.last or world.retiring(client):
        return
    if world.random.random() < 0.5:
        client.kill()
    Retirement(world, client).start()


def hours_ahead(world: Cluster) -> None:
    """A machine's clock is an hour wrong for a while: if it leads, events of then are entered."""
    assert isinstance(world, ReshardingWorld)
    if world.retention_ns is not None:
        return  # the boundary would go with it, and nothing be entered any more
    node = world.nodes[world.random.choice(world.names)]
    node.clock.skew += 3600
    world.tell(f"{node.name}: the wall clock is an hour ahead")

    def mend() -> None:
        node.clock.skew -= 3600

    world.later(world.random.uniform(0.2, 1.0), mend)


def late_entry(world: Cluster) -> None:
    """A caretaker or operator that stood still repeats a proposal of long ago, at whoever leads now."""
    assert isinstance(world, ReshardingWorld)
    kinds = (c.Prepare, c.Activate, c.Abort, c.Configure, c.Seed, c.Intend, c.Decide, c.Close, c.Drop)
    entries = [
        (group, entry.command)
        for group in world.history.logs
        for entry in world.history.log(group)
        if isinstance(entry.command, kinds)
    ]
    for group, command in world.random.sample(entries, min(len(entries), 4)):
        for node in world.nodes.values():
            host = node.host
            if host is not None and group in host.numbers and host.group(group).state().is_leader:
                host.group(group).propose(c.encode(command), timeout=1.0, done=lambda outcome: None)


def hasty_intent(world: Cluster) -> None:
    """A change whose start was chosen by a clock that is wrong by seconds, and without a look at the shards."""
    assert isinstance(world, ReshardingWorld)
    changes, random = world.changes, world.random
    starts = world.epoch_ns + int((world.now + random.uniform(-1.0, 2.0)) * NS)
    wanted = shard_changes.new_shards(changes, random.choice((1, 2, 3, 4)))
    command = c.encode(c.Intend(changes.decided + 1, starts, wanted))
    for node in world.nodes.values():
        host = node.host
        if host is not None and host.group(CONFIG_GROUP).state().is_leader:
            host.group(CONFIG_GROUP).propose(command, timeout=1.0, done=lambda outcome: None)


RESHARDING_FAULTS: Sequence[faults.Fault] = (
    *faults.RAFT_FAULTS,
    client_killed,
    client_killed,
    client_cut,
    slot_retired,
    slot_retired,
    small_clock_jump,
    hours_ahead,
    late_boundary,
    late_entry,
    late_entry,
    hasty_intent,
    hasty_intent,
)


def run(
    seed: int,
    *,
    replicas: int = 3,
    story: list[str] | None = None,
    kinds: Sequence[faults.Fault] = RESHARDING_FAULTS,
) -> ReshardingWorld:
    """One schedule. Raises Violation."""
    world = ReshardingWorld(seed, replicas=replicas)
    world.story = story
    for node in world.nodes.values():
        world.later(world.random.uniform(0, 0.1), node.boot)
    for client in world.clients:
        world.later(world.random.uniform(0.3, 0.8), client.start)
    world.later(world.random.uniform(0.6, 1.2), world.resharder.start)
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
        for loop in (each.loop for each in (*world.clients, *world.servers.values())):
            if loop is not None:
                loop.kill()
        world.resharder.loop.kill()
    changes = world.changes
    world.tell(
        f"{len(world.history.asked)} answers, {changes.decided - 1} changes, now {changes.named}, "
        f"removed {changes.removed}"
    )
    return world


def _heal(world: ReshardingWorld) -> None:
    for name, server in world.servers.items():
        world.check_loop(server.loop, name)
    faults.heal(world)
    world.calm = True
    for client in world.clients:
        world.later(0.0, client.start)
    if not world.run_until(world.now + LIVENESS_SECONDS, stop=lambda: not world.resharder.targets):
        world.check_loop(world.resharder.loop, "the operator")
        raise Violation(
            f"shards do not change {LIVENESS_SECONDS} s after the faults ended: {world.resharder.targets} left"
        )
    before = {client.name: client.finished for client in world.clients}

    def answered() -> bool:
        return all(client.retired or client.finished > before[client.name] + 1 for client in world.clients)

    if not world.run_until(world.now + LIVENESS_SECONDS, stop=answered):
        waiting = [client.name for client in world.clients if not client.retired]
        raise Violation(f"{waiting} have no answer {LIVENESS_SECONDS} s after the faults ended")
    for client in world.clients:
        client.kill()
    world.resharder.loop.kill()
    if not world.run_until(world.now + LIVENESS_SECONDS, stop=world.settled):
        raise Violation("replicas do not converge")
    _empty_those_that_left(world)


def _empty_those_that_left(world: ReshardingWorld) -> None:
    """The verifier clears what is left where no new events go; the boundary passes, and those shards are removed."""
    changes = world.changes
    end = world.epoch_ns + int(world.now * NS)
    left = {n for n in changes.live if n not in changes.named and changes.until(n) < end and not world.reopened}
    if world.retention_ns is None or min(node.clock.skew for node in world.nodes.values()) < -3.0:
        return  # the boundary stands, or a leader's clock may hold it back
    for _ in range(int(LIVENESS_SECONDS)):
        for node in world.nodes.values():
            for shard in left.difference(world.removed()) if node.host is not None else ():
                assert node.host is not None
                if shard in node.host.numbers and node.host.group(shard).state().is_leader:
                    command = c.encode(_clear_all(world.machines[node.name].shards[shard]))
                    node.host.group(shard).propose(command, timeout=1.0, done=lambda outcome: None)
        world.run_until(world.now + 1.0, stop=lambda: left <= {*world.removed()} and world.settled())
        if left <= {*world.removed()} and world.settled():
            return
    raise Violation(f"shards {sorted(left)} left and are empty, {world.removed()} were removed")


def _clear_all(machine: ShardMachine) -> c.Batch:
    digests, times, tokens = b"", b"", b""
    for bucket in machine.bucket_numbers():
        rows = machine._table.bucket_rows(bucket)
        rows = rows[rows["what"] & 3 == OWNED]
        digests += np.column_stack((rows["lo"], rows["hi"])).astype("<u8").tobytes()
        low = rows["time_low"].astype(np.int64) | rows["time_high"].astype(np.int64) << 32
        times += (low + (bucket << machine._bucket_bits)).astype("<i8").tobytes()
        tokens += rows["token"].astype("<u8").tobytes()
    return c.Batch(clear_digests=digests, clear_times=times, clear_tokens=tokens)
