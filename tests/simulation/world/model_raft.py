"""The IdRegistry of the world: production replicas, machines and batching over modelled Raft groups.

Raft has its own simulation (``test_raft``). A modelled group does what Raft promises and no more: one log of
committed entries; a leader per term that commits while it reaches a majority; followers and deposed leaders that know
less; proposals whose proposer never hears their outcome, and which may yet be committed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from contextvars import Context, copy_context
from typing import TYPE_CHECKING

from photon.idregistry.raft.api import Applied, GroupState, NotLeader, ProposalOutcome, StateMachine, Unknown

if TYPE_CHECKING:
    from tests.simulation.world.process import Process
    from tests.simulation.world.world import World

PULSE_S = 0.35  # interval at which leaders are checked; one found unfit twice in a row is replaced
PATIENCE_PULSES = 2


class Proposal:
    """An entry whose outcome its proposer does not know yet."""

    __slots__ = ("command", "context", "done", "settled", "was_sent")

    def __init__(self, command: bytes, done: Callable[[ProposalOutcome], None], was_sent: bool) -> None:
        self.command = command
        self.done = done
        self.was_sent = was_sent
        self.settled = False
        self.context: Context = copy_context()


class ModelGroup:
    """One replicated log. ``members``: the replicas that are up, by name."""

    def __init__(self, world: World, number: int, names: list[str]) -> None:
        self.world = world
        self.number = number
        self.names = names
        self.log: list[bytes] = []
        self.leader: str | None = None
        self.term = 0
        self.members: dict[str, GroupEnd] = {}
        self.pending: deque[Proposal] = deque()
        self._unfit = 0

    def fit(self, name: str) -> bool:
        """True if this replica is up, hears a majority, and is heard by it."""
        end = self.members.get(name)
        if end is None or not end.runs:
            return False
        reached = sum(other == name or self._connected(end, other) for other in self.names)
        return reached * 2 > len(self.names)

    def _connected(self, end: GroupEnd, other: str) -> bool:
        there = self.members.get(other)
        if there is None or not there.runs:
            return False
        passes = self.world.network.passes
        here, far = end.process.region, there.process.region
        return passes(here, far) and passes(far, here)

    def pulse(self) -> None:
        """Elects, commits what is stuck, and lets followers catch up."""
        if self.leader is not None and self.fit(self.leader):
            self._unfit = 0
            self.commit()
        else:
            self._unfit += 1
            if self._unfit >= PATIENCE_PULSES or self.term == 0:
                self._elect()
        for name, end in self.members.items():
            if end.runs and self.leader is not None:
                leader = self.members.get(self.leader)
                if name == self.leader or (leader is not None and self._connected(end, self.leader)):
                    end.hear(self.leader, self.term)

    def depose(self) -> None:
        """Another replica calls an election although nothing is wrong."""
        self._elect(but=self.leader)

    def _elect(self, but: str | None = None) -> None:
        able = [name for name in self.names if name != but and self.fit(name)]
        if not able:
            return
        random = self.world.random
        adopted = random.randint(0, len(self.pending)) if self.pending else 0
        for _ in range(adopted):
            if not self.pending[0].was_sent:
                break
            self.log.append(self.pending.popleft().command)  # its proposer is told nothing: Unknown in the end
        self.pending.clear()
        self.leader = random.choice(able)
        self.term += 1
        self._unfit = 0
        end = self.members[self.leader]
        end.catch_up()
        end.hear(self.leader, self.term)
        self.world.say(f"registry group {self.number}: {self.leader} leads term {self.term}, adopts {adopted}")

    def proposed(self, end: GroupEnd, proposal: Proposal) -> None:
        if self.leader != end.name or end.term != self.term:
            return  # it only believes that it leads
        self.pending.append(proposal)
        self.world.loop.later(self._round_trip(end), self.commit)

    def _round_trip(self, end: GroupEnd) -> float:
        network, here = self.world.network, end.process.region
        trips = sorted(2 * network.delay(here, self.world.region_of(other)) for other in self.names)
        return trips[len(self.names) // 2]

    def commit(self) -> None:
        """Commits the leader's entries if a majority has them too."""
        if self.leader is None or not self.pending or not self.fit(self.leader):
            return
        end = self.members[self.leader]
        while self.pending:
            proposal = self.pending.popleft()
            self.log.append(proposal.command)
            end.answer(proposal, Applied(end.catch_up()))
        for name, other in self.members.items():
            if name != self.leader:
                delay = self.world.network.delay(end.process.region, other.process.region)
                self.world.loop.later(delay, self._replicate, other)

    def _replicate(self, other: GroupEnd) -> None:
        if self.leader is not None and other.runs and self._connected(other, self.leader):
            other.hear(self.leader, self.term)


class GroupEnd:
    """``raft.api.Group`` of one replica."""

    def __init__(self, group: ModelGroup, process: Process, machine: StateMachine) -> None:
        self.group = group
        self.process = process
        self.name = process.name
        self.machine = machine
        self.applied = 0
        self.leader: str | None = None
        self.term = 0
        self._waiting: list[Proposal] = []
        self.catch_up()  # its journal
        group.members[self.name] = self

    @property
    def runs(self) -> bool:
        return self.process.alive and not self.process.paused and self.group.members.get(self.name) is self

    def propose(self, command: bytes, *, timeout: float, done: Callable[[ProposalOutcome], None]) -> None:
        if self.leader != self.name:
            done(NotLeader(self.leader))
            return
        reachable = any(self.group._connected(self, other) for other in self.group.names if other != self.name)
        proposal = Proposal(command, done, was_sent=reachable)
        self._waiting.append(proposal)
        self.group.proposed(self, proposal)
        self.group.world.loop.call_later(timeout, self.answer, proposal, Unknown())

    def state(self) -> GroupState:
        return GroupState(self.leader, self.leader == self.name, self.term, self.applied, self.applied, True)

    def catch_up(self) -> object:
        """Applies all committed entries; the last one's result."""
        result: object = None
        log = self.group.log
        while self.applied < len(log):
            self.applied += 1
            result = self.machine.apply(self.applied, log[self.applied - 1])
        return result

    def hear(self, leader: str, term: int) -> None:
        """Hears from the leader who leads, and what is committed."""
        deposed = self.leader == self.name and term > self.term
        self.leader, self.term = leader, term
        self.catch_up()
        if deposed:
            waiting, self._waiting = self._waiting, []
            for proposal in waiting:
                self.answer(proposal, Unknown())

    def answer(self, proposal: Proposal, outcome: ProposalOutcome) -> None:
        """Answers once, in the proposer's process."""
        if proposal.settled:
            return
        proposal.settled = True
        self._waiting = [each for each in self._waiting if not each.settled]
        self.group.world.loop.call_soon(proposal.done, outcome, context=proposal.context)


def make_groups(world: World, names: list[str], shards: int) -> Mapping[int, ModelGroup]:
    """The config group 0 and one for each shard."""
    return {number: ModelGroup(world, number, names) for number in range(shards + 1)}
