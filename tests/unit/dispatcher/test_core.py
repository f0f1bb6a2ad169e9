"""The core over its state. Its stories: ``core.txt``, ``waiting.txt`` and ``lookups.txt``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from photon.adapters.logs.api import OversizedRecord
from photon.batch.columns import split_digests
from photon.batch.events import Events
from photon.batch.verdicts import Verdicts
from photon.config.clock import NEVER_NS
from photon.dispatcher.events import Batch
from photon.dispatcher.homes import Homes
from photon.dispatcher.ledger import Verdict, split_cell
from photon.dispatcher.limits import Limits
from photon.dispatcher.lookups import Backlog, divergences, must_know, settle
from photon.dispatcher.queues import Shares
from photon.dispatcher.retry import SETTLED_NS, Patience
from photon.dispatcher.retry_loader import RetryLoader
from photon.dispatcher.state import Changes, State
from photon.dispatcher.status import oldest, oldest_stretches
from photon.dispatcher.two_clocks import Heard, passed_by_both
from photon.eventstore.api import Progress
from photon.idregistry.api import Answer, Kind
from photon.joiner.api import WAIT_NS, JoinAnswers, Outcome
from photon.joiner.verdicts import tags_of
from tests.kit.stories import Story, stories
from tests.unit.dispatcher import world
from tests.unit.dispatcher.world import HERE, StoredRow, looked_up
from tests.unit.joiner.helpers import event
from tests.unit.joiner.told import TakenBy, answers_of

S = 1_000_000_000
PATIENCE = ("unmatched_after", "slack", "after")
REGISTRY = {"new": Answer.ABSENT, "late": Answer.BELOW_BOUNDARY, "unknown": Answer.UNKNOWN}


class Dispatcher:
    """A core, its state, and a loader of its rows. All times are seconds, by one clock unless ``at`` says otherwise.

    An event is ``id:key:hour``, ``id`` alone for ``id:k:1``. A joiner's answers are outcomes, with ``:here`` or
    ``:there`` for who took an id, its kind, and ``:same`` for the very line; the registry's are ``mine`` (this very
    line), ``other`` (another line of ours), ``there``, ``new``, ``late`` or ``unknown``.
    ``x*3`` is ``x x x``, ``x#3`` is ``x0 x1 x2``.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.states = 0
        self.kept: State | None = None
        self.core()

    def core(self, *flags: str, **options: str) -> None:
        """Begins with a new state. Flags and options: as in ``Patience`` and ``Limits``; the others see below."""
        self.close()
        self.states, self.now, self.wall_ahead = self.states + 1, 0.0, 0.0
        self.flags, self.options = flags, options
        self._open()

    def restart(self, *flags: str, **options: str) -> None:
        """Another process, over the same state."""
        self.close()
        self.flags, self.options = flags, options
        self._open()

    def close(self) -> None:
        if self.kept is not None:
            self.kept.close()

    def _open(self) -> None:
        given, flags = self.options, self.flags
        seconds = {f"{name}_ns": int(given[name]) * S for name in PATIENCE if name in given}
        switches = {name: name in flags for name in ("once", "keep_pending", "whole_sets")}
        limits: Any = {
            each.name: type(each.default)(given[each.name]) for each in fields(Limits) if each.name in given
        }
        self.homes = Homes(HERE, ["there"]) if "shared" in flags else None
        self.kept = State(self.directory / f"{self.states}.db")
        self.dispatcher = world.core(
            self.kept,
            patience=Patience(**switches, **seconds),  # type: ignore[arg-type]
            limits=Limits(**limits),
            highs={"log1": int(given["high"])} if "high" in given else self.kept.highs(),
            retry_rows=self.kept.retry_rows,
            identical_copies="identical_copies" in flags,
            uncertainty_ns=int(given.get("uncertainty", 0)) * S,
            shares=Shares(float(given.get("share", 1)), 8000),
            homes=self.homes,
        )
        self.backlog = Backlog(self.dispatcher)
        self.loader = RetryLoader(self.dispatcher.waiting, self.kept, once="once" in flags, now_ns=self._wall())
        self.batches: list[Batch] = []
        self.questions: set[int] = set()  # those of ``batches`` that are ordinary questions
        self.ends: Counter[str] = Counter()
        self.names: dict[int, str] = {}

    def _wall(self) -> int:
        return int((self.now + self.wall_ahead) * S)

    def at(self, now: str, wall: str = "") -> None:
        """``next``: when something is due."""
        self.now = float(now) if now != "next" else self.dispatcher.next_due(0.25) or 0.0
        self.wall_ahead = float(wall) - self.now if wall else self.wall_ahead

    # -- lines -------------------------------------------------------------------------------------------------------
    def read(self, *events: str, **of: str) -> None:
        """``log``, ``from`` (an offset; else where the last block of the log ended), ``rewritten``, ``oversized``."""
        for _ in self.dispatcher.intake.take(self._block(events, **of), self._wall(), self.now):
            pass

    def backlogged(self, *events: str, **of: str) -> str:
        """Reads them, to ask the registry about all of them first."""
        block = self._block(events, **of)
        repeats = self.dispatcher.logs.repeats(block)
        for _ in self.backlog.take(block, self._wall(), self.now):
            pass
        return "repeats" if repeats else ""

    def parse_one(self, *events: str) -> None:
        """Reads only the first record of a block; ``parse_rest`` reads the others."""
        self._parsed = iter(self.dispatcher.intake.take(self._block(events), self._wall(), self.now))
        next(self._parsed)

    def parse_rest(self) -> None:
        assert list(self._parsed)

    def _block(self, events: Iterable[str], log: str = "log1", oversized: str = "0", **of: str) -> Any:
        data = b""
        for each in _each(events):
            event_id, key, hour = (*each.split(":"), *("", "k", "1")[len(each.split(":")) :])
            data += b"bad\n" if each == "bad" else f"{event_id} {key} {hour}\n".encode()
        begin = int(of.get("from", self.ends[log]))
        block = world.block(data, begin, identity=log, path=f"{log}.log")
        long = (OversizedRecord(block.end, int(oversized), b"xxx"),) if oversized != "0" else ()
        block = replace(block, end=block.end + int(oversized), oversized=long, rewritten="rewritten" in of)
        self.ends[log] = block.end
        return block

    def put(self, *names: str, next: str = "", point: str = "", read: str = "0", tries: str = "5") -> None:
        """Rows of the retry store. ``next`` try and ``point`` of the primary logs: without them, none in this run."""
        ends = [int(float(each) * S) if each else SETTLED_NS for each in (next, point)]
        names = tuple(_each(names))
        events = [event(name.partition(":")[0].encode(), (name.partition(":")[2] or "k").encode()) for name in names]
        read_ns = int(read) * S
        events = [each._replace(event_time_ns=read_ns) for each in events]
        rows = world.stored([StoredRow(each, read_ns, int(tries), *ends) for each in events])
        assert self.kept is not None
        self.kept.commit(Changes(stored=rows))
        self.names |= dict(zip(rows.row_ids.tolist(), [name.partition(":")[0] for name in names], strict=True))

    # -- a joiner ----------------------------------------------------------------------------------------------------
    def batch(self, *filling: str, wait: str = "", most: str = "") -> str:
        batch = self.dispatcher.next_batch(
            self.now,
            flush=not filling,
            wait_s=float(wait) if wait else None,
            most=int(most) if most else None,
        )
        return "" if batch is None else self._shown(batch)

    def _shown(self, batch: Batch) -> str:
        self.batches.append(batch)
        asked = dict.fromkeys(batch.events.as_of.tolist())
        final = [_seconds(each) for each in asked if each != WAIT_NS]
        return f"{len(self.batches)}: {_names(batch)}{f', as of {final[0]}' if final else ''}"

    def reply(self, number: str, *answers: str, ambiguous: str = "", unpaired: str = "") -> None:
        overloaded = "overloaded" in answers
        given = [each.split(":") for each in _each(answers) if each != "overloaded"]
        taken = {
            at: TakenBy(by[0], _kind(by), "same" in by, *_registered(by)) for at, (_, *by) in enumerate(given) if by
        }
        rows = [[int(each) for each in some.split(",") if each] for some in (ambiguous, unpaired)]
        found = answers_of([Outcome[each[0]] for each in given], taken, overloaded=overloaded, ambiguous=rows[0],
                           unpaired=rows[1])  # fmt: skip
        self.dispatcher.answered(self.batches[int(number) - 1], found, self._wall(), self.now)

    def tried(self, outcome: str, *more: str) -> str:
        """Sends all that can be sent to a joiner that has one answer for all."""
        names = []
        while (batch := self.dispatcher.next_batch(self.now, flush=True)) is not None:
            names.append(self._shown(batch).partition(" ")[2])
            answers = JoinAnswers.alike(len(batch), Outcome[outcome], overloaded="overloaded" in more)
            self.dispatcher.answered(batch, answers, self._wall(), self.now)
        return " | ".join(names)

    # -- the registry ------------------------------------------------------------------------------------------------
    def ask(self) -> str:
        """A question about all that was ``backlogged``."""
        question = self.backlog.question()
        return f"{self._shown(question)}{', read again' * question.repeated}"

    def ask_next(self) -> str:
        """An ordinary question, just before sending."""
        question = self.dispatcher.next_question(self.now)
        if question is None:
            return ""
        self.questions.add(len(self.batches) + 1)
        return self._shown(question)

    def clear(self, number: str) -> str:
        return str(self.dispatcher.logs.clear(self.batches[int(number) - 1].stretches)).lower()

    def diverge(self, number: str, *answers: str, waiting: str = "") -> Iterator[str]:
        """Where the registry's answers say that logs read again diverge from what was counted."""
        question = self.batches[int(number) - 1]
        found = self._found(question, answers)
        if must_know(question, found):
            yield "an answer is missing"
        elif found is not None:
            for log, at in divergences(question, found, self._lines(question, waiting)).items():
                self.dispatcher.logs.diverge(log, at)
                yield f"{log} at {at}"

    def settle(self, number: str, *answers: str, waiting: str = "") -> None:
        question = self.batches[int(number) - 1]
        lines = self._lines(question, waiting)
        self.backlog.settle(question, self._found(question, answers), self._wall(), self.now, lines)

    def looked_up(self, number: str, *answers: str) -> str:
        """The events of a batch, or an ordinary question, that are left."""
        batch = self.batches[int(number) - 1]
        left = settle(self.dispatcher, batch, self._found(batch, answers), self._wall(), self.now)
        if int(number) in self.questions:
            self.dispatcher.queues.asked(left, len(batch), self.now, patient=batch.patient)
        return " ".join(each.decode() for each in self.dispatcher._table.ids[left])

    def _found(self, question: Batch, answers: Iterable[str]) -> Verdicts | None:
        words = [each.split(":") for each in _each(answers)]
        if not words:
            return None
        kinds = [_kind(each) for each in words]
        codes = [REGISTRY.get(who, Answer.PRESENT) for who, *_ in words]
        tags = np.where([who == "mine" for who, *_ in words], tags_of(question.events), 0)
        return looked_up(codes, kinds, tags, [who != "there" for who, *_ in words], ("there", HERE))

    def _lines(self, question: Batch, waiting: str) -> set[tuple[bytes, int]]:
        events = question.events
        lines = zip(events.ids, split_digests(events.digests), tags_of(events).tolist(), strict=True)
        return {(digest, tag) for event_id, digest, tag in lines if event_id.decode() in waiting.split(",")}

    # -- news --------------------------------------------------------------------------------------------------------
    def heard(self, ahead: str) -> None:
        """The event store's clock, as it is now."""
        self.dispatcher.waiting.first_read.hear(Heard(self._wall(), self.now, int(ahead) * S))

    def progressed(self, to: str, lag: str = "") -> None:
        """``lag``: the store's, whose own clock then says ``to``."""
        to_ns = NEVER_NS if to == "the_end" else int(float(to) * S)
        if lag:
            to_ns = passed_by_both(Progress(to_ns - int(lag) * S, int(lag) * S), self._wall())
        self.dispatcher.waiting.progressed(to_ns)

    def arrived(self, *keys: str) -> None:
        self.dispatcher.waiting.arrived([key.encode() for key in keys])
        self.loader.arrived([key.encode() for key in keys])

    def store_forgot(self) -> None:
        self.dispatcher.waiting.recent.lose()

    def look(self) -> None:
        """Loads rows of the retry store."""
        self.loader.look(self._wall(), self.now)

    def clock_went_back(self) -> None:
        self.loader.clock_went_back(self._wall())

    # -- what comes of it --------------------------------------------------------------------------------------------
    def commit(self, *store_all: str) -> Iterator[str]:
        changes = self.dispatcher.committing.changes(self._wall(), self.now, store_all=bool(store_all))
        if not changes:
            yield "nothing"
            return
        assert self.kept is not None
        self.kept.commit(changes)
        self.dispatcher.committing.committed()
        stored, names = changes.stored, [each.decode() for each in changes.stored.events.ids]
        self.names |= dict(zip(stored.row_ids.tolist(), names, strict=True))
        yield from (f"{log} to {position.offset}" for log, position in changes.positions.items())
        if counts := _counted(changes.cells.items()):
            yield counts
        for what, rows in (("stored", stored), ("updated", changes.updated)):
            if len(rows):
                yield f"{what} {' '.join(self.names[row] for row in rows.row_ids.tolist())}"
        if changes.deleted:
            yield f"deleted {' '.join(self.names[row] for row in changes.deleted)}"
        for export in changes.exports:
            line = json.loads(export.line)
            yield f"{export.log} {line['record']!r} at {line['source']['offset']}: {line['reason']}"
        yield from (f"{log} is rewritten to {end}" for log, end in changes.rewritten.items())
        yield from (f"{log} has diverged" for log in changes.diverged)

    def counts(self) -> str:
        live = sorted(self.dispatcher.counting.live.items())
        arrived = self.dispatcher.waiting.arrivals
        counts = [f"{Verdict(verdict).name.lower()} {n}" for verdict, n in live if n]
        return ", ".join(counts + [f"tried as their primary event came {arrived}"] * bool(arrived))

    def retimed(self) -> str:
        return str(self.dispatcher.counting.retimed)

    def pending(self, limit: str = "20") -> Iterator[str]:
        """As ``status`` shows events without a verdict."""
        assert self.kept is not None
        heads = oldest_stretches(self.dispatcher.logs.heads(), int(limit))
        held, rows = [self.dispatcher.held(head) for head in heads], self.kept.oldest_rows(int(limit))
        for each in oldest(held, rows, self._wall(), int(limit)):
            due = "" if each.next_try_ns is None else f", next {each.next_try_ns / S:.2f}"
            yield f"{each.event_id}: {each.reason.partition(':')[0]}, tries {each.tries}{due}"

    def state(self) -> str:
        core = self.dispatcher
        shown = [f"{core.waiting.open} open"]
        if keys := sorted(key.decode() for key in core.waiting.room.keys()):  # noqa: SIM118
            shown.append(f"for {' '.join(keys)}")
        if (due := core.next_due(0.25)) is not None:
            shown.append(f"next {due:.3f}")
        if (trigger := core.waiting.room.next_trigger_ns()) is not None and trigger < NEVER_NS - 9:
            shown.append(f"or read past {_seconds(trigger)}")
        if (since := core.logs.oldest_first_read_ns()) is not None:
            shown.append(f"since {_seconds(since)}")
        if len(core.waiting.loaded):
            shown.append(f"{len(core.waiting.loaded)} rows")
        shown += ["memory full"] * (not core.intake.room()) + ["memory empty"] * (not core.logs.window_bytes)
        if self.homes is not None:
            shown += [f"{each.datacentre} trusted" for each in self.homes.status() if each.trusted]
            shown += ["contested"] * self.homes.contested
        return ", ".join(shown)


def _each(words: Iterable[str]) -> Iterator[str]:
    for word in words:
        name, _, count = word.partition("*")
        start, _, numbers = name.partition("#")
        yield from [f"{start}{n}" for n in range(int(numbers))] if numbers else [name] * int(count or 1)


def _names(batch: Batch) -> str:
    names = [each.decode() for each in batch.events.ids]
    return " ".join(names) if len(names) < 9 else f"{names[0]} .. {names[-1]} ({len(names)})"


def _kind(words: list[str]) -> Kind:
    return next((Kind[each.upper()] for each in words if each.upper() in Kind.__members__), Kind.JOINED)


def _registered(by: list[str]) -> list[int]:
    """Hours of the event's time, if that was given."""
    return [int(each) * world.HOUR for each in by if each.lstrip("-").isdigit()]


def _seconds(ns: int) -> str:
    return "the end" if ns == NEVER_NS else f"{ns / S:g}"


def _counted(cells: Iterable[tuple[int, int]]) -> str:
    counts: Counter[str] = Counter()
    for number, count in cells:
        counts[split_cell(number)[1].name.lower()] += count
    return ", ".join(f"{name} {count}" for name, count in counts.items() if count)


STORIES = [each for name in ("core.txt", "waiting.txt", "lookups.txt") for each in stories(__file__, name)]


@pytest.mark.parametrize("story", STORIES, ids=str)
def test_it_answers_as_its_stories_tell(story: Story, golden: Any, tmp_path: Path) -> None:
    with closing(Dispatcher(tmp_path)) as dispatcher:
        golden(story, story.told_by(dispatcher))


def test_the_line_of_a_late_event_weighs_until_its_stretch_is_written() -> None:
    core = world.core()
    world.take(core, world.block(b"a k 1\nb k 1\n"))
    before = core.logs.window_bytes
    batch = core.next_batch(0.0, flush=True)
    core.answered(batch, answers_of([Outcome.LATE, Outcome.RETRY]), 0, 0.0)
    late = core.logs.window_bytes - before
    core.answered(core.next_batch(100.0, flush=True), answers_of([Outcome.JOINED]), 0, 100.0)
    assert late == sum(len(export.line) for export in core.committing.changes(0, 100.0).exports) > 0
    assert core.logs.window_bytes == 0


def test_redispatched_events_that_wait_for_the_next_run_are_not_kept() -> None:
    core = world.core(patience=Patience(once=True, keep_pending=True))
    core.waiting.progressed(NEVER_NS)
    stretch = core.intake.redispatch(Events.of([event(b"a", b"k")]), 0, 0.0)
    core.answered(core.next_batch(0.0, flush=True), answers_of([Outcome.NOT_YET]), 0, 0.0)
    assert (core.waiting.open, len(core._table), stretch.left) == (0, 0, 1)


def test_only_joined_events_count_in_the_times_of_joins() -> None:
    core = world.core()
    for name, read_h, event_h in (("a", 99, 90), ("b", 50, 40), ("c", 98, 60)):
        line = f"{name} k {event_h}\n".encode()
        world.take(core, world.block(line, identity=name), now_ns=read_h * world.HOUR)
    outcomes = [Outcome.JOINED, Outcome.RETRY, Outcome.JOINED]
    core.answered(core.next_batch(0.0, flush=True), answers_of(outcomes), 100 * world.HOUR, 0.0)
    times = core.counting.times
    assert (times.since_read.count, times.since_read.sum_s) == (2, 3 * 3600.0)
    assert (times.since_event.count, times.since_event.sum_s) == (2, 50 * 3600.0)


def test_what_comes_soon_after_a_batch_goes_together() -> None:
    core = world.core(limits=Limits(gather_s=0.04))
    world.take(core, world.block(b"a k 1\n"))
    core.answered(core.next_batch(1.0, flush=True), answers_of([Outcome.NOT_YET]), 0, 1.01)
    core.waiting.arrived([b"k"])
    world.take(core, world.block(b"b k 1\n", 6))
    assert core.next_batch(1.02, flush=True, wait_s=0.0) is None
    assert core.next_due(0.0) == pytest.approx(1.04)
    assert len(core.next_batch(1.04, flush=True).rows) == 2


def test_a_full_batch_waits_for_nothing() -> None:
    core = world.core(limits=Limits(gather_s=60.0, batch_events=2))
    world.take(core, world.block(b"a k 1\n"))
    assert len(core.next_batch(1.0, flush=True).rows) == 1
    world.take(core, world.block(b"b k 1\nc k 1\n", 6))
    assert len(core.next_batch(1.0, flush=True).rows) == 2
