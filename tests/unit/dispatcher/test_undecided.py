"""A dispatcher's report on events without a verdict, and how it is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from photon.adapters.contract import LogFile
from photon.adapters.logs.lag import Unread
from photon.config.clock import NEVER_NS
from photon.config.disk import RealDisk
from photon.dispatcher import database
from photon.dispatcher.core import Core
from photon.dispatcher.errors import StateError
from photon.dispatcher.partitions import Number, files_of, write_number
from photon.dispatcher.state import Changes, State
from photon.dispatcher.undecided import STEPS_MAX, Claims, counts_of, read_undecided, summed, undecided
from photon.joiner.api import WAIT_NS, ForeignEvent, JoinAnswers, Outcome
from photon.outputs.watermarks import STEP_NS
from tests.unit.dispatcher.world import HOUR, StoredRow, block, core, stored, take

MINUTE = database.MINUTE_NS


class _Logs:
    """Logs of a follower, whose logs are behind or not."""

    behind = doubt = ""

    def unread_now(self) -> Unread:
        logs = self

        class Seen(Unread):
            def next(self) -> str:
                return logs.behind

        return Seen((), self.doubt)


@given(st.lists(st.integers(-(10**12), 10**12), max_size=50), st.integers(-(10**12), 10**12))
def test_counts_by_step_are_those_before_any_whole_step(times: list[int], time_ns: int) -> None:
    counts = counts_of(np.array(times, np.int64))
    at = time_ns // STEP_NS
    assert sum(n for each, n in counts if each < at) == sum(time < at * STEP_NS for time in times)


def test_too_many_steps_are_counted_in_earlier_ones() -> None:
    times = np.arange(5000, dtype=np.int64) * STEP_NS
    counts = counts_of(times)
    assert len(counts) <= STEPS_MAX
    assert sum(n for _, n in counts) == 5000
    assert all(sum(n for step, n in counts if step < at) >= at for at in range(0, 5000, 7))
    assert summed([(1, 2)], [(0, 1), (1, 1)]) == [(0, 1), (1, 3)]


def _commit(state: State, claims: Claims, its: Core | None = None, *, at_ns: int = 7) -> None:
    its = its or core(state)
    changes = its.committing.changes(0, 0.0)
    changes.also += claims.change(its.committing.undecided(), at_ns, 0.0)
    state.commit(changes)
    its.committing.committed()


def test_all_is_read_up_to_a_scan_once_what_it_saw_was_handed_out(tmp_path: Path) -> None:
    path = tmp_path / "s"
    state, logs = State(path), _Logs()
    claims = Claims(state.database, logs)
    with read_undecided(path) as found:
        assert found is None
    logs.behind = "a.log"
    claims.scanned(100)
    claims.scanned(200)
    _commit(state, claims)
    with read_undecided(path) as found:
        assert (found.read_ns, found.why) == (None, "a.log is not read to its end")
    logs.behind = ""
    _commit(state, claims)
    with read_undecided(path) as found:
        assert (found.read_ns, found.why, found.said_ns) == (100, "", 7)
        assert (found.moving_ns, found.oldest_ns, found.before(NEVER_NS)) == (NEVER_NS, NEVER_NS, 0)
    logs.doubt = "the log directory could not be listed"
    claims.scanned(300)
    _commit(state, claims)
    with read_undecided(path) as found:
        assert (found.read_ns, found.why) == (100, "the log directory could not be listed")
    logs.doubt = ""
    claims.scanned(400)
    claims.scanned(500)
    assert claims.read_ns == 400
    state.close()


def test_events_in_memory_and_rows_are_counted_by_their_times(state: State, path: Path) -> None:
    its = core(state)
    claims = Claims(state.database, _Logs())
    take(its, block(b"a k 5\nb k 7\nc k 9\n"))
    _commit(state, claims, its)
    with read_undecided(path) as found:
        assert (found.moving_ns, found.oldest_ns) == (5 * HOUR, 5 * HOUR)
        assert [found.before(hour * HOUR) for hour in (5, 6, 9, 10)] == [0, 1, 2, 3]
    batch = its.next_batch(0.0, flush=True)
    answers = JoinAnswers.alike(3, Outcome.NOT_YET)
    answers.verdicts.outcomes[0] = Outcome.JOINED
    its.answered(batch, answers, 0, 0.0)
    _commit(state, claims, its)
    with read_undecided(path) as found:
        assert (found.moving_ns, found.oldest_ns, found.before(NEVER_NS)) == (NEVER_NS, 7 * HOUR, 2)
    state.commit(its.committing.changes(0, 1.0, store_all=True))
    its.committing.committed()
    _commit(state, claims, its)
    with read_undecided(path) as found:
        assert (found.oldest_ns, found.before(NEVER_NS), found.before(7 * HOUR + 1)) == (7 * HOUR, 2, 1)


def test_a_start_says_what_its_predecessor_had_until_the_logs_were_read(
    state: State, path: Path, reopened: Callable[[], State]
) -> None:
    its = core(state)
    claims, logs = Claims(state.database, _Logs()), _Logs()
    claims.scanned(50)
    take(its, block(b"a k 5\n"))
    _commit(state, claims, its)
    state = reopened()
    claims = Claims(state.database, logs)
    logs.behind = "a.log"
    claims.scanned(100)
    _commit(state, claims)
    with read_undecided(path) as found:
        assert (found.read_ns, found.oldest_ns, found.before(NEVER_NS)) == (50, 5 * HOUR, 1)
    logs.behind = ""
    _commit(state, claims)
    with read_undecided(path) as found:
        assert (found.read_ns, found.oldest_ns) == (100, NEVER_NS)


def test_several_claim_together_and_one_that_has_not_begun_holds_them_back(tmp_path: Path) -> None:
    path, logs = tmp_path / "s", _Logs()
    write_number(RealDisk(), path, Number(2))
    one, two = (State(file) for file in files_of(path))
    claims = [Claims(each.database, logs, f"dispatcher {name}") for each, name in ((one, "1of2"), (two, "2of2"))]
    its = core(one)
    take(its, block(b"a k 5\n"))
    claims[0].scanned(100)
    _commit(one, claims[0], its, at_ns=101)
    with read_undecided(path) as found:
        assert found is None
    logs.behind = "b.log"
    claims[1].scanned(90)
    _commit(two, claims[1], at_ns=91)
    with read_undecided(path) as found:
        assert (found.read_ns, found.why) == (None, "b.log is not read to its end")
    logs.behind = ""
    _commit(two, claims[1], at_ns=92)
    event = ForeignEvent(b"i", b"d" * 16, 4 * HOUR, b"k", b"r", LogFile("a.log"), 3, WAIT_NS)
    two.commit(Changes(stored=stored([StoredRow(event, 7)])))
    with read_undecided(path) as found:
        assert (found.read_ns, found.why, found.said_ns, found.who) == (90, "", 92, "dispatcher 2of2")
        assert (found.oldest_ns, found.moving_ns, found.before(NEVER_NS)) == (4 * HOUR, 5 * HOUR, 2)
    one.close()
    two.close()


TIMES = st.integers(-5 * MINUTE, 5 * MINUTE)


@given(st.lists(st.tuples(TIMES, st.booleans()), max_size=12), TIMES)
def test_rows_before_a_time_are_counted_whatever_came_and_went(rows: list[tuple[int, bool]], time_ns: int) -> None:
    with TemporaryDirectory() as directory:
        state = State(Path(directory) / "s")
        db = state.database
        for number, (at, _) in enumerate(rows):
            event = ForeignEvent(b"i", b"d" * 16, at, b"k", b"r", LogFile("a.log"), number, WAIT_NS)
            state.commit(Changes(stored=stored([StoredRow(event, 7)])))
        gone = [number + 1 for number, (_, ends) in enumerate(rows) if ends]
        state.commit(Changes(deleted=gone))
        left = [at for at, ends in rows if not ends]
        (total,) = db.execute("SELECT coalesce(sum(events), 0) FROM waiting").fetchone()
        assert total == len(left)
        assert not db.execute("SELECT * FROM waiting WHERE events <= 0").fetchall()
        _commit(state, Claims(db, _Logs()))
        found = undecided(db)
        assert found.before(time_ns) == sum(at < time_ns for at in left)
        assert found.oldest_ns == min(left, default=NEVER_NS)
        state.close()


def test_a_reopened_id_waits_unless_it_stands_in_no_log(state: State, path: Path) -> None:
    insert = "INSERT INTO reopened (digest, generation, event_time_ns, seen_ns, missing) VALUES (?, 1, ?, 0, ?)"
    state.commit(Changes(also=[(insert, (b"a", 30, 0)), (insert, (b"b", 10, 1))]))
    _commit(state, Claims(state.database, _Logs()))
    with read_undecided(path) as found:
        assert (found.oldest_ns, found.before(31)) == (30, 1)


def test_no_state(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="no dispatcher state"), read_undecided(tmp_path / "none"):
        pass
