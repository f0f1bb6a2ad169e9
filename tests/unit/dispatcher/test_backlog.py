"""Catch-up from columns: the same counts and the same remaining events as one by one, whatever comes between."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from photon.adapters.envelope import Envelope
from photon.adapters.logs.api import Block, OversizedRecord
from photon.batch.verdicts import Verdicts
from photon.dispatcher import engine, lookups
from photon.dispatcher.core import Core
from photon.dispatcher.events import Batch
from photon.dispatcher.ledger import Verdict
from photon.dispatcher.limits import Limits
from photon.dispatcher.lookups import PROBE_EVERY, Backlog, LookUpPolicy, Worth, divergences, settle
from photon.dispatcher.retry import Patience
from photon.dispatcher.state import Changes
from photon.idregistry.api import I64, Answer
from photon.joiner.verdicts import line_tag
from tests.unit.dispatcher import test_crashes, world
from tests.unit.dispatcher.test_engine import FakeLookUps, World, lines
from tests.unit.dispatcher.world import HERE, looked_up

OTHER = "there"
NOW_NS = 10**18


def core(*, high: int = 0, batch_events: int = 10**6, **more: Any) -> Core:
    limits = Limits(batch_events=batch_events, parse_records=4)
    own = {"patience": Patience(), "envelope": Envelope(with_joined_at=False), "seed": 1, "highs": {"log1": high}}
    return world.core(limits=limits, **own | more)


def fed(to: Core, *blocks: Block, now: float = 0.0) -> Backlog:
    backlog = Backlog(to)
    for block in blocks:
        for _ in backlog.take(block, NOW_NS, now):
            pass
    return backlog


# -- the same as one by one ---------------------------------------------------------------------------------------
known = st.tuples(
    st.sampled_from([Answer.PRESENT] * 4 + [Answer.ABSENT, Answer.BELOW_BOUNDARY, Answer.UNKNOWN]),
    st.sampled_from([0, 1, 2, 3, 4, 9]),  # kinds; the first and the last are none
    st.sampled_from([0, 1]),  # owner
    st.booleans(),  # of the very line
)
line = st.sampled_from(
    [b"%d k %d" % (n, hour) for n in range(8) for hour in (-2, 0, 1)] + [b"- k 3", b"bad", b"", b"1 k"]
)
endings = st.sampled_from([b"\n", b"\r\n"])


def blocks_of(records: list[bytes], ending: bytes, oversized: bool) -> list[Block]:
    """Two blocks of one log."""
    half = len(records) // 2
    first = b"".join(each + ending for each in records[:half])
    second = b"".join(each + ending for each in records[half:])
    long = OversizedRecord(len(first) + len(second), 50, b"xx")
    tail = (long,) if oversized else ()
    one = world.block(first)
    two = world.block(second, len(first))
    return [one, replace(two, end=two.end + 50 * oversized, oversized=tail)]


def found_for(
    entries: list[tuple[bytes, int]], drawn: list[tuple[Answer, int, int, bool]], begin: int = 0
) -> Verdicts:
    """One answer for each (record, offset), in their order; the drawn ones repeat, from ``begin``."""
    rows = [drawn[at % len(drawn)] for at in range(begin, begin + len(entries))]
    tags = [
        line_tag(record, offset, "a.log") ^ (not row[3]) for (record, offset), row in zip(entries, rows, strict=True)
    ]
    times = [  # of another line with the id: now and then another one
        int(record.split(b" ")[2]) * world.HOUR + (0 if row[3] else offset % 3 * world.HOUR)
        for (record, offset), row in zip(entries, rows, strict=True)
    ]
    return looked_up(
        [row[0] for row in rows], [row[1] for row in rows], tags, [row[2] for row in rows], (OTHER, HERE), times
    )


def entries_of(batch: Batch) -> list[tuple[bytes, int]]:
    return list(zip(batch.events.records, batch.events.offsets.tolist(), strict=True))


def one_by_one(to: Core, blocks: list[Block], drawn: list[tuple[Answer, int, int, bool]]) -> Changes:
    to.queues.look_first = True
    for block in blocks:
        world.take(to, block, NOW_NS, 1.0)
    number = 0
    while (batch := to.next_question(1.0)) is not None:
        (entry,) = entries_of(batch)
        left = settle(to, batch, found_for([entry], drawn, number), NOW_NS, 1.0)
        to.queues.asked(left, len(batch), 1.0)
        to.next_batch(1.0, flush=True)  # makes room for the next question
        number += 1
    return to.committing.changes(NOW_NS, 2.0, store_all=True)


def at_once(to: Core, blocks: list[Block], drawn: list[tuple[Answer, int, int, bool]]) -> Changes:
    to.queues.look_first = True
    backlog = fed(to, *blocks, now=1.0)
    asked = backlog.question()
    entries = entries_of(asked)
    assert to.waiting.open == len(entries) == len(asked)
    assert not to.committing.changes(
        NOW_NS, 2.0, store_all=True
    ).positions  # nothing is behind the offset before the answer
    backlog.settle(asked, found_for(entries, drawn) if entries else None, NOW_NS, 1.0)
    return to.committing.changes(NOW_NS, 2.0, store_all=True)


def seen(changes: Changes) -> tuple[object, ...]:
    return (
        {number: count for number, count in changes.cells.items() if count},
        changes.positions,
        Counter(changes.exports),
        [row[:3] for row in world.stored_rows(changes.stored)],
    )


@settings(deadline=None)
@given(
    st.lists(line, max_size=20),
    endings,
    st.booleans(),
    st.lists(known, min_size=1, max_size=20),
    st.integers(0, 120),
    st.booleans(),
)
def test_the_same_as_one_by_one(
    records: list[bytes],
    ending: bytes,
    oversized: bool,
    drawn: list[tuple[Answer, int, int, bool]],
    high: int,
    same: bool,
) -> None:
    blocks = blocks_of(records, ending, oversized)
    slow = core(high=high, identical_copies=same, batch_events=1)
    fast = core(high=high, identical_copies=same)
    expected = seen(one_by_one(slow, blocks, drawn))
    assert seen(at_once(fast, blocks, drawn)) == expected
    assert +fast.counting.live == +slow.counting.live
    assert (fast.waiting.open, fast.logs.window_bytes) == (slow.waiting.open, 0)
    assert slow.logs.window_bytes == 0


# -- with crashes and answers in any order ------------------------------------------------------------------------
class Run(test_crashes.Run):
    """Like a run without a backlog; but blocks are read either way, and the registry's answers come at any time."""

    def start(self) -> None:
        super().start()
        self.backlog = Backlog(self.core)
        self.questions: list[Batch] = []

    def read(self) -> None:
        if self.random.random() < 0.4:
            super().read()
            return
        before = dict(self.at)
        taken: list[Block] = []
        for _ in range(self.random.randrange(1, 4)):
            identity = self.random.choice(list(self.logs))
            whole, at = b"".join(self.logs[identity]), self.at[identity]
            rest = whole[at:]
            some = rest.split(b"\n")[:-1][: self.random.randrange(1, 12)]
            if some and self.core.intake.room():
                data = b"\n".join(some) + b"\n"
                taken.append(world.block(data, at, identity=identity, path=identity, before=whole[:at]))
                self.at[identity] += len(data)
                for _ in self.backlog.take(taken[-1], self.wall(), self.now):
                    pass
        assert bool(taken) == (before != self.at)
        if taken:
            self.questions.append(self.backlog.question())

    def send(self) -> None:
        super().send()
        if self.questions and self.random.random() < 0.7:
            asked = self.questions.pop(self.random.randrange(len(self.questions)))
            found = None if self.random.random() < self.registry.trouble * 0.3 else self.found(asked)
            self.backlog.settle(asked, found, self.wall(), self.now)

    def found(self, asked: Batch) -> Verdicts:
        rows = []
        for event_id in asked.events.ids:
            owner = self.registry.owners.get(event_id)
            if self.random.random() < self.registry.trouble * 0.2:
                rows.append((Answer.UNKNOWN, 0, 0, 0))
            elif event_id in self.registry.late:
                rows.append((Answer.BELOW_BOUNDARY, 0, 0, 0))
            elif owner is None:
                rows.append((Answer.ABSENT, 0, 0, 0))
            else:
                rows.append((Answer.PRESENT, int(owner[1]), owner[2], int(owner[0] == HERE)))
        return looked_up(*np.array(rows, np.int64).reshape(-1, 4).T, (OTHER, HERE))


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32))
def test_every_record_is_counted_once_whatever_happens(seed: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        run = Run(seed, Path(name))
        for _ in range(run.random.randrange(200)):
            run.step()
        run.finish()
        counts, exported = run.expected()
        total = run.state.ledger().total
        assert +Counter({Verdict.READ: total.read} | dict(total.verdicts)) == +counts
        assert (total.pending, total.reread) == (0, 0)
        for log in ("rejected", "late"):
            files = (Path(name) / log).glob("dispatcher-*.jsonl")
            assert sum(file.read_bytes().count(b"\n") for file in files) == exported[log]
        run.state.close()


def test_memory_is_counted_while_a_question_waits() -> None:
    to = core()
    data = b"".join(b"%d k 0\n" % n for n in range(100))
    fed(to, world.block(data))
    assert to.logs.window_bytes > 100 * len(data) / 100 + 100 * 100
    assert to.logs.oldest_first_read_ns() == NOW_NS


def test_it_is_worth_it_while_most_is_known() -> None:
    worth = Worth()
    assert all(worth.next() for _ in range(100))
    worth.observe(0, 0)
    assert worth.next()
    for _ in range(5):
        worth.observe(10, 1000)
    assert [worth.next() for _ in range(2 * PROBE_EVERY)].count(True) == 2
    for _ in range(3):
        worth.observe(1000, 1000)
    assert all(worth.next() for _ in range(100))


DATA = b"0 k 0\nbad\n1 k 0\n2 k 0\nbad\n3 k 0\n"


def test_what_stands_before_the_place_where_it_departs_is_committed_as_read_anew() -> None:
    to = core(high=100)
    half = DATA.index(b"2")
    backlog = fed(to, replace(world.block(DATA[:half]), rewritten=True), world.block(DATA[half:], half))
    question = backlog.question()
    found = looked_up([Answer.PRESENT] * 3 + [Answer.ABSENT], 1, names=(HERE,))
    to.logs.diverge("log1", divergences(question, found, frozenset())["log1"])
    question.stretches[0].whole = True
    changes = to.committing.changes(NOW_NS, 0.0)
    assert (changes.rewritten, changes.diverged) == ({"log1": 100}, set())
    backlog.settle(question, found, NOW_NS, 0.0)
    changes = to.committing.changes(NOW_NS, 0.0)
    assert (changes.rewritten, changes.diverged) == ({}, {"log1"})


def test_a_log_read_anew_may_have_lines_of_one_that_begins_alike_and_was_read_further() -> None:
    to = core(high=100)
    for each in (world.block(DATA, identity="log1~1"), replace(world.block(DATA, identity="log1~1"), rewritten=True)):
        assert to.logs.begin(each, 0.0).counted_to == 100


@pytest.mark.parametrize(
    ("high", "counted_to", "end"), [(8, 6, b"\n"), (10, 10, b"\n"), (9, 9, b"\n"), (5, 5, b"\r\n")]
)
def test_a_line_that_went_on_is_another_line(high: int, counted_to: int, end: bytes) -> None:
    assert core(high=high).logs.begin(world.block(DATA.replace(b"\n", end)), 0.0).counted_to == counted_to
    assert core(high=5).logs.begin(world.block(b"\n" + DATA), 0.0).counted_to == 1


class Knows(FakeLookUps):
    """The first ``known`` of ten events were registered by another datacentre."""

    known = 9

    async def look_up(self, digests: bytes, times: I64, *, timeout: float) -> Verdicts:
        self.asked += len(times)
        await asyncio.sleep(0)
        present = np.arange(len(times)) % 10 < self.known
        return looked_up(np.where(present, Answer.PRESENT, Answer.ABSENT), 1, names=(OTHER,))


def behind(directory: Path, monkeypatch: pytest.MonkeyPatch, files: int, known: int) -> tuple[World, Knows]:
    """A dispatcher that finds ``files`` files of 1500 events each, and works alone."""
    monkeypatch.setattr(lookups, "BACKLOG_BYTES", 20_000)
    here = World(directory)
    here.look_ups = knows = Knows(here)
    knows.known = known
    options = replace(here.policy.options, look_ups=LookUpPolicy.BACKLOG, look_up_timeout_s=5.0)
    here.policy = replace(here.policy, options=options)
    for number in range(files):
        here.write(f"{number}.log", lines(number * 1500, (number + 1) * 1500))
    return here, knows


async def test_a_joiner_gets_what_the_registry_does_not_know(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, knows = behind(tmp_path, monkeypatch, files=2, known=9)
    here.write("bad.log", b"bad\n")
    total = await here.once()
    counts = total.as_dict()
    assert (total.read, counts["pending"]) == (3001, 0)
    assert counts["elsewhere"] == 2700
    assert len(here.joiners[0].seen) == 300
    assert knows.asked == 3000


async def test_who_works_alone_stops_asking_a_registry_that_knows_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "POLL_BYTES", 1)  # a file at a time
    here, knows = behind(tmp_path, monkeypatch, files=6, known=1)
    total = await here.once()
    assert (total.read, total.as_dict()["pending"]) == (9000, 0)
    assert 0 < knows.asked < 6000
