"""Assembling a worker, and a dispatcher that is alone after workers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import orjson
import pytest

from photon.adapters.envelope import Envelope
from photon.batch.events import Events
from photon.config.clock import NEVER_NS, SystemClock
from photon.config.disk import RealDisk
from photon.dispatcher import shared_state
from photon.dispatcher.database import STATE_NAME, read_ledger, share_state
from photon.dispatcher.engine import DispatcherEngine, Options, Policy, Surroundings
from photon.dispatcher.errors import StateError, WorkerFenced
from photon.dispatcher.events import REJECTED, Export
from photon.dispatcher.exports import Exports
from photon.dispatcher.leases import Decision
from photon.dispatcher.limits import Limits
from photon.dispatcher.log_leases import Terms
from photon.dispatcher.previous import copy_state
from photon.dispatcher.process import Places, Worker, open_dispatcher, open_exports
from photon.dispatcher.retry import Patience
from photon.dispatcher.shared_state import SharedState
from photon.dispatcher.state import Changes, State
from photon.eventstore.api import Progress
from photon.joiner.api import JoinAnswers
from tests.unit.dispatcher.test_engine import running, until
from tests.unit.dispatcher.world import DIGESTER, HERE, FakeRegistry, Words

OPTIONS = Options(commit_s=0.01, scan_s=0.001, progress_s=0.01, stop_s=1.0)
TERMS = Terms(lease_s=0.5, split_bytes=2000)


class FakeJoiner:
    def __init__(self) -> None:
        self.registry = FakeRegistry(1)

    async def join(self, events: Events, *, timeout: float) -> JoinAnswers:
        return self.registry.answers(events.rows())


class Pool:
    """Logs, and dispatchers over them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "logs").mkdir()
        self.joiner = FakeJoiner()
        self.lines = 0

    def write(self, name: str, lines: int) -> None:
        with (self.root / "logs" / name).open("a") as file:
            for n in range(self.lines, self.lines + lines):
                file.write("unreadable\n" if n % 10 == 9 else f"id{n} k {n % 3}\n")
        self.lines += lines

    @contextmanager
    def engine(self, name: str | None, *, once: bool = False) -> Iterator[DispatcherEngine]:
        async def progress() -> Progress:
            return Progress(read_past_ns=NEVER_NS)

        with open_dispatcher(
            Places(self.root / "logs", self.root / "out", self.root),
            Policy(Patience(once=once, unmatched_after_ns=None if once else 10**12), Limits(batch_events=50),
                   Options(once=True) if once else OPTIONS),
            Surroundings(join="clicks", datacentre=HERE, adapter=Words({}), digester=DIGESTER, joiners=[self.joiner],
                         progress=progress, registry=None, envelope=Envelope(), clock=SystemClock(),
                         random=random.Random(5).random),
            RealDisk(), worker=None if name is None else Worker(name, TERMS),
        ) as engine:  # fmt: skip
            yield engine

    def all_are_counted(self) -> bool:
        total = read_ledger(self.root / STATE_NAME).total
        assert total.balance == 0
        return total.read == self.lines and not total.pending

    def check(self) -> None:
        total = read_ledger(self.root / STATE_NAME).total
        assert (total.read, total.reread, total.pending) == (self.lines, 0, 0)
        files = sorted((self.root / "out" / "rejected").glob("dispatcher-*.jsonl"))
        places = [orjson.loads(line)["source"] for file in files for line in file.read_bytes().splitlines()]
        assert len({(place["file"], place["offset"]) for place in places}) == len(places) == self.lines // 10


@pytest.fixture
def pool(tmp_path: Path) -> Pool:
    return Pool(tmp_path)


async def test_workers_share_the_logs_and_a_huge_one_and_leave_them_in_order(pool: Pool) -> None:
    for n in range(6):
        pool.write(f"{n}.log", 20)
    with pool.engine("w1") as one, pool.engine("w2") as two:
        held = [engine._log_leases for engine in (one, two)]
        async with running(one), running(two):
            await until(lambda: [len(h.units) for h in held if h is not None] == [3, 3])
            pool.write("huge.log", 2000)
            await until(pool.all_are_counted)
            await until(lambda: one.status().caught_up and two.status().caught_up)
            assert one.status().read == two.status().read == pool.lines
            assert one.status().verdicts == two.status().verdicts
    with pool.engine("w1") as again:
        pool.write("0.log", 20)
        async with running(again):
            await until(pool.all_are_counted)
    pool.check()


async def test_a_worker_that_was_fenced_ends_its_run_and_the_next_one_goes_on(pool: Pool) -> None:
    pool.write("a.log", 100)
    with pool.engine("w1") as one:
        run = asyncio.create_task(one.run())
        await until(pool.all_are_counted)
        state = SharedState(pool.root / STATE_NAME, "w2", now_ns=0)
        (beat,) = [row.beat for row in state.view().workers if row.name == "w1"]
        while not any(row.fenced for row in state.view().workers):
            state.renew(0, Decision(fence=((1, beat),)))
            beat = next(row.beat for row in state.view().workers if row.name == "w1")
        pool.write("a.log", 100)
        with pytest.raises(WorkerFenced):
            await run
        state.close()
    with pool.engine("w1") as again:
        async with running(again):
            await until(pool.all_are_counted)
    pool.check()


async def test_one_that_is_alone_reads_what_workers_left(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_state, "share_state", partial(share_state, wait_s=0.0))
    pool.write("huge.log", 300)
    with pool.engine("w1") as one, pool.engine("w2") as two:
        one._log_leases = None  # it only makes the other one cut the log
        run = asyncio.create_task(two.run())
        state = two._state
        await until(lambda: bool(state.parts()) or pool.all_are_counted())
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
    with pytest.raises(StateError, match="does not share"), pool.engine(None), pool.engine("w1"):
        pass
    with pool.engine(None, once=True) as alone:
        await alone.run()
    assert pool.all_are_counted()
    pool.check()


def test_a_copy_of_the_state_from_before_the_workers_is_no_good_after_them(pool: Pool) -> None:
    with pool.engine(None):
        pass
    assert copy_state(pool.root / STATE_NAME)
    with pool.engine("w1"):
        pass
    assert list(pool.root.glob("*.previous*")) == []


def test_what_a_dead_worker_left_to_export_is_written_by_another_one_and_never_twice(tmp_path: Path) -> None:
    dead = SharedState(tmp_path / "s.db", "w1", now_ns=0)
    dead.commit(Changes(exports=[Export(REJECTED, b"1\n"), Export(REJECTED, b"2\n")]))
    dead.close()
    alone = State(tmp_path / "s.db")
    exports = open_exports(tmp_path, RealDisk(), alone, tmp_path / "p", lambda line: None)
    exports.close()
    alone.close()
    assert (tmp_path / "rejected" / "dispatcher-w1-000001.jsonl").read_bytes() == b"1\n2\n"
    again = SharedState(tmp_path / "s.db", "w1", now_ns=0)
    again.commit(Changes(exports=[Export(REJECTED, b"3\n")]))
    Exports(tmp_path, RealDisk(), again, tmp_path / "p", warn=lambda line: None, worker="w1").close()
    again.close()
    assert (tmp_path / "rejected" / "dispatcher-w1-000001.jsonl").read_bytes() == b"1\n2\n3\n"
