"""The oldest rows of the retry store, and why they wait; ``core.txt`` has those in memory."""

from __future__ import annotations

from photon.dispatcher import status as words
from photon.dispatcher.retry import COMPLETE_NS, SETTLED_NS
from photon.dispatcher.state import Changes, State
from photon.dispatcher.status import OldRow, oldest
from tests.unit.dispatcher.test_state import item
from tests.unit.dispatcher.world import stored

S = 1_000_000_000


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
