"""Ids given up by the registry are found by (digest, event time), and dispatched with their new generation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import structlog

from photon.adapters.logs import reading as log_reading
from photon.batch.events import Events
from photon.config.back_off import BackOff
from photon.dispatcher import process
from photon.dispatcher.engine import DispatcherEngine
from photon.dispatcher.replay import coverage, reading, reopened
from photon.dispatcher.replay.rereading import Sources
from photon.dispatcher.retry import Patience
from photon.dispatcher.state import Changes, State
from photon.idregistry.core.outcomes import Refusal, Status
from photon.idregistry.core.scans import EntryPage
from photon.joiner.api import ForeignEvent, JoinAnswers, Outcome
from photon.joiner.verdicts import line_tag
from tests.unit.dispatcher.replay.test_replayer import hours, read_all
from tests.unit.dispatcher.test_engine import LIMITS, QUICK, World, running, until
from tests.unit.dispatcher.world import DIGESTER, HOUR
from tests.unit.joiner.told import answers_of

PATIENCE = Patience(unmatched_after_ns=HOUR)
NO_TAG = 0


class FakeList:
    """The registry's list of reopened ids; digest -> (time, generation, tag). Two shards, pages of three."""

    def __init__(self) -> None:
        self.ids: dict[bytes, tuple[int, int, int]] = {}
        self.down = False
        self.asked = 0

    def add(self, event_id: str, time: int, generation: int = 1, tag: int = NO_TAG) -> None:
        self.ids[DIGESTER.digest(event_id.encode())] = (time, generation, tag)

    async def shards(self, *, timeout: float) -> tuple[int, ...]:
        return (1, 2)

    async def scan_reopened(
        self, shard: int, *, cursor: bytes = b"", limit: int = 0, timeout: float
    ) -> EntryPage | Refusal:
        self.asked += 1
        if self.down:
            return Refusal(Status.UNKNOWN, "no answer in time")
        mine = sorted(digest for digest in self.ids if digest[0] % 2 == shard - 1 and digest > cursor)
        page = mine[: min(limit, 3)]
        rows = [self.ids[digest] for digest in page]
        return EntryPage(
            b"".join(page),
            np.array([row[0] for row in rows], np.int64),
            np.zeros(len(rows), np.uint64),
            np.ones(len(rows), np.uint8),
            np.array([row[2] for row in rows], np.uint32),
            np.array([row[1] for row in rows], np.uint32),
            page[-1] if len(mine) > len(page) else b"",
        )


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(coverage, "CHUNK_BYTES", 1000)
    monkeypatch.setattr(log_reading, "BLOCK_BYTES", 500)
    monkeypatch.setattr(reopened, "PAGE_IDS", 3)
    monkeypatch.setattr(reopened, "WANTED_MAX", 4)
    monkeypatch.setattr(reopened, "MISSING", BackOff(first=0.02, most=600.0))
    world = World(tmp_path)
    world.policy = process.Policy(PATIENCE, LIMITS, QUICK)
    return world


class Taking:
    """A joiner that registers ids with the wanted generation."""

    def __init__(self, ids: FakeList) -> None:
        self.ids = ids
        self.seen: list[ForeignEvent] = []
        self.not_yet = False

    async def join(self, events: Events, *, timeout: float) -> JoinAnswers:
        self.seen += events.rows()
        outcomes = []
        for event in events.rows():
            listed = self.ids.ids.get(event.digest)
            if self.not_yet or listed is None or listed[1] != event.generation:
                outcomes.append(Outcome.NOT_YET)
            else:
                del self.ids.ids[event.digest]
                outcomes.append(Outcome.JOINED)
        return answers_of(outcomes)

    async def close(self) -> None: ...


@contextmanager
def reading_list(
    world: World, ids: FakeList, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[DispatcherEngine, Taking]]:
    """An engine that reads the list, and its joiner."""
    monkeypatch.setattr(process, "Sources", lambda files, recovery: Sources(files, ids, 0.01))
    taking = Taking(ids)
    world.joiners = [taking]  # type: ignore[list-item]
    with world.engine() as engine:
        yield engine, taking


async def test_they_are_found_by_time_and_carry_their_generation(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write("a.log", hours(0, 40))
    world.write("b.log", hours(40, 60))
    before = await read_all(world)
    (world.logs / "b.log").rename(world.logs / "b.log.1")  # rotated since
    chunks: list[coverage.Chunk] = []
    blocks = reading.LogFiles.blocks

    async def noted(self: reading.LogFiles, chunk: coverage.Chunk) -> object:
        chunks.append(chunk)
        return await blocks(self, chunk)

    monkeypatch.setattr(reading.LogFiles, "blocks", noted)
    ids = FakeList()
    wanted = {f"id{n}": 1 + n % 2 for n in (3, 555, 556, 1200, 3999, 4000, 5998)}
    for name, generation in wanted.items():
        ids.add(name, int(name[2:]) // 100 * HOUR, generation)
    with reading_list(world, ids, monkeypatch) as (engine, taking):
        async with running(engine):
            await until(lambda: not ids.ids)
            await until(lambda: world.ledger().reread == len(wanted))
            assert engine.status().reopened_missing == 0
    assert {event.event_id.decode(): event.generation for event in taking.seen} == wanted
    assert {event.file.path for event in taking.seen if event.event_id == b"id5998"} == {"b.log.1"}
    looked = sum(chunk.end - chunk.begin for chunk in chunks)
    assert looked < len(hours(0, 60)) / 2, "not everything is read to find a few"
    after = world.ledger()
    assert (after.read, after.verdicts, after.pending) == (before.read, before.verdicts, before.pending)
    state = State(world.root / "state" / process.STATE_NAME)
    assert state.database.execute("SELECT count(*) FROM reopened").fetchone()[0] <= len(wanted)
    state.close()


async def test_of_lines_with_one_id_the_one_that_was_registered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [b"same k1 1", b"same k2 1", b"same k3 1"]
    world.write("a.log", b"\n".join(lines) + b"\n")
    await read_all(world)
    ids = FakeList()
    ids.add("same", HOUR, 1, line_tag(lines[1], len(lines[0]) + 1, "a.log"))
    with reading_list(world, ids, monkeypatch) as (engine, taking):
        async with running(engine):
            await until(lambda: not ids.ids)
    assert {event.key for event in taking.seen} == {b"k2"}


async def test_a_line_with_another_time_is_found_at_the_second_look(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write("a.log", hours(0, 40))
    await read_all(world)
    ids = FakeList()
    ids.add("id7", 33 * HOUR)  # its owner's line said so; that datacentre's disks are gone
    with reading_list(world, ids, monkeypatch) as (engine, taking):
        async with running(engine):
            await until(lambda: not ids.ids)
    assert {event.event_id for event in taking.seen} == {b"id7"}
    assert {event.event_time_ns for event in taking.seen} == {0}


async def test_what_stands_in_no_log_is_told_and_sought_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write("a.log", hours(0, 3))
    await read_all(world)
    ids = FakeList()
    ids.add("id7", 0)
    ids.add("lost", 2 * HOUR)
    ids.add("new0", 9 * HOUR)
    with structlog.testing.capture_logs() as told, reading_list(world, ids, monkeypatch) as (engine, taking):
        async with running(engine):
            await until(lambda: (engine.status().reopened, engine.status().reopened_missing) == (2, 2))
            world.write("b.log", b"new0 k 9\n")  # it comes to this datacentre late
            await until(lambda: engine.status().reopened_missing == 1)
            ids.down = True
            asked = ids.asked
            await until(lambda: ids.asked > asked + 3)
            assert engine.status().reopened_missing == 1, "nobody said anything else"
            ids.down = False
            ids.ids.clear()
            await until(lambda: not engine.status().reopened_missing and not engine.status().reopened)
    assert any(event.event_id == b"new0" and event.generation == 1 for event in taking.seen)
    warnings = [each["ids"] for each in told if "are in no log" in each["event"]]
    assert warnings == [2, 1], "said when it changes, not at each look"


async def test_patience_counts_from_the_first_sight_of_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write("a.log", hours(0, 3))
    await read_all(world)
    ids = FakeList()
    ids.add("id7", 0)
    as_of = set()
    for _ in range(3):
        with reading_list(world, ids, monkeypatch) as (engine, taking):
            taking.not_yet = True
            async with running(engine):
                await until(lambda: len(taking.seen) >= 2)
            as_of |= {event.unmatched_as_of_ns for event in taking.seen if event.generation}
    assert len(as_of) == 1


def test_an_id_is_missing_once_no_dispatcher_of_the_datacentre_has_found_it(tmp_path: Path) -> None:
    """One that was not looked for yet in its logs does not count."""
    paths = [tmp_path / name for name in "abc"]
    states = [State(path, others=[each for each in paths if each != path]) for path in paths[:2]]
    insert = "INSERT INTO reopened VALUES (?, 1, 0, 0, ?)"
    for state, found in zip(states, ({b"x": 1, b"y": 1, b"z": 0}, {b"x": 1, b"y": 0, b"z": 0}), strict=True):
        state.commit(Changes(also=[(insert, row) for row in found.items()]))
    assert [state.missing_everywhere() for state in states] == [{(b"x", 1)}] * 2
    for state in states:
        state.close()
