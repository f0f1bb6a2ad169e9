"""Events are tried at once when their primary event comes, wherever they wait; a lost wake-up costs only time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from photon.config.clock import SystemClock
from photon.dispatcher.arrivals import SEEK_KEYS, Arrivals
from photon.dispatcher.core import Core
from photon.dispatcher.events import Batch
from photon.dispatcher.limits import Limits
from photon.dispatcher.retry import SETTLED_NS, Patience
from photon.dispatcher.retry_loader import RetryLoader
from photon.dispatcher.state import Changes, State
from photon.dispatcher.waiting import ArrivedKeys
from photon.eventstore.api import KeyArrivals
from photon.joiner.api import JoinAnswers, Outcome
from tests.unit.dispatcher import world
from tests.unit.dispatcher.test_engine import until
from tests.unit.dispatcher.world import StoredRow, block, core, take
from tests.unit.joiner.helpers import event

READ_PAST_NS = 10**12
FAR_S = 10_000.0  # longer than any back-off


def sent(c: Core, now: float = 0.0) -> Batch:
    batch = c.next_batch(now, flush=True)
    assert batch is not None
    return batch


def reply(c: Core, batch: Batch, outcome: Outcome = Outcome.NOT_YET) -> None:
    c.answered(batch, JoinAnswers.alike(len(batch), outcome), READ_PAST_NS, 0.0)


def names(batch: Batch | None) -> list[bytes]:
    return [] if batch is None else list(batch.events.ids)


def test_what_came_since_is_what_came_since() -> None:
    keys = ArrivedKeys()
    keys.add([b"a", b"b"])
    assert keys.since([b"a", b"b", b"c"], 0).tolist() == [True, True, False]
    assert keys.since([b"a", b"b", b"c"], 1).tolist() == [False, True, False]


def row(number: int, key: bytes, read_ns: int = READ_PAST_NS) -> StoredRow:
    return StoredRow(event(b"id%d" % number, key), read_ns, 3, READ_PAST_NS + int(FAR_S * 1e9), SETTLED_NS - 1)


class Stored:
    """A core over rows that wait for long."""

    def __init__(self, path: Path, rows: Sequence[StoredRow]) -> None:
        self.state = State(path)
        self.state.commit(Changes(stored=world.stored(rows)))
        self.core = core(self.state, patience=Patience(), limits=Limits(batch_wait_s=0.0))
        self.core.waiting.progressed(READ_PAST_NS)
        self.loader = RetryLoader(self.core.waiting, self.state, once=False, now_ns=READ_PAST_NS)

    def tried(self, outcome: Outcome = Outcome.JOINED, now: float = 0.0, *, commit: bool = True) -> list[bytes]:
        self.loader.look(READ_PAST_NS, now)
        out: list[bytes] = []
        while (batch := self.core.next_batch(now, flush=True)) is not None:
            out += names(batch)
            self.core.answered(batch, JoinAnswers.alike(len(batch), outcome), READ_PAST_NS, now)
        if commit:
            self.commit()
        return out

    def commit(self) -> None:
        self.state.commit(self.core.committing.changes(READ_PAST_NS, 0.0))
        self.core.committing.committed()

    def arrived(self, *keys: bytes) -> None:
        """In the form that ``Arrivals`` uses."""
        self.core.waiting.arrived(keys)
        self.loader.arrived(keys)


def test_rows_are_tried_when_their_primary_comes_however_many_there_are(tmp_path: Path) -> None:
    many = 5000
    stored = Stored(tmp_path / "s", [row(n, b"hot" if n < many else b"k%d" % n) for n in range(many + 3000)])
    assert stored.tried() == []
    stored.loader.arrived([b"k%d" % n for n in range(many, many + 1500)])
    assert sorted(stored.tried()) == sorted(b"id%d" % n for n in range(many, many + 1500))
    stored.loader.arrived([b"hot", b"none"])
    seen = []
    for _ in range(4):
        seen += stored.tried()
    assert sorted(seen) == sorted(b"id%d" % n for n in range(many))
    assert not stored.loader.pending
    assert stored.core.waiting.arrivals == many + 1500
    stored.state.close()


def test_rows_are_found_by_their_key(tmp_path: Path) -> None:
    stored = Stored(tmp_path / "s", [row(n, b"k%d" % n) for n in range(10)])
    plan = stored.state.database.execute(
        "EXPLAIN QUERY PLAN SELECT id FROM retries WHERE key IN (?, ?) LIMIT 9", (b"a", b"b")
    ).fetchall()
    assert "retries_by_key" in str(plan)
    stored.state.close()


# -- following the event store ---------------------------------------------------------------------------------------
class Store:
    """Announces arrivals chosen by a test; ``there``: keys that it has."""

    def __init__(self) -> None:
        self.told: asyncio.Queue[KeyArrivals | None] = asyncio.Queue()
        self.there: set[bytes] = set()
        self.sought: list[Sequence[bytes]] = []
        self.asked: list[tuple[int, int]] = []
        self.away = False

    async def arrived(self, epoch: int, number: int, wait_s: float) -> KeyArrivals | None:
        self.asked.append((epoch, number))
        return await self.told.get()

    async def seek(self, keys: Sequence[bytes]) -> list[int] | None:
        await asyncio.sleep(0)
        if self.away:
            return None
        self.sought.append(keys)
        return [at for at, key in enumerate(keys) if key in self.there]


@asynccontextmanager
async def following(stored: Stored, store: Store) -> AsyncIterator[Arrivals]:
    arrivals = Arrivals(store, stored.core.waiting, stored.state, stored.loader, SystemClock(), lambda: None)
    task = asyncio.create_task(arrivals.run())
    try:
        yield arrivals
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        stored.state.close()


async def test_who_begins_seeks_all_that_waits_then_hears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 2 * SEEK_KEYS + 10
    stored, store = Stored(tmp_path / "s", [row(n, b"k%d" % n) for n in range(count)]), Store()
    take(stored.core, block(b"a held 1\n"))
    reply(stored.core, sent(stored.core))
    store.there = {b"k5", b"k%d" % (count - 1)}
    async with following(stored, store) as arrivals:
        store.told.put_nowait(KeyArrivals(7, 40, [], lost=True))
        await until(lambda: stored.core.waiting.followed)
        assert [len(keys) for keys in store.sought] == [1, SEEK_KEYS, SEEK_KEYS, 10]
        assert not arrivals.seeking
        assert sorted(stored.tried()) == [b"id%d" % n for n in (5, count - 1)]
        store.told.put_nowait(KeyArrivals(7, 42, [b"held", b"k9"]))
        await until(lambda: store.asked[-1] == (7, 42))
        assert sorted(stored.tried()) == [b"a", b"id9"]
        store.told.put_nowait(None)
        await until(lambda: not stored.core.waiting.followed)


async def test_a_store_that_started_again_is_asked_for_all_anew(tmp_path: Path) -> None:
    stored, store = Stored(tmp_path / "s", [row(n, b"k%d" % n) for n in range(10)]), Store()
    async with following(stored, store):
        store.told.put_nowait(KeyArrivals(7, 0, [], lost=True))
        await until(lambda: len(store.sought) == 1)
        store.away = True
        take(stored.core, block(b"a k11 1\n"))
        on_its_way = sent(stored.core)
        store.told.put_nowait(KeyArrivals(8, 0, [], lost=True))
        await until(lambda: len(store.asked) == 3)
        assert not stored.core.waiting.followed
        store.away = False
        await until(lambda: len(store.sought) == 2)
        assert [len(keys) for keys in store.sought] == [10, 10]
        await until(lambda: stored.core.waiting.followed)
        reply(stored.core, on_its_way)
        assert stored.tried() == [b"a"]


async def test_keys_of_rows_taken_over_are_sought(tmp_path: Path) -> None:
    stored, store = Stored(tmp_path / "s", []), Store()
    async with following(stored, store) as arrivals:
        store.told.put_nowait(KeyArrivals(7, 0, [], lost=True))
        await until(lambda: stored.core.waiting.followed)
        arrivals.seek([b"a", b"b", b"a"])
        await until(lambda: store.sought)
        assert store.sought == [[b"a", b"b"]]


def test_whatever_order_things_come_in_memory_knows_who_waits_for_what() -> None:
    draw = random.Random(4)
    c = core(patience=Patience(), limits=Limits(batch_wait_s=0.0, hold_s=1e9), seed=4)
    c.waiting.progressed(READ_PAST_NS)
    take(c, block(b"".join(b"id%d k%d 1\n" % (n, n % 37) for n in range(200))))
    now, left = 0.0, {b"id%d" % n: b"k%d" % (n % 37) for n in range(200)}
    for _ in range(300):
        now += draw.choice((0.0, 0.3))
        arrived = [b"k%d" % draw.randrange(37) for _ in range(draw.randrange(3))]
        waiting = set(c.waiting.room.keys())
        c.waiting.arrived(arrived)
        assert not set(c.waiting.room.keys()) & set(arrived)
        assert set(c.waiting.room.keys()) == waiting - set(arrived)
        batch = c.next_batch(now, flush=True)
        if batch is None:
            continue
        outcome = draw.choice((Outcome.NOT_YET, Outcome.NOT_YET, Outcome.JOINED))
        c.answered(batch, JoinAnswers.alike(len(batch), outcome), READ_PAST_NS, now)
        if outcome is Outcome.JOINED:
            for name in names(batch):
                del left[name]
    assert c.waiting.open == len(left)
    c.waiting.arrived([b"k%d" % n for n in range(37)])
    seen = []
    while (batch := c.next_batch(now + 1e6, flush=True)) is not None:
        seen += names(batch)
    assert sorted(seen) == sorted(left)
