"""The chunks of a log that hold events of a time: never too few, whichever pieces were read."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from photon.adapters.logs.api import LogPosition
from photon.dispatcher.database import _SCHEMA
from photon.dispatcher.limits import Limits
from photon.dispatcher.replay import coverage, rereading
from photon.dispatcher.replay.coverage import (
    CHUNK_BYTES,
    GRAIN_NS,
    MAX_NS,
    MIN_NS,
    Coverage,
    Span,
    chunks_between,
    holding,
    unknown_from,
)
from photon.dispatcher.state import Changes, State
from tests.unit.dispatcher.world import HOUR, block, core, take


def position(identity: str, offset: int) -> LogPosition:
    return LogPosition(identity, f"{identity}.log", offset)


def commit(state: State, offset: int, *spans: Span, identity: str = "a") -> None:
    state.commit(Changes(positions={identity: position(identity, offset)}, spans=list(spans)))


@pytest.mark.parametrize("seed", range(20))
def test_every_event_lies_in_a_chunk_that_is_found_for_its_time(tmp_path: Path, seed: int) -> None:
    print(f"seed {seed}")
    draw = random.Random(seed)
    state = State(tmp_path / "s.db")
    events: list[tuple[str, int, int]] = []  # log, offset, time
    ends = {"a": 0, "b": 0}
    for at in range(120):
        if draw.random() < 0.1:  # a restart forgets remembered ranges, not written ones
            state.close()
            state = State(tmp_path / "s.db")
        name = draw.choice("ab")
        begin = ends[name]
        end = begin + draw.choice((1, 700, CHUNK_BYTES // 3, CHUNK_BYTES, 2 * CHUNK_BYTES + 5))
        times = [at * GRAIN_NS + draw.randrange(-5 * GRAIN_NS, GRAIN_NS) for _ in range(draw.choice((0, 1, 5)))]
        events += [(name, draw.randrange(begin, end), time) for time in times]
        ends[name] = end
        span = Span(name, begin, end, min(times, default=MAX_NS), max(times, default=MIN_NS))
        commit(state, end, span, identity=name)
    db = sqlite3.connect(tmp_path / "s.db")
    for name, offset, time in events:
        found = chunks_between(db, state.positions(), time, time + 1)
        hit = [c for c in holding(found, np.array([time])) if c.identity == name and c.begin <= offset < c.end]
        assert len(hit) == 1
    rows = db.execute("SELECT count(*) FROM covered").fetchone()[0]
    assert rows <= sum(end // CHUNK_BYTES + 1 for end in ends.values())
    far = chunks_between(db, state.positions(), 10**6 * GRAIN_NS, 10**7 * GRAIN_NS)
    assert far == [], "nothing of the future is looked for anywhere"
    db.close()
    state.close()


def test_what_was_skipped_or_never_recorded_may_hold_anything(state: State) -> None:
    end = 3 * CHUNK_BYTES + 10
    commit(state, end, unknown_from("a", end))
    commit(state, end + 100, Span("a", end, end + 100, 5 * HOUR, 5 * HOUR))
    found = chunks_between(state._db, state.positions(), 0, 1)
    assert [(chunk.begin // CHUNK_BYTES, chunk.end) for chunk in found] == [
        (0, CHUNK_BYTES),
        (1, 2 * CHUNK_BYTES),
        (2, 3 * CHUNK_BYTES),
        (3, end + 100),
    ]


def test_a_growing_log_is_not_written_at_every_commit(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
    db.executescript(_SCHEMA)
    kept = Coverage()
    kept.put(db, [Span("a", 0, 100, 10, 20)])
    before = db.total_changes
    for second in range(1, 60):
        kept.put(db, [Span("a", 100 * second, 100 * second + 100, second * 10**9, second * 10**9)])
    assert db.total_changes == before
    kept.put(db, [Span("a", 6000, 6100, 61 * 10**9, 61 * 10**9)])
    assert db.total_changes == before + 1
    db.close()


class OnlyA:
    """A directory in which one log is left."""

    asked = 0

    async def live(self) -> set[str]:
        self.asked += 1
        return {"a"}


async def test_of_too_many_rows_those_of_gone_logs_are_dropped(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "ab":
        for n in range(4):
            end = (n + 1) * CHUNK_BYTES
            commit(state, end, Span(name, n * CHUNK_BYTES, end, 7, 7), identity=name)
    reads = OnlyA()
    monkeypatch.setattr(rereading, "TIDYING_S", 0.001)
    monkeypatch.setattr(coverage, "COVERED_MAX", 8)
    running = asyncio.create_task(rereading.tidy(state, reads))  # type: ignore[arg-type]

    def rows() -> int:
        return int(state.database.execute("SELECT count(*) FROM covered").fetchone()[0])

    await asyncio.sleep(0.02)
    assert (rows(), reads.asked) == (8, 0), "nothing is dropped while there is room"
    monkeypatch.setattr(coverage, "COVERED_MAX", 7)
    async with asyncio.timeout(30):
        while rows() == 8:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    running.cancel()
    assert rows() == 5
    found = chunks_between(state.database, state.positions(), 10 * HOUR, 11 * HOUR)
    assert [(chunk.identity, chunk.begin // CHUNK_BYTES) for chunk in found] == [("b", 0), ("b", 1), ("b", 2)]


def test_the_core_commits_times_with_the_offset(state: State) -> None:
    to = core(state, limits=Limits(parse_records=1))
    take(to, block(b"1 k 5\n2 k 3\ngarbage\n3 k 8\n"))
    changes = to.committing.changes(0, 0.0, store_all=True)
    assert changes.spans == [Span("log1", 0, 26, 3 * HOUR, 8 * HOUR)]
    state.commit(changes)
    to.committing.committed()
    take(to, block(b"garbage\n", 26))
    changes = to.committing.changes(0, 0.0, store_all=True)
    state.commit(changes)
    at = state.positions()
    assert [len(chunks_between(state._db, at, t * HOUR, t * HOUR + 1)) for t in (2, 3, 5, 8, 9)] == [0, 1, 1, 1, 0]
    assert coverage.COVERED_MAX >= 4e12 / CHUNK_BYTES
