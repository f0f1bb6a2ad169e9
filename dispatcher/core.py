"""From blocks to batches, from outcomes to the ledger: the dispatcher's logic, without files, sockets or clocks.

Theory of operation. A block becomes a ``Stretch`` of its log with an ``Item`` for each event. Items leave in
batches (``next_batch``); outcomes come back (``answered``) in any order. An item with a verdict is counted in its
stretch. One without waits for its next try in memory; when its stretch has been held for too long, or holds too much
memory, the item goes to the retry store, where it waits from then on. ``changes`` hands out what the next transaction
commits: the offset of a log moves over the stretches at its front in which nothing is left in memory, and with it
their counts.

Invariant: at each commit read = all verdicts + rows of the retry store (see ``ledger``): what stands behind an offset
was counted as read exactly once, and each item of it is counted as a verdict or is a row. What stands before the
offset is not counted, and is read again after a crash; the registry then answers with the verdict it had.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from photon.adapters.contract import Adapter
from photon.adapters.envelope import Envelope
from photon.adapters.logs.api import Block, LogPosition
from photon.config.clock import NEVER_NS, NS_PER_S
from photon.dispatcher.events import (
    ITEM_BYTES,
    LATE,
    Export,
    Item,
    Stretch,
    add_rejected,
    parse,
    records_of,
    stretch_of,
)
from photon.dispatcher.ledger import HOUR_NS, VERDICT_BITS, Verdict, cell
from photon.dispatcher.retry import (
    NOT_YET_BACKOFF,
    ONCE_ATTEMPTS_MAX,
    RETRY_BACKOFF,
    SETTLED_NS,
    TOO_NEW_CHECK_S,
    Patience,
)
from photon.dispatcher.state import Changes, StoredEvent, row_bytes
from photon.dispatcher.waiting import WaitingRoom
from photon.idregistry.api import Digester
from photon.joiner.api import VERDICT_OF_KIND, JoinAnswers, Outcome, TakenBy

LATE_REASON = "its event time is older than what the registry still remembers"


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of what is held in memory, and the size of batches."""

    batch_events: int = 1000
    batch_bytes: int = 8 << 20
    batch_wait_s: float = 0.005
    window_bytes: int = 64 << 20
    """Events in memory whose stretch is not behind its log's offset. Reading stops above it."""
    hold_s: float = 5.0
    """An event without verdict stays in memory so long before it goes to the retry store."""
    hold_once_s: float = 60.0
    """The same where the run ends with the logs: nobody waits for what comes behind, so reading pauses instead while
    the primary logs catch up."""
    spill_bytes: int = 48 << 20
    """Above so much of the window the oldest events go to the retry store earlier."""
    retry_store_bytes: int = 10 << 30
    spill_rows: int = 20_000
    """At most so many new rows of the retry store in one transaction (and one stretch more)."""
    parse_records: int = 1000


@dataclass(slots=True)
class Batch:
    """What goes to a joiner in one call. ``read_past_ns``: the primary's progress known when it was made."""

    items: list[Item]
    read_past_ns: int


@dataclass(slots=True)
class _Log:
    """The stretches of one log that are not behind its offset, in order."""

    stretches: deque[Stretch] = field(default_factory=deque)
    high: int = 0  # the highest offset this log was ever committed up to


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
        retry_bytes: int = 0,
    ) -> None:
        self._adapter = adapter
        self._digester = digester
        self._datacentre = datacentre
        self._patience = patience
        self._envelope = envelope
        self._limits = limits
        self._random = random
        self._logs: dict[str, _Log] = {identity: _Log(high=high) for identity, high in highs.items()}
        self._busy: dict[str, _Log] = {}  # the logs that have stretches
        self._fresh: deque[Item] = deque()
        self._again: deque[Item] = deque()
        self._oldest_fresh = 0.0
        self._fresh_is_next = True
        self._waiting = WaitingRoom()
        self._changes = Changes()
        self._stored_cells: Counter[int] = Counter()
        self._loaded: set[int] = set()  # rows of the retry store in memory
        self._travelling: list[Item] = []  # on their way to a joiner while becoming rows
        self.retry_bytes = retry_bytes
        self.window_bytes = 0
        self.open = 0
        """Items in memory for which something may still happen in this run."""
        self.read_past_ns = -(2**63)
        self.given_up = 0
        """Events that wait for the next run because nobody could decide them in this one."""
        self.live: Counter[Verdict] = Counter()
        """Counts of this process, before they are committed."""

    # -- in: blocks ------------------------------------------------------------------------------------------------
    def take(self, block: Block, now_ns: int, now: float) -> Iterable[None]:
        """Takes a block over. A generator: step through it to its end, other work may be done between the steps."""
        stretch = stretch_of(block, now)
        log = self._logs.setdefault(block.identity, _Log())
        log.stretches.append(stretch)
        self._busy[block.identity] = log
        self.window_bytes += stretch.weight
        as_of = self._patience.as_of_ns(now_ns)
        records, offsets = records_of(block)
        step = self._limits.parse_records
        for at in range(0, len(records), step):
            parsed = parse(
                block, records[at : at + step], offsets[at : at + step], self._adapter, self._digester, as_of
            )
            items = [Item(event, stretch, now_ns) for event in parsed.events]
            if not self._fresh and items:
                self._oldest_fresh = now
            self._fresh += items
            stretch.items += items
            stretch.left += len(items)
            stretch.weight += ITEM_BYTES * len(items)
            self.window_bytes += ITEM_BYTES * len(items)
            self.open += len(items)
            self.live[Verdict.READ] += len(items)
            for bad in parsed.unreadable:
                self._reject(stretch, bad.record, bad.offset, bad.reason, now_ns)
            yield
        for long in block.oversized:
            reason = f"the record is {long.length} bytes long, more than the limit; it begins as shown"
            self._reject(stretch, long.head, long.offset, reason, now_ns)
        stretch.whole = True

    def _reject(self, stretch: Stretch, record: bytes, offset: int, reason: str, now_ns: int) -> None:
        line = self._envelope.unreadable(record, stretch.file.path, offset, reason, at_ns=now_ns)
        add_rejected(stretch, line)
        stretch.weight += len(line)
        self.window_bytes += len(line)
        self.live[Verdict.READ] += 1
        self.live[Verdict.REJECTED] += 1

    def load(self, rows: Sequence[StoredEvent], *, anew: bool = False) -> None:
        """Takes ``unloaded`` rows of the retry store that are to be tried now. ``anew``: of an earlier process."""
        for row in rows:
            as_of = self._patience.as_of_ns(row.first_read_ns)
            item = Item(row.event._replace(unmatched_as_of_ns=as_of), None, row.first_read_ns)
            item.row_id, item.attempts = row.row_id, 0 if anew else row.attempts
            self._loaded.add(row.row_id)
            self._again.append(item)
        self.open += len(rows)

    def unloaded(self, row_ids: Iterable[int]) -> list[int]:
        """Those of them that are not in memory."""
        return [row_id for row_id in row_ids if row_id not in self._loaded]

    @property
    def loaded(self) -> int:
        """Rows of the retry store in memory, on their way or not committed yet."""
        return len(self._loaded)

    def oldest_first_read_ns(self) -> int | None:
        """Of the events in memory, about: of the first one of each log's oldest stretch."""
        heads = [log.stretches[0] for log in self._busy.values()]
        return min((s.items[0].first_read_ns for s in heads if s.left), default=None)

    def room(self) -> bool:
        """Whether another block may be taken."""
        return self.window_bytes < self._limits.window_bytes

    def progressed(self, read_past_ns: int) -> None:
        """The event store has read all primary bytes written before this time."""
        self.read_past_ns = read_past_ns  # less than before when the store has started again
        self._again += self._waiting.triggered(read_past_ns)

    # -- out: batches ----------------------------------------------------------------------------------------------
    def next_batch(self, now: float, *, flush: bool) -> Batch | None:
        """The next batch to send, when one is full, has waited long enough, or with ``flush``."""
        self._again += self._waiting.due(now)
        limits = self._limits
        ripe = len(self._fresh) >= limits.batch_events or (
            bool(self._fresh) and (flush or now - self._oldest_fresh >= limits.batch_wait_s)
        )
        if self._again and not (ripe and self._fresh_is_next):
            self._fresh_is_next = True  # they take turns: neither a backlog nor a storm of retries starves the other
            return Batch(self._pull(self._again), self.read_past_ns)
        if not ripe:
            return None
        self._fresh_is_next = False
        self._oldest_fresh = now
        return Batch(self._pull(self._fresh), self.read_past_ns)

    def _pull(self, queue: deque[Item]) -> list[Item]:
        count = min(len(queue), self._limits.batch_events)
        items: list[Item] = []
        left = self._limits.batch_bytes
        for _ in range(count):
            left -= len(queue[0].event.record)
            if left < 0 and items:
                break
            items.append(queue.popleft())
        return items

    def next_due(self) -> float | None:
        """When something waiting in memory is to be tried again; monotonic seconds."""
        return self._waiting.next_due()

    # -- in: outcomes ----------------------------------------------------------------------------------------------
    def answered(self, batch: Batch, answers: JoinAnswers, now_ns: int, now: float) -> None:
        """What became of each item of a batch."""
        waiting: dict[Outcome, list[Item]] = {}
        outcomes = answers.outcomes
        if len(outcomes) != len(batch.items):
            outcomes = [Outcome.RETRY] * len(batch.items)
        count = self._count
        for row, (item, outcome) in enumerate(zip(batch.items, outcomes, strict=True)):
            if Outcome.JOINED <= outcome <= Outcome.REJECTED:
                count(item, outcome)
            elif outcome == Outcome.TAKEN and (by := answers.taken.get(row)) is not None:
                self.taken(item, by)
            elif outcome == Outcome.LATE:
                self.late(item, now_ns)
            else:
                waiting.setdefault(outcome, []).append(item)
        if waiting:
            self._wait(batch, waiting, answers.overloaded, now_ns, now)

    def taken(self, item: Item, by: TakenBy) -> None:
        """Its id was registered before, under another token."""
        event = item.event
        if by.datacentre != self._datacentre:
            self._count(item, Verdict.ELSEWHERE)
        elif not by.same_line:
            self._count(item, Verdict.DUPLICATE)
        elif item.stretch is not None and event.offset < self._logs[item.stretch.identity].high:
            self._reread(item)
        else:  # this very line before a crash, not counted then
            self._count(item, VERDICT_OF_KIND[by.kind])

    def late(self, item: Item, now_ns: int) -> None:
        """Below the boundary: this datacentre claims it as late (protocol rule 10)."""
        (line,) = self._envelope.undone([item.event], [LATE_REASON], token=None, at_ns=now_ns)
        stretch = item.stretch
        if stretch is None:
            self._changes.exports.append(Export(LATE, line))
        else:
            stretch.exports.append(Export(LATE, line))
            stretch.weight += len(line)
            self.window_bytes += len(line)
        self._count(item, Verdict.LATE)

    def _count(self, item: Item, verdict: int) -> None:
        item.done = True
        self.open -= 1
        self.live[verdict] += 1  # type: ignore[index]  # an Outcome of the same number
        stretch = item.stretch
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
        for outcome, items in waiting.items():
            attempts = max(item.attempts for item in items) + (not overloaded)
            trigger = SETTLED_NS
            if outcome == Outcome.NOT_YET:
                trigger = max(self._patience.trigger_ns(i.first_read_ns, batch.read_past_ns) for i in items)
                delay = NOT_YET_BACKOFF.delay(max(attempts, 1), self._random)
                # Without keep_pending the complete logs give a verdict, unless the store has started again meanwhile.
                settled = trigger == SETTLED_NS and self._patience.keep_pending
            elif outcome == Outcome.TOO_NEW:
                newest = max(item.event.event_time_ns for item in items)
                delay = min(max((newest - now_ns) / NS_PER_S, RETRY_BACKOFF.floor), TOO_NEW_CHECK_S)
                settled = self._patience.once and delay > self._limits.hold_once_s
            else:
                delay = RETRY_BACKOFF.delay(max(attempts, 1), self._random)
                tried = 0 if overloaded else min(item.attempts for item in items) + 1
                complete = self._patience.once and batch.read_past_ns >= NEVER_NS
                settled = complete and tried >= ONCE_ATTEMPTS_MAX
                self.given_up += len(items) * settled
            next_try_ns = SETTLED_NS if settled else now_ns + int(delay * NS_PER_S)
            for item in items:
                item.attempts, item.next_try_ns, item.settled = attempts, next_try_ns, settled
                item.trigger_ns = SETTLED_NS if settled else trigger
            passed = batch.read_past_ns < trigger <= self.read_past_ns  # while the attempt was on its way
            self._park(items, now if passed else now + delay, trigger, settled)

    def _park(self, items: list[Item], due: float, trigger_ns: int, settled: bool) -> None:
        """Held ones wait in memory, stored ones in the store; settled ones wait for the next run."""
        held = []
        for item in items:
            if item.stretch is None:
                self._changes.updated.append(item)
            else:
                held.append(item)
                item.stretch.settled += settled
        self.open -= len(items) if settled else len(items) - len(held)
        if held and not settled:
            self._waiting.add(held, due, trigger_ns)

    # -- out: what to commit ---------------------------------------------------------------------------------------
    def changes(self, now_ns: int, now: float, *, spill_all: bool = False) -> Changes:
        """What to commit now, as one transaction. ``spill_all``: nothing more will be tried in this run."""
        changes, self._changes = self._changes, Changes()
        cells, self._stored_cells = self._stored_cells, Counter()
        for item in changes.updated:
            self._loaded.discard(item.row_id)
        for item in changes.deleted:
            self._loaded.discard(item.row_id)
            self.retry_bytes -= row_bytes(item.event)
        for identity in list(self._busy):
            log = self._busy[identity]
            while log.stretches:
                stretch = log.stretches[0]
                if not stretch.whole or (stretch.left and not self._may_spill(stretch, changes, now, spill_all)):
                    break
                log.stretches.popleft()
                self._settle(stretch, changes, cells, now_ns)
                log.high = max(log.high, stretch.end)
                changes.positions[identity] = LogPosition(
                    identity, stretch.file.path, stretch.end, stretch.file.header
                )
            if not log.stretches:
                del self._busy[identity]
        changes.cells = dict(cells)
        return changes

    def _may_spill(self, stretch: Stretch, changes: Changes, now: float, spill_all: bool) -> bool:
        limits = self._limits
        if spill_all:
            return True
        once = self._patience.once
        pressed = (
            stretch.left == stretch.settled
            or now - stretch.read_at >= (limits.hold_once_s if once else limits.hold_s)
            or (not once and self.window_bytes > limits.spill_bytes)
        )
        return pressed and self.retry_bytes < limits.retry_store_bytes and len(changes.stored) < limits.spill_rows

    def _settle(self, stretch: Stretch, changes: Changes, cells: Counter[int], now_ns: int) -> None:
        """A stretch falls behind its log's offset: its counts, its lines, and what is left goes to the store."""
        cells.update(stretch.cells)
        cells.update(Counter([item.event.event_time_ns // HOUR_NS << VERDICT_BITS for item in stretch.items]))  # READ
        if stretch.left:
            for item in stretch.items:
                if not item.done:
                    self._store(item, changes, now_ns)
        changes.exports += stretch.exports
        self.window_bytes -= stretch.weight

    def _store(self, item: Item, changes: Changes, now_ns: int) -> None:
        item.stretch = None
        changes.stored.append(item)
        self.retry_bytes += row_bytes(item.event)
        if item.waiting is not None:
            self.open -= 1
            self._waiting.leave(item)
        elif not item.settled:  # on its way: a row for the next process, not to be loaded by this one
            item.next_try_ns, item.trigger_ns = now_ns, SETTLED_NS
            self._travelling.append(item)

    def committed(self) -> None:
        """The changes are durable, and new rows have their ids. To be called before anything else is."""
        self._loaded.update(item.row_id for item in self._travelling)
        self._travelling.clear()
