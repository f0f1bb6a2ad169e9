"""The whole dispatcher over real files, with joiners that misbehave."""

from __future__ import annotations

import asyncio
import gzip
import random
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from photon.adapters.envelope import Envelope
from photon.adapters.logs.api import Block
from photon.adapters.logs.problems import LogDirectoryError, Problem
from photon.batch.events import Events
from photon.batch.verdicts import Verdicts
from photon.config.back_off import BackOff
from photon.config.clock import NEVER_NS, SystemClock
from photon.config.disk import RealDisk
from photon.dispatcher.database import STATE_NAME, read_ledger
from photon.dispatcher.engine import Begun, DispatcherEngine, Options, Policy, Surroundings
from photon.dispatcher.errors import StateError
from photon.dispatcher.ledger import LedgerLine, Verdict
from photon.dispatcher.limits import Limits
from photon.dispatcher.lookups import LookUpPolicy
from photon.dispatcher.process import Places, open_dispatcher, serve
from photon.dispatcher.retry import Patience
from photon.eventstore.api import Progress
from photon.idregistry.api import I64, Answer, Digester, Kind
from photon.joiner.api import GONE_REASON, ForeignEvent, JoinAnswers, Outcome
from tests.unit.dispatcher.world import DIGESTER, HERE, FakeRegistry, Words, looked_up
from tests.unit.joiner.told import answers_of, outcomes_of, owners_of

QUICK = Options(commit_s=0.01, scan_s=0.002, progress_s=0.002, stop_s=2.0, join_timeout_s=5.0)
LIMITS = Limits(batch_events=50)


class World:
    """A directory tree, a registry, and the position up to which the primary logs have been read."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.logs = root / "foreign"
        self.logs.mkdir()
        self.registry = FakeRegistry(1)
        self.read_past = NEVER_NS
        self.problems: list[Problem] = []
        self.joiners: list[FakeJoiner] = [FakeJoiner(self)]
        self.look_ups: FakeLookUps | None = None
        self.digester = DIGESTER
        self.policy = Policy(Patience(once=True), LIMITS, replace(QUICK, once=True))
        self.begun: Begun | None = None

    @contextmanager
    def engine(self) -> Iterator[DispatcherEngine]:
        async def progress() -> Progress:
            return Progress(read_past_ns=self.read_past)

        with open_dispatcher(
            Places(self.logs, self.root / "out", self.root / "state", max_record=200),
            self.policy,
            Surroundings(
                join="clicks",
                datacentre=HERE,
                adapter=Words({}),
                digester=self.digester,
                joiners=self.joiners,
                progress=progress,
                registry=self.look_ups,
                envelope=Envelope(),
                clock=SystemClock(),
                random=random.Random(5).random,
                begun=self.begun,
            ),
            RealDisk(),
            report=self.problems.append,
        ) as engine:
            yield engine

    async def once(self) -> LedgerLine:
        with self.engine() as engine:
            async with asyncio.timeout(60):
                await engine.run()
            status = engine.status()
        line = self.ledger()
        assert (status.read, dict(status.verdicts), status.pending) == (line.read, dict(line.verdicts), line.pending)
        return line

    def ledger(self) -> LedgerLine:
        ledger = read_ledger(self.root / "state" / STATE_NAME)
        assert not ledger.unbalanced
        return ledger.total

    def write(self, name: str, data: bytes) -> None:
        with (self.logs / name).open("ab") as f:
            f.write(data)


class FakeJoiner:
    def __init__(self, world: World) -> None:
        self.world = world
        self.mood: Callable[[], JoinAnswers | None] = lambda: None
        self.missing: set[bytes] = set()
        self.gate = asyncio.Event()
        self.gate.set()
        self.seen: list[ForeignEvent] = []
        self.most = self.now = 0

    async def join(self, batch: Events, *, timeout: float) -> JoinAnswers:
        events = batch.rows()
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await self.gate.wait()
            await asyncio.sleep(0)
            self.seen += events
            instead = self.mood()
            if instead is not None:
                return instead
            past = self.world.read_past
            found = [e.key not in self.missing for e in events]
            answers = self.world.registry.answers([e for e, there in zip(events, found, strict=True) if there])
            outcomes, taken, at = [], {}, 0
            for row, (event, there) in enumerate(zip(events, found, strict=True)):
                if there:
                    outcomes.append(outcomes_of(answers)[at])
                    if at in (owners := owners_of(answers)):
                        taken[row] = owners[at]
                    at += 1
                else:
                    as_of = event.unmatched_as_of_ns
                    outcomes.append(Outcome.UNMATCHED if -(2**63) < as_of <= past else Outcome.NOT_YET)
            return answers_of(outcomes, taken)
        finally:
            self.now -= 1

    async def close(self) -> None: ...


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def lines(start: int, stop: int) -> bytes:
    return b"".join(b"id%d k%d %d\n" % (n, n, n % 3) for n in range(start, stop))


@asynccontextmanager
async def running(engine: DispatcherEngine) -> AsyncIterator[None]:
    task = asyncio.create_task(engine.run())
    try:
        yield
    finally:
        engine.stop()
        async with asyncio.timeout(60):
            await task


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110 -- what is waited for has no event
            await asyncio.sleep(0.002)


async def test_once_reads_everything_and_ends(world: World) -> None:
    world.write("a.log", lines(0, 500) + b"bad\n\n" + b"x" * 300 + b"\n" + b"last k 1")
    (world.logs / "b.log.gz").write_bytes(gzip.compress(lines(400, 700)))
    total = await world.once()
    assert total.read == 803
    assert total.as_dict()["duplicate"] == 100
    assert total.as_dict()["rejected"] >= 2
    assert total.pending == 0
    rejected = [
        orjson.loads(x) for x in (world.root / "out/rejected/dispatcher-000001.jsonl").read_bytes().splitlines()
    ]
    at = len(lines(0, 500))
    assert [(r["source"]["offset"], r["record"][:3]) for r in rejected] == [(at, "bad"), (at + 5, "xxx")]
    assert not world.problems


async def test_blocks_that_must_not_be_worked_on_end_it_and_are_read_again(world: World) -> None:
    may = False

    async def begun(blocks: Sequence[Block]) -> bool:
        assert blocks
        return may

    world.begun = begun
    world.write("a.log", lines(0, 10) + b"last k 1")
    with world.engine() as engine:
        async with asyncio.timeout(60):
            await engine.run()
        assert engine.status().read == 0
    assert not world.joiners[0].seen
    may = True
    assert (await world.once()).read == 11


async def test_running_again_continues(world: World) -> None:
    world.write("a.log", lines(0, 10))
    await world.once()
    asked = len(world.joiners[0].seen)
    assert asked == 10
    assert (await world.once()).read == 10
    assert len(world.joiners[0].seen) == asked
    world.write("a.log", lines(10, 13))
    assert (await world.once()).read == 13
    assert [e.event_id for e in world.joiners[0].seen[asked:]] == [b"id10", b"id11", b"id12"]


async def test_follows_growing_and_new_files_and_stops_in_good_order(world: World) -> None:
    world.policy = Policy(Patience(), LIMITS, QUICK)
    with world.engine() as engine:
        async with running(engine):
            world.write("a.log", b"id0 k")
            await asyncio.sleep(0.01)
            world.write("a.log", b" 0\n" + lines(1, 5))
            await until(lambda: engine.status().read == 5)
            (world.logs / "a.log").rename(world.logs / "a.log.1")
            world.write("a.log", lines(5, 9))
            await until(lambda: engine.status().read == 9 and engine.status().pending == 0)
            await until(lambda: engine.status().caught_up)
    assert world.ledger().read == 9
    assert sorted(world.registry.owners) == sorted(b"id%d" % n for n in range(9))


async def test_missing_primaries_become_unmatched_once_the_logs_are_complete(world: World) -> None:
    world.read_past = 0
    world.joiners[0].missing = {b"k1", b"k3"}
    world.write("a.log", lines(0, 5))
    with world.engine() as engine:
        task = asyncio.create_task(engine.run())
        await until(lambda: engine.status().pending == 2)
        await asyncio.sleep(0.05)
        assert not task.done()
        world.read_past = NEVER_NS
        async with asyncio.timeout(60):
            await task
    assert world.ledger().as_dict()["unmatched"] >= 2


async def test_keep_pending_ends_and_the_next_run_goes_on(world: World) -> None:
    joiner = world.joiners[0]
    joiner.missing = {b"k1", b"k3"}
    world.policy = replace(world.policy, patience=Patience(once=True, keep_pending=True))
    world.write("a.log", lines(0, 5))
    total = await world.once()
    assert (total.read, total.pending) == (5, 2)
    assert (await world.once()).pending == 2
    joiner.missing = {b"k3"}
    assert (await world.once()).pending == 1
    world.policy = replace(world.policy, patience=Patience(once=True))
    total = await world.once()
    assert (total.read, total.pending) == (5, 0)
    assert total.as_dict()["unmatched"] >= 1


async def test_events_that_wait_long_live_in_the_store_and_are_woken_by_progress(world: World) -> None:
    joiner = world.joiners[0]
    joiner.missing = {b"k%d" % n for n in range(300)}
    world.read_past = 0
    limits = replace(LIMITS, hold_s=0.0)
    world.policy = Policy(Patience(unmatched_after_ns=3600 * 10**9), limits, QUICK)
    world.write("a.log", lines(0, 300))
    with world.engine() as engine:
        async with running(engine):
            await until(lambda: engine.status().stored == 300)
            assert world.ledger().pending == 300
            joiner.missing = set()
            world.read_past = SystemClock().now_ns()
            await until(lambda: engine.status().pending == 0)
            await until(lambda: engine.status().stored == 0)
    assert world.ledger().read == 300


async def test_killed_and_started_again_counts_once(world: World) -> None:
    """The task is cancelled in the middle, as if killed: only the database and the registry remain."""
    joiner = world.joiners[0]
    world.policy = replace(world.policy, limits=Limits(batch_events=7, hold_once_s=0.02, parse_records=5))
    r = random.Random(11)
    world.registry.trouble = 0.4
    for n in range(30):
        world.write("a.log", lines(n * 40, n * 40 + 50) + b"bad\n")  # ten of each are duplicates of the next
        with world.engine() as engine:
            task = asyncio.create_task(engine.run())
            for _ in range(r.randrange(60)):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        read_ledger(world.root / "state" / STATE_NAME)
    world.registry.trouble = 0.0
    total = await world.once()
    assert total.read == 30 * 51
    named = total.as_dict()
    assert named["duplicate"] == 29 * 10
    kinds = [kind for _, kind, _ in world.registry.owners.values()]
    assert len(kinds) == 29 * 40 + 50
    assert named["joined"] == kinds.count(Kind.JOINED)
    assert named["unmatched"] == kinds.count(Kind.UNMATCHED)
    assert named["filtered"] == kinds.count(Kind.FILTERED)
    assert named["rejected"] == kinds.count(Kind.REJECTED) + 30
    assert total.reread == 0
    rejected = (world.root / "out/rejected/dispatcher-000001.jsonl").read_bytes().splitlines()
    assert len({orjson.loads(line)["source"]["offset"] for line in rejected}) == len(rejected) == 30
    assert joiner.most <= QUICK.in_flight


async def test_batches_in_flight_are_bounded_and_reading_stops(world: World) -> None:
    joiner = world.joiners[0]
    joiner.gate.clear()
    world.policy = Policy(Patience(), Limits(batch_events=10, window_bytes=20_000, hold_bytes=1 << 30), QUICK)
    world.write("a.log", lines(0, 300_000))
    with world.engine() as engine:
        async with running(engine):
            await until(lambda: joiner.now == 8)
            await asyncio.sleep(0.05)
            assert joiner.most == 8
            assert engine.status().bytes_read <= 3 << 20
            joiner.gate.set()
            await until(lambda: engine.status().verdicts and engine.status().read > 50_000)


async def test_a_broken_joiner_costs_nothing_but_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    back_off = BackOff(first=0.1, most=0.3)  # the amount of time is luck
    monkeypatch.setattr("photon.dispatcher.retry.RETRY_BACKOFF", back_off)
    broken = FakeJoiner(world)

    def explode() -> JoinAnswers | None:
        raise ConnectionError("down")

    broken.mood = explode
    short = FakeJoiner(world)
    short.mood = lambda: answers_of([Outcome.JOINED])
    world.joiners += [broken, short]
    world.write("a.log", lines(0, 2000))
    total = await world.once()
    assert (total.read, total.pending) == (2000, 0)
    assert len(world.registry.owners) == 2000


async def test_with_once_what_is_undecided_waits_for_the_next_run(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("photon.dispatcher.retry.ONCE_ATTEMPTS_MAX", 3)
    (joiner,) = world.joiners
    world.write("a.log", lines(0, 10))
    answers = iter([answers_of([Outcome.JOINED] * 4 + [Outcome.RETRY] * 6)])
    joiner.mood = lambda: next(answers, JoinAnswers.alike(6, Outcome.RETRY))
    total = await world.once()
    assert (total.verdicts[Verdict.JOINED], total.pending) == (4, 6)
    joiner.seen.clear()
    joiner.mood = lambda: None
    assert (await world.once()).pending == 0
    assert len(joiner.seen) == 6


async def test_with_once_events_whose_primary_log_is_gone_wait_for_the_next_run_at_once(world: World) -> None:
    (joiner,) = world.joiners
    world.write("a.log", lines(0, 10))
    answers = answers_of([Outcome.JOINED] * 4 + [Outcome.RETRY] * 6)
    gone = dict.fromkeys(range(4, 10), GONE_REASON)
    joiner.mood = lambda: replace(answers, verdicts=replace(answers.verdicts, reasons=gone))
    total = await world.once()
    assert (total.verdicts[Verdict.JOINED], total.pending, len(joiner.seen)) == (4, 6, 10)


async def test_a_state_is_refused_under_another_key(world: World) -> None:
    world.write("a.log", lines(0, 10))
    await world.once()
    world.digester = Digester(b"another key, 16+", "clicks")
    with pytest.raises(StateError, match="another key"):
        await world.once()


async def test_overloaded_joiners_are_asked_again(world: World) -> None:
    joiner = world.joiners[0]
    refusals = iter(range(5))
    joiner.mood = lambda: None if next(refusals, None) is None else answers_of([], overloaded=True)
    world.write("a.log", lines(0, 100))
    assert (await world.once()).pending == 0


class FakeLookUps:
    """A registry for look-ups only."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.asked = 0

    async def look_up(self, digests: bytes, times: I64, *, timeout: float) -> Verdicts:
        n = len(times)
        self.asked += n
        if self.asked > 60:
            raise ConnectionError("down")
        return looked_up([Answer.PRESENT] * n, 1, names=("there",))

    async def close(self) -> None: ...


async def test_looked_up_first_when_asked_to(world: World) -> None:
    world.look_ups = FakeLookUps(world)
    world.policy = replace(world.policy, options=replace(QUICK, once=True, look_ups=LookUpPolicy.ALWAYS))
    world.write("a.log", lines(0, 120))
    total = await world.once()
    assert total.as_dict()["elsewhere"] == 50  # the first batch; then look-ups fail, and joiners decide
    assert len(world.joiners[0].seen) == 70
    assert total.pending == 0


async def test_a_stop_ends_in_good_order(world: World) -> None:
    world.policy = Policy(Patience(), LIMITS, QUICK)
    world.write("a.log", lines(0, 100))
    with world.engine() as engine:
        stop = asyncio.Event()
        task = asyncio.create_task(serve(engine, stop))
        await until(lambda: engine.status().pending == 0 and engine.status().read == 100)
        stop.set()
        async with asyncio.timeout(60):
            await task
    assert world.ledger().read == 100


async def test_a_state_that_cannot_be_written_ends_the_process(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write("a.log", lines(0, 100))
    with world.engine() as engine:

        def refuse(*_: object) -> None:
            raise StateError("state", "cannot be written", "make room")

        monkeypatch.setattr(engine._state, "commit", refuse)
        async with asyncio.timeout(60):
            with pytest.raises(StateError):
                await engine.run()
    assert world.ledger().read == 0


def test_what_is_missing_at_start_is_said_in_one_line(world: World) -> None:
    world.logs.rmdir()
    with pytest.raises(LogDirectoryError, match="no such directory"), world.engine():
        pass
    world.logs.mkdir()
    with world.engine():  # and the state was let go of
        pass
