"""One group on one replica: messages, proposals and time in; durable log, messages and outcomes out.

``step`` is the whole of it, in the order that safety asks for: take in messages, tick the library, sync the journal,
and only then let messages and outcomes go.
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
from photon.idregistry.raft import rules
from photon.idregistry.raft.api import Applied, GroupState, NotLeader, ProposalOutcome, StateMachine, Unknown
from photon.idregistry.raft.codec import Append, AppendAck, Chunk, ChunkAck, Message, RequestVote, Vote
from photon.idregistry.raft.driver import Core, library_time
from photon.idregistry.raft.journal import Journal
from photon.idregistry.raft.options import (
    APPENDS_IN_FLIGHT,
    COMMAND_BYTES_MAX,
    PROPOSALS_MAX,
    TRANSFER_BYTES,
    RaftOptions,
    RaftStopped,
)
from photon.idregistry.raft.snapshot import SnapshotStore

_SUCCESS = 0  # the library's FAIL_REASON
_NEVER = float("inf")

Done = Callable[[ProposalOutcome], None]
Outcome = tuple[Done, ProposalOutcome]


@dataclass(slots=True, eq=False)
class _Proposal:
    command: bytes
    deadline: float
    done: Done
    term: int = 0
    answered: bool = False


@dataclass(slots=True)
class _Transfer:
    """A snapshot on its way to one follower."""

    index: int
    offset: int = 0
    sent_at: float = -_NEVER


@dataclass(slots=True)
class _Sending:
    """What a leader has on its way to one follower."""

    appends: int = 0
    commit: int = 0
    rewound_at: float = -_NEVER
    transfer: _Transfer | None = None


@dataclass(slots=True)
class StepResult:
    """What a step lets go, everything in it being durable."""

    messages: list[tuple[str, Message]] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)


class RaftGroup:
    """Implements ``api.Group``. ``propose`` and ``state`` are thread-safe, all else is the host's thread."""

    def __init__(
        self,
        *,
        number: int,
        name: str,
        peers: Sequence[str],
        directory: Path,
        machine: StateMachine,
        disk: Disk,
        clock: Clock,
        random: Random,
        options: RaftOptions,
        wake: Callable[[], None],
    ) -> None:
        """``peers`` are the other replicas' names."""
        self.number = number
        self._name = name
        self._peers = sorted(peers)
        self._directory = directory
        self._machine = machine
        self._disk = disk
        self._clock = clock
        self._random = random
        self._options = options
        self._wake = wake
        self._lock = threading.Lock()
        self._queue: deque[_Proposal] = deque()
        self._closed = False
        self._in_flight: list[_Proposal] = []
        self._deadlines: list[tuple[float, int, _Proposal]] = []
        self._sequence = 0
        self._outcomes: list[Outcome] = []
        self._out: list[tuple[str, Message]] = []
        self._sending: dict[str, _Sending] = {}
        self._sending_term = 0
        self._heartbeat_at = -_NEVER
        self._ballot = rules.Ballot()
        self._published = GroupState(None, False, 0, 0, 0, True)
        self.due = -_NEVER
        """Monotonic time of the next step if nothing arrives."""

    # --- any thread -------------------------------------------------------------------------------------------

    def propose(self, command: bytes, *, timeout: float, done: Done) -> None:
        """See ``api.Group``. Raises ValueError for a command above COMMAND_BYTES_MAX."""
        if len(command) > COMMAND_BYTES_MAX:
            raise ValueError(f"raft: a command of {len(command)} bytes, at most {COMMAND_BYTES_MAX} may be")
        proposal = _Proposal(command, self._clock.monotonic() + timeout, done)
        with self._lock:
            state = self._published
            refused = self._closed or not state.is_leader or len(self._queue) >= PROPOSALS_MAX
            if not refused:
                self._queue.append(proposal)
        if refused:
            done(NotLeader(state.leader))
        else:
            self._wake()

    def state(self) -> GroupState:
        return self._published

    # --- the host's thread ------------------------------------------------------------------------------------

    def open(self) -> None:
        """Reads the disk. Raises RaftStopped when it is damaged or holds less than was promised."""
        self._disk.make_dir(self._directory)
        self._store = SnapshotStore(self._directory, self._disk)
        self._journal = journal = Journal(self._directory, self._disk)
        info = self._store.info
        if info is not None:
            if len(journal) == 0:
                raise RaftStopped(f"{self._directory} has a snapshot and no journal: its term and vote are lost")
            journal.align(info.index, info.term)
            self._machine.restore(self._store.chunks())
        elif len(journal) and journal.first > 1:
            raise RaftStopped(f"{self._directory} has lost its snapshot: its journal begins at entry {journal.first}")
        with library_time(self._clock.monotonic):
            self._core = Core(
                name=self._name,
                peers=self._peers,
                journal=journal,
                store=self._store,
                snapshot=self._machine.snapshot,
                apply=self._machine.apply,
                take_proposals=self._take_proposals,
                options=self._options,
                random=self._random,
            )
        journal.sync()
        self._publish()

    def connect(self, peer: str, up: bool) -> None:
        """Whether a peer has been heard of late."""
        self._core.connect(peer, up)
        self.due = -_NEVER

    def has_work(self, now: float) -> bool:
        return now >= self.due or bool(self._queue)

    def step(self, messages: Sequence[tuple[str, Message]]) -> StepResult:
        """One round. Raises whatever goes wrong; the replica must stop then."""
        now = self._clock.monotonic()
        with library_time(self._clock.monotonic):
            for peer, message in messages:
                self._receive(peer, message)
            self._expire(now)
            if self._needs_tick(now):
                self._compact()
                self._core.doTick()
            self._settle()
            self._send_appends(now)
            self._out += self._core.take_votes()
            self._journal.sync()
            self.due = self._next_due(now)
        self._publish()
        result = StepResult(self._out, self._outcomes)
        self._out, self._outcomes = [], []
        return result

    def close(self, *, healthy: bool) -> list[Outcome]:
        """Ends the group; what was proposed is unknown from now on."""
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

    def _receive(self, peer: str, message: Message) -> None:
        core = self._core
        match message:
            case Append():
                self._receive_append(peer, message)
            case AppendAck():
                if core.leads() and message.term == core.term():
                    self._acknowledged(peer, message)
            case RequestVote():
                core.vote_requested(peer, message)
            case Vote():
                if core.stands() and message.term == core.term() and self._ballot.count(peer, message.term):
                    core.voted(peer, message)
            case Chunk():
                self._receive_chunk(peer, message)
            case ChunkAck():
                if core.leads() and message.term == core.term():
                    self._chunk_acknowledged(peer, message)

    def _obeys(self, peer: str, term: int) -> bool:
        """Whether the sender leads in this or a newer term."""
        core = self._core
        if term == core.term() and (core.leads() or core.leader() not in (None, peer)):
            raise RaftStopped(f"group {self.number}: {core.leader()} and {peer} both lead in term {term}")
        return term >= core.term()

    def _receive_append(self, peer: str, message: Append) -> None:
        if not self._obeys(peer, message.term):
            return
        verdict = rules.receive_append(message, self._core.log_view())
        if isinstance(verdict, rules.Accepted):
            self._core.appended(peer, message.term, verdict)
            self._out.append((peer, AppendAck(message.term, verdict.matched + 1, True)))
        else:
            self._core.led(peer, message.term)
            self._out.append((peer, AppendAck(message.term, verdict.next_index, False)))

    def _acknowledged(self, peer: str, ack: AppendAck) -> None:
        core = self._core
        last = self._journal.last
        progress = rules.receive_ack(ack, core.progress(peer), term=core.term(), last=last)
        core.progressed(peer, progress)
        if progress is None:
            return
        sending = self._sending_to(peer)
        sending.appends = max(0, sending.appends - 1) if ack.accepted else 0
        if not self._journal.first < progress.next_index <= last:
            return
        now = self._clock.monotonic()
        if ack.accepted or now - sending.rewound_at >= self._options.heartbeat:
            core.send_soon()
            if not ack.accepted:  # doubled or late rejections must not start a storm; heartbeats repair the rest
                sending.rewound_at = now

    def _receive_chunk(self, peer: str, chunk: Chunk) -> None:
        if not self._obeys(peer, chunk.term):
            return
        core = self._core
        core.led(peer, chunk.term)
        if chunk.index <= core.committed():  # what is committed here equals the leader's
            self._out.append((peer, AppendAck(chunk.term, core.committed() + 1, True)))
            return
        offset = self._store.receive(peer, chunk)
        if offset < chunk.total:
            self._out.append((peer, ChunkAck(chunk.term, chunk.index, offset)))
            return
        info = self._store.install()
        self._journal.align(info.index, info.term)
        core.jump(info.index)
        self._machine.restore(self._store.chunks())
        self._out.append((peer, AppendAck(chunk.term, info.index + 1, True)))

    def _chunk_acknowledged(self, peer: str, ack: ChunkAck) -> None:
        self._core.progressed(peer, None)
        transfer = self._sending_to(peer).transfer
        if transfer is None or transfer.index != ack.index:
            return
        if ack.offset > transfer.offset:
            transfer.sent_at = -_NEVER
            self._core.send_soon()
        transfer.offset = ack.offset  # going back waits for transfer_retry: late answers must not start a storm

    # --- sending ----------------------------------------------------------------------------------------------

    def _sending_to(self, peer: str) -> _Sending:
        if self._sending_term != self._core.term():
            self._sending_term = self._core.term()
            self._sending = {each: _Sending() for each in self._peers}
        return self._sending[peer]

    def _send_appends(self, now: float) -> None:
        core = self._core
        if not core.sends_due:
            return
        core.sends_due = False
        if not core.leads():
            return
        heartbeat = now >= self._heartbeat_at
        if heartbeat:
            self._heartbeat_at = now + 0.5 * self._options.heartbeat
        for peer in self._peers:
            if core.connected(peer):
                self._send_to(peer, now, heartbeat)
            else:
                self._sending_to(peer).transfer = None

    def _send_to(self, peer: str, now: float, heartbeat: bool) -> None:
        core = self._core
        sending = self._sending_to(peer)
        if heartbeat:
            sending.appends = 0  # what was not acknowledged by now may be lost
        sent = False
        while sending.appends < APPENDS_IN_FLIGHT and core.progress(peer).next_index <= self._journal.last:
            append = core.next_append(peer, with_entries=True)
            if append is None:
                self._send_snapshot(peer, now, sending, heartbeat)
                return
            self._out.append((peer, append))
            sending.appends += 1
            sent = True
        sending.transfer = None
        if sent or heartbeat or sending.commit != core.committed():
            sending.commit = core.committed()
            append = None if sent else core.next_append(peer, with_entries=False)
            if append is not None:
                self._out.append((peer, append))

    def _send_snapshot(self, peer: str, now: float, sending: _Sending, heartbeat: bool) -> None:
        info = self._store.info
        if info is None:
            raise RaftStopped(f"group {self.number}: no snapshot, and the log begins at {self._journal.first}")
        transfer = sending.transfer
        if transfer is None or transfer.index != info.index:
            transfer = sending.transfer = _Transfer(info.index)
        if now - transfer.sent_at >= self._options.transfer_retry:
            data = self._store.read(transfer.offset)
            chunk = Chunk(self._core.term(), info.index, info.term, transfer.offset, info.size, data)
            assert len(data) <= TRANSFER_BYTES
            self._out.append((peer, chunk))
            transfer.sent_at = now
        elif heartbeat:
            self._out.append((peer, self._core.ping_of()))

    # --- ticks ------------------------------------------------------------------------------------------------

    def _needs_tick(self, now: float) -> bool:
        core = self._core
        return (
            bool(self._queue)
            or now > core.deadline()
            or core.committed() > core.applied()
            or self._store.writing
            or (core.leads() and core.committed() < self._journal.last)
        )

    def _next_due(self, now: float) -> float:
        core = self._core
        if self._store.writing or core.sends_due:
            return now
        if core.leads() and not self._peers and core.committed() < self._journal.last:
            return now
        if self._queue and core.leads() and self._may_propose():
            return now
        due = max(core.deadline(), now)
        grid = self._options.timer_grid
        if due < _NEVER:
            due = (due // grid + 1) * grid
        return min(due, self._deadlines[0][0]) if self._deadlines else due

    def _compact(self) -> None:
        """Asks for a snapshot when the log has grown, unless a follower is just receiving the present one."""
        info = self._store.info
        options = self._options
        limit = max(options.log_bytes, int(options.log_ratio * info.size) if info else 0) + options.log_margin
        if self._journal.bytes <= limit or self._store.writing:
            return
        sending = any(s.transfer is not None for s in self._sending.values()) and self._core.leads()
        if sending and self._journal.bytes <= 8 * limit:
            return
        if self._core.applied() > max(self._journal.first, info.index if info else 0):
            self._core.forceLogCompaction()

    # --- proposals --------------------------------------------------------------------------------------------

    def _may_propose(self) -> bool:
        return self._journal.last - self._core.committed() < self._options.in_flight

    def _take_proposals(self) -> None:
        """Called by the library inside its tick."""
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

    def _push_deadline(self, proposal: _Proposal) -> None:
        self._sequence += 1
        heapq.heappush(self._deadlines, (proposal.deadline, self._sequence, proposal))

    def _applied(self, proposal: _Proposal, result: Any, reason: int) -> None:
        self._answer(proposal, Applied(result) if reason == _SUCCESS else Unknown())

    def _answer(self, proposal: _Proposal, outcome: ProposalOutcome) -> None:
        if not proposal.answered:
            proposal.answered = True
            proposal.command = b""
            self._outcomes.append((proposal.done, outcome))

    def _expire(self, now: float) -> None:
        deadlines = self._deadlines
        while deadlines and (deadlines[0][2].answered or deadlines[0][0] <= now):
            self._answer(heapq.heappop(deadlines)[2], Unknown())

    def _settle(self) -> None:
        """What was proposed in a term that is over is unknown; what was not proposed at all goes elsewhere."""
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

    def _publish(self) -> None:
        core = self._core
        old = self._published
        new = (core.leader(), core.leads(), core.term(), core.applied(), core.committed())
        if new != (old.leader, old.is_leader, old.term, old.applied, old.committed):
            with self._lock:
                if not self._closed:
                    self._published = GroupState(*new, healthy=True)
