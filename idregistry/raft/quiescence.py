"""Groups that do nothing cost nothing: no heartbeats, no timers, until something happens.

The leader of a group in which all is committed, and everywhere, and was for a while, tells its followers to sleep
(``Sleep``); once all that are heard have (``Asleep``) it rests too. Whether a resting leader lives is then known from
its process: replicas hear of each other twice a second, whatever groups they share, and a peer that falls silent, or
comes back, wakes all groups. So does any message that is not part of going to sleep, and any proposal.

This is about when to send and to wait, no more: votes, terms and logs are what they are. A follower that sleeps
though its leader leads no more is woken by the one who asks for its vote. A leader whose disk is full lives but leads
no more: it says so (``KeepsStill``), as those that sleep would wait for it as long as its process lives.
"""

from __future__ import annotations

from collections.abc import Sequence

from photon.idregistry.raft.codec import Append, AppendAck, AskVotes, Asleep, KeepsStill, Message, RequestVote, Sleep
from photon.idregistry.raft.driver import Core
from photon.idregistry.raft.journal import Journal
from photon.idregistry.raft.options import RaftOptions
from photon.idregistry.raft.replication import Out

_NEVER = float("inf")
Messages = Sequence[tuple[str, Message]]


class Resting:
    """One group's. All calls within ``library_time``."""

    def __init__(self, core: Core, journal: Journal, peers: Sequence[str], options: RaftOptions) -> None:
        self._core = core
        self._journal = journal
        self._peers = peers
        self._options = options
        self._told: tuple[str, Sleep] | None = None
        self._mark = (0, 0)
        self._since = -_NEVER
        self._asked_at = -_NEVER
        self._asleep: set[str] = set()
        self._disturbed = False
        self.rests = False

    def disturb(self) -> None:
        """Something happened that no message tells: the next step wakes."""
        self._disturbed = True

    # -- a step begins ------------------------------------------------------------------------------------------
    def sleeps_on(self, messages: Messages, *, wanted: bool) -> bool:
        """Whether only late messages of going to sleep are to be answered. ``wanted``: there is a proposal."""
        return self.rests and not wanted and not self._disturbed and all(self._is_late(m) for _, m in messages)

    def answers(self, messages: Messages) -> Out:
        term, last = self._core.term(), self._journal.last
        out: Out = []
        for peer, message in messages:
            if isinstance(message, Append):
                out.append((peer, AppendAck(term, last + 1, True)))
            elif isinstance(message, Sleep):
                out.append((peer, Asleep(term, last)))
        return out

    def wake(self, messages: Messages, now: float, heard_at: float) -> float:
        """Everything begins anew. When the leader was last heard: ``heard_at``, unless it has rested as follower."""
        rested = self.rests
        self.rests = self._disturbed = False
        if not rested:
            return heard_at
        core = self._core
        self._mark = (0, 0)
        for peer in self._peers:
            if core.connected(peer):
                core.progressed(peer, None)
        if core.leads():
            return heard_at
        core.wait_longer()
        leader = core.leader()
        over = AskVotes | RequestVote | KeepsStill
        gone = any(peer == leader and isinstance(message, over) for peer, message in messages)
        if gone or leader is None or not core.connected(leader):
            return now - self._options.election_max
        return now

    # -- messages -----------------------------------------------------------------------------------------------
    def told(self, peer: str, message: Sleep) -> None:
        self._told = peer, message

    def sleeps(self, peer: str, answer: Asleep) -> None:
        if (answer.term, answer.last) == self._mark:
            self._asleep.add(peer)

    # -- a step ends --------------------------------------------------------------------------------------------
    def settle(self, *, idle: bool, now: float) -> Out:
        """``idle``: nothing waits, is written or is read here. What to send; afterwards it may rest."""
        told, self._told = self._told, None
        core, last = self._core, self._journal.last
        quiet = idle and core.committed() == core.applied() == last
        if core.leads():
            return self._propose_rest(quiet, (core.term(), last), now)
        if told is None or not quiet:
            return []
        peer, message = told
        if core.leader() != peer or (message.term, message.last) != (core.term(), last):
            return []
        self.rests = True
        return [(peer, Asleep(message.term, last))]

    def _propose_rest(self, quiet: bool, mark: tuple[int, int], now: float) -> Out:
        core = self._core
        heard = [peer for peer in self._peers if core.connected(peer)]
        quiet = quiet and 2 * (len(heard) + 1) > len(self._peers) + 1
        if mark != self._mark or not quiet or any(core.progress(peer).matched != mark[1] for peer in heard):
            self._mark, self._since, self._asleep = mark, now, set()
            return []
        if not heard or now - self._since < self._options.rest_after:
            return []
        if self._asleep.issuperset(heard):
            self.rests = True
            return []
        if now - self._asked_at < self._options.heartbeat:
            return []
        self._asked_at = now
        return [(peer, Sleep(*mark)) for peer in heard if peer not in self._asleep]

    def _is_late(self, message: Message) -> bool:
        term, last = self._core.term(), self._journal.last
        if isinstance(message, KeepsStill):
            return message.term < term  # another leads by now
        if self._core.leads():
            if isinstance(message, AppendAck):
                return message.accepted and (message.term, message.next_index) == (term, last + 1)
            return isinstance(message, Asleep) and (message.term, message.last) == (term, last)
        if isinstance(message, Append):
            same = (message.term, message.prev_index, message.commit) == (term, last, last)
            return same and not message.entries
        return isinstance(message, Sleep) and (message.term, message.last) == (term, last)
