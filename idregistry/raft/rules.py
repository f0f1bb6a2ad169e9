"""Pure rules that correct how pysyncobj handles messages: no sockets, files, clock or library.

Each rule's docstring names the defect it corrects (``docs/idregistry.md`` has the table).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from photon.idregistry.raft.codec import Append, AppendAck, AskVotes, WouldVote
from photon.idregistry.raft.options import RaftStopped


@dataclass(frozen=True, slots=True)
class LogView:
    """A follower's log: it has entries first … last, and knows that 1 … commit are committed."""

    first: int
    last: int
    commit: int
    term_at: Callable[[int], int]  # the term of an index in [first, last]


@dataclass(frozen=True, slots=True)
class Accepted:
    """The library may append ``entries`` after ``prev_index``; they are empty if there is nothing new.

    The log then equals the leader's up to ``matched``, and is committed up to ``commit``.
    """

    prev_index: int
    prev_term: int
    entries: Sequence[tuple[int, bytes]]
    matched: int
    commit: int


@dataclass(frozen=True, slots=True)
class Rejected:
    """The message was rejected: the leader must send entries from ``next_index`` on."""

    next_index: int


def receive_append(message: Append, log: LogView) -> Accepted | Rejected:
    """Normalises an append message of the current term.

    Defects corrected: the library cuts its log on any message whose prev_index is below the log's end, even if terms
    agree (so a late or duplicate message removes acknowledged entries); it commits up to the leader's commit index
    even if its own tail was not compared; a rejected follower can live-lock with its leader. Here the library gets
    only entries that are new or conflict, the commit index is capped at the compared part, and a rejection names
    commit + 1, which always matches.

    Raises RaftStopped if a committed entry differs from the leader's: there are two histories, which must be
    reported.
    """
    prev, end = message.prev_index, message.prev_index + len(message.entries)
    if prev > log.last:
        return Rejected(log.commit + 1)
    if prev >= log.first and log.term_at(prev) != message.prev_term:
        _not_committed(prev, log)
        return Rejected(log.commit + 1)
    index = max(prev + 1, log.first)  # entries before the first went into a snapshot: committed, so equal
    while index <= end and index <= log.last:
        if log.term_at(index) != message.entries[index - prev - 1][0]:
            _not_committed(index, log)
            break
        index += 1
    commit = min(message.commit, end)
    if index > end:
        return Accepted(log.last, log.term_at(log.last), (), end, commit)
    return Accepted(index - 1, log.term_at(index - 1), message.entries[index - prev - 1 :], end, commit)


def _not_committed(index: int, log: LogView) -> None:
    if index <= log.commit:
        raise RaftStopped(
            f"entry {index} differs from the leader's, but is committed here (up to {log.commit}): "
            f"two histories of one group; stop its replicas and compare their disks"
        )


@dataclass(frozen=True, slots=True)
class Progress:
    """A follower's progress, as far as its leader knows."""

    matched: int
    next_index: int


def receive_ack(ack: AppendAck, progress: Progress, *, term: int, last: int) -> Progress | None:
    """Returns a follower's progress after an acknowledgement; ``None`` if the acknowledgement is outdated.

    Defects corrected: in the library acknowledgements carry no term, so a delayed one of an older term counts for
    entries that the follower never saw; a success can move next_index back, so that entries are sent again and again.
    """
    if ack.term != term or ack.next_index > last + 1:
        return None
    if ack.accepted:
        return Progress(max(progress.matched, ack.next_index - 1), max(progress.next_index, ack.next_index))
    return Progress(progress.matched, max(progress.matched + 1, ack.next_index))


class Ballot:
    """Counts the votes of one term, one per voter. The library would count a duplicate message as a second vote."""

    def __init__(self) -> None:
        self._term = 0
        self._voters: set[str] = set()

    def count(self, voter: str, term: int) -> bool:
        """True if this vote is the voter's first in the term."""
        if term != self._term:
            self._term = term
            self._voters = set()
        if voter in self._voters:
            return False
        self._voters.add(voter)
        return True


class Canvass:
    """Counts pre-votes, so that a replica that was cut off from the leader does not disturb it when it returns.

    Defect corrected: a replica of the library that misses its leader raises its term at once; when it is heard again,
    all follow that term, and a healthy leader is lost.
    """

    def __init__(self, replicas: int) -> None:
        """``replicas``: number of replicas in the group, including this one."""
        self._needed = replicas // 2 + 1
        self._term = 0
        self._ballot = Ballot()
        self._yes = 0

    def begin(self, term: int) -> None:
        """Starts a new count for an election in ``term``, with this replica's own vote."""
        self._term, self._ballot, self._yes = term, Ballot(), 1

    def count(self, voter: str, answer: WouldVote, *, term: int) -> bool:
        """True if this answer completes a majority. ``term``: the present term; the canvass is for the next."""
        if self._term != term + 1 or answer.asked != self._term or not answer.yes:
            return False
        if not self._ballot.count(voter, self._term):
            return False
        self._yes += 1
        if self._yes < self._needed:
            return False
        self._term = 0
        return True


def would_vote(
    message: AskVotes, *, term: int, last_index: int, last_term: int, leads: bool, silence: float, patience: float
) -> bool:
    """True if this replica would vote for the asker: the asker's log is at least as up to date, and this replica
    does not lead and has heard no leader for ``patience`` seconds.
    """
    complete = (message.last_term, message.last_index) >= (last_term, last_index)
    return message.term > term and complete and not leads and silence >= patience
