"""The rules, one by one, against the log they are given."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from photon.idregistry.raft.codec import Append, AppendAck, AskVotes, WouldVote
from photon.idregistry.raft.options import RaftStopped
from photon.idregistry.raft.rules import (
    Accepted,
    Ballot,
    Canvass,
    LogView,
    Progress,
    Rejected,
    receive_ack,
    receive_append,
    would_vote,
)


def log(terms: list[int], *, first: int = 1, commit: int = 0) -> LogView:
    """Entries first, first + 1, … with these terms."""
    return LogView(first, first + len(terms) - 1, commit, lambda index: terms[index - first])


def append(prev: int, prev_term: int, terms: list[int], *, commit: int = 0, term: int = 9) -> Append:
    return Append(term, commit, prev, prev_term, [(t, b"\x00%d" % t) for t in terms])


OWN = log([1, 1, 2, 2], commit=2)


@pytest.mark.parametrize(
    ("message", "own", "verdict"),
    [
        pytest.param(
            append(3, 1, [2, 2], commit=4), log([1] * 3), Accepted(3, 1, [(2, b"\x002")] * 2, 5, 4), id="new"
        ),
        # The library would cut entries 3 and 4, which it has acknowledged.
        pytest.param(append(1, 1, [1], commit=2), log([1] * 4, commit=2), Accepted(4, 1, (), 2, 2), id="old"),
        pytest.param(
            append(2, 1, [], commit=4),
            log([1, 1, 7, 7], commit=1),
            Accepted(4, 7, (), 2, 2),
            id="as far as compared",
        ),
        pytest.param(
            append(1, 1, [1, 5, 5], commit=9),
            OWN,
            Accepted(2, 1, [(5, b"\x005")] * 2, 4, 4),
            id="a conflict cuts",
        ),
        pytest.param(append(9, 1, []), OWN, Rejected(3), id="rejected, with what is behind the commit index"),
        pytest.param(append(4, 8, []), OWN, Rejected(3), id="rejected, of another term"),
        pytest.param(
            append(2, 1, [1, 1, 1, 3], commit=6),
            log([1, 1], first=4, commit=4),
            Accepted(5, 1, [(3, b"\x003")], 6, 6),
            id="behind a snapshot",
        ),
        pytest.param(
            append(1, 1, [1], commit=2), log([1], first=4, commit=4), Accepted(4, 1, (), 2, 2), id="within a snapshot"
        ),
    ],
)
def test_what_becomes_of_a_message(message: Append, own: LogView, verdict: Accepted | Rejected) -> None:
    assert receive_append(message, own) == verdict


@pytest.mark.parametrize("message", [append(1, 1, [5]), append(2, 5, [])])
def test_a_conflict_with_a_committed_entry_stops(message: Append) -> None:
    with pytest.raises(RaftStopped, match="two histories"):
        receive_append(message, OWN)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_the_log_after_a_message_equals_the_leaders(data: st.DataObject) -> None:
    """Any leader's log, any follower's log that shares the committed part, any message cut out of the leader's."""
    common = sorted(data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=6)))
    leader = common + sorted(data.draw(st.lists(st.integers(4, 6), max_size=5)))
    follower = common + sorted(data.draw(st.lists(st.integers(4, 9), max_size=5)))
    if follower[len(common) :] and follower[-1] not in leader:  # equal terms mean equal entries (Raft's log matching)
        follower = common + [max(follower[len(common) :])] * len(follower[len(common) :])
        if follower[-1] in leader:
            follower = common
    elif follower[len(common) :]:
        follower = common
    first = data.draw(st.integers(1, len(common)))
    commit = data.draw(st.integers(first, len(common)))
    prev = data.draw(st.integers(1, len(leader)))
    end = data.draw(st.integers(prev, len(leader)))
    message = append(prev, leader[prev - 1], leader[prev:end], commit=data.draw(st.integers(0, len(leader))), term=20)
    verdict = receive_append(message, log(follower[first - 1 :], first=first, commit=commit))
    if isinstance(verdict, Rejected):
        assert verdict.next_index == commit + 1
        return
    after = follower
    if verdict.entries:
        after = follower[: verdict.prev_index] + [t for t, _ in verdict.entries]
    assert verdict.matched == end
    assert after[: verdict.matched] == leader[: verdict.matched]
    assert verdict.commit <= verdict.matched
    assert len(after) >= min(len(follower), commit)


@pytest.mark.parametrize(
    ("ack", "now", "then"),
    [
        (AppendAck(3, 7, True), Progress(5, 8), None),  # of another term
        (AppendAck(4, 11, True), Progress(5, 8), None),  # beyond the log
        (AppendAck(4, 4, True), Progress(5, 8), Progress(5, 8)),  # a success never moves back
        (AppendAck(4, 7, True), Progress(5, 8), Progress(6, 8)),
        (AppendAck(4, 10, True), Progress(5, 8), Progress(9, 10)),
        (AppendAck(4, 7, False), Progress(5, 9), Progress(5, 7)),
        (AppendAck(4, 2, False), Progress(5, 9), Progress(5, 6)),  # never below what is matched
    ],
)
def test_what_an_acknowledgement_says(ack: AppendAck, now: Progress, then: Progress | None) -> None:
    assert receive_ack(ack, now, term=4, last=9) == then


def test_each_voter_counts_once_a_term() -> None:
    ballot = Ballot()
    votes = (("b", 1, True), ("b", 1, False), ("c", 1, True), ("b", 2, True), ("b", 2, False))
    for voter, term, counts in votes:
        assert ballot.count(voter, term) == counts


@pytest.mark.parametrize(
    ("ask", "leads", "silence", "yes"),
    [
        (AskVotes(6, 9, 4), False, 0.5, True),
        (AskVotes(6, 8, 5), False, 0.5, True),  # a newer last term counts more than length
        (AskVotes(6, 8, 4), False, 0.5, False),  # it lacks entry 9
        (AskVotes(5, 9, 4), False, 0.5, False),  # that term is over
        (AskVotes(6, 9, 4), True, 0.5, False),
        (AskVotes(6, 9, 4), False, 0.3, False),  # the leader is there
    ],
)
def test_who_would_get_a_vote(ask: AskVotes, leads: bool, silence: float, yes: bool) -> None:
    assert would_vote(ask, term=5, last_index=9, last_term=4, leads=leads, silence=silence, patience=0.4) == yes


def test_a_canvass_needs_a_majority_of_different_voters_of_its_own_term() -> None:
    canvass = Canvass(5)
    canvass.begin(6)
    said_yes = WouldVote(6, 5, True)
    assert not canvass.count("b", said_yes, term=5)
    assert not canvass.count("b", said_yes, term=5)  # doubled
    assert not canvass.count("c", WouldVote(6, 5, False), term=5)
    assert not canvass.count("c", WouldVote(5, 5, True), term=5)  # of an earlier one
    assert not canvass.count("c", said_yes, term=6)  # the term has moved on
    assert canvass.count("d", said_yes, term=5)
    assert not canvass.count("e", said_yes, term=5)  # once
