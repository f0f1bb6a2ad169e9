"""A dispatcher's data on an event: in its memory, and in the retry store of a state that is in use."""

from __future__ import annotations

from pathlib import Path

import pytest

from photon.adapters.contract import LogFile
from photon.adapters.logs.api import LogPosition
from photon.dispatcher.open_events import OpenEvent
from photon.dispatcher.retry import SETTLED_NS
from photon.dispatcher.state import Changes, State
from photon.fleet.explain.dispatchers import in_memory, in_retry_store, read_places
from photon.fleet.explain.evidence import Waiting
from photon.fleet.explain.question import Budget, question_of
from photon.joiner.api import ForeignEvent, Outcome
from tests.unit.dispatcher import world
from tests.unit.dispatcher.world import StoredRow

FOREVER = Budget(60.0, lambda: 0.0)


def item(n: int, *, next_try_ns: int = 50, trigger_ns: int = SETTLED_NS) -> StoredRow:
    event = ForeignEvent(b"id%d" % n, bytes([n]) * 16, n, b"key", b"record", LogFile("c.log", b""), 100 * n, 5, 0)
    return StoredRow(event, 1000 + n, n, next_try_ns, trigger_ns)


def stored(tmp_path: Path, *items: StoredRow) -> Path:
    path = tmp_path / "dispatcher.db"
    state = State(path)
    position = LogPosition("abc", "c.log", 12, b"")
    state.commit(Changes(positions={"abc": position}, stored=world.stored(items)))
    state.close()
    return path


@pytest.mark.parametrize("text", ["id2", "c.log:200"])
def test_a_row_of_the_retry_store(tmp_path: Path, text: str) -> None:
    path = stored(tmp_path, item(1), item(2), item(3))
    evidence = in_retry_store(path, question_of(text), FOREVER)
    (row,) = evidence.waiting
    assert (row.event_id, row.source_file, row.source_offset) == (b"id2", "c.log", 200)
    assert (row.attempts, row.first_read_ns, row.next_try_ns, row.row) == (2, 1002, 50, 2)
    assert "did not answer" in row.last
    assert evidence.searched[0].what == "the dispatcher's retry store (3 rows)"
    assert not in_retry_store(path, question_of("id4"), FOREVER).waiting


@pytest.mark.parametrize(
    ("made", "state", "last"),
    [
        (item(2, trigger_ns=77), "waits for its next try", "primary event was not there"),
        (item(2, next_try_ns=SETTLED_NS), "waits for the next run", "primary event was not there"),
        (item(0), "waits for its next try", ""),
    ],
)
def test_why_a_row_waits(tmp_path: Path, made: StoredRow, state: str, last: str) -> None:
    path = stored(tmp_path, made)
    (row,) = in_retry_store(path, question_of(made.event.event_id.decode()), FOREVER).waiting
    assert row.state == state
    assert last in row.last
    assert bool(row.last) == bool(last)


def test_no_state_and_damaged_state_are_said(tmp_path: Path) -> None:
    (searched,) = in_retry_store(tmp_path / "none.db", question_of("id1"), FOREVER).searched
    assert "no such file" in searched.why
    bad = tmp_path / "bad.db"
    bad.write_bytes(b"no database" * 100)
    (searched,) = in_retry_store(bad, question_of("id1"), FOREVER).searched
    assert str(bad) in searched.why
    assert read_places(bad) is None


def test_a_search_over_many_rows_ends_in_time(tmp_path: Path) -> None:
    path = stored(tmp_path, *(item(n % 200) for n in range(20_000)))
    ticks = iter(range(1_000_000))
    (searched,) = in_retry_store(path, question_of("nobody"), Budget(2.0, lambda: float(next(ticks)))).searched
    assert "not searched completely" in searched.why


def test_how_far_logs_are_read(tmp_path: Path) -> None:
    assert read_places(stored(tmp_path, item(1))) == {"abc": 12}


class _Core:
    def __init__(self, *held: OpenEvent) -> None:
        self._held = held

    def find(self, event_id: bytes, offset: int) -> tuple[OpenEvent, ...]:
        return self._held


def _held(n: int) -> OpenEvent:
    return OpenEvent(item(n).event, 1000, n, 50, waits=False, settled=False, left=False, last=None)


def _only(held: OpenEvent) -> Waiting:
    (found,) = in_memory(_Core(_held(9), held), question_of("id2"), "w1").waiting  # type: ignore[arg-type]
    return found


def test_an_event_in_memory_by_its_state() -> None:
    held = _held(2)
    found = _only(held)
    assert (found.state, found.last, found.partition, found.next_try_ns) == (
        "is on its way to a joiner",
        "",
        "w1",
        None,
    )
    held = held._replace(last=Outcome.NOT_YET)
    assert "primary event was not there" in _only(held).last
    waits = _only(held._replace(waits=True))
    assert (waits.state, waits.next_try_ns) == ("waits for its next try", 50)
    held = held._replace(left=True)
    assert "left to its home" in _only(held).state
    assert _only(held._replace(settled=True)).state == "waits for the next run"
