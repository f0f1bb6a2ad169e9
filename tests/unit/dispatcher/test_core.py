"""The core's rules, one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from photon.adapters.contract import LogFile
from photon.adapters.logs.api import OversizedRecord
from photon.batch.events import Events
from photon.config.clock import NEVER_NS
from photon.dispatcher.committing import HELD_LONG
from photon.dispatcher.core import Core
from photon.dispatcher.events import Batch, Retimed
from photon.dispatcher.ledger import Verdict, split_cell
from photon.dispatcher.limits import Limits
from photon.dispatcher.retry import COMPLETE_NS, SETTLED_NS, Patience
from photon.dispatcher.state import Changes
from photon.idregistry.api import Kind
from photon.joiner.api import WAIT_NS, ForeignEvent, Outcome
from tests.unit.dispatcher.world import HERE, HOUR, Held, block, core, stored_rows, take
from tests.unit.joiner.told import TakenBy, answers_of

S = 1_000_000_000
LIVE = Patience(unmatched_after_ns=3600 * S)


def lines(*words: str) -> bytes:
    return b"".join(f"{word} k 1\n".encode() for word in words)


def having(*words: str, now_ns: int = 0, **of_core: Any) -> Core:
    """A core that has read these."""
    c = core(**of_core)
    take(c, block(lines(*words)), now_ns=now_ns)
    return c


def batch_of(c: Core, now: float = 0.0, *, flush: bool = True) -> Batch:
    batch = c.next_batch(now, flush=flush)
    assert batch is not None
    return batch


def ids(batch: Batch) -> list[bytes]:
    return list(batch.events.ids)


def reply(c: Core, batch: Batch, *outcomes: Outcome, now: float = 0.0, **more: object) -> None:
    c.answered(batch, answers_of(list(outcomes), **more), int(now * S), now)  # type: ignore[arg-type]


def counts(changes: Changes) -> dict[str, int]:
    found: dict[str, int] = {}
    for number, count in changes.cells.items():
        name = split_cell(number)[1].name.lower()
        found[name] = found.get(name, 0) + count
    return {name: n for name, n in found.items() if n}


def test_events_of_ambiguous_keys_are_counted_apart_once_they_have_a_verdict() -> None:
    c = having("a", "b", "c", "d")
    batch = batch_of(c)
    outcomes = (Outcome.JOINED, Outcome.REJECTED, Outcome.RETRY, Outcome.JOINED)
    reply(c, batch, *outcomes, ambiguous=[0, 1, 2])
    reply(c, batch_of(c, 100.0), Outcome.JOINED, now=100.0, ambiguous=[0])
    assert counts(c.committing.changes(0, 100.0)) == {"read": 4, "joined": 3, "rejected": 1, "ambiguous": 3}


def test_events_out_of_bounds_are_counted_apart_once_they_are_unmatched() -> None:
    c = having("a", "b", "c")
    batch = batch_of(c)
    reply(c, batch, Outcome.UNMATCHED, Outcome.UNMATCHED, Outcome.RETRY, unpaired=[1, 2])
    reply(c, batch_of(c, 100.0), Outcome.UNMATCHED, now=100.0, unpaired=[0])
    assert counts(c.committing.changes(0, 100.0)) == {"read": 3, "unmatched": 3, "unpaired": 2}


def test_the_offset_waits_for_the_slowest_event_of_its_stretch() -> None:
    c = having("a", "b", "c", limits=Limits(batch_events=2))
    first, second = batch_of(c), batch_of(c)
    assert (ids(first), ids(second)) == ([b"a", b"b"], [b"c"])
    reply(c, second, Outcome.JOINED)
    assert not c.committing.changes(0, 0.0)
    reply(c, first, Outcome.JOINED, Outcome.UNMATCHED)
    changes = c.committing.changes(0, 0.0)
    assert changes.positions["log1"].offset == 18
    assert counts(changes) == {"read": 3, "joined": 2, "unmatched": 1}
    assert (c.logs.window_bytes, c.waiting.open) == (0, 0)


def test_a_later_stretch_does_not_overtake() -> None:
    c = having("a")
    take(c, block(lines("b"), 6))
    batch = batch_of(c)
    assert ids(batch) == [b"a", b"b"]
    reply(c, batch, Outcome.RETRY, Outcome.JOINED)
    assert not c.committing.changes(0, 0.0)
    take(c, block(lines("z"), identity="log2"))
    other = batch_of(c)
    reply(c, other, Outcome.JOINED)
    changes = c.committing.changes(0, 0.0)
    assert set(changes.positions) == {"log2"}
    assert counts(changes) == {"read": 1, "joined": 1}


def test_a_block_that_is_still_being_parsed_is_not_committed() -> None:
    c = core(limits=Limits(parse_records=1))
    steps = iter(c.intake.take(block(lines("a", "b")), 0, 0.0))
    next(steps)
    reply(c, batch_of(c), Outcome.JOINED)
    assert not c.committing.changes(0, 0.0, store_all=True)
    assert list(steps) == [None]
    reply(c, batch_of(c), Outcome.JOINED)
    assert counts(c.committing.changes(0, 0.0)) == {"read": 2, "joined": 2}


def test_fresh_events_wait_for_others_while_batches_are_on_their_way() -> None:
    c = core(limits=Limits(batch_events=3))
    take(c, block(lines("a")), now=100.0)
    assert c.next_batch(100.0, flush=True, wait_s=0.25) is None
    assert (c.next_due(0.25), c.waiting.room.next_due()) == (100.25, None)
    take(c, block(lines("b"), offset=len(lines("a"))), now=100.125)
    batch = c.next_batch(100.25, flush=True, wait_s=0.25)
    assert batch is not None
    assert ids(batch) == [b"a", b"b"]
    assert c.next_due(0.25) is None


def test_batches_fill_up_for_a_moment() -> None:
    c = core(limits=Limits(batch_events=2, batch_wait_s=0.005))
    take(c, block(lines("a", "b", "c")), now=1.0)
    assert ids(batch_of(c, 1.0, flush=False)) == [b"a", b"b"]
    assert c.next_batch(1.001, flush=False) is None
    assert ids(batch_of(c, 1.1, flush=False)) == [b"c"]


def test_batches_are_bounded_in_bytes() -> None:
    c = having("a", "b", "c", limits=Limits(batch_bytes=14))
    assert [len(batch_of(c)) for _ in range(2)] == [2, 1]
    one = core(limits=Limits(batch_bytes=1))
    take(one, block(lines("a", "b")))
    assert len(batch_of(one)) == 1


@pytest.mark.parametrize(
    ("by", "found"),
    [
        (TakenBy("there", Kind.JOINED, False), {"elsewhere": 1, "wasted": 1}),
        (TakenBy(HERE, Kind.JOINED, False), {"duplicate": 1}),  # another line
        *[(TakenBy(HERE, kind, True), {kind.name.lower(): 1}) for kind in Kind],  # this very line, before a crash
    ],
)
def test_what_is_taken_counts_as_what_its_owner_made_of_it(by: TakenBy, found: dict[str, int]) -> None:
    c = having("a")
    reply(c, batch_of(c), Outcome.TAKEN, taken={0: by})
    assert counts(c.committing.changes(0, 0.0)) == {"read": 1} | found


def test_an_id_registered_with_another_time_is_counted_and_told() -> None:
    c = having("a", "b", "c", uncertainty_ns=HOUR)
    batch = batch_of(c)
    time_ns = int(batch.events.times[0])
    by = [TakenBy("there", Kind.JOINED, False, time_ns + n * HOUR, 7) for n in (-2, 1, 0)]
    reply(c, batch, *[Outcome.TAKEN] * 3, taken=dict(enumerate(by)))
    assert c.counting.live[Verdict.RETIMED] == 1, "the others are not further apart than clocks may be"
    assert c.counting.retimed == Retimed(b"a", "a.log", 0, time_ns, time_ns - 2 * HOUR, "there", Kind.JOINED, 7)
    assert counts(c.committing.changes(0, 0.0)) == {"read": 3, "elsewhere": 3, "wasted": 3, "retimed": 1}


def test_a_line_that_was_counted_before_is_a_reread() -> None:
    c = core()
    for _ in range(2):
        take(c, block(lines("a", "b")))
        batch = batch_of(c)
        mine = TakenBy(HERE, Kind.JOINED, True)
        reply(c, batch, Outcome.TAKEN, Outcome.JOINED, taken={0: mine})
        last = c.committing.changes(0, 0.0)
    assert counts(last) == {"read": 1, "joined": 1, "reread": 1}


def test_what_a_log_has_from_the_one_that_it_begins_like_was_counted_there() -> None:
    c = core()
    mine = TakenBy(HERE, Kind.JOINED, True)
    take(c, block(lines("a", "b"), identity="log1"))
    reply(c, batch_of(c), Outcome.JOINED, Outcome.JOINED)
    c.committing.changes(0, 0.0)
    take(c, block(lines("a", "c"), identity="log1~1"))
    reply(c, batch_of(c), Outcome.TAKEN, Outcome.JOINED, taken={0: mine})
    assert counts(c.committing.changes(0, 0.0)) == {"read": 1, "joined": 1, "reread": 1}


@pytest.mark.parametrize(
    ("words", "outcomes", "more"),
    [
        pytest.param("a", [Outcome.TAKEN], {}, id="taken without an owner"),
        pytest.param("ab", [Outcome.JOINED], {}, id="too few"),
        pytest.param(
            "ab",
            [Outcome.JOINED, Outcome.JOINED, Outcome.TAKEN],
            {"taken": {2: TakenBy("there", Kind.JOINED, False)}, "ambiguous": [2]},
            id="too many",
        ),
    ],
)
def test_an_answer_that_does_not_fit_the_batch_is_no_answer(
    words: str, outcomes: list[Outcome], more: dict[str, Any]
) -> None:
    c = having(*words)
    reply(c, batch_of(c), *outcomes, **more)
    assert (c.waiting.open, +c.counting.live) == (len(words), {Verdict.READ: len(words)})
    assert not c.committing.changes(0, 0.0)
    assert ids(batch_of(c, 100.0)) == [word.encode() for word in words]


def test_the_line_of_a_late_event_weighs_until_its_stretch_is_written() -> None:
    c = having("a", "b")
    before = c.logs.window_bytes
    reply(c, batch_of(c), Outcome.LATE, Outcome.RETRY)
    late = c.logs.window_bytes - before
    reply(c, batch_of(c, 100.0), Outcome.JOINED, now=100.0)
    assert late == sum(len(export.line) for export in c.committing.changes(0, 100.0).exports) > 0
    assert c.logs.window_bytes == 0


def test_late_and_unreadable_leave_a_line_with_their_place() -> None:
    c = core()
    what = replace(block(b"a k 1\nbad\n"), end=5000, oversized=(OversizedRecord(10, 4000, b"xxx"),))
    take(c, what)
    reply(c, batch_of(c), Outcome.LATE)
    changes = c.committing.changes(0, 0.0)
    assert counts(changes) == {"read": 3, "late": 1, "rejected": 2}
    assert changes.positions["log1"].offset == 5000
    by_log = sorted((e.log, e.line) for e in changes.exports)
    assert [log for log, _ in by_log] == ["late", "rejected", "rejected"]
    assert b'"record":"a k 1"' in by_log[0][1]
    assert b'"offset":0' in by_log[0][1]
    assert any(b"4000 bytes long" in line and b'"offset":10' in line for _, line in by_log)
    assert any(
        b"1 words" in line and b'"record":"bad","source":{"file":"a.log","offset":6}' in line for _, line in by_log
    )


def test_held_events_go_to_the_store_after_a_while() -> None:
    c = having("a", "b", limits=Limits(hold_s=5.0), patience=LIVE, now_ns=9 * S)
    reply(c, batch_of(c), Outcome.JOINED, Outcome.NOT_YET)
    assert not c.committing.changes(0, 4.9)
    changes = c.committing.changes(0, 5.0)
    assert counts(changes) == {"read": 2, "joined": 1}
    [row] = stored_rows(changes.stored)
    assert (row.event.event_id, row.first_read_ns, row.attempts) == (b"b", 9 * S, 1)
    assert c.waiting.open == 0
    assert c.waiting.room.next_due() is None or c.next_batch(999.0, flush=True) is None


def test_a_full_window_goes_to_the_store_at_once_and_a_full_store_stops_reading() -> None:
    c = having("a", "b", limits=Limits(window_bytes=1000, hold_bytes=500, retry_store_bytes=100), patience=LIVE)
    reply(c, batch_of(c), Outcome.NOT_YET, Outcome.NOT_YET)
    assert len(c.committing.changes(0, 0.0).stored) == 2
    take(c, block(lines("c", "d", "e"), 12))
    assert not c.intake.room()
    reply(c, batch_of(c), *[Outcome.NOT_YET] * 3)
    assert not c.committing.changes(0, 9.0)  # the store is full: back-pressure
    assert not c.intake.room()


def test_no_more_stretches_go_to_the_store_at_a_time_than_have_its_rows() -> None:
    c = having("a", "b", limits=Limits(hold_s=1.0, new_rows=2), patience=LIVE)
    take(c, block(lines("c"), 12))
    take(c, block(lines("d"), 18))
    reply(c, batch_of(c), *[Outcome.NOT_YET] * 4)
    assert len(c.committing.changes(0, HELD_LONG).stored) == 2
    c.committing.committed()
    assert len(c.committing.changes(0, HELD_LONG).stored) == 2


def test_with_once_reading_pauses_before_anything_is_stored() -> None:
    c = having("a", "b", "c", limits=Limits(window_bytes=1000, hold_bytes=500, hold_s=1.0, hold_once_s=60.0))
    reply(c, batch_of(c), *[Outcome.NOT_YET] * 3)
    assert not c.intake.room()
    assert not c.committing.changes(0, 59.0)
    assert len(c.committing.changes(0, 60.0).stored) == 3
    assert c.intake.room()


def test_an_event_on_its_way_may_become_a_row_and_is_answered_as_one() -> None:
    c = having("a", "b", "c", limits=Limits(hold_s=1.0, batch_events=2), patience=LIVE)
    batch = batch_of(c)
    reply(c, batch_of(c), Outcome.NOT_YET)
    assert not c.committing.changes(0, HELD_LONG - 0.1)  # an event in flight is worth waiting for
    changes = c.committing.changes(0, HELD_LONG)
    changes.stored.row_ids[:] = range(1, 4)
    c.committing.committed()
    assert c.waiting.loaded.without([1, 2, 3]) == [3]  # it waits in the store
    assert c.waiting.open == 2
    reply(c, batch, Outcome.JOINED, Outcome.NOT_YET)
    assert c.waiting.open == 0
    changes = c.committing.changes(0, 2.0)
    assert changes.deleted == [1]
    assert changes.updated.row_ids.tolist() == [2]
    assert counts(changes) == {"joined": 1}
    assert c.waiting.loaded.without([1, 2]) == [1, 2]


def waiting_item(c: Core, outcome: Outcome, *, first_read_ns: int = 50, now: float = 0.0) -> Held:
    take(c, block(lines("a")), now_ns=first_read_ns)
    batch = batch_of(c)
    reply(c, batch, outcome, now=now)
    return Held(c, batch.rows[0])


def test_not_yet_is_tried_again_as_soon_as_the_primary_logs_are_read_past_it() -> None:
    c = core(patience=Patience(unmatched_after_ns=100, slack_ns=7))
    c.waiting.progressed(10)
    item = waiting_item(c, Outcome.NOT_YET)
    assert (item.trigger_ns, item.as_of) == (50, WAIT_NS)
    c.waiting.progressed(49)
    assert c.next_batch(0.0, flush=True) is None
    c.waiting.progressed(50)
    batch = batch_of(c)
    assert ids(batch) == [b"a"]
    reply(c, batch, Outcome.NOT_YET)
    assert item.trigger_ns == 157
    c.waiting.progressed(157)
    batch = batch_of(c)
    assert item.as_of == 157
    reply(c, batch, Outcome.UNMATCHED)
    assert counts(c.committing.changes(0, 0.0)) == {"read": 1, "unmatched": 1}


def test_progress_made_during_the_attempt_counts() -> None:
    c = having("a", patience=Patience(unmatched_after_ns=100), now_ns=50)
    batch = batch_of(c)
    c.waiting.progressed(60)
    reply(c, batch, Outcome.NOT_YET)
    assert ids(batch_of(c)) == [b"a"]


def test_back_off_grows_and_is_random() -> None:
    c = core()
    item = waiting_item(c, Outcome.RETRY)
    assert 0 < c.waiting.room.next_due() <= 0.1
    dues = []
    now = 0.0
    for _ in range(12):
        now = c.waiting.room.next_due() or 0.0
        reply(c, batch_of(c, now), Outcome.RETRY, now=now)
        dues.append((c.waiting.room.next_due() or 0.0) - now)
    assert item.attempts == 13
    assert max(dues) > 1.0
    assert max(dues) <= 10.0
    assert len(set(dues)) == len(dues)


def test_overload_is_no_attempt() -> None:
    c = having("a")
    batch = batch_of(c)
    reply(c, batch, Outcome.RETRY, overloaded=True)
    assert Held(c, batch.rows[0]).attempts == 0


def test_an_event_of_the_future_is_parked_until_then() -> None:
    c = core(patience=Patience(unmatched_after_ns=1))
    take(c, block(b"a k 2\n"))  # two hours after the epoch
    reply(c, batch_of(c), Outcome.TOO_NEW, now=7195.0)
    assert c.waiting.room.next_due() == pytest.approx(7200.0)


def test_keep_pending_settles_when_the_primary_logs_are_complete() -> None:
    c = having("a", patience=Patience(once=True, keep_pending=True), now_ns=50)
    batch = batch_of(c)
    assert batch.events.as_of.tolist() == [WAIT_NS]
    c.waiting.progressed(60)
    reply(c, batch, Outcome.NOT_YET)
    reply(c, batch_of(c), Outcome.NOT_YET)
    assert Held(c, batch.rows[0]).trigger_ns == COMPLETE_NS
    assert c.waiting.open == 1
    c.waiting.progressed(NEVER_NS)
    reply(c, batch_of(c), Outcome.NOT_YET)
    assert c.waiting.open == 0
    assert c.next_batch(1e9, flush=True) is None
    [row] = stored_rows(c.committing.changes(0, 0.0).stored)  # at once: it waits for the next run
    assert (row.next_try_ns, row.trigger_ns) == (SETTLED_NS, SETTLED_NS)


def test_without_keep_pending_not_yet_is_never_the_last_word() -> None:
    c = core(patience=Patience(once=True))
    c.waiting.progressed(NEVER_NS)
    item = waiting_item(c, Outcome.NOT_YET)  # the store started again in this moment
    assert item.as_of == NEVER_NS
    assert c.waiting.open == 1
    assert c.waiting.room.next_due() is not None


def test_retries_and_news_take_turns() -> None:
    c = having("a", "b", limits=Limits(batch_events=1))
    for _ in range(2):
        reply(c, batch_of(c), Outcome.RETRY)
    take(c, block(lines("c", "d"), 12))
    order = b"".join(ids(batch_of(c, 100.0))[0] for _ in range(4))
    assert sorted(order) == [97, 98, 99, 100]
    assert {order[0:1], order[2:3]} in ({b"a", b"b"}, {b"c", b"d"})


def test_a_log_that_was_put_back_counts_new_verdicts_and_moves_back() -> None:
    c = having("a", "b", "c")
    reply(c, batch_of(c), *[Outcome.JOINED] * 3)
    c.committing.changes(0, 0.0)
    take(c, block(lines("x")))  # rewritten from its start
    reply(c, batch_of(c), Outcome.JOINED)
    changes = c.committing.changes(0, 0.0)
    assert changes.positions["log1"].offset == 6
    assert counts(changes) == {"read": 1, "joined": 1}


def test_oldest_first_read() -> None:
    c = core()
    assert c.logs.oldest_first_read_ns() is None
    take(c, block(lines("a")), now_ns=5)
    take(c, block(lines("b"), identity="log2"), now_ns=3)
    assert c.logs.oldest_first_read_ns() == 3


def test_what_was_read_before_and_waits_for_the_next_run_is_not_kept() -> None:
    c = core(patience=Patience(once=True, keep_pending=True))
    c.waiting.progressed(NEVER_NS)
    events = Events.of([ForeignEvent(b"a", b"a" * 16, 0, b"k", b"x", LogFile("f"), 0, 0)])
    stretch = c.intake.redispatch(events, 0, 0.0)
    reply(c, batch_of(c), Outcome.NOT_YET)
    assert (c.waiting.open, len(c._table), stretch.left) == (0, 0, 1)


def test_only_what_was_joined_counts_in_the_times_of_joins() -> None:
    c = core()
    for name, read_h, event_h in (("a", 99, 90), ("b", 50, 40), ("c", 98, 60)):
        take(c, block(b"%b k %d\n" % (name.encode(), event_h), identity=name), now_ns=read_h * HOUR)
    reply(c, batch_of(c), Outcome.JOINED, Outcome.RETRY, Outcome.JOINED, now=100 * 3600.0)
    assert (c.counting.times.since_read.count, c.counting.times.since_read.sum_s) == (2, 3 * 3600.0)
    assert (c.counting.times.since_event.count, c.counting.times.since_event.sum_s) == (2, 50 * 3600.0)
    reply(c, batch_of(c, 1e6), Outcome.RETRY, now=1e6)
    assert c.counting.times.since_read.count == 2


def test_what_comes_soon_after_a_batch_goes_together() -> None:
    c = having("a", patience=LIVE, limits=Limits(gather_s=0.04))
    batch = batch_of(c, 1.0)
    c.answered(batch, answers_of([Outcome.NOT_YET]), 0, 1.01)
    c.waiting.arrived([b"k"])
    take(c, block(lines("b"), 6))
    assert c.next_batch(1.02, flush=True, wait_s=0.0) is None
    assert c.next_due(0.0) == pytest.approx(1.04)
    assert sorted(ids(batch_of(c, 1.04))) == [b"a", b"b"]


def test_a_full_batch_waits_for_nothing() -> None:
    c = having("a", limits=Limits(gather_s=60.0, batch_events=2))
    assert ids(batch_of(c, 1.0)) == [b"a"]
    take(c, block(lines("b", "c"), 6))
    assert ids(batch_of(c, 1.0)) == [b"b", b"c"]
