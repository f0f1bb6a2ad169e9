"""Several connections to one state: who may commit what, and who takes over."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from photon.adapters.contract import LogFile
from photon.adapters.logs.api import LogPart, LogPosition
from photon.dispatcher import database, shared_state
from photon.dispatcher.database import lock_worker, read_ledger, share_state
from photon.dispatcher.errors import StateError, WorkerFenced
from photon.dispatcher.events import LATE, Export
from photon.dispatcher.leases import Decision
from photon.dispatcher.ledger import Verdict, cell
from photon.dispatcher.retry import SETTLED_NS
from photon.dispatcher.shared_state import SharedState
from photon.dispatcher.state import Changes, State
from photon.joiner.api import ForeignEvent
from tests.unit.dispatcher.world import StoredRow, stored

Joined = Callable[[str], SharedState]


def row(n: int, row_id: int = 0) -> StoredRow:
    event = ForeignEvent(b"id%d" % n, bytes([n]) * 16, 0, b"k", b"rec", LogFile("f"), n, 5)
    return StoredRow(event, 1000, 0, 10, SETTLED_NS, row_id)


def read(identity: str, offset: int, events: int = 1) -> Changes:
    cells = {cell(0, Verdict.READ): events, cell(0, Verdict.JOINED): events}
    return Changes(positions={identity: LogPosition(identity, "a.log", offset)}, cells=cells)


def fence(by: SharedState, *others: SharedState, take: tuple[str, ...] = ()) -> list[str]:
    beats = {worker.incarnation: worker.beat for worker in by.view().workers}
    granted = by.renew(0, Decision(tuple((each.owner, beats[each.owner]) for each in others), take))
    return [each.position.identity for each in granted]


def test_a_lease_passes_on_only_when_it_is_free(joined: Joined) -> None:
    one, two = joined("w1"), joined("w2")
    assert [g.position for g in one.renew(0, Decision(take=("a", "b")))] == [
        LogPosition("a", "", 0),
        LogPosition("b", "", 0),
    ]
    one.commit(read("a", 12))
    assert two.renew(0, Decision(take=("a", "c"))) != []
    assert two.view().owners == {"a": one.owner, "b": one.owner, "c": two.owner}
    with pytest.raises(WorkerFenced):
        two.commit(read("a", 24))  # not its own
    one.release(["a"])
    (granted,) = two.renew(0, Decision(take=("a",)))
    assert (granted.position, granted.high) == (LogPosition("a", "a.log", 12), 12)
    two.commit(read("a", 24))


def test_the_commit_of_one_that_was_taken_for_dead_is_refused_whole(joined: Joined) -> None:
    one, two = joined("w1"), joined("w2")
    one.renew(0, Decision(take=("a",)))
    one.commit(read("a", 12))
    assert fence(two, one, take=("a",)) == ["a"]
    before = read_ledger(one.path).total
    changes = read("a", 24)
    changes.stored = stored([row(1)])
    changes.exports.append(Export(LATE, b"x\n"))
    for late in (lambda: one.commit(changes), lambda: one.renew(0), lambda: one.release(["a"]), one.leave):
        with pytest.raises(WorkerFenced):
            late()
    assert read_ledger(one.path).total == before
    assert two.positions() == [LogPosition("a", "a.log", 12)]
    assert not one.outbox(1, "w1")
    one.close()
    again = joined("w1")  # another incarnation of the same name
    assert again.owner > two.owner
    two.commit(read("a", 24))


def test_a_beat_that_moved_on_is_not_fenced(joined: Joined) -> None:
    one, two = joined("w1"), joined("w2")
    one.renew(0, Decision(take=("a",)))
    seen = {worker.incarnation: worker.beat for worker in two.view().workers}
    one.renew(0)
    assert two.renew(0, Decision(((one.owner, seen[one.owner]),), ("a",))) == []
    one.commit(read("a", 12))


def test_rows_of_the_retry_store_are_their_workers_and_claimed_from_the_dead(joined: Joined) -> None:
    one, two = joined("w1"), joined("w2")
    one.commit(Changes(stored=stored([row(n) for n in range(3)])))
    assert len(one.due_ids(20, 9)) == 3
    assert two.due_ids(20, 9) == []
    assert not two.claim_retries()
    fence(two, one)
    assert two.claim_retries()
    assert len(two.due_ids(20, 9)) == 3
    assert not two.claim_retries()  # none is left, and the dead one is forgotten
    assert [worker.name for worker in two.view().workers] == ["w2"]
    with pytest.raises(WorkerFenced):
        one.commit(Changes(deleted=[1]))
    two.commit(Changes(deleted=[1]))
    two.refresh()
    assert two.retry_rows == 2
    three = joined("w3")
    assert three.retry_rows == 2
    with pytest.raises(WorkerFenced):
        three.commit(Changes(updated=stored([row(1, row_id=2)])))


def test_claims_are_bounded(joined: Joined, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_state, "CLAIMED_AT_ONCE", 2)
    alone = State(path)
    alone.commit(Changes(stored=stored([row(n) for n in range(5)])))
    alone.close()
    one = joined("w1")  # rows of a dispatcher that was alone are claimed as well
    assert [one.claim_retries() for _ in range(4)] == [True, True, True, False]
    assert len(one.due_ids(20, 9)) == 5


def test_a_dispatcher_that_is_alone_has_all_that_workers_had(joined: Joined) -> None:
    one = joined("w1")
    one.renew(0, Decision(take=("a",)))
    one.split(LogPosition("a", "a.log", 100), [LogPart("a@0", "a", 0, 100, 0)])
    changes = read("a", 120)
    changes.stored = stored([row(1)])
    changes.exports.append(Export(LATE, b"x\n"))
    one.commit(changes)
    with pytest.raises(StateError, match="in use by another dispatcher"):
        State(one.path)
    one.close()
    alone = State(one.path)
    assert len(alone.due_ids(20, 9)) == 1
    assert alone.parts() == [LogPart("a@0", "a", 0, 100, 0)]
    assert alone.highs() == {"a": 120, "a@0": 0}
    assert alone.outbox_of_others() == ["w1"]
    alone.commit(Changes(positions={"a@0": LogPosition("a@0", "a.log", 60)}))
    assert alone.parts() == [LogPart("a@0", "a", 0, 100, 60)]
    alone.commit(Changes(positions={"a@0": LogPosition("a@0", "a.log", 100)}))
    assert alone.parts() == []
    assert [position.offset for position in alone.positions()] == [120]
    with pytest.raises(StateError, match="does not share"):
        share_state(one.path, wait_s=0.0)
    alone.close()


def test_parts_are_leased_one_by_one(joined: Joined) -> None:
    one, two = joined("w1"), joined("w2")
    one.renew(0, Decision(take=("a",)))
    parts = [LogPart("a@0", "a", 0, 50, 0), LogPart("a@32", "a", 50, 100, 50)]
    one.split(LogPosition("a", "a.log", 100), parts)
    (granted,) = two.renew(0, Decision(take=("a@32",)))
    assert granted.part == parts[1]
    two.commit(Changes(positions={"a@32": LogPosition("a@32", "a.log", 70)}))
    with pytest.raises(WorkerFenced):
        one.commit(Changes(positions={"a@32": LogPosition("a@32", "a.log", 100)}))
    assert fence(one, two, take=("a@32",)) == ["a@32"]
    one.drop_parts(["a@32"])
    assert one.parts() == [parts[0]]


def test_a_name_is_one_process_the_last_one_frees_all_leases(joined: Joined, monkeypatch: pytest.MonkeyPatch) -> None:
    one = joined("w1")
    monkeypatch.setattr(shared_state, "NAME_WAIT_S", 0.05)
    with pytest.raises(StateError, match="has a worker w1 already"):
        joined("w1")
    one.renew(0, Decision(take=("a",)))
    assert lock_worker(one.path, "w1") is None
    two = joined("w2")
    one.leave()
    one.close()
    lock = lock_worker(two.path, "w1")
    assert lock is not None
    os.close(lock)
    assert two.renew(0, Decision(take=("a",))) != []


def test_the_first_one_in_knows_that_all_others_are_dead(joined: Joined) -> None:
    one = joined("w1")
    one.renew(0, Decision(take=("a",)))
    one.close()  # killed
    two = joined("w2")
    assert two.renew(0, Decision(take=("a",))) != []


def test_a_commit_that_may_wait_does_not_stand_in_line(joined: Joined) -> None:
    one, two = joined("w1"), joined("w2")
    assert one.ready()
    with database.Transaction(two._db, two.path):
        assert not one.ready()
    assert one.ready()


def test_a_network_file_system_is_refused(joined: Joined, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_state, "read_type", lambda directory: "nfs4")
    with pytest.raises(StateError, match=r"network file system \(nfs4\)"):
        joined("w1")
    State(path).close()  # alone as ever


def test_counts_of_all_workers_add_up(joined: Joined) -> None:
    one, two = joined("w1"), joined("w2")
    one.renew(0, Decision(take=("a",)))
    two.renew(0, Decision(take=("b",)))
    one.commit(read("a", 12, events=3))
    two.commit(read("b", 12, events=4))
    assert one.counts() == {Verdict.READ: 7, Verdict.JOINED: 7}
