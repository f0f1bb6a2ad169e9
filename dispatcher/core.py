"""From blocks to batches, from outcomes to the ledger: the dispatcher's logic, without files, sockets or clocks.

Theory of operation. A block becomes a ``Stretch`` of its log, its events rows of a table (``OpenEvents``). They leave
in batches (``next_batch``), some after a look-up in the registry (``next_question``, ``asked``); outcomes come back
(``answered``) in any order. The meaning of a verdict is defined once, by column, in ``taken``, ``late``, ``reread``
and ``_count``, which also ends the event's row. An event without a verdict waits for its next try in memory; when its
stretch has been held for too long, or holds too much memory, it goes to the retry store and waits there from then on.
``changes`` returns the content of the next transaction: the offset of a log moves past the stretches at its front
that have nothing left in memory, together with their counts.

Invariant: at each commit read = all verdicts + rows of the retry store (see ``ledger``): each line before an offset
was counted as read exactly once, and each event of it is counted as a verdict or is a row. Lines after the offset are
not counted, and are read again after a crash; the registry then answers with their earlier verdicts. If a log is read
again (its stretches are ``repeated``), nothing is sent before it is known which lines were counted (``lookups``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from itertools import count, islice, takewhile

import numpy as np

from photon.adapters.contract import Adapter, Retry
from photon.adapters.envelope import Envelope
from photon.adapters.logs.api import Block, LogPosition
from photon.adapters.logs.identity import ALIKE_MARK, numbered
from photon.adapters.times import NO_TIME_NS
from photon.batch.columns import I64, U8, Mask, RowIndexes
from photon.batch.events import Events
from photon.batch.verdicts import Verdicts
from photon.config.clock import NS_PER_S
from photon.dispatcher.events import (
    EVENT_BYTES,
    LATE,
    LATE_REASON,
    Batch,
    Export,
    OpenLog,
    Retimed,
    Storing,
    Stretch,
    add_rejected,
    stretch_of,
)
from photon.dispatcher.homes import NOBODY, YIELDED, Homes
from photon.dispatcher.ledger import Verdict, cells, unknown_cell
from photon.dispatcher.limits import Limits
from photon.dispatcher.open_events import (
    NO_GROUP,
    NO_ROWS,
    NOTHING_STORED,
    ROW_BYTES,
    LoadedRows,
    OpenEvent,
    OpenEvents,
    StoredEvents,
    rows_of,
)
from photon.dispatcher.queues import BEHIND_S, Queues, Shares
from photon.dispatcher.retry import FAILED_HELD, SETTLED_NS, Attempt, NextTries, Patience
from photon.dispatcher.state import Changes
from photon.dispatcher.status import JoinTimes
from photon.dispatcher.two_clocks import FirstRead, Heard, ask_for_final
from photon.dispatcher.waiting import ArrivedKeys, WaitingRoom
from photon.idregistry.api import Digester, Kind
from photon.joiner.api import GONE_REASON, JoinAnswers, Outcome
from photon.joiner.foreign_columns import events_of, records_of
from photon.joiner.verdicts import tags_of

# As numbers: looking up enumeration members is slow, and these are used once a batch.
_JOINED, _REJECTED = int(Outcome.JOINED), int(Outcome.REJECTED)
_TAKEN, _LATE, _NOT_YET = int(Outcome.TAKEN), int(Outcome.LATE), int(Outcome.NOT_YET)
_VERDICTS = frozenset(range(_JOINED, _REJECTED + 1))


@dataclass(eq=False, kw_only=True)
class Core:
    """The dispatcher's logic. ``random``: uniform in [0, 1). ``now_ns`` is wall clock, ``now`` monotonic seconds."""

    adapter: Adapter
    digester: Digester
    datacentre: str
    patience: Patience
    envelope: Envelope
    limits: Limits
    random: InitVar[Callable[[], float]]
    highs: InitVar[Mapping[str, int]]  # these two: as in ``State``
    rewritten: InitVar[Collection[str]] = ()
    retry_bytes: int = 0
    retry_rows: int = 0
    homes: Homes | None = None  # the datacentres that share the work; ``None`` if there is only one
    identical_copies: bool = False  # their files are byte-identical: a line is the same line everywhere
    uncertainty_ns: int = 0  # event times of one id that differ by more are counted and reported
    seen: Callable[[Events], None] | None = None  # called with the lines that were read, in order
    shares: Shares = field(default_factory=lambda: Shares(1.0, 0))  # by default all events are equal

    def __post_init__(
        self, random: Callable[[], float], highs: Mapping[str, int], rewritten: Collection[str]
    ) -> None:
        patience, limits, homes = self.patience, self.limits, self.homes
        self._next_tries = NextTries(patience, limits.hold_once_s, random, homes.own_ones if homes else None)
        self._storing = Storing(limits, once=patience.once)
        self._logs: dict[str, OpenLog] = {
            identity: OpenLog(end=high, rewritten=identity in rewritten) for identity, high in highs.items()
        }
        self._busy: dict[str, OpenLog] = {}  # the logs that have stretches
        self._begun = 0
        self._table = OpenEvents()
        self.queues = Queues(self._table, limits, homes, self.shares)
        self.retimed: Retimed | None = None  # the first one since this was last taken out, to be reported
        self._waiting = WaitingRoom(self._table)
        self._due: list[int] = []  # rows of events whose next try has come
        self._arrived: list[int] = []  # rows of events whose primary event has arrived
        self._recent_arrivals = ArrivedKeys()
        self._changes = Changes()
        self._stored_cells: Counter[int] = Counter()
        self.loaded = LoadedRows(self._table)
        self._back: dict[bytes, list[int]] = {}  # waiting rows of the retry store by key, not committed yet
        self._travelling = self._new_ids = NO_ROWS  # stored while on their way to a joiner; new ids of these
        self._stored = NOTHING_STORED
        self.window_bytes = 0
        self.open = 0  # events in memory that may still change in this run
        self.read_past_ns = -(2**63)
        self._first_read = FirstRead(patience.slack_ns)
        self.followed = False  # the event store reports when a primary event arrives (``arrivals``)
        self.away = ""  # why the adapter cannot read the current block; it is asked again
        self.placed = False  # lines without ids of their own were read: equal beginnings of two logs count once
        self.arrivals = 0  # events tried because their primary event had arrived
        self.given_up = 0  # events that wait for the next run because they could not be decided in this one
        self.live: Counter[Verdict] = Counter()  # counts of this process, before they are committed
        self.times = JoinTimes()

    # -- in: blocks ------------------------------------------------------------------------------------------------
    def take(self, block: Block, now_ns: int, now: float) -> Iterable[None]:
        """Takes a block over. A generator: step through it to its end; other work may be done between the steps."""
        stretch = self.begin(block, now)
        for events in self.read(stretch, block, now_ns):
            self.send(self.add(stretch, events, now_ns, now), now)
            yield
        stretch.whole = True

    def begin(self, block: Block, now: float) -> Stretch:
        """Returns the block's stretch. The log's offset does not move past it before it is ``whole``."""
        log = self._log(block)
        self._logs[block.identity] = log
        self._begun += 1
        stretch = stretch_of(block, now, log.end, self._begun)
        log.rewritten = stretch.rewritten = stretch.repeated and (log.rewritten or block.rewritten)
        log.end = max(log.end, stretch.end)
        log.stretches.append(stretch)
        self._busy[block.identity] = log
        self.window_bytes += stretch.weight
        return stretch

    def _log(self, block: Block) -> OpenLog:
        log = self._logs.get(block.identity)
        if log is None or log.rewritten or block.rewritten:
            ends = [self._logs[each].end for each in self._alike(block.identity)]
            log = log or OpenLog(rewritten=bool(ends))
            log.end = max(ends, default=0)  # lines of the log up to here were counted there
        return log

    def _alike(self, identity: str) -> list[str]:
        first = identity.partition(ALIKE_MARK)[0]
        others = takewhile(self._logs.__contains__, (numbered(first, number) for number in count(1)))
        return [*([first] if first in self._logs else ()), *others]

    def repeats(self, block: Block) -> bool:
        """True if its log was already read further: its lines may be counted."""
        return block.offset < self._log(block).end

    def clear(self, stretches: Sequence[Stretch]) -> bool:
        """True if everything read before these ``repeated`` stretches that may hold the same lines is committed.

        If not, it will be soon: events without a verdict become rows. Each stretch waits only for those begun before
        it.
        """
        first = stretches[0].number
        clear = True
        for stretch in stretches:
            for identity in self._busy.keys() & self._alike(stretch.identity):
                before = list(takewhile(lambda each: each.number < first, self._busy[identity].stretches))
                while before and not _may_hold(before[-1], stretch, of_its_own=identity == stretch.identity):
                    before.pop()
                for each in before:
                    each.store_now = True
                clear = clear and not before
        return clear

    def diverge(self, identity: str, at: int) -> None:
        """Notes where a reread log diverges from the counted one; commit this before anything is sent."""
        log = self._logs[identity]
        for stretch in log.stretches:
            stretch.store_now = True
            if stretch.rewritten and at < stretch.end:
                stretch.rewritten, stretch.diverged, stretch.counted_to = False, True, at
        log.rewritten, log.end = False, log.stretches[-1].end

    def read(self, stretch: Stretch, block: Block, now_ns: int) -> Iterator[Events]:
        """Yields the events of a block, some records at a time. Rejects unreadable records."""
        records, offsets = records_of(block)
        step = self.limits.parse_records
        for at in range(0, len(records), step):
            some = slice(at, at + step)
            while True:
                try:
                    events, unreadable, placed = events_of(
                        block, records[some], offsets[some], self.adapter, self.digester, self.patience.at_first_ns
                    )
                except Retry as error:  # the caller waits, then comes back or leaves the block unread
                    self.away = str(error)
                    yield Events.of(())
                else:
                    self.away = ""
                    break
            self.placed = self.placed or placed
            stretch.saw(events.times)
            if self.seen is not None:
                self.seen(events)
            stretch.unread += [(bad.offset, bad.record, bad.reason) for bad in unreadable]
            self.reject(stretch, now_ns)
            yield events
        for long in block.oversized:
            reason = f"the record is {long.length} bytes long, more than the limit; it begins as shown"
            stretch.unread.append((long.offset, long.head, reason))
        self.reject(stretch, now_ns)

    def add(self, stretch: Stretch, events: Events, now_ns: int, now: float) -> RowIndexes:
        """Adds events that were read and need a verdict."""
        since = self._first_read.at_ns(now_ns, now)
        count = len(events)
        rows = self._table.add(events, stretch, since)
        self._table.behind[rows] = bool(count) and self._is_behind(int(events.times[-1]), now_ns)
        stretch.first_read_ns = stretch.first_read_ns or since
        stretch.rows.append(rows)
        stretch.events += count
        stretch.left += count
        stretch.cells.update(cells(events.times, Verdict.READ))
        self.live[Verdict.READ] += count
        self.weigh(stretch, EVENT_BYTES * count)
        self.open += count
        return rows

    def _is_behind(self, time_ns: int, now_ns: int) -> bool:
        return not self.shares.alike and time_ns != NO_TIME_NS and now_ns - time_ns > BEHIND_S * NS_PER_S

    def send(self, rows: RowIndexes, now: float) -> None:
        self.queues.take(rows, now)

    def redispatch(self, stretch: Stretch, events: Events, first_read_ns: int, now: float) -> None:
        """Adds events that were read before, in a stretch of their own (``replay.redispatch``), as events behind."""
        rows = self._table.add(events, stretch, first_read_ns)
        self._table.redispatched[rows] = True
        self._table.attempts[rows] = 1  # their outcome is no evidence about the datacentre they are left to
        self._table.behind[rows] = not self.shares.alike
        stretch.left = len(rows)
        self.open += len(rows)
        self.send(rows, now)

    def weigh(self, stretch: Stretch, more: int) -> None:
        """Adds ``more`` bytes, which may be negative, to a stretch's weight."""
        stretch.weight += more
        self.window_bytes += more

    def reject(self, stretch: Stretch, now_ns: int) -> None:
        """Rejects the ``unread`` lines of a stretch, once it is known which of its lines were counted before."""
        if stretch.rewritten and not stretch.whole:
            return
        for offset, record, reason in stretch.unread:
            if offset < stretch.counted_to:
                stretch.cells[unknown_cell(Verdict.REREAD)] += 1
                self.live[Verdict.REREAD] += 1
                continue
            line = self.envelope.unreadable(record, stretch.file, offset, reason, at_ns=now_ns)
            add_rejected(stretch, line)
            self.weigh(stretch, len(line))
            self.live[Verdict.READ] += 1
            self.live[Verdict.REJECTED] += 1
        stretch.unread = []

    def load(
        self, stored: StoredEvents, now_ns: int, now: float, *, inherited: bool = False, arrived: bool = False
    ) -> None:
        """Takes ``unloaded`` rows of the retry store that are to be tried now.

        ``inherited``: rows of an earlier process; ``arrived``: their primary event has arrived.
        """
        table = self._table
        rows = table.add(stored.events, None, stored.first_read_ns)
        table.as_of[rows] = self.patience.at_first_ns
        table.row_id[rows] = stored.row_ids
        table.attempts[rows] = 0 if inherited else stored.attempts
        table.failed[rows] = 0 if arrived else table.attempts[rows]  # not stored; arrived ones start from zero
        table.behind[rows] = [self._is_behind(ns, now_ns) for ns in stored.first_read_ns.tolist()]
        self._first_read.limit(table, rows, now_ns, now)
        (self._arrived if arrived else self._due).extend(rows.tolist())
        self.loaded.add(rows)
        self.open += len(rows)
        self.arrivals += len(rows) * arrived

    def unloaded(self, row_ids: Iterable[int]) -> list[int]:
        return [row_id for row_id in row_ids if row_id not in self.loaded]

    def room_for_rows(self, now: float) -> int:
        behind = self._table.behind[rows_of(self._due + self._arrived)]
        return self.queues.room_for_rows(now) - int(np.count_nonzero(behind))

    def held(self, stretch: Stretch) -> list[OpenEvent]:
        return self._table.describe(self._table.of_stretch(stretch))

    def find(self, event_id: bytes, offset: int) -> list[OpenEvent]:
        return self._table.describe(self._table.find(event_id, offset))

    def heads(self) -> Iterator[Stretch]:
        """Yields the oldest stretch of each log that has any in memory."""
        return (log.stretches[0] for log in self._busy.values())

    def oldest_first_read_ns(self) -> int | None:
        """Returns about the oldest first read in memory: that of the first event of each log's oldest stretch."""
        return min((stretch.first_read_ns for stretch in self.heads() if stretch.left), default=None)

    def room(self) -> bool:
        return self.window_bytes < self.limits.window_bytes and self.queues.left < self.limits.left_events

    def clocks(self, told: Heard) -> None:
        self._first_read.hear(told)

    def clock_went_back(self, now_ns: int) -> None:
        """Handles a clock that was set back to ``now_ns``: no row waits until it is back where it was."""
        self._table.clock_went_back(now_ns)

    def progressed(self, read_past_ns: int) -> None:
        """Notes the time, by both clocks (``two_clocks``), before which all primary bytes have been read."""
        self.read_past_ns = read_past_ns  # less than before if the store has restarted
        self._due += self._waiting.triggered(read_past_ns).tolist()

    def arrived(self, keys: Sequence[bytes]) -> None:
        """Tries events in memory at once that wait for these keys, which the event store now has.

        The same applies to rows whose last try is not committed: in the store they still count as being in memory.
        """
        self._recent_arrivals.add(keys)
        waited = self._waiting.arrived(keys)
        self._unpark(waited)
        back = [row for key in keys for row in self._back.pop(key, ())]
        self.open += len(back)
        arrived = [*waited.tolist(), *back]
        self._table.failed[rows_of(arrived)] = 0
        self._arrived += arrived
        self.arrivals += len(arrived)

    def arrivals_lost(self) -> None:
        """Notes that the event store has forgotten its keys: attempts on their way that miss are made again."""
        self._recent_arrivals.lose()

    def waiting_keys(self) -> list[bytes]:
        return self._waiting.keys()

    # -- out: batches ----------------------------------------------------------------------------------------------
    def next_question(self, now: float) -> Batch | None:
        """Returns events to look up in the registry now. Pass those without a verdict to ``asked``."""
        self._wake(now)
        rows, patient = self.queues.next_question(now)
        return self._batch(rows, patient=patient) if len(rows) else None

    def question(self, rows: RowIndexes, stretches: Sequence[Stretch]) -> Batch:
        return self._batch(rows, stretches=stretches)

    def _batch(self, rows: RowIndexes, *, patient: bool = False, stretches: Sequence[Stretch] = ()) -> Batch:
        events = self._table.events(rows)
        return Batch(rows, events, self.read_past_ns, patient, self._recent_arrivals.number, stretches)

    def asked(self, question: Batch, left: RowIndexes, now: float) -> None:
        """Handles the events of a question that have no verdict yet."""
        self.queues.asked(left, len(question), now, patient=question.patient)

    def next_batch(
        self, now: float, *, flush: bool, wait_s: float | None = None, most: int | None = None
    ) -> Batch | None:
        """Returns the next batch to send, of ``most`` events. ``flush``, ``wait_s``: as in ``Queues.next_batch``."""
        self._wake(now)
        rows = self.queues.next_batch(now, flush=flush, wait_s=wait_s, most=most, full=not self.room())
        if not len(rows):
            return None
        ask_for_final(self._table, rows, self.patience, self.read_past_ns)
        return self._batch(rows)

    def _wake(self, now: float) -> None:
        if self._arrived:
            arrived, self._arrived = self._arrived, []
            self.queues.requeue(rows_of(arrived), now, arrived=True)
        due = self._waiting.due(now)
        if len(due) or self._due:
            rows = np.concatenate([due, rows_of(self._due)])
            self._due = []
            self._unpark(rows)
            self.queues.requeue(rows, now)

    def _unpark(self, rows: RowIndexes) -> None:
        for stretch, which in self._table.by_stretch(rows):
            if stretch is not None:
                stretch.parked -= len(which)

    def next_due(self, wait_s: float | None = None) -> float | None:
        """Returns when an event is due again, or, with ``wait_s``, has waited for that; monotonic seconds."""
        dues = (self._waiting.next_due(), None if wait_s is None else self.queues.fresh_due(wait_s))
        return min((due for due in dues if due is not None), default=None)

    def next_trigger_ns(self) -> int | None:
        """Returns the first point of the primary logs that events in memory wait for, reported arrivals or not."""
        return self._waiting.next_trigger_ns()

    # -- in: outcomes ----------------------------------------------------------------------------------------------
    def answered(self, batch: Batch, answers: JoinAnswers, now_ns: int, now: float) -> None:
        table, rows = self._table, batch.rows
        self.queues.behind_in_flight -= len(rows) if table.behind[rows[0]] else 0
        if len(answers.verdicts) != len(rows):
            answers = JoinAnswers.alike(len(rows), Outcome.RETRY)
        verdicts = answers.verdicts
        outcomes = verdicts.outcomes
        kinds = set(outcomes.tolist())
        if self.homes is not None:
            tells, placed_at = table.counts_as_evidence(rows), table.placed_at[rows]
            evidence = self.homes.of_answers(tells, table.left_to[rows], placed_at, verdicts, now)
            self.homes.observe(evidence, now, backlog=self.queues.look_first)
        if answers.ambiguous:
            ambiguous = rows_of([at for at in answers.ambiguous if outcomes[at] in (_JOINED, _REJECTED)])
            self._count_apart(rows[ambiguous], Verdict.AMBIGUOUS)
        if answers.unpaired:
            unpaired = rows_of([at for at in answers.unpaired if outcomes[at] == Outcome.UNMATCHED])
            self._count_apart(rows[unpaired], Verdict.UNPAIRED)
        if _JOINED in kinds:
            joined = rows[outcomes == _JOINED]
            self.times.joined(table.times[joined], table.first_read_ns[joined], now_ns)
        if kinds <= _VERDICTS:
            self._count(rows, outcomes)
            return
        decided = (outcomes >= _JOINED) & (outcomes <= _REJECTED)
        late = outcomes == _LATE
        waits = ~(decided | late)
        if _TAKEN in kinds:
            taken = np.flatnonzero((outcomes == _TAKEN) & (verdicts.owner_kinds != 0))
            waits[taken] = False
            owners = verdicts.take(taken)
            self._count_apart(rows[taken[_of_others(owners, self.datacentre)]], Verdict.WASTED)
            self.taken(rows[taken], owners, answers.same_line[taken])
        self._count(rows[decided], outcomes[decided])
        self.late(rows[late], now_ns)
        if waits.any():
            gone = np.zeros(len(rows), np.bool_)
            gone[[at for at, reason in verdicts.reasons.items() if reason == GONE_REASON]] = True
            self._wait(batch, outcomes, waits & ~gone, answers.overloaded, now_ns, now)
            self._wait(batch, outcomes, waits & gone, answers.overloaded, now_ns, now, gone=True)

    def looked_up(self, rows: RowIndexes, owners: Verdicts, absent: RowIndexes, now: float) -> None:
        """Handles a look-up's answer: the registry knows the events of ``rows`` but not those of ``absent``."""
        if self.homes is not None:
            table = self._table
            tells = ~self.were_read(rows) & table.counts_as_evidence(rows)
            evidence = self.homes.of_look_ups(tells, table.left_to[rows], table.digests[rows], owners)
            evidence.own = int(np.count_nonzero(table.left_to[absent] == YIELDED))
            self.homes.observe(evidence, now, backlog=self.queues.look_first)
        # Only where it decides: was it the same line?
        same_line = self.identical_copies | ~_of_others(owners, self.datacentre)
        if same_line.any():
            same_line[same_line] = tags_of(self._table.events(rows[same_line])) == owners.owner_tags[same_line]
        self.taken(rows, owners, same_line)

    def taken(self, rows: RowIndexes, owners: Verdicts, same_line: Mask) -> None:
        """Handles ids that were registered before under other tokens; ``same_line``: as in ``JoinAnswers``."""
        before = self.were_read(rows)
        if before.any():
            self.reread(rows[before])
        if before.all():
            return
        other = _of_others(owners, self.datacentre)
        registered = owners.owner_times
        moved = ~before & (registered != 0) & (registered != self._table.times[rows])
        if moved.any():
            self._retime(rows, owners, np.flatnonzero(moved))
        verdicts = np.where(other, np.uint8(Verdict.ELSEWHERE), owners.owner_kinds)  # kinds are verdicts
        # Otherwise it is this very line before a crash, not counted then.
        verdicts[~same_line & (self.identical_copies | ~other)] = Verdict.DUPLICATE
        self._count(rows[~before], verdicts[~before])

    def were_read(self, rows: RowIndexes) -> Mask:
        """Returns which of these lines were counted when they were first read."""
        before = np.zeros(len(rows), np.bool_)
        for stretch, which in self._table.by_stretch(rows):
            if stretch is not None and stretch.counted_to > stretch.begin:
                before[which] = self._table.offsets[rows[which]] < stretch.counted_to
        return before

    def _retime(self, rows: RowIndexes, owners: Verdicts, which: RowIndexes) -> None:
        """Counts lines whose ids were registered by other lines with other event times."""
        table = self._table
        # Two clocks within the permitted uncertainty may give one event different times.
        times, registered = table.times[rows[which]], owners.owner_times[which]
        apart_ns = np.maximum(times, registered).view(np.uint64) - np.minimum(times, registered).view(np.uint64)
        first_times = [each is None or each.redispatched is None for each in table.stretch[rows[which]].tolist()]
        which = which[(apart_ns > self.uncertainty_ns) & np.array(first_times, np.bool_)]
        if not len(which):
            return
        self._count_apart(rows[which], Verdict.RETIMED)
        if self.retimed is None:
            row, at = rows[which[0]], which[0]
            self.retimed = Retimed(
                table.ids[row],
                table.files[row].path,
                int(table.offsets[row]),
                int(table.times[row]),
                int(owners.owner_times[at]),
                owners.datacentres[owners.owner_datacentres[at]],
                Kind(int(owners.owner_kinds[at])),
                int(owners.owner_tokens[at]),
            )

    def _count_apart(self, rows: RowIndexes, verdict: Verdict) -> None:
        self.live[verdict] += len(rows)
        for stretch, which in self._table.by_stretch(rows):
            into = self._stored_cells if stretch is None else stretch.cells
            into.update(cells(self._table.times[rows[which]], verdict))

    def late(self, rows: RowIndexes, now_ns: int) -> None:
        """Handles events below the boundary: this datacentre claims them as late (protocol rule 10)."""
        before = self.were_read(rows)
        if before.any():
            self.reread(rows[before])
        rows = rows[~before]
        if not len(rows):
            return
        reasons = [LATE_REASON] * len(rows)
        lines = self.envelope.undone(self._table.events(rows), reasons, token=None, at_ns=now_ns)
        for line, stretch in zip(lines, self._table.stretch[rows].tolist(), strict=True):
            if stretch is None:
                self._changes.exports.append(Export(LATE, line))
            elif stretch.redispatched is None:
                stretch.exports.append(Export(LATE, line))
                self.weigh(stretch, len(line))
        self._count(rows, np.full(len(rows), Verdict.LATE, np.uint8))

    def _count(self, rows: RowIndexes, verdicts: U8) -> None:
        """Counts events that have their verdicts, and ends their rows."""
        self.open -= len(rows)
        times = self._table.times[rows]
        for stretch, which in self._table.by_stretch(rows):
            some = verdicts[which]
            if stretch is None:
                into = self._stored_cells
                self._changes.deleted += self.loaded.done(rows[which])
            else:
                into = stretch.cells
                stretch.left -= len(which)
                some = stretch.counted(some)
            into.update(cells(times[which], some))
            self.live.update(some.tolist())
        self._table.release(rows)

    def reread(self, rows: RowIndexes) -> None:
        """Ends lines that were counted when they were first read: they do not count as read again."""
        times = self._table.times
        for stretch, which in self._table.by_stretch(rows):
            assert stretch is not None
            stretch.left -= len(which)
            stretch.cells.subtract(cells(times[rows[which]], Verdict.READ))
            stretch.cells.update(cells(times[rows[which]], Verdict.REREAD))
        self.open -= len(rows)
        self.live[Verdict.READ] -= len(rows)
        self.live[Verdict.REREAD] += len(rows)
        self._table.release(rows)

    # -- waiting ---------------------------------------------------------------------------------------------------
    def _wait(
        self,
        batch: Batch,
        outcomes: U8,
        waits: Mask,
        overloaded: bool,
        now_ns: int,
        now: float,
        *,
        gone: bool = False,
    ) -> None:
        """``gone``: the primary logs that hold their events are gone."""
        table = self._table
        for outcome in map(Outcome, dict.fromkeys(outcomes[waits].tolist())):
            tried = batch.rows[waits & (outcomes == outcome)]
            self._first_read.limit(table, tried, now_ns, now)
            attempt = Attempt(
                outcome, batch.read_past_ns, overloaded, self.retry_rows, self._waiting.held, self.followed, gone
            )
            arrived = self._recent_arrivals.since(table.keys[tried].tolist(), batch.arrivals)
            if arrived.any():
                table.failed[tried[arrived]] = 0
                if outcome == Outcome.NOT_YET:
                    self._requeue(tried[arrived])
                    tried = tried[~arrived]
            for rows, plan in self._next_tries.plans(attempt, table, tried, now_ns):
                self.given_up += len(rows) * plan.given_up
                trigger, settled = plan.trigger_ns, plan.settled
                if not overloaded:
                    table.attempts[rows] += table.attempts[rows] == 0 if plan.early else True
                table.failed[rows] = 0 if outcome == Outcome.NOT_YET else table.failed[rows] + (not overloaded)
                table.next_try_ns[rows] = SETTLED_NS if settled else now_ns + int(plan.delay_s * NS_PER_S)
                table.settled[rows], table.left_to[rows], table.last[rows] = settled, NOBODY, outcome
                table.trigger_ns[rows] = SETTLED_NS if settled else trigger
                passed = batch.read_past_ns < trigger <= self.read_past_ns  # during the attempt
                self._park(rows, now, now if passed else now + plan.delay_s, trigger, settled)

    def _requeue(self, rows: RowIndexes) -> None:
        self._table.attempts[rows] += 1
        self._table.left_to[rows], self._table.last[rows] = NOBODY, Outcome.NOT_YET
        self._arrived += rows.tolist()
        self.arrivals += len(rows)

    def _park(self, rows: RowIndexes, now: float, due: float, trigger_ns: int, settled: bool) -> None:
        """Makes held events wait in memory, and stored ones in the store, except after their first few failures.

        Those would wait behind everything that is due there. Settled ones wait for the next run.
        """
        table = self._table
        hold = table.row_id[rows] == 0
        if not settled:
            hold |= (table.last[rows] == Outcome.RETRY) & (table.failed[rows] <= FAILED_HELD)
        held, back = rows[hold], rows[~hold]
        for stretch, which in table.by_stretch(held):
            if stretch is not None:
                if stretch.parked_at is None:
                    stretch.parked_at = now
                stretch.settled += len(which) * settled
                stretch.parked += len(which) * (not settled)
        for row, key in zip(back.tolist(), table.keys[back].tolist(), strict=True):
            self._back.setdefault(key, []).append(row)
        self.open -= len(rows) if settled else len(back)
        if settled:  # redispatched events are kept, as still to be sent, by their sender
            again = [each is not None and each.redispatched is not None for each in table.stretch[held].tolist()]
            table.release(held[np.array(again, np.bool_)])
        if len(held) and not settled:
            self._waiting.add(held, due, trigger_ns)

    # -- out: what to commit ---------------------------------------------------------------------------------------
    def changes(self, now_ns: int, now: float, *, store_all: bool = False) -> Changes:
        """Returns the content of the next transaction. ``store_all``: nothing more will be tried in this run."""
        changes, self._changes = self._changes, Changes()
        if self._back:
            waiting_on = rows_of([row for rows in self._back.values() for row in rows])
            self._back.clear()
            changes.updated = StoredEvents.of(self._table, waiting_on)
            self.loaded.remove(changes.updated.row_ids.tolist())
            self._table.release(waiting_on)
        if changes.deleted:
            changes.freed = self.loaded.remove(changes.deleted)
            self.retry_bytes -= changes.freed
            self.retry_rows -= len(changes.deleted)
        cells_of_all, self._stored_cells = self._stored_cells, Counter()
        leaving: list[RowIndexes] = []
        for identity in list(self._busy):
            log = self._busy[identity]
            while log.stretches:
                stretch = log.stretches[0]
                leaving_rows = sum(map(len, leaving))
                if not stretch.whole or (stretch.left and not self._may_store(log, leaving_rows, now, store_all)):
                    break
                log.stretches.popleft()
                self._settle(stretch, changes, cells_of_all)
                if stretch.left:
                    leaving.append(self._leaves(stretch))
                changes.rewritten.pop(identity, None)
                if stretch.diverged:
                    changes.diverged.add(identity)
                elif stretch.rewritten and stretch.end < stretch.counted_to:
                    changes.rewritten[identity] = stretch.counted_to
                changes.positions[identity] = LogPosition(
                    identity, stretch.file.path, stretch.end, stretch.file.header, stretch.proof
                )
            if not log.stretches:
                del self._busy[identity]
        changes.cells = dict(cells_of_all)
        if leaving:
            self._store(np.concatenate(leaving), changes, now_ns)
        return changes

    def _may_store(self, log: OpenLog, leaving_rows: int, now: float, store_all: bool) -> bool:
        """True if the rest of a log's first stretch should become rows, and there is room for them."""
        if store_all or log.stretches[0].store_now:
            return True
        limits = self.limits
        if self.retry_bytes >= limits.retry_store_bytes or leaving_rows >= limits.new_rows:
            return False
        later = islice(log.stretches, 1, None)
        return self._storing.may(log.stretches[0], later, self.window_bytes, now)

    def _settle(self, stretch: Stretch, changes: Changes, cells_of_all: Counter[int]) -> None:
        """Adds a stretch's counts and lines to ``changes``: the log's offset moves past it."""
        cells_of_all.update(stretch.cells)
        changes.exports += stretch.exports
        changes.spans.append(stretch.passed())
        self.window_bytes -= stretch.weight

    def _leaves(self, stretch: Stretch) -> RowIndexes:
        """Returns the rows of a settled stretch that have no verdict: they go to the store."""
        left = self._table.of_stretch(stretch)
        self.retry_bytes += int(self._table.sizes[left].sum()) + ROW_BYTES * len(left)
        self.retry_rows += len(left)
        self._table.stretch[left] = None
        return left

    def _store(self, rows: RowIndexes, changes: Changes, now_ns: int) -> None:
        """Makes events rows. Those on their way stay in memory too: their rows are for the next process."""
        table = self._table
        waits = table.group[rows] != NO_GROUP
        travels = ~waits & ~table.settled[rows]
        table.next_try_ns[rows[travels]], table.trigger_ns[rows[travels]] = now_ns, SETTLED_NS
        changes.stored = StoredEvents.of(table, rows)
        self.open -= int(np.count_nonzero(waits))
        self._waiting.leave(rows[waits])
        table.release(rows[~travels])
        self._travelling, self._new_ids = rows[travels], np.flatnonzero(travels)
        self._stored = changes.stored

    def undecided(self) -> tuple[I64, I64]:
        """Returns times of events without verdict that are no rows after the last ``changes`` are committed.

        First those on their way, then those whose primary event was absent at their last try.
        """
        table = self._table
        own = table.taken & ~table.redispatched & (table.row_id == 0)
        own[self._travelling] = False
        waits = table.last == _NOT_YET
        return table.times[own & ~waits], table.times[own & waits]

    def committed(self) -> None:
        """Call it first after the changes are durable and new rows have their ids."""
        rows, self._travelling = self._travelling, NO_ROWS
        stored, self._stored = self._stored, NOTHING_STORED
        if len(rows):
            self._table.row_id[rows] = stored.row_ids[self._new_ids]
            self.loaded.add(rows)


def _of_others(owners: Verdicts, datacentre: str) -> Mask:
    names = owners.datacentres
    own = names.index(datacentre) if datacentre in names else len(names)
    other: Mask = owners.owner_datacentres != own
    return other


def _may_hold(before: Stretch, lines: Stretch, *, of_its_own: bool) -> bool:
    """True if the verdicts of earlier lines must be known first.

    They may be these very lines, or, in the same log, show that it diverges from the counted one.
    """
    return before.overlaps(lines) or (of_its_own and not (before.repeated and before.whole))
