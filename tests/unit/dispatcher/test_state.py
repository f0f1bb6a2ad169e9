"""The database: all or nothing, read back as written, refused when it is not as it should be."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from photon.adapters.contract import LogFile
from photon.adapters.logs.api import LogPosition
from photon.dispatcher import database
from photon.dispatcher.database import count_waiting, read_ledger, read_standing
from photon.dispatcher.errors import StateError
from photon.dispatcher.events import Export
from photon.dispatcher.ledger import HOUR_NS, UNKNOWN_HOUR, Verdict, cell, unknown_cell
from photon.dispatcher.retry import SETTLED_NS
from photon.dispatcher.state import Changes, State
from photon.joiner.api import WAIT_NS, ForeignEvent
from photon.joiner.verdicts import line_tag
from tests.unit.dispatcher.world import StoredRow, stored, stored_rows


def item(n: int, *, next_try_ns: int = 0, trigger_ns: int = SETTLED_NS, time_ns: int = 0) -> StoredRow:
    event = ForeignEvent(
        b"id%d" % n, bytes([n]) * 16, time_ns, b"k\xff", b"\0rec", LogFile(f"f{n % 2}", b"h"), n, 5, n
    )
    return StoredRow(event, 1000 + n, n, next_try_ns, trigger_ns)


def test_what_is_committed_is_there_after_reopening(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "state.db"
    state = State(path)
    rows = stored([item(1, next_try_ns=10), item(2, next_try_ns=5), item(3, next_try_ns=SETTLED_NS, trigger_ns=7)])
    position = LogPosition("abc", "d/a.log", 12, b"head")
    state.commit(Changes(positions={"abc": position}, cells={cell(0, Verdict.READ): 3}, stored=rows))
    assert rows.row_ids.tolist() == [1, 2, 3]
    state.close()
    state = State(path)
    assert state.positions() == [position]
    assert state.highs() == {"abc": 12}
    assert (state.retry_rows, state.retry_bytes, state.last_row_at_open) == (3, rows.bytes(), 3)
    assert state.due_ids(9, 10) == [2]
    assert state.due_ids(10, 10) == [2, 1]
    assert state.due_ids(10, 1) == [2]
    assert state.triggered_ids(6, 10) == []
    assert state.triggered_ids(7, 10) == [3]
    assert [row for row, _ in state.keys_behind(1, 10)] == [2, 3]
    (row,) = stored_rows(state.rows([3]))
    assert row.event == ForeignEvent(b"id3", b"\3" * 16, 0, b"k\xff", b"\0rec", LogFile("f1", b"h"), 3, 0, 3)
    assert (row.first_read_ns, row.attempts, row.row_id) == (1003, 3, 3)
    assert state.oldest_first_read_ns() == 1001
    assert state.ledger().total.pending == 3
    assert state.ledger().total.balance == 0
    assert state.waits_for_something(SETTLED_NS)
    state.close()


def test_a_state_is_in_wal_mode_from_its_first_moment(tmp_path: Path) -> None:
    database._make(path := tmp_path / "state.db")
    assert path.read_bytes()[18:20] == b"\2\2", "else a reader may have to undo what a killed writer began"
    assert [each.name for each in tmp_path.iterdir()] == ["state.db"]


def test_a_new_state_knows_nothing_of_a_lost_one_whose_log_is_still_there(tmp_path: Path) -> None:
    state = State(path := tmp_path / "state.db")
    state.commit(Changes(positions={"abc": LogPosition("abc", "a.log", 12)}, stored=stored([item(1)])))
    log = (tmp_path / "state.db-wal").read_bytes()
    state.close()
    path.unlink()
    (tmp_path / "state.db-wal").write_bytes(log)
    state = State(path)
    assert (state.positions(), state.retry_rows) == ([], 0)
    state.close()


def test_rows_change_and_go(state: State) -> None:
    one, two = item(1), item(2)
    state.commit(Changes(stored=stored([one, two])))
    updated = stored([StoredRow(one.event, 77, 9, SETTLED_NS, SETTLED_NS, row_id=1)])
    gone = stored([two]).bytes()
    state.commit(Changes(updated=updated, deleted=[2], freed=gone, positions={"a": LogPosition("a", "p", 3)}))
    assert not state.waits_for_something(SETTLED_NS)
    assert [(row.attempts, row.first_read_ns) for row in stored_rows(state.rows([1, 2]))] == [(9, 77)]
    assert state.retry_bytes == updated.bytes()
    state.commit(Changes(positions={"a": LogPosition("a", "p", 1)}))
    assert state.positions()[0].offset == 1
    assert state.highs() == {"a": 3}


def test_ledger_by_hour_with_pending_before_the_epoch_too(state: State, path: Path) -> None:
    waiting = stored([item(1, time_ns=-1), item(2, time_ns=HOUR_NS), item(3, time_ns=-HOUR_NS)])
    cells = {cell(-1, Verdict.READ): 3, cell(-1, Verdict.JOINED): 1, cell(HOUR_NS, Verdict.READ): 1}
    cells |= {unknown_cell(Verdict.READ): 1, unknown_cell(Verdict.REJECTED): 1, cell(0, Verdict.REREAD): 4}
    state.commit(Changes(stored=waiting, cells=cells))
    ledger = read_ledger(path)  # while in use
    assert {hour: line.pending for hour, line in ledger.hours.items()} == {UNKNOWN_HOUR: 0, -1: 2, 0: 0, 1: 1}
    assert not ledger.unbalanced
    assert ledger.total.as_dict() == {
        "read": 5, "joined": 1, "filtered": 0, "unmatched": 0, "late": 0, "rejected": 1, "elsewhere": 0,
        "duplicate": 0, "pending": 3,
    }  # fmt: skip
    assert ledger.total.reread == 4
    state.commit(Changes(cells={cell(0, Verdict.DUPLICATE): 1}))
    assert read_ledger(path).unbalanced == [0]


def test_a_failed_transaction_changes_nothing(state: State) -> None:
    broken = item(1)
    broken = broken._replace(event=broken.event._replace(key=None))  # type: ignore[arg-type]
    with pytest.raises(StateError):
        state.commit(Changes(positions={"a": LogPosition("a", "p", 3)}, stored=stored([broken])))
    assert state.positions() == []
    state.commit(Changes(positions={"a": LogPosition("a", "p", 3)}))


def test_lines_leave_the_outbox_by_number(state: State) -> None:
    state.commit(Changes(exports=[Export("late", b"1\n"), Export("rejected", b"2\n")]))
    assert [e.line for _, e in state.outbox(10)] == [b"1\n", b"2\n"]
    assert state.exported_upto() == -1
    state.exported(1)
    assert [e.line for _, e in state.outbox(10)] == [b"2\n"]
    assert state.exported_upto() == 1
    assert not state.number_behind(2)
    assert state.number_behind(7)
    state.commit(Changes(exports=[Export("late", b"3\n")]))
    assert [number for number, _ in state.outbox(10)] == [2, 8]


def test_one_at_a_time(tmp_path: Path) -> None:
    state = State(tmp_path / "s")
    with pytest.raises(StateError, match="in use by another dispatcher"):
        State(tmp_path / "s")
    state.close()
    State(tmp_path / "s").close()


@pytest.mark.parametrize(
    "content", [b"this is not a database at all, but some text" * 100, b"SQLite format 3\0" + b"\xff" * 5000]
)
def test_a_damaged_database_is_refused_and_says_what_to_do(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "s"
    path.write_bytes(content)
    for open_it in (State, read_ledger):
        with pytest.raises(StateError, match="move it away") as error:
            open_it(path)
        assert str(path) in str(error.value)
        assert "\n" not in str(error.value)
    assert path.read_bytes() == content


def test_damage_inside_is_found_at_start(tmp_path: Path) -> None:
    path = tmp_path / "s"
    state = State(path)
    state.commit(Changes(stored=stored([item(n % 250) for n in range(2000)])))
    state.close()
    data = bytearray(path.read_bytes())
    for page in range(4, len(data) // 4096, 3):
        data[page * 4096 : page * 4096 + 64] = b"\xaa" * 64
    path.write_bytes(data)
    with pytest.raises(StateError, match="damaged"):
        State(path)


def test_other_databases_and_versions_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE x (y)")
    db.close()
    with pytest.raises(StateError, match="not a dispatcher's state"):
        State(path)
    with pytest.raises(StateError, match="not a dispatcher's state"):
        read_ledger(path)
    path = tmp_path / "t"
    State(path).close()
    for other in (database.SCHEMA_VERSION - 1, database.SCHEMA_VERSION + 1):
        with sqlite3.connect(path) as db:
            db.execute(f"PRAGMA user_version={other}")
        db.close()
        why = f"t: has format {other}, this Photon reads format {database.SCHEMA_VERSION}"
        with pytest.raises(StateError, match=why):
            State(path)
        with pytest.raises(StateError, match=why):
            read_ledger(path)
    with pytest.raises(StateError, match="no dispatcher state"):
        read_ledger(tmp_path / "none")


def test_proofs_of_positions_stay(tmp_path: Path) -> None:
    path = tmp_path / "s"
    state = State(path)
    log = LogPosition("a", "a.log", 14, b"", b"proof")
    state.commit(Changes(positions={"a": log}))
    state.close()
    state = State(path)
    assert state.positions() == [log]
    state.close()


def test_logs_that_are_read_anew_are_known_until_they_have_departed(tmp_path: Path) -> None:
    path = tmp_path / "s"
    state = State(path)
    state.commit(Changes(positions={"a": LogPosition("a", "a.log", 12)}))
    assert (state.highs(), state.rewritten()) == ({"a": 12}, set())
    state.commit(Changes(positions={"a": LogPosition("a", "a.log", 3)}, rewritten={"a": 12}))
    assert (state.highs(), state.rewritten()) == ({"a": 12}, {"a"})
    places = {"a": LogPosition("a", "a.log", 7), "a~1": LogPosition("a~1", "a.log", 5)}
    state.commit(Changes(positions=places, diverged={"a", "a~1"}))
    state.close()
    state = State(path)
    assert (state.highs(), state.rewritten()) == ({"a": 7, "a~1": 5}, set())
    state.close()


def test_lines_that_wait_are_known_by_their_key(state: State) -> None:
    state.commit(Changes(stored=stored([item(1), item(2)])))
    lines = {(bytes([n]) * 16, line_tag(b"\0rec", n, f"f{n % 2}")) for n in (1, 2)}
    assert state.lines_that_wait([b"k\xff", b"other"]) == lines
    assert state.lines_that_wait([b"other"]) == set()


def test_another_rule_is_refused(tmp_path: Path) -> None:
    State(tmp_path / "s", rule=b"one").close()
    State(tmp_path / "s", rule=b"one").close()
    State(tmp_path / "s").close()
    with pytest.raises(StateError, match="other rules"):
        State(tmp_path / "s", rule=b"two")
    State(tmp_path / "s", rule=b"one").close()  # the refused one let go of the lock


def test_places_and_what_waits(state: State, path: Path) -> None:
    event = ForeignEvent(b"i", b"d" * 16, 5, b"k", b"r", LogFile("a.log"), 3, WAIT_NS)
    waits = stored([StoredRow(event, 7)])
    state.commit(Changes(positions={"ab": LogPosition("ab", "a.log", 40, b"")}, stored=waits))
    taken: list[bytes] = []
    assert read_standing(path, taken.extend) == [("ab", 40, "a.log")]
    assert taken == [b"d" * 16]


@pytest.mark.parametrize(("times", "count"), [((5, 6, 8), 1), ((6, 9, 8), 0), ((0, 5, 8), 0), ((5, 6, 7), 0)])
def test_what_has_waited_since_before_a_moment(
    state: State, path: Path, times: tuple[int, int, int], count: int
) -> None:
    """Event time 5, first read at 7."""
    event = ForeignEvent(b"i", b"d" * 16, 5, b"k", b"r", LogFile("a.log"), 3, 7)
    state.commit(Changes(stored=stored([StoredRow(event, 7)])))
    assert count_waiting(path, *times) == count


def test_no_state(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="no dispatcher state"):
        read_standing(tmp_path / "none", lambda digests: None)
    (tmp_path / "other").write_bytes(b"x" * 5000)
    with pytest.raises(StateError):
        read_standing(tmp_path / "other", lambda digests: None)
