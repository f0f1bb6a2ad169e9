"""Distribution of logs: even shares, nobody blamed wrongly, at rest nothing moves. Pure."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from photon.dispatcher.errors import WorkerFenced
from photon.dispatcher.leases import LOOKS_MIN, TAKEN_AT_ONCE, Decision, Leases, View, WorkerRow

LEASE_S = 10.0


class Table:
    """The shared state, without a database."""

    def __init__(self) -> None:
        self.rows: dict[int, WorkerRow] = {}
        self.owners: dict[str, int] = {}

    def join(self) -> int:
        number = len(self.rows) + 1
        self.rows[number] = WorkerRow(number, f"w{number}", 1)
        return number

    def view(self) -> View:
        return View(list(self.rows.values()), dict(self.owners))

    def apply(self, me: int, decision: Decision) -> None:
        """Like SharedState; a returned lease ends at once."""
        row = self.rows[me]
        self.rows[me] = WorkerRow(me, row.name, row.beat + 1)
        for other, beat in decision.fence:
            if self.rows[other].beat == beat:
                self.rows[other] = WorkerRow(other, self.rows[other].name, beat, fenced=True)
        for unit in decision.take:
            owner = self.owners.get(unit)
            if owner is None or self.rows[owner].fenced:
                self.owners[unit] = me
        for unit in decision.give:
            assert self.owners.pop(unit) == me


def two() -> tuple[Table, int, int, Leases]:
    """A table, its workers, and the first one's decision inputs."""
    table = Table()
    one, other = table.join(), table.join()
    return table, one, other, Leases(one, LEASE_S)


def rounds(table: Table, workers: dict[int, Leases], units: list[str], now: float, count: int) -> float:
    """Everybody decides ``count`` times, two seconds apart."""
    for _ in range(count):
        for me, leases in workers.items():
            table.apply(me, leases.decide(table.view(), units, now))
        now += 2.0
    return now


def shares(table: Table, workers: dict[int, Leases]) -> list[int]:
    return [sum(owner == me for owner in table.owners.values()) for me in workers]


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 6), st.integers(0, 40), st.integers(0, 3), st.integers(0, 3))
def test_shares_are_even_and_then_nothing_moves(workers: int, units: int, come: int, go: int) -> None:
    table = Table()
    names = [f"log{n}" for n in range(units)]
    those = {(me := table.join()): Leases(me, LEASE_S) for _ in range(workers)}
    now = rounds(table, those, names, 0.0, 4)
    for _ in range(come):
        me = table.join()
        those[me] = Leases(me, LEASE_S)
    now = rounds(table, those, names, now, 4)
    assert sum(shares(table, those)) == units
    assert max(shares(table, those)) - min(shares(table, those)) <= 1
    for me in list(those)[: min(go, len(those) - 1)]:  # they stand still from now on
        del those[me]
    now = rounds(table, those, names, now, 12)
    assert sum(shares(table, those)) == units
    assert max(shares(table, those)) - min(shares(table, those)) <= 1
    before = dict(table.owners)
    rounds(table, those, names, now, 5)
    assert table.owners == before


def test_a_log_more_moves_none_of_the_others() -> None:
    table = Table()
    those = {(me := table.join()): Leases(me, LEASE_S) for _ in range(3)}
    names = [f"log{n}" for n in range(10)]
    now = rounds(table, those, names, 0.0, 4)
    for n in range(10, 30):
        before = dict(table.owners)
        names.append(f"log{n}")
        now = rounds(table, those, names, now, 2)
        assert before.items() <= table.owners.items()
        assert len(table.owners) == n + 1


def test_who_beats_is_alive_however_long_ago_one_looked() -> None:
    table, _, other, leases = two()
    view = table.view()
    for now in range(0, 100, 20):  # longer than a lease between two looks
        table.rows[other] = WorkerRow(other, "w2", now + 2)
        assert not leases.decide(table.view(), [], float(now)).fence
    assert view.workers[1].beat == 1


def test_one_that_stood_still_itself_does_not_blame_the_others() -> None:
    table, _, other, leases = two()
    assert not leases.decide(table.view(), [], 0.0).fence
    for look in range(LOOKS_MIN - 1):  # it was stopped for an hour, and so was the other
        assert not leases.decide(table.view(), [], 3600.0 + look).fence
    assert leases.decide(table.view(), [], 3610.0).fence == ((other, 1),)


def test_a_worker_is_dead_only_after_a_whole_lease() -> None:
    table, _, other, leases = two()
    table.owners = {"a": other, "b": other}
    for now in (0.0, 2.0, 4.0, 6.0, 8.0, 9.9):
        assert not leases.decide(table.view(), ["a", "b"], now).fence
    decision = leases.decide(table.view(), ["a", "b"], 10.0)
    assert decision.fence == ((other, 1),)
    assert sorted(decision.take) == ["a", "b"]
    assert leases.living == 1


def test_a_beat_that_moved_on_meanwhile_is_no_dead_worker() -> None:
    table, one, other, _ = two()
    table.owners = {"a": other}
    table.rows[other] = WorkerRow(other, "w2", 7)
    table.apply(one, Decision(fence=((other, 1),), take=("a",)))
    assert not table.rows[other].fenced
    assert table.owners == {"a": other}


def test_who_was_fenced_learns_so() -> None:
    table = Table()
    me = table.join()
    table.rows[me] = WorkerRow(me, "w1", 5, fenced=True)
    for _ in range(2):
        with pytest.raises(WorkerFenced):
            Leases(me, LEASE_S).decide(table.view(), [], 0.0)
        table.rows.pop(me, None)  # and all of its leases are others' by now


def test_what_is_out_of_sight_is_given_back_and_nobody_takes_it() -> None:
    table = Table()
    me = table.join()
    table.owners = {"gone": me, "there": me}
    assert Leases(me, LEASE_S).decide(table.view(), ["there"], 0.0) == Decision(give=("gone",))


def test_a_huge_log_is_given_back_to_be_split_only_where_others_are() -> None:
    table = Table()
    me = table.join()
    table.owners = {"huge": me, "small": me}
    leases = Leases(me, LEASE_S)
    assert not leases.decide(table.view(), ["huge", "small"], 0.0, to_split=["huge"])
    table.join()
    assert leases.decide(table.view(), ["huge", "small"], 1.0, to_split=["huge"]).give == ("huge",)


def test_decisions_are_bounded() -> None:
    table = Table()
    me = table.join()
    names = [f"log{n}" for n in range(3 * TAKEN_AT_ONCE)]
    leases = Leases(me, LEASE_S)
    assert len(leases.decide(table.view(), names, 0.0).take) == TAKEN_AT_ONCE
    rounds(table, {me: leases}, names, 1.0, 4)
    assert len(table.owners) == len(names)


def test_workers_that_see_different_logs_leave_none_unread_and_seldom_move_any() -> None:
    table, one, other, _ = two()
    sights = {one: [f"old{n}" for n in range(6)], other: [f"new{n}" for n in range(6)]}
    those = {me: Leases(me, LEASE_S) for me in sights}
    moved, unread, now = 0, 0, 0.0
    for _ in range(200):
        before = dict(table.owners)
        for me, leases in those.items():
            table.apply(me, leases.decide(table.view(), sights[me], now))
        moved += len(before.items() - table.owners.items())
        now += 2.0
        unread += (12 - len(table.owners)) * (now > 60.0)
    assert moved <= 12
    assert unread <= 170 * 12 * 0.1  # each log is read nearly all the time
    both = [*sights[one], *sights[other]]  # they agree at last
    rounds(table, those, both, now, 200)
    assert shares(table, those) == [6, 6]
