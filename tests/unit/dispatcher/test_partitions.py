"""Dispatchers that divide logs: any number of them has the same output and ledger, and the number may change."""

from __future__ import annotations

import os
import random
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from photon.adapters.envelope import Envelope
from photon.adapters.logs.identity import identity_of
from photon.batch.events import Events
from photon.config.clock import NEVER_NS, SystemClock
from photon.config.disk import RealDisk
from photon.dispatcher import moving, state
from photon.dispatcher.database import STATE_NAME, opened, read_ledger
from photon.dispatcher.engine import DispatcherEngine, Options, Policy, Surroundings
from photon.dispatcher.errors import DamagedState, StateError
from photon.dispatcher.limits import Limits
from photon.dispatcher.partitions import (
    ALL,
    Number,
    Partition,
    all_of,
    file_of,
    files_of,
    partition_named,
    partition_of,
    read_number,
    write_number,
)
from photon.dispatcher.process import Places, open_dispatcher
from photon.dispatcher.replay import requests
from photon.dispatcher.replay.requests import Step
from photon.dispatcher.retry import Patience
from photon.dispatcher.state import Changes, State
from photon.dispatcher.undecided import read_undecided
from photon.eventstore.api import Progress
from photon.joiner.api import JoinAnswers, Outcome
from tests.unit.dispatcher.test_engine import running, until
from tests.unit.dispatcher.world import DIGESTER, HERE, Words
from tests.unit.joiner.told import answers_of

OPTIONS = Options(commit_s=0.01, scan_s=0.001, progress_s=0.01, stop_s=1.0)
LOGS = 12


class FakeJoiner:
    """Joins all but every seventh event, whose primary event is missing."""

    def __init__(self) -> None:
        self.joined: Counter[bytes] = Counter()

    async def join(self, events: Events, *, timeout: float) -> JoinAnswers:
        missing = [not int(event_id[2:]) % 7 for event_id in events.ids]
        self.joined.update(each for each, waits in zip(events.ids, missing, strict=True) if not waits)
        return answers_of([Outcome.NOT_YET if waits else Outcome.JOINED for waits in missing])


class Pool:
    """Logs, and dispatchers over them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "logs").mkdir(parents=True)
        self.state = root / STATE_NAME
        self.joiner = FakeJoiner()
        self.lines = 0

    def write(self, name: str, lines: int) -> None:
        with (self.root / "logs" / name).open("a") as file:
            for n in range(self.lines, self.lines + lines):
                file.write("unreadable\n" if n % 10 == 9 else f"id{n} k {n % 3}\n")
        self.lines += lines

    def places(self, partition: Partition) -> Places:
        return Places(self.root / "logs", self.root / "out", self.root, partition=partition)

    @contextmanager
    def engine(self, partition: Partition = ALL) -> Iterator[DispatcherEngine]:
        async def progress() -> Progress:
            return Progress(read_past_ns=NEVER_NS)

        with open_dispatcher(
            self.places(partition),
            Policy(Patience(once=False, unmatched_after_ns=10**12), Limits(batch_events=50, hold_s=0.0), OPTIONS),
            Surroundings(join="clicks", datacentre=HERE, adapter=Words({}), digester=DIGESTER, joiners=[self.joiner],
                         progress=progress, registry=None, envelope=Envelope(), clock=SystemClock(),
                         random=random.Random(5).random),
            RealDisk(),
        ) as engine:  # fmt: skip
            yield engine

    async def run(self, count: int) -> None:
        """Runs as many dispatchers until they have read everything."""
        with ExitStack() as files:
            engines = [files.enter_context(self.engine(each)) for each in all_of(count)]
            async with AsyncExitStack() as runs:
                for engine in engines:
                    await runs.enter_async_context(running(engine))
                await until(self.all_is_read)

    def all_is_read(self) -> bool:
        total = read_ledger(self.state).total
        assert total.balance == 0
        waiting = [each for each in self.waiting() if not int(each[2:]) % 7]
        return total.read == self.lines and total.pending == len(waiting)

    def waiting(self) -> list[str]:
        with opened(self.state) as db:
            return sorted(event_id.decode() for (event_id,) in db.execute("SELECT event_id FROM retries"))

    def rejected(self) -> Counter[tuple[str, int]]:
        files = sorted((self.root / "out" / "rejected").glob("dispatcher-*.jsonl"))
        places = [orjson.loads(line)["source"] for file in files for line in file.read_bytes().splitlines()]
        return Counter((place["file"], place["offset"]) for place in places)

    def seen(self) -> tuple[Any, ...]:
        """Everything that the number of dispatchers must not change."""
        with opened(self.state) as db:
            places = sorted(db.execute("SELECT identity, offset, high FROM logs").fetchall())
        assert set(self.rejected().values()) <= {1}
        return read_ledger(self.state), self.waiting(), places, self.rejected()


@settings(deadline=None, max_examples=4)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=LOGS), st.integers(2, 8))
async def test_any_number_of_dispatchers_has_the_same_output_and_ledger(
    tmp_path_factory: pytest.TempPathFactory, logs: list[int], count: int
) -> None:
    one, several = (Pool(tmp_path_factory.mktemp("pool") / "x") for _ in range(2))
    for number, lines in enumerate(logs):
        for pool in (one, several):
            pool.write(f"{number}.log", lines)
    await one.run(1)
    await several.run(count)
    assert several.seen() == one.seen()
    assert several.joiner.joined == one.joiner.joined


async def test_the_number_changes_and_nothing_is_read_again(tmp_path: Path) -> None:
    pool = Pool(tmp_path / "x")
    for count in (1, 4, 2, 4, 8, 1):
        for number in range(LOGS):
            pool.write(f"{number}.log", 11)
        await pool.run(count)
        assert read_ledger(pool.state).total.reread == 0
        assert sum(pool.rejected().values()) == pool.lines // 10
        assert read_number(pool.state) == Number(count)
        assert sorted(pool.root.glob("dispatcher*.db")) == sorted(files_of(pool.state))


def test_a_log_and_its_copies_under_other_names_meet_in_one_partition() -> None:
    names = [identity_of(name, b"first record") for name in ("a.log", "b/c.log", "d")]
    assert len({partition_of(name, count) for name in names} | {0}) == 2 if (count := 7) else False
    numbers = [partition_of(identity_of("a", b"%d" % n), 4) for n in range(4000)]
    assert all(900 < share < 1100 for share in Counter(numbers).values())
    assert [partition_named(each.name) for each in all_of(4)] == all_of(4)
    assert [partition_named(name) for name in ("", "1of1", "5of4", "0of4", "x", "02of4")] == [ALL, *[None] * 5]


async def test_a_log_that_replaces_one_of_another_dispatcher_in_place_is_read(tmp_path: Path) -> None:
    pool = Pool(tmp_path / "x")
    pool.write("a.log", 5)
    path = pool.root / "logs" / "a.log"
    owner = partition_of(identity_of("a.log", path.read_bytes().splitlines()[0]), 2)
    first = next(
        n for n in range(100, 200) if n % 7 and partition_of(identity_of("a.log", b"id%d k 1" % n), 2) != owner
    )
    with ExitStack() as files:
        engines = [files.enter_context(pool.engine(each)) for each in all_of(2)]
        for engine in engines:
            engine._tail.scan()
        path.write_bytes(path.read_bytes() * 2)
        for engine in engines:
            engine._tail.scan()
        path.write_bytes(b"".join(b"id%d k 1\n" % n for n in range(first, first + 40)))  # longer, on the same inode
        for engine in engines:
            engine._tail.scan()
            engine._follower.look_at_others()
        seen = [block.data for engine in engines for block in engine._follower.poll(1 << 20)]
    assert b"".join(seen).startswith(b"id%d k 1\n" % first)


# -- the lock and the files ------------------------------------------------------------------------------------------
def test_each_database_has_one_owner_and_another_number_waits_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "STOP_WAIT_S", 0.0)
    pool = Pool(tmp_path / "x")
    with pool.engine(Partition(1, 2)), pool.engine(Partition(2, 2)):
        for again in (Partition(2, 2), Partition(1, 3), ALL):
            with pytest.raises(StateError, match="is in use by another dispatcher"), pool.engine(again):
                pass
    with pool.engine(Partition(3, 3)):
        assert read_number(pool.state) == Number(3)


def test_a_damaged_database_is_refused_and_the_others_go_on(tmp_path: Path) -> None:
    pool = Pool(tmp_path / "x")
    with pool.engine(Partition(1, 2)), pool.engine(Partition(2, 2)):
        pass
    file_of(pool.state, Partition(1, 2)).write_bytes(b"no database" * 500)
    with pytest.raises(DamagedState, match=r"dispatcher-1of2.db: is damaged .*; restore it .* read again from their"):
        pool.engine(Partition(1, 2)).__enter__()
    with pool.engine(Partition(2, 2)):
        pass


def test_databases_that_the_number_does_not_tell_of_are_not_taken_for_none(tmp_path: Path) -> None:
    pool = Pool(tmp_path / "x")
    with pool.engine(Partition(1, 2)), pool.engine(Partition(2, 2)):
        pass
    (pool.root / "dispatchers").unlink()
    for partition in (ALL, Partition(1, 2), Partition(2, 4)):
        with pytest.raises(StateError, match=r"does not name dispatcher-1of2.db.*; write the number"):
            pool.engine(partition).__enter__()
    (pool.root / "dispatchers").write_bytes(b"4\n")
    with pytest.raises(StateError, match="dispatchers: is damaged"):
        pool.engine(Partition(1, 2)).__enter__()
    write_number(RealDisk(), pool.state, Number(2))
    with pool.engine(Partition(1, 2)):
        pass


# -- moving rows -----------------------------------------------------------------------------------------------------
class Killed(BaseException):
    """Stands for kill -9: nothing after it is run by the move."""


class Counting:
    """Counts the statements and file operations of a move, and dies at one of them."""

    def __init__(self, at: int) -> None:
        self.at, self.done = at, 0

    def step(self) -> None:
        self.done += 1
        if self.done >= self.at:
            raise Killed

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        counting = self

        class Connection(sqlite3.Connection):
            def execute(self, *arguments: Any) -> sqlite3.Cursor:
                if not self.in_transaction or not str(arguments[0]).startswith("ROLLBACK"):
                    counting.step()
                return super().execute(*arguments)

        def connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
            return Connection(*arguments, **options)

        monkeypatch.setattr(moving.sqlite3, "connect", connect)
        for name in ("unlink", "replace", "rename", "fsync"):
            real = getattr(os, name)
            monkeypatch.setattr(os, name, self._counted(real))

    def _counted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self.step()
            return real(*arguments, **options)

        return call


async def _told(root: Path) -> Pool:
    pool = Pool(root)
    for number in range(5):
        pool.write(f"{number}.log", 25)
    await pool.run(2)
    requests.ask(pool.state, 0, 10**18, "", 5)
    return pool


def _rows(pool: Pool) -> tuple[Any, ...]:
    """All that a move must keep."""
    with opened(pool.state) as db:
        covered = sorted(db.execute("SELECT identity, chunk, oldest_ns, newest_ns FROM covered").fetchall())
        rows = sorted(db.execute("SELECT event_id, record, offset, first_read_ns, attempts FROM retries").fetchall())
    with read_undecided(pool.state) as undecided:
        assert undecided is not None
        claim = undecided.read_ns, undecided.oldest_ns
    asked = [(each.request.number, each.request.step) for each in requests.progress(pool.state)]
    return pool.seen(), covered, rows, claim, asked


def _move(pool: Pool, count: int) -> None:
    rule = None
    with opened(pool.state) as db:
        (rule,) = db.execute("SELECT value FROM meta WHERE name = 'rule'").fetchone()
    with moving.settling(pool.state):
        moving.settle(RealDisk(), pool.state, count, pool.root / "out", rule)


@pytest.mark.parametrize("count", [1, 3])
async def test_a_move_that_is_killed_at_any_statement_is_all_or_nothing(
    tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = await _told(tmp_path / "x")
    before, at = _rows(pool), 0
    while True:
        at += 1
        with monkeypatch.context() as patches:
            counting = Counting(at)
            counting.patch(patches)
            with suppress(Killed):
                _move(pool, count)
                break
        assert read_number(pool.state).dispatchers in (2, count)
        assert _rows(pool) == before
    assert at > 100
    assert _rows(pool) == before
    assert sorted(pool.root.glob("dispatcher*.db")) == sorted(files_of(pool.state))
    for each in all_of(count):
        with closing(State(file_of(pool.state, each))) as one:
            assert all(each.holds(position.identity) for position in one.positions())
            assert one.retry_rows == len(one.rows(one.due_ids(2**62, 1000)))
            assert one.retry_bytes == one.rows(one.due_ids(2**62, 1000)).bytes()


async def test_waiting_rows_are_known_wherever_they_are(tmp_path: Path) -> None:
    pool = await _told(tmp_path / "x")
    with ExitStack() as stack:
        states: Sequence[State] = [stack.enter_context(pool.engine(each))._state for each in all_of(2)]
        keys = [b"k"]
        assert states[0].lines_that_wait(keys) == states[1].lines_that_wait(keys)
        with closing(sqlite3.connect(states[0].path)) as db:
            assert len(state._lines_that_wait(db, keys)) < len(states[0].lines_that_wait(keys)) == len(pool.waiting())


def test_a_request_to_replay_reaches_all_dispatchers_under_one_number(tmp_path: Path) -> None:
    pool = Pool(tmp_path / "x")
    with pool.engine(Partition(1, 2)), pool.engine(Partition(2, 2)):
        assert [requests.ask(pool.state, 0, 10, "", at) for at in (1, 2)] == [1, 2]
        assert requests.cancel(pool.state, 2, 5)
        steps = {each.request.number: each.request.step for each in requests.progress(pool.state)}
        assert steps == {1: Step.ASKED, 2: Step.CANCELLED}
    with pool.engine():
        assert requests.ask(pool.state, 0, 10, "", 3) == 3
        assert [each.request.step for each in requests.progress(pool.state)] == [
            Step.ASKED,
            Step.CANCELLED,
            Step.ASKED,
        ]


def test_events_in_memory_are_claimed_in_each_new_database(tmp_path: Path) -> None:
    """Which dispatcher reads them again is not known: until it has, none of them may be left out."""
    pool = Pool(tmp_path / "x")
    write_number(RealDisk(), pool.state, Number(2))
    for at, file in enumerate(files_of(pool.state)):
        with closing(State(file, rule=b"rule")) as one:
            row = (f"dispatcher {at}", 100 + at, 50 + at, "", f"[[{at},3]]", "[[9,1]]")
            one.commit(Changes(also=[("INSERT INTO claims VALUES (?, ?, ?, ?, ?, ?)", row)]))
    _move(pool, 3)
    for file in files_of(pool.state):
        with closing(sqlite3.connect(file)) as db:
            (claim,) = db.execute("SELECT at_ns, read_ns, moving, waiting FROM claims").fetchall()
        assert claim == (100, 50, "[[0,3],[1,3]]", "[[9,2]]")
    with closing(State(files_of(pool.state)[1])) as silent:
        silent.commit(Changes(also=[("DELETE FROM claims", ())]))
    _move(pool, 1)
    with read_undecided(pool.state) as found:
        assert found is None, "one of them had said nothing"


def test_one_whose_database_is_lost_is_not_spoken_for(tmp_path: Path) -> None:
    pool = Pool(tmp_path / "x")
    write_number(RealDisk(), pool.state, Number(3, moved_from=2))
    file_of(pool.state, Partition(1, 2)).write_bytes(b"of a move that was killed")
    for partition in all_of(3)[1:]:
        with closing(State(file_of(pool.state, partition), rule=b"rule")) as one:
            one.commit(Changes(also=[("INSERT INTO claims VALUES (?, 5, 5, '', '[]', '[]')", (partition.name,))]))
    _move(pool, 4)
    with read_undecided(pool.state) as found:
        assert found is None
    assert sorted(pool.root.glob("dispatcher*.db")) == sorted(files_of(pool.state))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((Step.ASKED, Step.ASKED), Step.ASKED),
        ((Step.DONE, Step.ASKED), Step.ASKED),
        ((Step.RUNNING, Step.DONE), Step.RUNNING),
        ((Step.DONE, Step.DONE), Step.DONE),
        ((Step.CANCELLED, Step.ASKED), Step.CANCELLED),
    ],
)
def test_a_replay_goes_on_after_a_move(tmp_path: Path, before: tuple[Step, Step], after: Step) -> None:
    pool = Pool(tmp_path / "x")
    write_number(RealDisk(), pool.state, Number(2))
    for number, step in enumerate(before):
        with closing(State(files_of(pool.state)[number], rule=b"rule")) as one:
            also: list[tuple[str, Sequence[Any]]] = [("INSERT INTO replays VALUES (7, 1, 9, '', 5, ?, 0)", (step,))]
            also.append(
                ("INSERT INTO replay_logs VALUES (7, ?, 'a', 0, 3, 9, ?, 2, 1)", (f"{number}" * 32, Step.RUNNING))
            )
            one.commit(Changes(also=also))
    _move(pool, 4)
    (progress,) = requests.progress(pool.state)
    assert progress.request.step is after
    assert (len(progress.parts), progress.events) == ((0, 0) if after is Step.ASKED else (2, 4))
    assert requests.ask(pool.state, 0, 5, "", 6) == 8
