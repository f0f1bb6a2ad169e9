"""Wraps pysyncobj's SyncObj, of one pinned version, and replaces its globals. No other file uses it.

pysyncobj elects, commits and applies. Every part that could lose data is replaced: journal, serialiser, transport,
pickle, the sending of append messages. Private names of the library are touched in this file only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

from photon.config.left_out import left_out
from photon.idregistry.raft.api import RunMachine, StateMachine
from photon.idregistry.raft.codec import APPLY_METHOD, REGULAR, Append, Message, RequestVote, SafePickle, Vote
from photon.idregistry.raft.journal import Journal
from photon.idregistry.raft.options import (
    APPLIED_AT_ONCE,
    APPLIED_BYTES,
    APPLIED_FEW,
    COMMAND_BYTES_MAX,
    ENTRIES_MAX,
    DiskFull,
    RaftOptions,
)
from photon.idregistry.raft.rules import Accepted, LogView, Progress
from photon.idregistry.raft.snapshot import SnapshotStore
from photon.idregistry.raft.transport import HeldTransport

with left_out("cryptography"):  # the library's encryption is unused, as our transport has TLS
    import pysyncobj.syncobj as library
    from pysyncobj.config import SERIALIZER_STATE, SyncObjConf
    from pysyncobj.node import Node
    from pysyncobj.version import VERSION as LIBRARY_VERSION

PINNED_VERSION = "0.3.17"
if LIBRARY_VERSION != PINNED_VERSION:
    raise ImportError(
        f"pysyncobj {LIBRARY_VERSION} is installed, but the Raft driver is made for {PINNED_VERSION} and uses "
        f"its private names: install {PINNED_VERSION}, or check every name in driver.py and run the simulation first"
    )

_NEVER = 2**62
_NOW = float("-inf")
_time = threading.local()


@contextmanager
def library_time(monotonic: Callable[[], float]) -> Iterator[None]:
    """Makes the library use our clock, on this thread and inside this block."""
    before = getattr(_time, "now", None)
    _time.now = monotonic
    try:
        yield
    finally:
        _time.now = before


def _monotonic() -> float:
    now: Callable[[], float] = _time.now  # set by library_time; no library code may run without it
    return now()


def _create_journal(journal: Journal) -> Journal:
    return journal


library.monotonicTime = _monotonic
library.pickle = SafePickle
library.createJournal = _create_journal
library.PIPE_NOTIFIER_ENABLED = False  # two descriptors per group, never closed; the host's thread is woken otherwise


class _NoPoller:
    def poll(self, timeout: float) -> None:
        """Returns at once, as the host's thread does the waiting."""


class _Serializer:
    """Replaces the library's serialiser: writes the state machine's snapshot, one slice per tick."""

    def __init__(
        self, store: SnapshotStore, snapshot: Callable[[], Iterable[bytes]], failed: Callable[[], None]
    ) -> None:
        """``failed``: called if the disk was too full for a snapshot."""
        self._store = store
        self._snapshot = snapshot
        self._failed = failed
        self._position = 0

    def checkSerializing(self) -> tuple[int, int | None]:  # noqa: N802 - the library's name
        if not self._store.writing:
            return SERIALIZER_STATE.NOT_SERIALIZING, None
        try:
            complete = self._store.step()
        except DiskFull:
            self._failed()
            return SERIALIZER_STATE.NOT_SERIALIZING, None
        return (SERIALIZER_STATE.SUCCESS if complete else SERIALIZER_STATE.SERIALIZING), self._position

    def serialize(self, data: tuple[Any, ...], position: int) -> None:
        _, index, term = data[1]  # the last applied entry
        self.begin(index, term, position)

    def begin(self, index: int, term: int, position: int) -> None:
        """Starts a snapshot; once it is complete, the log may be cut before ``position``."""
        self._position = position
        try:
            self._store.begin(index, term, self._snapshot())
        except DiskFull:
            self._failed()


class Core(library.SyncObj):  # type: ignore[misc]
    """One group's Raft state on one replica. Make all calls on one thread, inside ``library_time``."""

    def __init__(
        self,
        *,
        name: str,
        peers: Sequence[str],
        journal: Journal,
        store: SnapshotStore,
        machine: StateMachine,
        take_proposals: Callable[[], None],
        snapshot_failed: Callable[[], None],
        options: RaftOptions,
        random: Random,
    ) -> None:
        self._options = options
        self._random = random
        self._checkCommandsToApply = take_proposals  # the library calls it inside its tick
        self._apply_machine = machine.apply
        self._apply_run = machine.apply_run if isinstance(machine, RunMachine) else None
        self._journal = journal
        self._held = HeldTransport()
        self._nodes = {peer: Node(peer) for peer in sorted(peers)}
        self.sends_due = False  # set where the library would send append messages to all
        conf = SyncObjConf(
            autoTick=False,
            appendEntriesUseBatch=False,
            appendEntriesPeriod=options.heartbeat,
            appendEntriesBatchSizeBytes=2 * COMMAND_BYTES_MAX,
            raftMinTimeout=options.election_min,
            raftMaxTimeout=options.election_max,
            connectionTimeout=options.election_max,
            leaderFallbackTimeout=options.leader_patience,
            commandsWaitLeader=False,
            dynamicMembershipChange=False,
            journalFile=journal,
            fullDumpFile=None,
            useFork=False,
            logCompactionMinEntries=_NEVER,
            logCompactionMinTime=_NEVER,
        )
        super().__init__(Node(name), self._nodes.values(), conf, transport=self._held)
        self._poller = _NoPoller()
        self._idToMethod = {APPLY_METHOD: self._apply_next}
        self._SyncObj__serializer = _Serializer(store, machine.snapshot, snapshot_failed)
        self._SyncObj__needLoadDumpFile = False
        if store.info is not None:
            self.jump(store.info.index)
        if not peers:
            self.stand()  # there is no other replica to wait for
        else:
            wait = self._between(options.first_min, options.first_max)
            self._SyncObj__raftElectionDeadline = _monotonic() + wait

    def _between(self, low: float, high: float) -> float:
        return low + (high - low) * self._random.random()

    # --- overridden -------------------------------------------------------------------------------------------

    def _SyncObj__generateRaftTimeout(self) -> float:  # noqa: N802
        return self._between(self._options.election_min, self._options.election_max)

    def _SyncObj__sendAppendEntries(self) -> None:  # noqa: N802
        """Only records the request: the driver sends once per step, with flow control, and after the sync."""
        self._SyncObj__newAppendEntriesTime = _monotonic() + self._options.heartbeat
        self.sends_due = True

    def _SyncObj__deleteEntriesTo(self, index: int) -> None:  # noqa: N802
        self._journal.cut_before(index, self._options.log_margin)

    def _SyncObj__applyLogEntries(self) -> bool:  # noqa: N802
        """Applies a limited number of entries per tick.

        The library would apply all committed entries at once, and while a replica replays its log, all its groups
        would be silent.
        """
        committed = self.committed()
        until = min(committed, self.applied() + APPLIED_AT_ONCE) if self.may_apply() else self.applied()
        ran = self._apply_unwatched(until)
        self._SyncObj__raftCommitIndex = until
        try:
            return bool(super()._SyncObj__applyLogEntries()) or ran
        finally:
            self._SyncObj__raftCommitIndex = committed

    def _apply_unwatched(self, until: int) -> bool:
        """Applies the next entries together if nothing waits for their results; True if there were any."""
        if self._apply_run is None or until - self.applied() < 2:
            return False
        first = self.applied() + 1
        commands: list[bytes] = []
        for index in range(first, until + 1):
            command, _, _ = self._journal.entry_at(index)
            if command[:1] != REGULAR or index in self._SyncObj__commandsWaitingCommit:
                break
            commands.append(command[1:])
        if len(commands) < 2:
            return False
        self._apply_run(first, commands)
        self._SyncObj__raftLastApplied += len(commands)
        return True

    def _apply_next(self, command: bytes, _doApply: bool) -> Any:  # noqa: N803
        return self._apply_machine(self.applied() + 1, command)

    # --- state (methods, as the library evaluates every property of the class in its constructor) -------------

    def term(self) -> int:
        return int(self._SyncObj__raftCurrentTerm)

    def applied(self) -> int:
        return int(self._SyncObj__raftLastApplied)

    def committed(self) -> int:
        return int(self._SyncObj__raftCommitIndex)

    def may_apply(self) -> bool:
        """True if there are committed entries to apply now.

        In a stream of small entries, a follower waits to apply several together, since nobody waits for its results.
        While entries are not yet committed here, another message will come: the next entries or a heartbeat.
        """
        first, committed, journal = self.applied() + 1, self.committed(), self._journal
        if self.leads() or not self.leader() or committed == journal.last:
            return committed >= first
        few = committed - first + 1 < APPLIED_FEW
        return not few or journal.bytes_of(first, committed) >= APPLIED_BYTES

    def leads(self) -> bool:
        return bool(self._SyncObj__raftState == library._RAFT_STATE.LEADER)

    def stands(self) -> bool:
        return bool(self._SyncObj__raftState == library._RAFT_STATE.CANDIDATE)

    def leader(self) -> str | None:
        node = self._SyncObj__raftLeader
        return None if node is None else str(node.id)

    def deadline(self) -> float:
        """Returns the monotonic time at which the library wants a tick if nothing else happens."""
        if self.leads():
            return float(self._SyncObj__newAppendEntriesTime) if self._nodes else float("inf")
        if self._nodes and not self._SyncObj__connectedNodes:
            return float("inf")
        return float(self._SyncObj__raftElectionDeadline)

    def log_view(self) -> LogView:
        journal = self._journal
        return LogView(journal.first, journal.last, self.committed(), journal.term_at)

    # --- inputs -----------------------------------------------------------------------------------------------

    def connect(self, peer: str, up: bool) -> None:
        callback = self._held.on_connected if up else self._held.on_disconnected
        assert callback is not None
        callback(self._nodes[peer])

    def connected(self, peer: str) -> bool:
        return self._nodes[peer] in self._SyncObj__connectedNodes

    def append(self, command: bytes, callback: Callable[[Any, int], None]) -> None:
        """Proposes at the leader. ``callback`` gets (result, library's FAIL_REASON) if the library ever learns the
        outcome."""
        index, term = self._journal.last + 1, self.term()
        self._journal.add(REGULAR + command, index, term)
        self._SyncObj__commandsWaitingCommit[index].append((term, callback))
        self._SyncObj__sendAppendEntries()

    def forget_callbacks(self) -> None:
        self._SyncObj__commandsWaitingCommit.clear()

    def vote_requested(self, peer: str, message: RequestVote) -> None:
        self._deliver(
            peer,
            {
                "type": "request_vote",
                "term": message.term,
                "last_log_index": message.last_index,
                "last_log_term": message.last_term,
            },
        )

    def voted(self, peer: str, message: Vote) -> None:
        self._deliver(peer, {"type": "response_vote", "term": message.term})

    def appended(self, peer: str, term: int, accepted: Accepted) -> None:
        """Hands the library an append message as corrected by ``rules.receive_append``."""
        first = accepted.prev_index + 1
        self._deliver(
            peer,
            {
                "type": "append_entries",
                "term": term,
                "commit_index": accepted.commit,
                "prevLogIdx": accepted.prev_index,
                "prevLogTerm": accepted.prev_term,
                "entries": [(e[1], first + n, e[0]) for n, e in enumerate(accepted.entries)],
            },
        )

    def led(self, peer: str, term: int) -> None:
        """Tells the library only that the peer leads in this term; nothing is compared or committed."""
        last = self._journal.last
        self.appended(peer, term, Accepted(last, self._journal.term_at(last), (), last, 0))

    def progress(self, peer: str) -> Progress:
        node = self._nodes[peer]
        return Progress(self._SyncObj__raftMatchIndex[node], self._SyncObj__raftNextIndex[node])

    def progressed(self, peer: str, progress: Progress | None) -> None:
        """Records a follower's answer in this term. ``progress``: ``None`` if the answer says nothing about it."""
        node = self._nodes[peer]
        self._SyncObj__lastResponseTime[node] = _monotonic()
        if progress is not None:
            self._SyncObj__raftMatchIndex[node] = progress.matched
            self._SyncObj__raftNextIndex[node] = progress.next_index

    def stand(self) -> None:
        """Makes the next tick stand for election."""
        self._SyncObj__raftElectionDeadline = _NOW

    def wait_longer(self) -> None:
        """Sets a new random election deadline."""
        self._SyncObj__raftElectionDeadline = _monotonic() + self._SyncObj__generateRaftTimeout()

    def learn(self, term: int) -> None:
        """Becomes a follower in a newer term whose leader is unknown."""
        self._SyncObj__setCurrentTerm(term, None)
        self._SyncObj__setState(library._RAFT_STATE.FOLLOWER)
        self._SyncObj__raftLeader = None

    def rewrite_snapshot(self) -> None:
        """Takes a new snapshot even if the log has not moved since the last one."""
        index = self.applied()
        self._SyncObj__serializer.begin(index, self._journal.term_at(index), index - 1)

    def jump(self, index: int) -> None:
        """Records that the state machine now has the state after entry ``index``."""
        self._SyncObj__raftLastApplied = index
        self._SyncObj__raftCommitIndex = max(self.committed(), index)

    # --- outputs ----------------------------------------------------------------------------------------------

    def next_append(self, peer: str, *, with_entries: bool) -> Append | None:
        """Returns a follower's next append message and moves its next index; ``None`` if it needs a snapshot."""
        node = self._nodes[peer]
        journal = self._journal
        next_index = self._SyncObj__raftNextIndex[node]
        if next_index <= journal.first:
            return None
        entries: list[tuple[int, bytes]] = []
        size, at = 0, next_index
        while with_entries and at <= journal.last and size < COMMAND_BYTES_MAX and len(entries) < ENTRIES_MAX:
            command, _, term = journal.entry_at(at)
            if size and size + len(command) > 2 * COMMAND_BYTES_MAX:
                break
            entries.append((term, command))
            size += len(command)
            at += 1
        self._SyncObj__raftNextIndex[node] = at
        return Append(self.term(), self.committed(), next_index - 1, journal.term_at(next_index - 1), entries)

    def take_votes(self) -> list[tuple[str, Message]]:
        return self._held.take()

    def ping_of(self) -> Append:
        """Returns a message that a follower rejects, but that keeps it from standing for election."""
        journal = self._journal
        return Append(self.term(), 0, journal.first, journal.term_at(journal.first), [])

    def _deliver(self, peer: str, message: dict[str, Any]) -> None:
        assert self._held.on_message is not None
        self._held.on_message(self._nodes[peer], message)
