"""Asks before standing for election, so that a replica that cannot win does not disturb others (Raft's pre-vote)."""

from __future__ import annotations

from collections.abc import Sequence

from photon.idregistry.raft import rules
from photon.idregistry.raft.codec import AskVotes, Message, WouldVote
from photon.idregistry.raft.driver import Core
from photon.idregistry.raft.journal import Journal
from photon.idregistry.raft.options import RaftOptions

_NEVER = float("inf")


class Canvassing:
    """Runs the pre-vote of one group on one replica. Call all methods inside ``library_time``."""

    def __init__(self, core: Core, journal: Journal, peers: Sequence[str], options: RaftOptions) -> None:
        self._core = core
        self._journal = journal
        self._peers = peers
        self._options = options
        self._canvass = rules.Canvass(len(peers) + 1)

    def begin(self, now: float) -> list[tuple[str, Message]]:
        """Returns pre-vote requests to all peers, if this replica has heard no leader for long enough to stand."""
        core = self._core
        if core.leads() or not self._peers or not _NEVER > now - core.deadline() > 0:
            return []
        core.wait_longer()
        last = self._journal.last
        self._canvass.begin(core.term() + 1)
        ask = AskVotes(core.term() + 1, last, self._journal.term_at(last))
        return [(peer, ask) for peer in self._peers]

    def asked(self, message: AskVotes, *, silence: float) -> WouldVote:
        """Answers a peer's AskVotes: whether this replica would vote for it.

        ``silence``: seconds since this replica heard its leader.
        """
        core = self._core
        if message.term - 1 > core.term():
            core.learn(message.term - 1)
        last = self._journal.last
        yes = rules.would_vote(
            message,
            term=core.term(),
            last_index=last,
            last_term=self._journal.term_at(last),
            leads=core.leads(),
            silence=silence,
            patience=self._options.election_min,
        )
        return WouldVote(message.term, core.term(), yes)

    def answered(self, peer: str, answer: WouldVote) -> None:
        """Counts a peer's answer; stands for election once a majority would vote for this replica."""
        core = self._core
        if answer.term > core.term():
            core.learn(answer.term)
        elif not core.leads() and self._canvass.count(peer, answer, term=core.term()):
            core.stand()
