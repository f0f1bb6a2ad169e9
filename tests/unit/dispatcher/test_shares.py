"""How fresh events and the backlog share the joiners."""

from __future__ import annotations

import pytest

from photon.dispatcher.limits import Limits
from photon.dispatcher.queues import CALM_S, SMALL_EVENTS, TRICKLE_EVENTS, Queues, Shares
from tests.unit.dispatcher.world import HOUR, StoredRow, block, core, opened
from tests.unit.joiner.helpers import event

BATCH = 1000


def shares(share: float = 0.05) -> Shares:
    return Shares(share, 16 * BATCH)


def test_with_nothing_fresh_they_get_everything() -> None:
    s = shares()
    assert s.allowance(0.0, BATCH, fresh_wait=False, in_flight=15 * BATCH) == BATCH
    s.sent_fresh(10, 5.0)
    assert s.allowance(5.0, BATCH, fresh_wait=False, in_flight=15 * BATCH) == 0
    assert s.allowance(5.0 + CALM_S, BATCH, fresh_wait=False, in_flight=15 * BATCH) == BATCH


def test_beside_fresh_traffic_they_get_small_batches_and_few_of_them() -> None:
    s = shares()
    s.sent_fresh(1, 0.0)
    in_flight = 0
    while (count := s.allowance(0.0, BATCH, fresh_wait=False, in_flight=in_flight)) > 0:
        assert count == SMALL_EVENTS
        in_flight += count
    assert in_flight == 2 * BATCH  # an eighth of the places
    assert s.allowance(0.0, 100, fresh_wait=False, in_flight=0) == 100  # where batches are smaller, so are these


@pytest.mark.parametrize("share", [0.02, 0.05, 0.5, 0.9])
def test_while_fresh_events_wait_they_get_their_share_of_the_work(share: float) -> None:
    s = shares(share)
    s.sent_fresh(1, 0.0)
    fresh = behind = 0
    for _ in range(20_000):
        if count := s.allowance(0.0, BATCH, fresh_wait=True, in_flight=0):
            s.sent_behind(count, 0.0, fresh_wait=True)
            behind += count
        else:
            s.sent_fresh(100, 0.0)
            fresh += 100
    assert behind / (fresh + behind) == pytest.approx(share, rel=0.05)


def test_where_little_is_sent_a_few_of_them_go_now_and_then() -> None:
    """Their share of the little that is sent would make a batch only after minutes."""
    s = shares()
    went = []
    for turn in range(100):
        now = turn / 10
        s.sent_fresh(1, now)
        if count := s.allowance(now, BATCH, fresh_wait=True, in_flight=0):
            s.sent_behind(count, now, fresh_wait=True)
            went.append((now, count))
    assert went == [(float(second), TRICKLE_EVENTS) for second in range(10)]


@pytest.mark.parametrize(("row_id", "batches"), [(0, 4), (1, 2)])
def test_a_row_of_the_retry_store_costs_three_fresh_events_of_their_share(row_id: int, batches: int) -> None:
    s = shares(0.5)
    s.sent_fresh(BATCH, 0.0)  # this much of the backlog may go
    table, rows = opened([StoredRow(event(b"id%d" % n, b"k"), 0, row_id=row_id and n + 1) for n in range(2 * BATCH)])
    table.behind[rows] = True
    queues = Queues(table, Limits(batch_wait_s=0.0), None, s)
    queues.take(rows, 0.0)
    went = [len(batch) for _ in range(10) if len(batch := queues.next_batch(0.0, flush=False))]
    assert went == [SMALL_EVENTS] * batches


@pytest.mark.parametrize(("hour", "behind"), [(1, True), (0, False), (10**5, False)])
def test_events_without_a_time_are_not_behind(hour: int, behind: bool) -> None:
    """Each would be, permanently: nothing says how old they are."""
    dispatcher = core(shares=shares())
    now_ns = (10**5 + 1) * HOUR
    for _ in dispatcher.intake.take(block(b"i k %d\n" % hour), now_ns - HOUR, 0.0):
        pass
    assert dispatcher._table.behind[0] == behind


def test_a_long_calm_gives_no_credit_for_a_flood() -> None:
    s = shares()
    for n in range(1000):
        s.sent_fresh(BATCH, n / 10)
    now, got = 100.0, 0
    while count := s.allowance(now, BATCH, fresh_wait=True, in_flight=0):
        s.sent_behind(count, now, fresh_wait=True)
        s.sent_fresh(1, now)
        got += count
    assert got <= 4 * SMALL_EVENTS


def test_a_share_of_one_makes_all_alike() -> None:
    assert shares(1.0).alike
    assert not shares(0.99).alike
    for wrong in (0.0, -0.1, 1.1):
        with pytest.raises(ValueError, match="share"):
            shares(wrong)
