"""The oldest events without a verdict, and why they wait."""

from __future__ import annotations

from collections.abc import Sequence

from photon.dispatcher import status as words
from photon.dispatcher.core import Core
from photon.dispatcher.limits import Limits
from photon.dispatcher.retry import COMPLETE_NS, SETTLED_NS, Patience
from photon.dispatcher.state import Changes, State
from photon.dispatcher.status import OldRow, Pending, oldest, oldest_stretches
from photon.joiner.api import Outcome
from tests.unit.dispatcher.test_core import batch_of, having
from tests.unit.dispatcher.test_state import item
from tests.unit.dispatcher.world import block, core, stored, take
from tests.unit.joiner.told import answers_of

S = 1_000_000_000


def _oldest(c: Core, limit: int = 20, rows: Sequence[OldRow] = ()) -> list[Pending]:
    return oldest([c.held(head) for head in oldest_stretches(c.logs.heads(), limit)], rows, 0, limit)


def _ids(c: Core) -> list[tuple[str, str, int]]:
    return [(each.event_id, each.reason, each.tries) for each in _oldest(c)]


def test_events_in_memory_say_why_they_wait() -> None:
    c = having("a", "b", "c", limits=Limits(batch_events=2), patience=Patience(unmatched_after_ns=3600 * S))
    assert _ids(c) == [(name, words.ON_ITS_WAY, 0) for name in "abc"]
    c.answered(batch_of(c), answers_of([Outcome.NOT_YET, Outcome.RETRY]), 5 * S, 5.0)
    assert _ids(c) == [("a", words.NOT_YET, 1), ("b", words.UNANSWERED, 1), ("c", words.ON_ITS_WAY, 0)]
    first = _oldest(c, 1)[0]
    assert (first.log, first.offset) == ("a.log", 0)
    assert first.next_try_ns > 5 * S


def test_what_has_a_verdict_is_not_pending() -> None:
    c = having("a", "b")
    c.answered(batch_of(c), answers_of([Outcome.JOINED, Outcome.RETRY]), 0, 0.0)
    assert [name for name, _, _ in _ids(c)] == ["b"]


def test_the_oldest_come_first_and_no_more_than_asked_for() -> None:
    c = core()
    for n in range(30):
        take(c, block(b"n%d k 1\nm%d k 1\n" % (n, n), identity=f"log{n}"), now_ns=(30 - n) * S)
    found = _oldest(c, 4)
    assert [each.event_id for each in found] == ["n29", "m29", "n28", "m28"]
    rows = [_row(first_read_ns=S // 2)]
    assert [each.event_id for each in _oldest(c, 2, rows)] == ["stored", "n29"]


def _row(**changes: int) -> OldRow:
    values = {"event_time_ns": 0, "offset": 7, "first_read_ns": 1, "attempts": 3, "next_try_ns": 9 * S} | changes
    values.setdefault("trigger_ns", SETTLED_NS)
    return OldRow(event_id=b"stored", log="a.log", **values)


def test_rows_of_the_retry_store_say_why_they_wait() -> None:
    def reason(row: OldRow) -> str:
        return oldest([], [row], 10 * S, 1)[0].reason

    assert reason(_row(trigger_ns=COMPLETE_NS)) == words.NOT_YET
    assert reason(_row()) == words.UNANSWERED
    assert reason(_row(event_time_ns=11 * S)) == words.TOO_NEW
    assert reason(_row(attempts=0)) == words.BEFORE_RESTART
    assert reason(_row(next_try_ns=SETTLED_NS)) == words.NEXT_RUN
    assert oldest([], [_row(next_try_ns=SETTLED_NS)], 0, 1)[0].next_try_ns is None


def test_an_id_that_is_no_text_or_too_long_is_shown_all_the_same() -> None:
    row = OldRow(b"\xff" * 300, 0, "a.log", 0, 0, 0, 0, 0)
    shown = oldest([], [row], 0, 1)[0].event_id
    assert shown.startswith("\\xff\\xff")
    assert len(shown) == words.ID_CHARS_MAX + 1


def test_the_state_reads_its_oldest_rows_and_the_next_point_that_is_waited_for(state: State) -> None:
    assert state.oldest_rows(5) == []
    assert state.next_trigger_ns(0) is None
    rows = [item(1, trigger_ns=50), item(2, trigger_ns=40), item(3, trigger_ns=COMPLETE_NS)]
    state.commit(Changes(stored=stored(rows)))
    assert [row.event_id for row in state.oldest_rows(2)] == [b"id1", b"id2"]
    row = state.oldest_rows(1)[0]
    assert (row.log, row.offset, row.first_read_ns, row.attempts, row.trigger_ns) == ("f1", 1, 1001, 1, 50)
    assert state.next_trigger_ns(0) == 40
    assert state.next_trigger_ns(40) == 50
    assert state.next_trigger_ns(50) is None  # only what waits for logs that have ended
