"""Stops heartbeats and timers of idle groups until something happens, so that they cost nothing.

When everything in a group has been committed on all replicas for a while, its leader tells its followers to sleep
(``Sleep``); once all connected followers have answered (``Asleep``), the leader rests, too. From then on only the
leader's process must be alive: replicas hear from each other once a second, regardless of the groups they share,
and a peer that falls silent, or comes back, wakes all groups. So does any message that is not part of going to sleep,
and any proposal.

This only affects when messages are sent and awaited: votes, terms and logs do not change. If a sleeping follower's
leader no longer leads, the replica that requests its vote wakes it. A leader whose disk is full is alive but no
longer leads: it announces this (``KeepsStill``), since sleeping followers would wait for it as long as its process
lives.
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
    """Puts one group to rest and wakes it. Call all methods inside ``library_time``."""

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
        """Makes the next step wake the group, after an event that no message reports."""
        self._disturbed = True

    # -- a step begins ------------------------------------------------------------------------------------------
    def sleeps_on(self, messages: Messages, *, wanted: bool) -> bool:
        """True if the group keeps resting, since ``messages`` are only late ones from before it rested.

        ``wanted``: there is a proposal, so that the group must wake.
        """
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
        """Ends the group's rest: starts heartbeats and timers again.

        Returns when the leader was last heard: ``heard_at``, unless the group rested as a follower.
        """
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
        """Decides at the end of a step whether the group may rest; returns the messages to send.

        ``idle``: nothing is waiting, being written or being read here.
        """
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
            return message.term < term  # another replica leads by now
        if self._core.leads():
            if isinstance(message, AppendAck):
                return message.accepted and (message.term, message.next_index) == (term, last + 1)
            return isinstance(message, Asleep) and (message.term, message.last) == (term, last)
        if isinstance(message, Append):
            same = (message.term, message.prev_index, message.commit) == (term, last, last)
            return same and not message.entries
        return isinstance(message, Sleep) and (message.term, message.last) == (term, last)
