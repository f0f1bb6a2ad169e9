"""The retry store at work: the order in which rows are taken up, and its disk usage."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from photon.adapters.contract import LogFile
from photon.dispatcher import retry_loader
from photon.dispatcher.events import Batch
from photon.dispatcher.open_events import OpenEvents
from photon.dispatcher.queues import BEHIND_S, CALM_S, SMALL_EVENTS, STOCK_EVENTS, Shares
from photon.dispatcher.retry import (
    NOT_YET_BACKOFF,
    NOT_YET_MOST_S,
    SETTLED_NS,
    Attempt,
    Likeness,
    NextTries,
    Patience,
)
from photon.dispatcher.retry_loader import FEW_S, LOOK_ROWS, RetryLoader
from photon.dispatcher.state import Changes, State
from photon.dispatcher.two_clocks import Heard
from photon.joiner.api import WAIT_NS, ForeignEvent, JoinAnswers, Outcome
from tests.unit.dispatcher import world
from tests.unit.dispatcher.world import StoredRow, stored
from tests.unit.joiner.told import answers_of

S = 1_000_000_000
NOW_NS = 1_000_000 * S
FILE = LogFile("a.log")


def item(
    n: int,
    *,
    next_try_ns: int = SETTLED_NS,
    trigger_ns: int = SETTLED_NS,
    read_ns: int = 0,
    time_ns: int | None = None,
    size: int = 100,
) -> StoredRow:
    """``time_ns``: its event time; ``None``: it was read at once."""
    at_ns = read_ns if time_ns is None else time_ns
    event = ForeignEvent(b"id%d" % n, b"%16d" % n, at_ns, b"k%d" % n, b"x" * size, FILE, n, 0)
    return StoredRow(event, read_ns, 5, next_try_ns, trigger_ns)


class Store:
    """A state, and a core and a loader over it; the clock is set manually."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = 0.0
        self.open(once=False)

    def open(self, *, once: bool, patience: Patience | None = None) -> None:
        self.state = State(self.path)
        patience = patience or Patience(unmatched_after_ns=10**6 * S, once=once)
        self.core = world.core(
            self.state, patience=patience, seed=1, highs={}, retry_rows=self.state.retry_rows,
            shares=Shares(1.0 if once else 0.05, 8000),
        )  # fmt: skip
        self.loader = RetryLoader(self.core.waiting, self.state, once=once, now_ns=self.now_ns())
        if not once:
            self.loader.look(self.now_ns(), self.now)
            self.now += CALM_S  # the first look is late: what is fresh comes first

    def reopen(self, *, once: bool = False) -> None:
        self.state.close()
        self.open(once=once)

    def now_ns(self) -> int:
        return NOW_NS + int(self.now * S)

    def put(self, *rows: StoredRow) -> None:
        self.state.commit(Changes(stored=stored(rows)))

    def look(self) -> None:
        self.now += FEW_S
        self.loader.look(self.now_ns(), self.now)

    def batch(self) -> Batch | None:
        return self.core.next_batch(self.now, flush=True)

    def tried(self, *, commit: bool = True) -> list[bytes]:
        """Ids of all events that go to a joiner now; it answers that their primaries are not there yet."""
        ids: list[bytes] = []
        while (batch := self.batch()) is not None:
            ids += batch.events.ids
            answers = JoinAnswers.alike(len(batch), Outcome.NOT_YET)
            self.core.answered(batch, answers, self.now_ns(), self.now)
        if commit:
            self.state.commit(self.core.committing.changes(self.now_ns(), self.now))
            self.core.committing.committed()
        return ids


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "s")
    yield made
    made.state.close()


def test_new_rows_are_woken_before_old_ones_and_not_by_a_share(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """If each primary comes a little late, all events go this way: they are the fresh ones."""
    monkeypatch.setattr(retry_loader, "LOOK_ROWS", 1000)
    old_ns, new_ns = NOW_NS - int(2 * BEHIND_S * S), NOW_NS - 10 * S
    store.put(*(item(n, trigger_ns=old_ns, read_ns=old_ns) for n in range(3000)))
    store.put(*(item(3000 + n, trigger_ns=new_ns, read_ns=new_ns) for n in range(900)))
    store.core.waiting.progressed(NOW_NS)
    store.look()
    assert store.batch().events.ids == [b"id%d" % n for n in range(3000, 3900)]
    assert len(store.core.waiting.loaded) == 1000
    for _ in range(3):
        store.look()
    behind = len(store.core.waiting.loaded) - 900
    assert STOCK_EVENTS <= behind <= STOCK_EVENTS + 100  # no more than next to fresh traffic
    store.now += CALM_S
    for _ in range(10):
        store.look()
    assert len(store.core.waiting.loaded) > 2900


def test_rows_of_a_backlog_are_not_fresh_because_they_were_read_a_moment_ago(store: Store) -> None:
    """They would slow down the rest of the backlog, which goes in small batches next to fresh events."""
    old_ns, new_ns = NOW_NS - int(2 * BEHIND_S * S), NOW_NS - S
    store.put(*(item(n, next_try_ns=0, read_ns=new_ns, time_ns=old_ns) for n in range(900)))
    store.look()
    assert store.core.waiting.table.behind[: len(store.core.waiting.loaded)].all()
    assert len(store.batch().events.ids) > SMALL_EVENTS


def test_one_look_takes_up_a_bounded_number_of_rows_and_bytes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put(*(item(n, next_try_ns=0) for n in range(3 * LOOK_ROWS)))
    store.look()
    assert len(store.core.waiting.loaded) == LOOK_ROWS
    store.loader.look(store.now_ns(), store.now)  # too soon
    assert len(store.core.waiting.loaded) == LOOK_ROWS
    monkeypatch.setattr(retry_loader, "BYTES_MAX", store.core.waiting.loaded.bytes)
    store.look()
    assert len(store.core.waiting.loaded) == LOOK_ROWS
    store.tried()
    assert (len(store.core.waiting.loaded), store.core.waiting.loaded.bytes) == (0, 0)


def test_a_row_that_was_read_later_than_now_is_given_up_when_patience_has_passed_once(store: Store) -> None:
    """However often it enters and leaves memory, and not earlier."""
    store.put(item(1, next_try_ns=NOW_NS, read_ns=NOW_NS + 86_400 * S))
    store.state.close()
    store.open(once=False, patience=Patience(unmatched_after_ns=60 * S, slack_ns=5 * S))
    given_up_s, begun = None, store.now
    while given_up_s is None and store.now < begun + 1000.0:
        store.core.waiting.first_read.hear(Heard(store.now_ns(), store.now, 0))
        store.core.waiting.progressed(store.now_ns())
        store.look()
        while (batch := store.batch()) is not None:
            if batch.events.as_of[0] != WAIT_NS:
                given_up_s = store.now - begun
            store.core.answered(batch, answers_of([Outcome.NOT_YET]), store.now_ns(), store.now)
        store.state.commit(store.core.committing.changes(store.now_ns(), store.now))
        store.core.committing.committed()
        store.now += 5.0
    assert 60.0 <= given_up_s <= 60.0 + NOT_YET_BACKOFF.most


def _left_after_steps(store: Store, monkeypatch: pytest.MonkeyPatch, seed: int, *, noticed: bool) -> set[bytes]:
    """Rows with back-offs up to 300 s, put and tried while the clock is set back and forth by days; returns those not
    tried within ten minutes after the clock was last set. Some commits come later."""
    draw = random.Random(seed)
    off_s, before_ns, left = 0.0, 0, set[bytes]()
    monkeypatch.setattr(store, "now_ns", lambda: NOW_NS + int((store.now + off_s) * S))
    for step in range(180):
        if step < 60 and draw.random() < 0.1:
            off_s = draw.choice((-10, -1, 0, 1, 10)) * 86_400.0
        if step == 60:
            left = set(store.state.rows(range(1, step + 1)).events.ids)
        if step < 60 and draw.random() < 0.5:
            store.put(item(step, next_try_ns=store.now_ns() + int(draw.uniform(0.0, 300.0) * S)))
        if noticed and store.now_ns() < before_ns:
            store.loader.clock_went_back(store.now_ns())
        before_ns = store.now_ns()
        store.look()
        left.difference_update(store.tried(commit=step >= 60 or draw.random() < 0.5))
        store.now += 5.0
    return left


@pytest.mark.parametrize("seed", range(10))
def test_however_the_clock_steps_every_row_is_tried(store: Store, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    assert _left_after_steps(store, monkeypatch, seed, noticed=True) == set()


def test_a_clock_that_goes_back_unnoticed_leaves_rows_behind(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _left_after_steps(store, monkeypatch, 1, noticed=False)


def test_and_so_does_one_that_passes_over_what_is_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OpenEvents, "clock_went_back", lambda table, now_ns: None)
    stores = ((seed, Store(tmp_path / f"{seed}")) for seed in range(20))
    assert any(_left_after_steps(store, monkeypatch, seed, noticed=True) for seed, store in stores)


def test_with_once_a_start_tries_every_row_once_in_bounded_steps(store: Store) -> None:
    store.put(*(item(n, next_try_ns=SETTLED_NS if n % 2 else NOW_NS + n) for n in range(5000)))
    store.reopen(once=True)
    seen: list[bytes] = []
    looks = 0
    while not store.loader.swept:
        store.look()
        assert len(store.core.waiting.loaded) <= LOOK_ROWS
        seen += store.tried()
        looks += 1
    assert looks >= 3
    assert set(seen) == {b"id%d" % n for n in range(5000)}


def test_disk_is_bounded_and_freed_pages_are_used_again(store: Store) -> None:
    """However rows come and go, the file is no bigger than was counted at its fullest."""
    draw = random.Random(3)
    held: dict[int, StoredRow] = {}
    fullest, number = 0, 0
    for _ in range(60):
        new = [item(number + n, next_try_ns=draw.randrange(10**18), size=draw.randrange(400)) for n in range(300)]
        number += 300
        gone = draw.sample(list(held), min(len(held), 290))
        changes = Changes(stored=stored(new), deleted=gone, freed=stored([held.pop(each) for each in gone]).bytes())
        store.state.commit(changes)
        held.update(zip(changes.stored.row_ids.tolist(), new, strict=True))
        fullest = max(fullest, store.state.retry_bytes)
    assert store.state.retry_bytes == stored(list(held.values())).bytes()
    store.state.close()
    assert store.path.stat().st_size < 1.5 * fullest + (128 << 10)
    store.open(once=False)


def test_the_log_of_the_database_does_not_stay_big(store: Store) -> None:
    store.put(*(item(n, size=20_000) for n in range(2_200)))  # one transaction of 45 MB
    for n in range(20):
        store.put(item(2_200 + n))
    assert (store.path.parent / "s-wal").stat().st_size <= 20 << 20


@pytest.mark.parametrize(("rows", "most"), [(0, NOT_YET_BACKOFF.most), (1_000_000, 1000.0), (10**9, NOT_YET_MOST_S)])
def test_very_many_rows_are_tried_less_often_with_full_jitter(rows: int, most: float) -> None:
    draw = random.Random(5)
    tries = NextTries(Patience(), 60.0, draw.random)
    attempt = Attempt(Outcome.NOT_YET, 0, overloaded=False, rows=rows)
    delays = [tries.after(attempt, Likeness(40)).delay_s for _ in range(2000)]
    assert max(delays) <= most
    assert max(delays) > 0.98 * most
    assert sum(d < most / 2 for d in delays) / len(delays) == pytest.approx(0.5, abs=0.05)
    assert sum(d < most / 10 for d in delays) / len(delays) == pytest.approx(0.1, abs=0.03)
