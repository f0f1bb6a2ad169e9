"""Raft groups of one process for tests: same contract, no disk, leadership and outcomes set by the test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from photon.batch.ids import Ids
from photon.config.clock import SystemClock
from photon.idregistry.api import token_of
from photon.idregistry.core import commands as c
from photon.idregistry.core.sharding import single_range
from photon.idregistry.raft.api import Applied, GroupState, NotLeader, ProposalOutcome, StateMachine, Unknown
from photon.idregistry.replica.clocks import ClockWatch
from photon.idregistry.replica.server import Machines, RegistryReplica


@dataclass
class Log:
    """One replicated log; its members apply at once, in order."""

    leader: str | None = "r1"
    members: dict[str, LocalGroup] = field(default_factory=dict)
    commands: list[bytes] = field(default_factory=list)
    lose_replies: bool = False  # commits, but the proposer gets Unknown
    hold: bool = False  # proposals neither commit nor answer until ``release``
    held: list[Callable[[], None]] = field(default_factory=list)

    def release(self) -> None:
        self.hold = False
        held, self.held = self.held, []
        for each in held:
            each()


class LocalGroup:
    """api.Group of one member."""

    def __init__(self, name: str, log: Log, machine: StateMachine) -> None:
        self.name, self.log, self.machine = name, log, machine
        self.healthy = True
        self.cut = False
        self.current = True  # ``False``: hears of no leader; committed entries are not applied here
        log.members[name] = self

    def propose(self, command: bytes, *, timeout: float, done: Callable[[ProposalOutcome], None]) -> None:
        if self.log.leader != self.name:
            done(NotLeader(self.log.leader))
        elif self.log.hold:
            self.log.held.append(lambda: self._commit(command, done))
        else:
            self._commit(command, done)

    def _commit(self, command: bytes, done: Callable[[ProposalOutcome], None]) -> None:
        self.log.commands.append(command)
        index = len(self.log.commands)
        hearing = {name: member for name, member in self.log.members.items() if not member.cut}
        results = {name: member.machine.apply(index, command) for name, member in hearing.items()}
        outcome = Unknown() if self.log.lose_replies else Applied(results[self.name])
        # As the driver does: from a thread that is not the loop's.
        thread = threading.Thread(target=done, args=(outcome,))
        thread.start()
        thread.join()

    def transfer(self, to: str | None) -> None:
        self.log.leader = to

    def hears(self, peer: str) -> bool:
        return peer in self.log.members and not self.log.members[peer].cut

    def state(self) -> GroupState:
        n = len(self.log.commands)
        if self.cut:
            return GroupState(None, False, 1, n, n, self.healthy)
        return GroupState(self.log.leader, self.log.leader == self.name, 1, n, n, self.healthy, current=self.current)


class Cluster:
    """Replicas r1 to rn over shared logs."""

    def __init__(
        self, replicas: int = 1, shards: int = 1, id_rules: dict[str, bytes] | None = None, **options: int | None
    ) -> None:
        names = [f"r{i + 1}" for i in range(replicas)]
        self.logs = {number: Log() for number in range(shards + 1)}
        self.names = names
        self.machines = {name: Machines(range(1, shards + 1)) for name in names}
        self.id_rules = dict(id_rules or {})
        self._shards, self._options = shards, options
        self.groups = {
            name: {
                number: LocalGroup(name, self.logs[number], machine)
                for number, machine in self.machines[name].by_group().items()
            }
            for name in names
        }

    def replica(
        self, name: str = "r1", clocks: ClockWatch | None = None, near: Mapping[str, Sequence[str]] | None = None
    ) -> RegistryReplica:
        uncertainty = self._options.get("uncertainty_ns") or 5_000_000_000
        return RegistryReplica(
            name=name,
            groups=self.groups[name],
            machines=self.machines[name],
            set_up=c.SetUp(single_range(self._shards), self.id_rules),
            clock=SystemClock(),
            uncertainty_ns=uncertainty,
            retention_ns=self._options.get("retention_ns"),
            memory_limit=self._options.get("memory_limit"),
            clocks=clocks,
            near=near or {},
        )


def lead(cluster: Cluster, name: str | None, groups: Sequence[int] = (0, 1)) -> None:
    for number in groups:
        cluster.logs[number].leader = name


def inserts(ids: Sequence[int], incarnation: int, batch: int, times: Sequence[int] | None = None) -> Ids:
    """Rows to insert; ids spread over shards by their number."""
    n = len(ids)
    return Ids(
        digests_of(ids),
        np.array(times if times is not None else [i * 1000 for i in ids], np.int64),
        np.full(n, token_of(incarnation, batch), np.uint64),
        np.ones(n, np.uint8),
        np.array(ids, np.uint32),
    )


def digests_of(ids: Sequence[int]) -> bytes:
    return b"".join(bytes(8) + i.to_bytes(8, "little") for i in ids)
