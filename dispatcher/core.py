"""From blocks to batches, from outcomes to the ledger: the dispatcher's logic, without files, sockets or clocks.

Theory of operation. A block becomes a ``Stretch`` of its log with an ``Item`` for each event. Items leave in batches
(``next_batch``), some after a look-up in the registry (``next_question``, ``asked``); outcomes come back
(``answered``) in any order. An item with a verdict is counted in its stretch. One without waits for its next try in
memory; when its stretch has been held for too long, or holds too much memory, the item goes to the retry store, where
it waits from then on. ``changes`` hands out what the next transaction commits: the offset of a log moves over the
stretches at its front in which nothing is left in memory, and with it their counts.

Invariant: at each commit read = all verdicts + rows of the retry store (see ``ledger``): what stands behind an offset
was counted as read exactly once, and each item of it is counted as a verdict or is a row. What stands before the
offset is not counted, and is read again after a crash; the registry then answers with the verdict it had. Where a log
is read again (its stretches are ``back``), nothing is sent before it is known which lines were counted (``backlog``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, takewhile

import numpy as np

from photon.adapters.contract import Adapter
from photon.adapters.envelope import Envelope
from photon.adapters.logs.api import Block, LogPosition
from photon.adapters.logs.identity import ALIKE_MARK, numbered
from photon.batch.events import Events
from photon.config.clock import NS_PER_S
from photon.dispatcher.columns import Columns, columns_of, records_of
from photon.dispatcher.events import (
    ITEM_BYTES,
    LATE,
    Batch,
    Export,
    Item,
    OpenLog,
    Retimed,
    Stretch,
    add_rejected,
    stretch_of,
)
from photon.dispatcher.evidence import of_answers, of_look_ups
from photon.dispatcher.homes import NOBODY, Homes
from photon.dispatcher.ledger import HOUR_NS, VERDICT_BITS, Verdict, cell, unknown_cell
from photon.dispatcher.limits import Limits
from photon.dispatcher.loaded import LoadedRows
from photon.dispatcher.next_try import Attempt, NextTries
from photon.dispatcher.queues import Queues
from photon.dispatcher.retry import FAILED_HELD, SETTLED_NS, Patience
from photon.dispatcher.shares import BEHIND_S, Shares
from photon.dispatcher.spilling import Spilling
from photon.dispatcher.state import Changes, StoredEvent, row_bytes
from photon.dispatcher.two_clocks import FirstRead, Heard, ask_for_final
from photon.dispatcher.waiting import ArrivedKeys, WaitingRoom
from photon.idregistry.api import I64, U8, Digester
from photon.joiner.api import VERDICT_OF_KIND, JoinAnswers, Outcome, TakenBy

LATE_REASON = "its event time is older than what the registry still remembers"


class Core:
    """See the module. ``random``: uniform in [0, 1). Times: ``now_ns`` wall clock, ``now`` monotonic seconds."""

    def __init__(
        self,
        *,
        adapter: Adapter,
        digester: Digester,
        datacentre: str,
        patience: Patience,
        envelope: Envelope,
        limits: Limits,
        random: Callable[[], float],
        highs: Mapping[str, int],
        anew: Collection[str] = (),
        retry_bytes: int = 0,
        retry_rows: int = 0,
        homes: Homes | None = None,
        identical_copies: bool = False,
        uncertainty_ns: int = 0,
        shares: Shares | None = None,
    ) -> None:
        """``highs``, ``anew``: as ``State`` has them.

        ``homes``: the datacentres that share the work; None: there is one. ``shares``; None: events are all alike.

        ``identical_copies``: they read the same files byte by byte, so that a line is the same line everywhere.
        ``uncertainty_ns``: event times of one id that are further apart are counted and told.
        """
        self._adapter = adapter
        self._digester = digester
        self._datacentre = datacentre
        self.patience = patience
        self._envelope = envelope
        self._limits = limits
        self._next_tries = NextTries(patience, limits.hold_once_s, random, homes.own_ones if homes else None)
        self._spilling = Spilling(limits, once=patience.once)
        self._logs: dict[str, OpenLog] = {
            identity: OpenLog(end=high, anew=identity in anew) for identity, high in highs.items()
        }
        self._busy: dict[str, OpenLog] = {}  # the logs that have stretches
        self._begun = 0
        self._homes = homes
        self._shares = shares or Shares(1.0, 0)
        self._queues = Queues(limits, homes, self._shares)
        self._identical_copies = identical_copies
        self._uncertainty_ns = uncertainty_ns
        self.retimed: Retimed | None = None
        """The first one since somebody took it out, to be told."""
        self._waiting = WaitingRoom()
        self._woken: list[Item] = []  # their next try has come
        self._came: list[Item] = []  # their primary event has
        self._arrived = ArrivedKeys()
        self._changes = Changes()
        self._stored_cells: Counter[int] = Counter()
        self.loaded = LoadedRows()
        self._back: dict[bytes, list[Item]] = {}  # rows that wait on, by their keys; not committed yet
        self._travelling: list[Item] = []  # on their way to a joiner while becoming rows
        self.retry_bytes = retry_bytes
        self.retry_rows = retry_rows
        self.window_bytes = 0
        self.open = 0
        """Items in memory for which something may still happen in this run."""
        self.read_past_ns = -(2**63)
        self._first_read = FirstRead(patience.slack_ns)
        self.followed = False
        """Whether the event store tells when a primary event comes (``arrivals``)."""
        self.woken = 0
        """Events that were tried because their primary event had come."""
        self.given_up = 0
        """Events that wait for the next run because nobody could decide them in this one."""
        self.live: Counter[Verdict] = Counter()
        """Counts of this process, before they are committed."""

    # -- in: blocks ------------------------------------------------------------------------------------------------
    def take(self, block: Block, now_ns: int, now: float) -> Iterable[None]:
        """Takes a block over. A generator: step through it to its end, other work may be done between the steps."""
        stretch = self.begin(block, now)
        for columns in self.read(stretch, block, now_ns):
            self.send(self.add(stretch, columns, now_ns, now), now)
            yield
        stretch.whole = True

    def begin(self, block: Block, now: float) -> Stretch:
        """The block's stretch. The log's offset does not pass it before it is ``whole``."""
        log = self._log(block)
        self._logs[block.unit] = log
        self._begun += 1
        stretch = stretch_of(block, now, log.end, self._begun)
        log.anew = stretch.anew = stretch.back and (log.anew or block.anew)
        log.end = max(log.end, stretch.end)
        log.stretches.append(stretch)
        self._busy[block.unit] = log
        self.window_bytes += stretch.weight
        return stretch

    def _log(self, block: Block) -> OpenLog:
        log = self._logs.get(block.unit)
        if log is None or log.anew or block.anew:
            ends = [self._logs[each].end for each in self._alike(block.unit)]
            log = log or OpenLog(anew=bool(ends))
            log.end = max(ends, default=0)  # what it has from these was counted there
        return log

    def _alike(self, unit: str) -> list[str]:
        """The known logs that begin as this one does, itself among them."""
        first = unit.partition(ALIKE_MARK)[0]
        others = takewhile(
            self._logs.__contains__, (numbered(first, number) for number in range(1, len(self._logs) + 1))
        )
        return [*([first] if first in self._logs else ()), *others]

    def back(self, block: Block) -> bool:
        """Whether its log was read further already: what it holds may be counted."""
        return block.offset < self._log(block).end

    def clear(self, stretches: Sequence[Stretch]) -> bool:
        """Whether all that was read before these, which are ``back``, is committed where it may hold the same lines.

        If not, it will be soon: what of it has no verdict becomes rows. Each waits for those begun before it alone.
        """
        first = stretches[0].number
        clear = True
        for stretch in stretches:
            for identity in self._busy.keys() & self._alike(stretch.identity):
                before = list(takewhile(lambda each: each.number < first, self._busy[identity].stretches))
                while before and not _may_hold(before[-1], stretch, of_its_own=identity == stretch.identity):
                    before.pop()
                for each in before:
                    each.spill = True
                clear = clear and not before
        return clear

    def departs(self, unit: str, at: int) -> None:
        """A log that is read anew goes apart there from what was counted; to be committed before anything is sent."""
        log = self._logs[unit]
        for stretch in log.stretches:
            stretch.spill = True
            if stretch.anew and at < stretch.end:
                stretch.anew, stretch.departs, stretch.seen_to = False, True, at
        log.anew, log.end = False, log.stretches[-1].end

    def adopt(self, unit: str, high: int, *, anew: bool = False) -> None:
        """A log, or a part of one, is read here from now on; ``high``: up to where it was ever dealt with."""
        self._logs[unit] = OpenLog(end=high, anew=anew)

    def forget(self, unit: str) -> bool:
        """It is read here no more. False: not all of it that was read is committed."""
        if unit in self._busy:
            return False
        self._logs.pop(unit, None)
        return True

    def read(self, stretch: Stretch, block: Block, now_ns: int) -> Iterator[Columns]:
        """What stands in a block, some records at a time. What cannot be read is rejected."""
        records, offsets = records_of(block)
        step = self._limits.parse_records
        for at in range(0, len(records), step):
            some = slice(at, at + step)
            columns, unreadable = columns_of(block, records[some], offsets[some], self._adapter, self._digester)
            stretch.saw(columns)
            self.live[Verdict.READ] += len(columns)
            stretch.unread += [(bad.offset, bad.record, bad.reason) for bad in unreadable]
            self.reject(stretch, now_ns)
            yield columns
        for long in block.oversized:
            reason = f"the record is {long.length} bytes long, more than the limit; it begins as shown"
            stretch.unread.append((long.offset, long.head, reason))
        self.reject(stretch, now_ns)

    def add(self, stretch: Stretch, columns: Columns, now_ns: int, now: float) -> list[Item]:
        """Events of a stretch that need a verdict."""
        since = self._first_read.at_ns(now_ns, now)
        items = [Item(event, stretch, since) for event in columns.events(self.patience.at_first_ns)]
        if items and self._is_behind(items[-1].event.event_time_ns, now_ns):
            for item in items:
                item.behind = True
        stretch.items += items
        stretch.left += len(items)
        self.weigh(stretch, ITEM_BYTES * len(items))
        self.open += len(items)
        return items

    def _is_behind(self, time_ns: int, now_ns: int) -> bool:
        return not self._shares.alike and now_ns - time_ns > BEHIND_S * NS_PER_S

    def send(self, items: list[Item], now: float) -> None:
        """These are on their way to a joiner; added together."""
        self._queues.read(items, now)

    def send_again(self, items: list[Item], now: float) -> None:
        """Events that were read before, in stretches of their own (``replay.guests``): they are behind."""
        for item in items:
            item.behind = not self._shares.alike
        self.open += len(items)
        self.send(items, now)

    def weigh(self, stretch: Stretch, more: int) -> None:
        """A stretch holds so many bytes more, or less."""
        stretch.weight += more
        self.window_bytes += more

    def reject(self, stretch: Stretch, now_ns: int) -> None:
        """What is ``unread`` in a stretch, once it is known what of it was counted before."""
        if stretch.anew and not stretch.whole:
            return
        for offset, record, reason in stretch.unread:
            if offset < stretch.seen_to:
                stretch.cells[unknown_cell(Verdict.REREAD)] += 1
                self.live[Verdict.REREAD] += 1
                continue
            line = self._envelope.unreadable(record, stretch.file, offset, reason, at_ns=now_ns)
            add_rejected(stretch, line)
            self.weigh(stretch, len(line))
            self.live[Verdict.READ] += 1
            self.live[Verdict.REJECTED] += 1
        stretch.unread = []

    def load(
        self, rows: Sequence[StoredEvent], now_ns: int, now: float, *, anew: bool = False, arrived: bool = False
    ) -> None:
        """Takes ``unloaded`` rows of the retry store that are to be tried now. ``anew``: of an earlier process;
        ``arrived``: their primary event has."""
        into = self._came if arrived else self._woken
        for row in rows:
            event = row.event._replace(unmatched_as_of_ns=self.patience.at_first_ns)
            item = Item(event, None, row.first_read_ns)
            item.row_id, item.attempts = row.row_id, 0 if anew else row.attempts
            item.failed = 0 if arrived else item.attempts  # it is not stored; what came begins anew
            item.behind = self._is_behind(row.first_read_ns, now_ns)
            into.append(item)
        items = into[-len(rows) :] if rows else []
        self._first_read.limit(items, now_ns, now)
        self.loaded.add(items)
        self.open += len(rows)
        self.woken += len(rows) * arrived

    def unloaded(self, row_ids: Iterable[int]) -> list[int]:
        """Those of them that are not in memory."""
        return [row_id for row_id in row_ids if row_id not in self.loaded]

    def room_for_rows(self, now: float) -> int:
        """How many more rows that are behind may be loaded now."""
        return self._queues.room_for_rows(now) - sum(item.behind for item in (*self._woken, *self._came))

    def items(self) -> Iterator[Item]:
        """Those of stretches that are in memory, with a verdict or not."""
        return (item for log in self._busy.values() for stretch in log.stretches for item in stretch.items)

    def heads(self) -> Iterator[Stretch]:
        """The oldest stretch of each log that has any in memory."""
        return (log.stretches[0] for log in self._busy.values())

    def oldest_first_read_ns(self) -> int | None:
        """Of the events in memory, about: of the first one of each log's oldest stretch."""
        return min((s.items[0].first_read_ns for s in self.heads() if s.left), default=None)

    def room(self) -> bool:
        """Whether another block may be taken."""
        return self.window_bytes < self._limits.window_bytes and self.left < self._limits.left_events

    def clocks(self, told: Heard) -> None:
        """What the event store's clock shows."""
        self._first_read.hear(told)

    def clock_went_back(self, now_ns: int) -> None:
        """To ``now_ns``: no event becomes or stays a row that is to wait until it has come where it was."""
        for item in (*self.items(), *chain.from_iterable(self._back.values())):
            if not item.settled:
                item.next_try_ns = min(item.next_try_ns, now_ns)

    def progressed(self, read_past_ns: int) -> None:
        """The event store has read all primary bytes written before this time, by both clocks (``two_clocks``)."""
        self.read_past_ns = read_past_ns  # less than before when the store has started again
        self._woken += self._waiting.triggered(read_past_ns)

    def arrived(self, keys: Sequence[bytes]) -> None:
        """The event store has these now, for which events may wait: those in memory are tried at once. So are rows
        whose last try is not committed: to whoever looks for rows they are in memory still."""
        self._arrived.add(keys)
        items = self._waiting.arrived(keys)
        for item in items:
            if item.stretch is not None:
                item.stretch.parked -= 1
        back = [item for key in keys for item in self._back.pop(key, ())]
        self.open += len(back)
        items += back
        for item in items:
            item.failed = 0
        self._came += items
        self.woken += len(items)

    def arrivals_lost(self) -> None:
        """The event store has forgotten what it was asked for: attempts on their way that miss something are made
        again."""
        self._arrived.lose()

    def waiting_keys(self) -> list[bytes]:
        """What events in memory wait for, if not for their joiner."""
        return self._waiting.keys()

    # -- out: batches ----------------------------------------------------------------------------------------------
    def next_question(self, now: float) -> Batch | None:
        """Events to look up in the registry now. What has no verdict there is to be given to ``asked``."""
        self._wake(now)
        items, patient = self._queues.next_question(now)
        return Batch(items, self.read_past_ns, patient) if items else None

    def asked(self, question: Batch, left: Sequence[Item], now: float) -> None:
        """These of the events of a question have no verdict yet."""
        self._queues.asked(left, len(question.items), now, patient=question.patient)

    def next_batch(
        self, now: float, *, flush: bool, wait_s: float | None = None, most: int | None = None
    ) -> Batch | None:
        """The next batch to send, of ``most`` events. ``flush``, ``wait_s``: as ``Queues.next_batch``."""
        self._wake(now)
        items = self._queues.next_batch(now, flush=flush, wait_s=wait_s, most=most, full=not self.room())
        ask_for_final(items, self.patience, self.read_past_ns)
        return Batch(items, self.read_past_ns, arrivals=self._arrived.number) if items else None

    def _wake(self, now: float) -> None:
        """Takes up those whose next try has come."""
        if self._came:
            came, self._came = self._came, []
            self._queues.again(came, now, arrived=True)
        items = self._waiting.due(now) + self._woken
        if not items:
            return
        self._woken = []
        for item in items:
            if item.stretch is not None:
                item.stretch.parked -= 1
        self._queues.again(items, now)

    def next_due(self, wait_s: float | None = None) -> float | None:
        """When something is to be tried again, or, with ``wait_s``, has waited for so long; monotonic seconds."""
        dues = (self._waiting.next_due(), None if wait_s is None else self._queues.fresh_due(wait_s))
        return min((due for due in dues if due is not None), default=None)

    def next_question_due(self, now: float) -> float | None:
        """When something that was left to another datacentre is to be looked up; monotonic seconds."""
        return self._queues.next_due(now)

    @property
    def left(self) -> int:
        """Events that are left to their home now."""
        return self._queues.left

    @property
    def queues_are_long(self) -> bool:
        """Whether more waits for look-ups and joiners than what keeps them busy: read is not done."""
        return self._queues.long

    def fresh_come(self, now: float) -> bool:
        """Whether there is fresh traffic."""
        return self._shares.busy(now)

    def batches_of(self, events: int) -> None:
        """How many events go into a batch at most."""
        self._queues.batch_events = events

    def look_first(self, first: bool) -> None:
        """Whether others have probably been there before: events are then looked up before they are sent."""
        self._queues.look_first = first

    # -- in: outcomes ----------------------------------------------------------------------------------------------
    def answered(self, batch: Batch, answers: JoinAnswers, now_ns: int, now: float) -> None:
        """What became of each item of a batch."""
        waiting: dict[Outcome, list[Item]] = {}
        outcomes = answers.outcomes
        self._queues.behind_in_flight -= len(batch.items) if batch.items[0].behind else 0
        if len(outcomes) != len(batch.items):
            outcomes = [Outcome.RETRY] * len(batch.items)
        if self._homes is not None:
            evidence = of_answers(batch.items, outcomes, answers.taken, self._homes, now)
            self._homes.observe(evidence, now, backlog=self._queues.look_first)
        count = self._count
        for row, (item, outcome) in enumerate(zip(batch.items, outcomes, strict=True)):
            if Outcome.JOINED <= outcome <= Outcome.REJECTED:
                count(item, outcome)
            elif outcome == Outcome.TAKEN and (by := answers.taken.get(row)) is not None:
                self.taken(item, by, joined=True)
            elif outcome == Outcome.LATE:
                self.late(item, now_ns)
            else:
                waiting.setdefault(outcome, []).append(item)
        for row in answers.ambiguous:
            if outcomes[row] in (Outcome.JOINED, Outcome.REJECTED):
                self._count_apart(batch.items[row], Verdict.AMBIGUOUS)
        if waiting:
            self._wait(batch, waiting, answers.overloaded, now_ns, now)

    def taken(self, item: Item, by: TakenBy, *, joined: bool = False) -> None:
        """Its id was registered before, under another token. ``joined``: a joiner had tried."""
        other = by.datacentre != self._datacentre
        if other and joined:
            self._count_apart(item, Verdict.WASTED)
        if item.stretch is not None and item.event.offset < item.stretch.seen_to:
            self._reread(item)
            return
        event, stretch = item.event, item.stretch
        counted_before = stretch is not None and stretch.again is not None
        if by.time_ns not in (None, event.event_time_ns) and not counted_before:
            cells = self._stored_cells if stretch is None else stretch.cells
            self.retime(cells, Retimed(event.event_id, event.file.path, event.offset, event.event_time_ns, by))
        if not by.same_line and (self._identical_copies or not other):
            self._count(item, Verdict.DUPLICATE)
        elif other:
            self._count(item, Verdict.ELSEWHERE)
        else:  # this very line before a crash, not counted then
            self._count(item, VERDICT_OF_KIND[by.kind])

    def _apart(self, time_ns: int, other_ns: int) -> bool:
        """Whether no two clocks that Photon trusts would say so of one event."""
        return abs(time_ns - other_ns) > self._uncertainty_ns

    def retime(self, cells: Counter[int], found: Retimed) -> None:
        """Counts a line whose id was registered by another line, if that has another event time."""
        if found.by.time_ns is None or not self._apart(found.event_time_ns, found.by.time_ns):
            return
        self.live[Verdict.RETIMED] += 1
        cells[cell(found.event_time_ns, Verdict.RETIMED)] += 1
        self.retimed = self.retimed or found

    def _count_apart(self, item: Item, verdict: Verdict) -> None:
        self.live[verdict] += 1
        cells = self._stored_cells if item.stretch is None else item.stretch.cells
        cells[cell(item.event.event_time_ns, verdict)] += 1

    def present(self, found: Sequence[tuple[Item, TakenBy]], others: Sequence[Item], now: float) -> None:
        """The registry knows these events, by a look-up, and does not know the others."""
        if self._homes is not None:
            evidence = of_look_ups(found, others, self._homes)
            self._homes.observe(evidence, now, backlog=self._queues.look_first)
        for item, by in found:
            self.taken(item, by)

    def late(self, item: Item, now_ns: int) -> None:
        """Below the boundary: this datacentre claims it as late (protocol rule 10)."""
        if item.stretch is not None and item.event.offset < item.stretch.seen_to:
            self._reread(item)
            return
        (line,) = self._envelope.undone(Events.of([item.event]), [LATE_REASON], token=None, at_ns=now_ns)
        stretch = item.stretch
        if stretch is None:
            self._changes.exports.append(Export(LATE, line))
        elif stretch.again is None:
            stretch.exports.append(Export(LATE, line))
            self.weigh(stretch, len(line))
        self._count(item, Verdict.LATE)

    def count_many(self, stretch: Stretch, times: I64, verdicts: U8) -> None:
        """Events of a stretch that have a verdict and were never items. REREAD: counted before, so not read again."""
        for verdict in map(Verdict, np.unique(verdicts).tolist()):
            hours, counts = np.unique(times[verdicts == verdict] // HOUR_NS, return_counts=True)
            total = int(counts.sum())
            self.live[verdict] += total
            if verdict is Verdict.REREAD:
                self.live[Verdict.READ] -= total
            for hour, count in zip(hours.tolist(), counts.tolist(), strict=True):
                stretch.cells[hour << VERDICT_BITS | verdict] += count
                if verdict is not Verdict.REREAD:
                    stretch.cells[hour << VERDICT_BITS | Verdict.READ] += count

    def _count(self, item: Item, verdict: int) -> None:
        item.done = True
        self.open -= 1
        stretch = item.stretch
        if stretch is not None:
            verdict = stretch.counted(verdict)
        self.live[verdict] += 1  # type: ignore[index]  # an Outcome of the same number
        number = item.event.event_time_ns // HOUR_NS << VERDICT_BITS | verdict
        if stretch is None:
            self._stored_cells[number] += 1
            self._changes.deleted.append(item)
        else:
            stretch.cells[number] += 1
            stretch.left -= 1

    def _reread(self, item: Item) -> None:
        """It was counted when it was read for the first time: taken out of what was read now."""
        stretch = item.stretch
        assert stretch is not None
        item.done = True
        self.open -= 1
        stretch.left -= 1
        stretch.cells[cell(item.event.event_time_ns, Verdict.READ)] -= 1
        stretch.cells[cell(item.event.event_time_ns, Verdict.REREAD)] += 1
        self.live[Verdict.READ] -= 1
        self.live[Verdict.REREAD] += 1

    # -- waiting ---------------------------------------------------------------------------------------------------
    def _wait(
        self, batch: Batch, waiting: Mapping[Outcome, list[Item]], overloaded: bool, now_ns: int, now: float
    ) -> None:
        for outcome, tried in waiting.items():
            self._first_read.limit(tried, now_ns, now)
            attempt = Attempt(
                outcome, batch.read_past_ns, overloaded, self.retry_rows, self._waiting.held, self.followed
            )
            if outcome == Outcome.NOT_YET:
                tried = self._again(tried, batch.arrivals)
            else:
                for item in self._arrived.since(tried, batch.arrivals)[0]:
                    item.failed = 0
            for items, plan in self._next_tries.plans(attempt, tried, now_ns):
                self.given_up += len(items) * plan.given_up
                trigger, settled = plan.trigger_ns, plan.settled
                next_try_ns = SETTLED_NS if settled else now_ns + int(plan.delay_s * NS_PER_S)
                for item in items:
                    item.attempts += not overloaded and not (plan.early and item.attempts)
                    item.failed = 0 if outcome == Outcome.NOT_YET else item.failed + (not overloaded)
                    item.next_try_ns, item.settled = next_try_ns, settled
                    item.left_to, item.last = NOBODY, outcome
                    item.trigger_ns = SETTLED_NS if settled else trigger
                passed = batch.read_past_ns < trigger <= self.read_past_ns  # while the attempt was on its way
                self._park(items, now, now if passed else now + plan.delay_s, trigger, settled)

    def _again(self, tried: list[Item], arrivals: int) -> list[Item]:
        """Tries those again whose primary event came while the attempt was on its way; the others."""
        came, tried = self._arrived.since(tried, arrivals)
        for item in came:
            item.attempts += 1
            item.failed = 0
            item.left_to, item.last = NOBODY, Outcome.NOT_YET
        self._came += came
        self.woken += len(came)
        return tried

    def _park(self, items: Sequence[Item], now: float, due: float, trigger_ns: int, settled: bool) -> None:
        """Held ones wait in memory, stored ones in the store, but for those that failed for the first few times: they
        would stand behind all that is due there. Settled ones wait for the next run."""
        held = []
        for item in items:
            if item.stretch is not None:
                held.append(item)
                if item.stretch.parked_at is None:
                    item.stretch.parked_at = now
                item.stretch.settled += settled
                item.stretch.parked += not settled
            elif item.last is Outcome.RETRY and item.failed <= FAILED_HELD and not settled:
                held.append(item)
            else:
                self._back.setdefault(item.event.key, []).append(item)
        self.open -= len(items) if settled else len(items) - len(held)
        if held and not settled:
            self._waiting.add(held, due, trigger_ns)

    # -- out: what to commit ---------------------------------------------------------------------------------------
    def changes(self, now_ns: int, now: float, *, spill_all: bool = False) -> Changes:
        """What to commit now, as one transaction. ``spill_all``: nothing more will be tried in this run."""
        changes, self._changes = self._changes, Changes()
        changes.updated = [item for items in self._back.values() for item in items]
        self._back.clear()
        cells, self._stored_cells = self._stored_cells, Counter()
        self.loaded.remove(changes.updated + changes.deleted)
        self.retry_bytes -= sum(row_bytes(item.event) for item in changes.deleted)
        self.retry_rows -= len(changes.deleted)
        for identity in list(self._busy):
            log = self._busy[identity]
            while log.stretches:
                stretch = log.stretches[0]
                if not stretch.whole or (stretch.left and not self._may_spill(log, changes, now, spill_all)):
                    break
                log.stretches.popleft()
                self._settle(stretch, changes, cells, now_ns)
                changes.anew.pop(identity, None)
                if stretch.departs:
                    changes.departs.add(identity)
                elif stretch.anew and stretch.end < stretch.seen_to:
                    changes.anew[identity] = stretch.seen_to
                changes.positions[identity] = LogPosition(
                    identity, stretch.file.path, stretch.end, stretch.file.header, stretch.proof
                )
            if not log.stretches:
                del self._busy[identity]
        changes.cells = dict(cells)
        return changes

    def _may_spill(self, log: OpenLog, changes: Changes, now: float, spill_all: bool) -> bool:
        """Whether what is left of a log's first stretch is to become rows, and there is room for them."""
        if spill_all or log.stretches[0].spill:
            return True
        limits = self._limits
        if self.retry_bytes >= limits.retry_store_bytes or len(changes.stored) >= limits.spill_rows:
            return False
        later = islice(log.stretches, 1, None)
        return self._spilling.may(log.stretches[0], later, self.window_bytes, now)

    def _settle(self, stretch: Stretch, changes: Changes, cells: Counter[int], now_ns: int) -> None:
        """A stretch falls behind its log's offset: its counts, its lines, and what is left goes to the store."""
        cells.update(stretch.cells)
        cells.update(Counter([item.event.event_time_ns // HOUR_NS << VERDICT_BITS for item in stretch.items]))  # READ
        if stretch.left:
            for item in stretch.items:
                if not item.done:
                    self._store(item, changes, now_ns)
        changes.exports += stretch.exports
        changes.spans.append(stretch.passed())
        self.window_bytes -= stretch.weight

    def _store(self, item: Item, changes: Changes, now_ns: int) -> None:
        item.stretch = None
        changes.stored.append(item)
        self.retry_bytes += row_bytes(item.event)
        self.retry_rows += 1
        if item.waiting is not None:
            self.open -= 1
            self._waiting.leave(item)
        elif not item.settled:  # on its way: a row for the next process, not to be loaded by this one
            item.next_try_ns, item.trigger_ns = now_ns, SETTLED_NS
            self._travelling.append(item)

    def committed(self) -> None:
        """The changes are durable, and new rows have their ids. To be called before anything else is."""
        self.loaded.add(self._travelling)
        self._travelling.clear()


def _may_hold(before: Stretch, lines: Stretch, *, of_its_own: bool) -> bool:
    """Whether what was read before has to be known first: it may hold these very lines, or, in its own log, make that
    one depart from what was counted.
    """
    return before.overlaps(lines) or (of_its_own and not (before.back and before.whole))
