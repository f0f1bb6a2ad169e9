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
from photon.dispatcher import lookups
from photon.dispatcher.core import Core
from photon.dispatcher.events import Batch
from photon.dispatcher.homes import Homes
from photon.dispatcher.ledger import Verdict
from photon.dispatcher.limits import Limits
from photon.dispatcher.lookups import PROBE_EVERY, Backlog, LookUpPolicy, Worth, divergences, must_know, settle
from photon.dispatcher.retry import Patience
from photon.dispatcher.state import Changes
from photon.idregistry.api import I64, Answer, Kind
from photon.joiner.verdicts import line_tag
from tests.unit.dispatcher import test_crashes, world
from tests.unit.dispatcher.test_engine import FakeLookUps, World, lines
from tests.unit.dispatcher.world import DIGESTER, HERE, looked_up

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


# -- parts --------------------------------------------------------------------------------------------------------
def test_an_unanswered_stretch_holds_the_offset_and_those_behind_it() -> None:
    to = core()
    backlog = fed(to, world.block(b"1 k 0\n"))
    asked = backlog.question()
    world.take(to, world.block(b"bad\n", 6), NOW_NS, 0.0)
    assert not to.committing.changes(NOW_NS, 1000.0, store_all=True)
    assert to.waiting.open == 1
    backlog.settle(asked, None, NOW_NS, 0.0)
    assert to.next_batch(1.0, flush=True).events.ids == [b"1"]


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


@pytest.mark.parametrize("kind", list(Kind))
def test_own_verdicts_before_a_crash(kind: Kind) -> None:
    to = core()
    found = looked_up([Answer.PRESENT], kind, line_tag(b"1 k 0", 0, "a.log"), names=(HERE,))
    backlog = fed(to, world.block(b"1 k 0\n"))
    backlog.settle(backlog.question(), found, NOW_NS, 0.0)
    assert to.counting.live == {Verdict.READ: 1, Verdict(int(kind)): 1}


# -- read again ----------------------------------------------------------------------------------------------------
def again(to: Core, *blocks: Block) -> tuple[Backlog, Batch]:
    """``REWRITTEN``, or these."""
    blocks = blocks or (REWRITTEN,)
    assert all(to.logs.repeats(block) for block in blocks)
    backlog = fed(to, *blocks)
    question = backlog.question()
    assert question.repeated
    return backlog, question


def knows(*verdicts: tuple[Answer, int]) -> Verdicts:
    """Entries of our own; tag 0 is that of no line here."""
    return looked_up([answer for answer, _ in verdicts], 1, [tag for _, tag in verdicts], names=(HERE,))


SAME, OTHERS, NEW = (Answer.PRESENT, line_tag(b"0 k 0", 0, "a.log")), (Answer.PRESENT, 0), (Answer.ABSENT, 0)
DATA = b"0 k 0\nbad\n1 k 0\n2 k 0\nbad\n3 k 0\n"
REWRITTEN = replace(world.block(DATA), rewritten=True)


def test_a_log_read_anew_departs_at_the_first_line_that_nobody_knows() -> None:
    to = core(high=100)
    backlog, question = again(to)
    found = knows(SAME, OTHERS, NEW, OTHERS)
    assert not to.counting.live[Verdict.REJECTED], "nobody knows yet whether they were rejected before"
    (at,) = divergences(question, found, frozenset()).values()
    assert at == DATA.index(b"2")
    to.logs.diverge("log1", at)
    backlog.settle(question, found, NOW_NS, 0.0)
    read = {Verdict.REREAD: 3, Verdict.DUPLICATE: 1, Verdict.REJECTED: 1, Verdict.READ: 3}
    assert to.counting.live == read, "what stands before it was counted, the rest is new"
    assert not to.committing.changes(NOW_NS, 0.0, store_all=True).rewritten
    assert not to.logs.repeats(world.block(b"4 k 0\n", len(DATA))), "the log is its own from here on"


def test_until_it_departs_a_log_stays_known_as_read_anew() -> None:
    to = core(high=100)
    backlog, question = again(to)
    found = knows(SAME, OTHERS, OTHERS, OTHERS)
    assert divergences(question, found, frozenset()) == {}
    backlog.settle(question, found, NOW_NS, 0.0)
    assert to.counting.live == {Verdict.REREAD: 6, Verdict.READ: 0}
    assert to.committing.changes(NOW_NS, 0.0).rewritten == {"log1": 100}


def test_what_stands_before_the_place_where_it_departs_is_committed_as_read_anew() -> None:
    to = core(high=100)
    half = DATA.index(b"2")
    first, second = replace(world.block(DATA[:half]), rewritten=True), world.block(DATA[half:], half)
    backlog, question = again(to, first, second)
    found = knows(SAME, OTHERS, OTHERS, NEW)
    to.logs.diverge("log1", divergences(question, found, frozenset())["log1"])
    stretches = question.stretches
    assert [(each.rewritten, each.diverged, each.counted_to) for each in stretches] == [
        (True, False, 100),
        (False, True, DATA.index(b"3")),
    ]
    stretches[0].whole = True
    changes = to.committing.changes(NOW_NS, 0.0)
    assert (changes.rewritten, changes.diverged) == ({"log1": 100}, set())
    backlog.settle(question, found, NOW_NS, 0.0)
    changes = to.committing.changes(NOW_NS, 0.0)
    assert (changes.rewritten, changes.diverged) == ({}, {"log1"})


def test_nothing_of_a_log_that_departs_is_sent_before_it_is_a_row_and_its_place_is_kept() -> None:
    to = core(high=100)
    backlog, question = again(to)
    found = knows(SAME, NEW, NEW, NEW)
    to.logs.diverge("log1", divergences(question, found, frozenset())["log1"])
    backlog.settle(question, found, NOW_NS, 0.0)
    changes = to.committing.changes(NOW_NS, 0.0)
    assert changes.stored.events.ids == [b"1", b"2", b"3"]
    assert changes.positions["log1"].offset == len(DATA)
    batch = to.next_batch(0.0, flush=True)
    assert batch is not None, "they go on from memory"
    assert to._table.stretch[batch.rows].tolist() == [None] * 3


def test_a_log_that_goes_on_behind_what_was_counted_departs_there() -> None:
    to = core(high=DATA.index(b"3"))
    _, question = again(to)
    assert divergences(question, knows(SAME, OTHERS, OTHERS, SAME), frozenset()) == {"log1": DATA.index(b"3")}


def test_of_logs_that_begin_alike_the_one_that_was_begun_later_waits() -> None:
    to = core(high=100)
    blocks = [replace(world.block(DATA, identity=name), rewritten=True) for name in ("log1~1", "log1")]
    (backlog, first), (_, second) = [again(to, block) for block in blocks]
    assert not to.logs.clear(second.stretches)
    assert to.logs.clear(first.stretches)
    found = knows(SAME, NEW, NEW, NEW)
    to.logs.diverge("log1~1", divergences(first, found, frozenset())["log1~1"])
    backlog.settle(first, found, NOW_NS, 0.0)
    assert not to.logs.clear(second.stretches)
    to.committing.changes(NOW_NS, 0.0)
    assert to.logs.clear(second.stretches)


def test_a_log_read_anew_may_have_lines_of_one_that_begins_alike_and_was_read_further() -> None:
    to = core(high=100)
    for each in (world.block(DATA, identity="log1~1"), replace(world.block(DATA, identity="log1~1"), rewritten=True)):
        assert to.logs.begin(each, 0.0).counted_to == 100


def test_a_log_put_back_to_its_start_departs_nowhere() -> None:
    to = core(high=100)
    backlog, question = again(to, world.block(DATA))
    found = knows(SAME, OTHERS, NEW, OTHERS)
    assert divergences(question, found, frozenset()) == {}
    assert not must_know(question, None)
    backlog.settle(question, found, NOW_NS, 0.0)
    assert to.counting.live == {Verdict.REREAD: 5, Verdict.READ: 1}


def test_where_it_departs_is_not_told_while_an_answer_is_missing() -> None:
    _, question = again(core(high=100))
    assert must_know(question, None)
    assert must_know(question, knows(SAME, (Answer.UNKNOWN, 0), NEW, NEW))
    assert not must_know(question, knows(SAME, SAME, NEW, NEW))


def test_a_line_that_waits_in_the_store_is_no_new_one() -> None:
    to = core(high=100)
    backlog, question = again(to)
    at = DATA.index(b"2")
    waiting = {(DIGESTER.digests([b"2"]), line_tag(b"2 k 0", at, "a.log"))}
    found = knows(SAME, OTHERS, NEW, NEW)
    assert divergences(question, found, waiting)["log1"] == DATA.index(b"3")
    to.logs.diverge("log1", DATA.index(b"3"))
    backlog.settle(question, found, NOW_NS, 0.0, waiting)
    assert (to.counting.live, to.waiting.open) == ({Verdict.REREAD: 5, Verdict.READ: 1}, 1)


def test_what_was_read_before_becomes_rows_before_its_lines_are_read_again() -> None:
    to = core()
    world.take(to, world.block(DATA), NOW_NS, 0.0)
    _, question = again(to)
    assert not to.logs.clear(question.stretches)
    assert to.committing.changes(NOW_NS, 0.0).stored.events.ids == [b"0", b"1", b"2", b"3"]
    assert to.logs.clear(question.stretches)


@pytest.mark.parametrize(
    ("high", "counted_to", "end"), [(8, 6, b"\n"), (10, 10, b"\n"), (9, 9, b"\n"), (5, 5, b"\r\n")]
)
def test_a_line_that_went_on_is_another_line(high: int, counted_to: int, end: bytes) -> None:
    assert core(high=high).logs.begin(world.block(DATA.replace(b"\n", end)), 0.0).counted_to == counted_to
    assert core(high=5).logs.begin(world.block(b"\n" + DATA), 0.0).counted_to == 1


class Knows(FakeLookUps):
    """Nine of ten events were registered by another datacentre."""

    async def look_up(self, digests: bytes, times: I64, *, timeout: float) -> Verdicts:
        self.asked += len(times)
        await asyncio.sleep(0)
        present = np.arange(len(times)) % 10 != 0
        return looked_up(np.where(present, Answer.PRESENT, Answer.ABSENT), 1, names=(OTHER,))


async def test_a_joiner_gets_what_the_registry_does_not_know(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "BACKLOG_BYTES", 20_000)
    here = World(tmp_path)
    here.look_ups = Knows(here)
    options = replace(here.policy.options, look_ups=LookUpPolicy.BACKLOG, look_up_timeout_s=5.0)
    here.policy = replace(here.policy, options=options)
    here.write("a.log", lines(0, 1500) + b"bad\n")
    here.write("b.log", lines(1500, 3000))
    total = await here.once()
    counts = total.as_dict()
    assert (total.read, counts["pending"]) == (3001, 0)
    assert counts["elsewhere"] >= 2700
    assert len(here.joiners[0].seen) == 3000 - counts["elsewhere"] > 0
    assert here.look_ups.asked >= 3000


def test_what_is_learnt_of_the_other_datacentre() -> None:
    """It is ahead, so it lives; and it takes our events, so these are looked up before they are joined."""
    homes = Homes(HERE, [OTHER])
    to = core(homes=homes)
    backlog = fed(to, world.block(b"".join(b"%d k 0\n" % n for n in range(400))))
    asked = backlog.question()
    assert not homes.contested
    backlog.settle(asked, looked_up([Answer.PRESENT] * len(asked), 1, names=(OTHER,)), NOW_NS, 0.0)
    assert homes.contested
    assert [each.trusted for each in homes.status()] == [True]
    assert to.counting.live[Verdict.ELSEWHERE] == 400
