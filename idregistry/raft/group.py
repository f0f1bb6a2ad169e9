"""One group on one replica: takes messages, proposals and time, and produces a durable log, messages and outcomes.

``step`` does everything, in the order that safety requires: take in messages, tick the library, sync the journal, and
only then release messages and outcomes.
"""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from photon.config.clock import Clock
from photon.config.disk import Disk
from photon.idregistry.raft import codec, rules
from photon.idregistry.raft.api import Applied, GroupState, NotLeader, ProposalOutcome, StateMachine, Unknown
from photon.idregistry.raft.driver import Core, library_time
from photon.idregistry.raft.journal import Journal
from photon.idregistry.raft.options import (
    COMMAND_BYTES_MAX,
    ENTRY_COST,
    PROPOSALS_MAX,
    DiskFull,
    RaftOptions,
    RaftStopped,
)
from photon.idregistry.raft.pre_vote import Canvassing
from photon.idregistry.raft.quiescence import Resting
from photon.idregistry.raft.replication import Out, Sender
from photon.idregistry.raft.snapshot import SnapshotStore
from photon.idregistry.raft.snapshot_install import Installer

_SUCCESS = 0  # the library's FAIL_REASON
_NEVER = float("inf")

Done = Callable[[ProposalOutcome], None]


@dataclass(slots=True, eq=False)
class Proposal:
    """A command to commit, answered exactly once, at the latest at its deadline."""

    command: bytes
    deadline: float
    done: Done
    term: int = 0
    answered: bool = False


@dataclass(slots=True)
class HandOver:
    """The leader is handing over to another replica; no proposals are accepted meanwhile."""

    to: str | None
    until: float
    asked_at: float = -_NEVER


Outcome = tuple[Done, ProposalOutcome]


@dataclass(slots=True)
class StepResult:
    """The output of a step. Everything that it depends on is durable."""

    messages: Out = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)


@dataclass(eq=False, kw_only=True)
class RaftGroup:
    """Implements ``api.Group``. Methods not marked thread-safe are for the host's thread."""

    number: int
    name: str
    peers: Sequence[str]  # the other replicas, in order
    directory: Path
    machine: StateMachine
    disk: Disk
    clock: Clock
    random: Random
    options: RaftOptions
    wake: Callable[[], None]

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: deque[Proposal] = deque()
        self._closed = False
        self._in_flight: list[Proposal] = []
        self._deadlines: list[tuple[float, int, Proposal]] = []
        self._sequence = 0
        self._outcomes: list[Outcome] = []
        self._out: Out = []
        self._ballot = rules.Ballot()
        self._leader_heard_at = -_NEVER
        self._hand_over: HandOver | None = None
        self._told_to_stand = -1  # the term whose leader told this replica to stand in this step, or -1
        self._full = False  # the last sync found no room: nothing is accepted or sent until one succeeds
        self._still_said_at = -_NEVER
        self._snapshot_after = -_NEVER
        self._published = GroupState(None, False, 0, 0, 0, True)
        self._current_in = -1  # the last term in which it led and applied an entry
        self.due = -_NEVER  # monotonic time of the next step if nothing arrives

    # --- any thread -------------------------------------------------------------------------------------------

    def propose(self, command: bytes, *, timeout: float, done: Done) -> None:
        """See ``api.Group``. Raises ValueError for a command above COMMAND_BYTES_MAX."""
        if len(command) > COMMAND_BYTES_MAX:
            raise ValueError(f"raft: a command has {len(command)} bytes; at most {COMMAND_BYTES_MAX} are allowed")
        proposal = Proposal(command, self.clock.monotonic() + timeout, done)
        with self._lock:
            state = self._published
            refused = self._closed or not state.is_leader or len(self._queue) >= PROPOSALS_MAX
            if not refused:
                self._queue.append(proposal)
        if refused:
            done(NotLeader(state.leader))
        else:
            self.wake()

    def transfer(self, to: str | None) -> None:
        """Asks the leader to let another replica lead (``None`` means the most up-to-date one). Best effort: watch
        ``state``.

        Proposals wait until that replica leads, or until the time of an election has passed.
        """
        if to is not None and to not in self.peers:
            raise ValueError(f"raft: {to} is not another replica of group {self.number}: {self.peers}")
        until = self.clock.monotonic() + 2 * self.options.election_max
        with self._lock:
            self._hand_over = HandOver(to, until)
        self.wake()

    def state(self) -> GroupState:
        return self._published

    def hears(self, peer: str) -> bool:
        return peer in self.peers and self._core.connected(peer)

    @property
    def waited_for(self) -> bool:
        """True if a proposal has no answer yet. Thread-safe."""
        return bool(self._queue or self._in_flight)

    @property
    def resting(self) -> bool:
        """True while the group needs neither heartbeats nor timers, until something happens."""
        return self._resting.rests

    # --- the host's thread ------------------------------------------------------------------------------------

    def open(self) -> None:
        """Reads the group's files. Raises RaftStopped if they are damaged, or lack a promised vote or entry."""
        self.disk.make_dir(self.directory)
        self._store = SnapshotStore(self.directory, self.disk)
        self._journal = journal = Journal(self.directory, self.disk, self.options.log_memory)
        info = self._store.info
        if info is not None:
            if len(journal) == 0:
                raise RaftStopped(f"{self.directory} has a snapshot but no journal: its term and vote are lost")
            journal.align(info.index, info.term)
            self.machine.restore(self._store.chunks())
        elif len(journal) and journal.first > 1:
            raise RaftStopped(f"{self.directory} has lost its snapshot: its journal begins at entry {journal.first}")
        with library_time(self.clock.monotonic):
            self._core = Core(
                name=self.name,
                peers=self.peers,
                journal=journal,
                store=self._store,
                machine=self.machine,
                take_proposals=self._take_proposals,
                snapshot_failed=self._snapshot_failed,
                options=self.options,
                random=self.random,
            )
        self._canvassing = Canvassing(self._core, journal, self.peers, self.options)
        self._sender = Sender(self._core, journal, self._store, self.peers, self.options)
        self._installer = Installer(self._store, journal, self.machine, self._core)
        self._resting = Resting(self._core, journal, self.peers, self.options)
        journal.sync()
        self._publish(self.clock.monotonic())

    def connect(self, peer: str, up: bool) -> None:
        """Records whether a peer was heard from recently."""
        self._core.connect(peer, up)
        self._resting.disturb()
        self.due = -_NEVER

    def has_work(self, now: float) -> bool:
        return now >= self.due or bool(self._queue) or self._hand_over is not None

    def step(self, messages: Sequence[tuple[str, codec.Message]]) -> StepResult:
        """Handles messages, timers and proposals in one step. The replica must stop after any exception."""
        now = self.clock.monotonic()
        with library_time(lambda: now):  # the same time throughout the step
            if self._resting.sleeps_on(messages, wanted=bool(self._queue) or self._hand_over is not None):
                return StepResult(self._resting.answers(messages))
            self._leader_heard_at = self._resting.wake(messages, now, self._leader_heard_at)
            if self._full and now < self.due:
                return self._keep_still(now)
            if not self._full:
                for peer, message in messages:
                    self._receive(peer, message, now)
                self._stand_if_told()
                self._out += self._installer.step()
                self._expire(now)
                self._out += self._canvassing.begin(now)
                if self._needs_tick(now):
                    self._compact(now)
                    self._core.doTick()
                self._settle()
                self._let_lead(now)
                self._sender.send(now, self._out)
                self._out += self._core.take_votes()
                idle = not (self._at_work or self.waited_for or self._hand_over)
                self._out += self._resting.settle(idle=idle, now=now)
            if not self._sync():
                return self._keep_still(now)
            self.due = self._next_due(now)
        self._publish(now)
        result = StepResult(self._out, self._outcomes)
        self._out, self._outcomes = [], []
        return result

    def _sync(self) -> bool:
        """Syncs the journal. False if the disk is full: the replica pauses, and the others continue without it."""
        try:
            self._journal.sync()
        except DiskFull:
            self._full = True
            return False
        self._full = False
        return True

    def _keep_still(self, now: float) -> StepResult:
        """Makes a step on a full disk: fails waiting proposals and does nothing else."""
        if not now < self.due < _NEVER:  # at rest, or alone, no step was planned for a retry
            self.due = now + self.options.disk_retry
        held, self._outcomes = self._outcomes, []
        self._expire(now)
        while self._queue:
            self._answer(self._queue.popleft(), NotLeader(None))
        result = StepResult(self._tell_to_go_on(now), self._outcomes)
        self._outcomes = held
        self._publish(now)
        return result

    def _tell_to_go_on(self, now: float) -> Out:
        """Tells resting followers not to wait for this leader; else they would wait as long as its process lives."""
        core = self._core
        if not core.leads() or now - self._still_said_at < self.options.disk_retry:
            return []
        self._still_said_at = now
        return [(peer, codec.KeepsStill(core.term())) for peer in self.peers if core.connected(peer)]

    def close(self, *, healthy: bool) -> list[Outcome]:
        """Ends the group; answers open proposals Unknown."""
        with self._lock:
            self._closed = True
            state = self._published
            self._published = GroupState(None, False, state.term, state.applied, state.committed, healthy)
            waiting = [*self._in_flight, *self._queue]
            self._queue.clear()
        for proposal in waiting:
            self._answer(proposal, Unknown())
        if hasattr(self, "_store"):
            self._store.close()
        if hasattr(self, "_journal"):
            self._journal.close()
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    # --- messages ---------------------------------------------------------------------------------------------

    def _receive(self, peer: str, message: codec.Message, now: float) -> None:
        core = self._core
        ours = core.leads() and getattr(message, "term", 0) == core.term()
        match message:
            case codec.Append():
                self._receive_append(peer, message, now)
            case codec.AppendAck():
                if ours:
                    self._sender.acknowledged(peer, message, now)
            case codec.RequestVote():
                core.vote_requested(peer, message)
            case codec.Vote():
                if core.stands() and message.term == core.term() and self._ballot.count(peer, message.term):
                    core.voted(peer, message)
            case codec.Chunk():
                self._receive_chunk(peer, message, now)
            case codec.ChunkAck():
                if ours:
                    self._sender.chunk_acknowledged(peer, message)
                    if message.damaged:
                        self._mend_snapshot(now)
            case codec.AskVotes():
                answer = self._canvassing.asked(message, silence=now - self._leader_heard_at)
                self._out.append((peer, answer))
            case codec.WouldVote():
                self._canvassing.answered(peer, message)
            case codec.Sleep():
                self._resting.told(peer, message)
            case codec.Asleep():
                self._resting.sleeps(peer, message)
            case codec.KeepsStill():
                pass  # it has woken the sleeping replicas; those awake wait for heartbeats anyway
            case codec.Stand():
                if core.leader() == peer:
                    self._told_to_stand = message.term

    def _obeys(self, peer: str, term: int) -> bool:
        """True if the sender leads in this or a newer term."""
        core = self._core
        if term == core.term() and (core.leads() or core.leader() not in (None, peer)):
            raise RaftStopped(f"group {self.number}: {core.leader()} and {peer} both lead in term {term}")
        return term >= core.term()

    def _receive_append(self, peer: str, message: codec.Append, now: float) -> None:
        if not self._obeys(peer, message.term):
            return
        self._leader_heard_at = now
        verdict = rules.receive_append(message, self._core.log_view())
        if isinstance(verdict, rules.Accepted):
            self._core.appended(peer, message.term, verdict)
            self._out.append((peer, codec.AppendAck(message.term, verdict.matched + 1, True)))
        else:
            self._core.led(peer, message.term)
            self._out.append((peer, codec.AppendAck(message.term, verdict.next_index, False)))

    def _receive_chunk(self, peer: str, chunk: codec.Chunk, now: float) -> None:
        if not self._obeys(peer, chunk.term):
            return
        self._leader_heard_at = now
        self._core.led(peer, chunk.term)
        self._out += self._installer.receive(peer, chunk)

    def _mend_snapshot(self, now: float) -> None:
        """Handles a follower's report of a damaged snapshot: if our file is corrupt, writes it again from the state
        in memory.
        """
        if self._store.writing or now < self._snapshot_after or not self._store.damage():
            return
        self._snapshot_after = now + self.options.disk_retry
        self._core.rewrite_snapshot()

    # --- elections --------------------------------------------------------------------------------------------

    def _stand_if_told(self) -> None:
        """Stands for election if told to. Called after all messages: a later message would delay the election."""
        if self._told_to_stand == self._core.term() and not self._core.leads():
            self._core.stand()
        self._told_to_stand = -1

    def _let_lead(self, now: float) -> None:
        """Tells the chosen replica to stand for election, once it has all entries and nothing is in flight."""
        hand_over, core = self._hand_over, self._core
        if hand_over is None:
            return
        if not core.leads() or now >= hand_over.until or not self.peers:
            self._hand_over = None
            return
        last = self._journal.last
        peer = hand_over.to or max(self.peers, key=lambda each: (core.connected(each), core.progress(each).matched))
        ready = core.committed() == last and core.progress(peer).matched == last
        if ready and now - hand_over.asked_at >= self.options.heartbeat:
            hand_over.asked_at = now
            self._out.append((peer, codec.Stand(core.term())))

    # --- ticks ------------------------------------------------------------------------------------------------

    def _needs_tick(self, now: float) -> bool:
        core = self._core
        return (
            bool(self._queue)
            or now > core.deadline()
            or core.may_apply()
            or self._store.writing
            or (core.leads() and core.committed() < self._journal.last)
        )

    @property
    def _at_work(self) -> bool:
        return self._store.writing or self._installer.busy or self._journal.moving

    def _next_due(self, now: float) -> float:
        core = self._core
        if self._resting.rests:
            return _NEVER
        alone = not self.peers and core.committed() < self._journal.last
        if self._at_work or core.may_apply() or core.sends_due:
            return now
        if core.leads() and (alone or (self._queue and self._may_propose())):
            return now
        due = max(core.deadline(), now)
        if self._hand_over is not None:
            due = min(due, self._hand_over.until)
        grid = self.options.timer_grid
        if due < _NEVER:
            due = (due // grid + 1) * grid
        return min(due, self._deadlines[0][0]) if self._deadlines else due

    def _snapshot_failed(self) -> None:
        """Delays the next snapshot after one failed for lack of disk space."""
        self._snapshot_after = self.clock.monotonic() + 4 * self.options.disk_retry

    def _compact(self, now: float) -> None:
        """Requests a snapshot if the log has grown, but not yet while a follower is receiving the present one."""
        info = self._store.info
        options = self.options
        limit = max(options.log_bytes, int(options.log_ratio * info.size) if info else 0) + options.log_margin
        covered = max(self._journal.first, info.index if info else 0)
        grown = self._journal.command_bytes + ENTRY_COST * max(self._core.applied() - covered, 0)
        if grown <= limit or self._store.writing or now < self._snapshot_after:
            return
        if self._sender.transferring and grown <= 8 * limit:
            return
        if self._core.applied() > covered:
            self._core.forceLogCompaction()

    # --- proposals --------------------------------------------------------------------------------------------

    def _may_propose(self) -> bool:
        in_flight = self._journal.last - self._core.committed()
        return in_flight < self.options.in_flight and self._hand_over is None

    def _take_proposals(self) -> None:
        """Proposes queued commands; called by the library inside its tick."""
        core = self._core
        while self._queue and core.leads() and self._may_propose():
            proposal = self._queue.popleft()
            if proposal.answered:
                continue
            proposal.term = core.term()
            self._in_flight.append(proposal)
            self._push_deadline(proposal)
            core.append(proposal.command, partial(self._applied, proposal))
        if core.leads():
            for proposal in self._queue:
                if proposal.term == 0:
                    proposal.term = -1  # its deadline is watched from now on
                    self._push_deadline(proposal)

    def _push_deadline(self, proposal: Proposal) -> None:
        self._sequence += 1
        heapq.heappush(self._deadlines, (proposal.deadline, self._sequence, proposal))

    def _applied(self, proposal: Proposal, result: Any, reason: int) -> None:
        self._answer(proposal, Applied(result) if reason == _SUCCESS else Unknown())

    def _answer(self, proposal: Proposal, outcome: ProposalOutcome) -> None:
        if not proposal.answered:
            proposal.answered = True
            proposal.command = b""
            self._outcomes.append((proposal.done, outcome))

    def _expire(self, now: float) -> None:
        deadlines = self._deadlines
        while deadlines and (deadlines[0][2].answered or deadlines[0][0] <= now):
            self._answer(heapq.heappop(deadlines)[2], Unknown())

    def _settle(self) -> None:
        """Answers Unknown to proposals of an ended term, and NotLeader to those not proposed yet if not leading."""
        core = self._core
        term = core.term() if core.leads() else -1
        if self._in_flight:
            if any(p.term != term for p in self._in_flight):
                core.forget_callbacks()
                for proposal in self._in_flight:
                    self._answer(proposal, Unknown())
            self._in_flight = [p for p in self._in_flight if not p.answered]
        if not core.leads():
            while self._queue:
                self._answer(self._queue.popleft(), NotLeader(core.leader()))

    def _publish(self, now: float) -> None:
        core = self._core
        old = self._published
        leader, leads = (None, False) if self._full else (core.leader(), core.leads())
        if not leads and now - self._leader_heard_at > self.options.leader_patience:
            leader = None  # cut off: a replica that cannot win an election still names the leader it followed
        new = (leader, leads, core.term(), core.applied(), core.committed(), not self._full)
        if new != (old.leader, old.is_leader, old.term, old.applied, old.committed, old.writable):
            term = core.term()
            applied, log = core.applied(), self._journal
            if leads and self._current_in != term and log.first <= applied <= log.last:
                self._current_in = term if log.term_at(applied) == term else self._current_in
            current = self._current_in == term
            with self._lock:
                if not self._closed:
                    self._published = GroupState(*new[:5], healthy=True, writable=new[5], current=current)
