"""Decides on each event of a batch, before it is registered, from the store's and the adapter's answers. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from operator import eq
from typing import Protocol, TypeVar

import numpy as np
import xxhash

from photon.adapters.computed_twice import compare, rows_due
from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.containment import Fault, Guard, primary_keys_of
from photon.adapters.contract import (
    Adapter,
    BadRecord,
    Filtered,
    Joined,
    Pair,
    Pairs,
    Payloads,
    Unpaired,
)
from photon.adapters.envelope import Envelope
from photon.adapters.faults import are_payloads, joined_fault, payload_fault, printed
from photon.adapters.key_lists import names
from photon.adapters.logs.identity import log_name
from photon.batch.columns import U32, Mask, RowIndexes, split_digests
from photon.batch.events import Events, ForeignEvent
from photon.batch.records import NO_RECORDS, PrimaryRecord, Records
from photon.batch.verdicts import Verdicts
from photon.eventstore.api import EventLookUps, LookUpCode, PrimaryPlace
from photon.eventstore.shared_keys import shared
from photon.idregistry.api import Kind
from photon.joiner.api import GONE_REASON, UNKNOWN_REASON, WAIT_NS, JoinAnswers, Outcome
from photon.joiner.core import Reply
from photon.joiner.matching import (
    ESCAPED_BYTES,
    OTHER_MATCH_REASON,
    PAIRS_BYTES_MAX,
    TOO_LONG_REASON,
    TOO_MANY_REASON,
    choose,
    of_events,
    question,
    suits,
)
from photon.joiner.rows import Rows

_Batch = TypeVar("_Batch", Events, Records)

REASON_CHARS_MAX = 500
LOG_NAMES_MAX = 65_536  # logs whose name without its rotation suffix is remembered
HUNG_TIMES = 3  # an event is rejected once the adapter has hung on it this many times here; until then it is retried
HUNG_EVENTS_MAX = 10_000
ABSENT_REASON = "no primary event has this key"


@dataclass(slots=True)
class Decided:
    """A decided batch. Rows with a kind are to be registered; the others have their outcome already."""

    outcomes: bytearray  # ``Outcome`` by row
    kinds: bytearray  # ``Kind`` by row; 0 means not registered now
    reasons: dict[int, str] = field(default_factory=dict)
    primaries: Records = NO_RECORDS  # of the joined rows, like the payloads
    foreign: Sequence[bytes | None] = ()
    primary: Sequence[bytes | None] = ()
    # Number of primaries of each joined row; ``None`` means one each, and the record does not mention it.
    pairs: Sequence[int] | None = None
    # Row that is not joined -> its primary event.
    undone: dict[int, PrimaryRecord | None] = field(default_factory=dict)
    # Row of ``undone`` that goes among the joined ones -> its foreign payload.
    inline: dict[int, bytes | None] = field(default_factory=dict)
    mismatched: list[int] = field(default_factory=list)  # rows for which the store returned a record with another key
    # Rows whose key has several different primary records; joined to one of them, or rejected.
    ambiguous: list[int] = field(default_factory=list)
    # Rows that are unmatched although their primary event exists: the two are not a pair.
    unpaired: list[int] = field(default_factory=list)
    # Row -> the earlier row of the same id in this batch (rule 2).
    repeats: dict[int, int] = field(default_factory=dict)

    @staticmethod
    def of(n: int) -> Decided:
        return Decided(bytearray(n), bytearray(n))

    def add_undone(self, row: int, kind: Kind, reason: str, primary: PrimaryRecord | None = None) -> None:
        """Adds a row whose line says why it was not joined."""
        self.reasons[row] = reason[:REASON_CHARS_MAX]
        self.kinds[row] = kind
        self.undone[row] = primary

    def withhold_unmatched(self) -> None:
        """Makes events wait that would be unmatched, as if the primary logs had not been read yet."""
        withheld = {row for row in self.undone if self.kinds[row] == Kind.UNMATCHED}
        for row in withheld | {row for row, first in self.repeats.items() if first in withheld}:
            self.kinds[row], self.outcomes[row] = 0, Outcome.NOT_YET
            for each in (self.reasons, self.undone, self.repeats):
                each.pop(row, None)
        self.unpaired = [row for row in self.unpaired if row not in withheld]

    def joined(self) -> RowIndexes:
        return np.flatnonzero(np.frombuffer(self.kinds, np.uint8) == Kind.JOINED)

    def order(self) -> RowIndexes:
        return np.frombuffer(self.kinds, np.uint8).nonzero()[0]


class LooksUp(Protocol):
    """The part of api.EventStore that decisions need."""

    async def look_up(
        self, keys: Sequence[bytes], as_of: Sequence[int], times: Sequence[int] | None = None
    ) -> EventLookUps: ...


class Judge:
    """Applies an adapter to the store's answers. Remembers only the events on which the adapter hung."""

    def __init__(self, adapter: Adapter, *, check_payloads: bool) -> None:
        """``check_payloads``: check that the adapter's results are JSON on one line."""
        self._adapter = adapter
        self._check = check_payloads
        self._hung: dict[bytes, int] = {}

    async def look_up(self, store: LooksUp, events: Events) -> EventLookUps:
        """Looks up everything that ``decide`` needs."""
        asked = question(self._adapter, events)
        return of_events(asked, await store.look_up(asked.keys, asked.as_of, asked.times))

    def decide(
        self, events: Events, found: EventLookUps, outstanding: Collection[bytes], early: Collection[bytes] = ()
    ) -> Decided:
        """Decides each event. ``outstanding``: digests being registered, which are not registered again. ``early``:
        the outstanding digests that wait for the registry's clock.

        Raises AdapterError if the adapter's ``join_columns`` differs from ``join``.
        """
        decided = Decided.of(len(events))
        guard = Guard(self._adapter)
        matching = self._adapter.matching
        if not suits(matching, found):
            decided.reasons = dict.fromkeys(range(len(events)), OTHER_MATCH_REASON)
            return decided
        chosen = choose(matching, guard, events, found) if matching.whole_sets else None
        if chosen is not None:
            found = chosen.found
        digests = split_digests(events.digests)
        held = {row for row, digest in enumerate(digests) if digest in outstanding} if outstanding else frozenset()
        records = found.found
        if held:
            kept = [at for at, row in enumerate(found.rows().tolist()) if row not in held]
            records = records.take(np.array(kept, np.intp))
        # Check that a record has the requested key: billing must not depend on the store's index.
        keys, named = primary_keys_of(guard, records), events.keys
        waits = events.as_of == WAIT_NS
        codes = np.frombuffer(found.codes, np.uint8)
        is_found = codes == LookUpCode.FOUND
        is_found[list(held)] = False
        of_record = np.flatnonzero(is_found)  # the row of each record
        is_plain = np.zeros(len(events), np.bool_)  # found with its key, and once in this batch: most are
        if chosen is None:
            is_plain[of_record] = list(map(eq, keys, map(named.__getitem__, of_record.tolist())))
            if len(set(digests)) < len(digests):
                is_plain &= np.array(list(map(Counter(digests).__getitem__, digests))) == 1
        index = np.cumsum(is_found) - 1  # of each row's record
        rows, at_record = np.flatnonzero(is_plain).tolist(), index[is_plain].tolist()
        plain = len(rows)
        seen: dict[bytes, int] = {}
        for row in np.flatnonzero(~is_plain).tolist():
            answer, at = found.codes[row], int(index[row])
            if row in held:
                if digests[row] in early:
                    decided.outcomes[row] = Outcome.TOO_NEW
                else:
                    decided.reasons[row] = UNKNOWN_REASON
            elif answer == LookUpCode.NOT_YET or (answer == LookUpCode.ABSENT and waits[row]):
                decided.outcomes[row] = Outcome.NOT_YET
            elif answer == LookUpCode.UNAVAILABLE:
                decided.reasons[row] = "the event store cannot answer now; see its log"
            elif answer == LookUpCode.GONE:
                decided.reasons[row] = GONE_REASON
            elif (first := seen.setdefault(digests[row], row)) != row:
                decided.repeats[row] = first
            elif answer == LookUpCode.ABSENT:
                why = ABSENT_REASON if chosen is None else chosen.reasons.get(row, ABSENT_REASON)
                decided.add_undone(row, Kind.UNMATCHED, why)
            elif answer == LookUpCode.TOO_MANY:
                decided.add_undone(row, Kind.REJECTED, TOO_MANY_REASON)
            elif chosen is not None and (fault := chosen.faults.get(row)) is not None:
                self._settle(decided, row, digests[row], records.row(at), fault)
            elif (key := keys[at]) == named[row] or names(self._adapter, named[row], key):
                rows.append(row)
                at_record.append(at)
            elif isinstance(key, Fault):
                self._settle(decided, row, digests[row], records.row(at), key)
            else:
                decided.mismatched.append(row)
                seen.pop(digests[row], None)
        if len(rows) > plain:
            rows, at_record = sorted(rows), sorted(at_record)  # records are in the order of their rows
        if found.ambiguous:
            rows, at_record = self._ambiguous(decided, events, found.ambiguous, rows, at_record, records)
        if rows and chosen is not None and matching.match == "all":
            pairs = [(row, each) for row in rows for each in chosen.sets[row]]
            primaries = taken(chosen.records, [each for _, each in pairs])
            of_rows = self._join(decided, guard, events, [row for row, _ in pairs], primaries)
            decided.pairs = list(Counter(of_rows).values())
        elif rows:
            self._join(decided, guard, events, rows, taken(records, at_record))
        return decided

    def inline(self, events: Events, decided: Decided) -> None:
        """Fills in the lines of unmatched events that go to ``joined``. Call it last, after ``settle_mismatched``.

        Rejects an event whose payload is unavailable, as if it had a primary event.
        """
        adapter = self._adapter
        rows = [row for row in decided.undone if decided.kinds[row] == Kind.UNMATCHED]
        if not adapter.unmatched_inline or not rows:
            return
        asked = taken(events, rows)
        records = list(zip(asked.records, asked.of_file(), strict=True))
        made: Sequence[object] = Guard(adapter).each(records, lambda each: adapter.unmatched_payload(*each))
        for row, digest, payload in zip(rows, split_digests(asked.digests), made, strict=True):
            if isinstance(payload, Fault):
                fault = payload
            elif (why := payload_fault(payload) if self._check else None) is not None:
                fault = Fault(why)
            else:
                decided.inline[row] = payload  # type: ignore[assignment]  # as the check says, or the adapter's word
                continue
            decided.kinds[row] = 0
            decided.unpaired = [each for each in decided.unpaired if each != row]
            self._settle(decided, row, digest, decided.undone.pop(row), fault)

    def _ambiguous(
        self,
        decided: Decided,
        events: Events,
        others: Mapping[int, PrimaryPlace],
        rows: list[int],
        at_record: list[int],
        records: Records,
    ) -> tuple[list[int], list[int]]:
        """Returns the rows to join, after applying the join's rule for keys with several primary records."""
        decided.ambiguous = [row for row in rows if row in others]
        if self._adapter.primary_duplicates != "reject":
            return rows, at_record
        left = []
        for row, at in zip(rows, at_record, strict=True):
            if (other := others.get(row)) is None:
                left.append((row, at))
            else:
                primary = records.row(at)
                reason = f"several primary events have its key: {shared(events.keys[row], primary, other)}"
                decided.add_undone(row, Kind.REJECTED, reason, primary)
        return [row for row, _ in left], [at for _, at in left]

    def _join(
        self, decided: Decided, guard: Guard, events: Events, rows: list[int], primaries: Records
    ) -> Sequence[int]:
        """Collects the adapter's result for each pair of ``rows[i]`` and ``primaries[i]``. Returns the rows of joined
        pairs.

        A row appears once for each of its pairs. Filtered or unpaired pairs are omitted if others are joined; a pair
        that cannot be joined rejects the whole event.
        """
        events = taken(events, rows)
        made = self._payloads(guard, Pairs(events.records, events.of_file(), primaries.records, primaries.of_file()))
        others: dict[int, object] = dict(made.others)
        if self._check and not (are_payloads(made.foreign) and are_payloads(made.primary)):
            for at, both in enumerate(zip(made.foreign, made.primary, strict=True)):
                if at not in others and (fault := joined_fault(Joined(*both))) is not None:
                    others[at] = BadRecord(fault)
        if self._adapter.matching.match == "all":
            sizes = Counter[int]()
            for at, row in enumerate(rows):
                held = (made.foreign[at] or events.records[at], made.primary[at] or primaries.records[at])
                names = len(events.ids[at]) + len(events.keys[at])
                sizes[row] += ESCAPED_BYTES * names + sum(map(len, held))
            others |= {at: BadRecord(TOO_LONG_REASON) for at, row in enumerate(rows) if sizes[row] > PAIRS_BYTES_MAX}
        for row in rows:
            decided.kinds[row] = Kind.JOINED
        decided.primaries, decided.foreign, decided.primary = primaries, made.foreign, made.primary
        if not others:
            return rows
        digests = split_digests(events.digests)
        bad = {rows[at] for at, other in others.items() if not isinstance(other, Filtered | Unpaired)}
        kept = [at for at, row in enumerate(rows) if at not in others and row not in bad]
        joined, settled = {rows[at] for at in kept}, set[int]()
        for at, other in sorted(others.items()):
            row = rows[at]
            if row in joined or row in settled or (row in bad and isinstance(other, Filtered | Unpaired)):
                continue
            settled.add(row)
            decided.kinds[row] = 0
            self._settle(decided, row, digests[at], primaries.row(at), other)
        decided.primaries = taken(primaries, kept)
        decided.foreign = [made.foreign[at] for at in kept]
        decided.primary = [made.primary[at] for at in kept]
        return [rows[at] for at in kept]

    def _payloads(self, guard: Guard, pairs: Pairs) -> Payloads:
        """Calls the adapter for all pairs at once; if that fails, for one at a time. Raises AdapterError."""
        adapter, n, form = self._adapter, len(pairs.foreign), "join_columns"
        made: object = None
        if adapter.defines(form):
            made = guard.many(lambda *own: adapter.join_columns(Pairs(*own)), *pairs)
        if not isinstance(made, Payloads) or not len(made.foreign) == len(made.primary) == n:
            alone = list(zip(*pairs, strict=True))
            made, form = Payloads.of(guard.each(alone, lambda pair: adapter.join(*pair))), "join"  # type: ignore[arg-type]
        if type(adapter) is not ConfiguredAdapter:
            self._compare_forms(guard, pairs, form, made)
        return made

    def _compare_forms(self, guard: Guard, pairs: Pairs, form: str, made: Payloads) -> None:
        """Raises AdapterError if a pair has a different result when it is joined again, alone."""
        adapter, faults = self._adapter, made.others
        rows = [at for at in rows_due(adapter, "pairs", len(pairs.foreign)) if not isinstance(faults.get(at), Fault)]
        asked = [Pair._make(column[at] for column in pairs) for at in rows]
        for at, pair, alone in zip(rows, asked, guard.each(asked, lambda pair: adapter.join(*pair)), strict=True):
            if not isinstance(alone, Fault):
                one = made.others.get(at) or Joined(made.foreign[at], made.primary[at])
                compare(adapter, pair.foreign_file, form, one, alone)

    def _settle(
        self, decided: Decided, row: int, digest: bytes, primary: PrimaryRecord | None, result: object
    ) -> None:
        if isinstance(result, Filtered):
            decided.add_undone(row, Kind.FILTERED, printed(result.reason), primary)
        elif isinstance(result, Unpaired):
            decided.unpaired.append(row)
            decided.add_undone(row, Kind.UNMATCHED, printed(result.reason), primary)
        elif isinstance(result, Fault) and result.retry:
            decided.reasons[row] = result.reason[:REASON_CHARS_MAX]  # RETRY
        elif isinstance(result, Fault) and result.hung and (times := self._times_hung(digest)) < HUNG_TIMES:
            decided.reasons[row] = f"{result.reason}: time {times} of {HUNG_TIMES}"[:REASON_CHARS_MAX]  # RETRY
        elif isinstance(result, Fault | BadRecord):
            decided.add_undone(row, Kind.REJECTED, printed(result.reason), primary)
        else:
            reason = f"the adapter returned {type(result).__name__}, not Joined, Filtered or Unpaired"
            decided.add_undone(row, Kind.REJECTED, reason, primary)

    def _times_hung(self, digest: bytes) -> int:
        """Returns how often the adapter has hung on this event, including now.

        One time-out is not a verdict, as the machine may be slow.
        """
        times = self._hung.pop(digest, 0) + 1
        if times < HUNG_TIMES:
            if len(self._hung) >= HUNG_EVENTS_MAX:
                del self._hung[next(iter(self._hung))]  # the one known longest, whose count then starts again
            self._hung[digest] = times
        return times


def settle_mismatched(events: Events, decided: Decided, read_past_ns: int) -> None:
    """Treats records whose key is not the event's as misses, as of ``read_past_ns``."""
    if not decided.mismatched:
        return
    digests = split_digests(events.digests)
    first_of = {digest: row for row, digest in enumerate(digests) if decided.kinds[row]}
    for row in decided.mismatched:
        as_of = int(events.as_of[row])
        if as_of == WAIT_NS or read_past_ns < as_of:
            decided.outcomes[row] = Outcome.NOT_YET
        elif (first := first_of.setdefault(digests[row], row)) != row:
            decided.repeats[row] = first
        else:
            decided.add_undone(row, Kind.UNMATCHED, ABSENT_REASON)


def tag_of(event: ForeignEvent) -> int:
    """Returns a tag that tells a reread line from another line with the same id. It is computed from the record, its
    offset and its log's name without rotation suffix: rotation does not change it, and the same line in another log
    has a different tag.
    """
    return line_tag(event.record, event.offset, event.file.path)


def line_tag(record: bytes, offset: int, path: str) -> int:
    return xxhash.xxh32_intdigest(record, (offset ^ _log_seed(path)) & 0xFFFFFFFF)


def tags_of(events: Events) -> U32:
    seeds = np.array([_log_seed(file.path) for file in events.files], np.int64)[events.file_index]
    seeds = (seeds ^ events.offsets) & 0xFFFFFFFF
    tag = xxhash.xxh32_intdigest
    return np.array([tag(*each) for each in zip(events.records, seeds.tolist(), strict=True)], np.uint32)


@lru_cache(maxsize=LOG_NAMES_MAX)
def _log_seed(path: str) -> int:
    return xxhash.xxh32_intdigest(log_name(path).encode("utf-8", "surrogateescape"))


# (events, decided, token, now in ns) -> a line for each row of ``decided.order()``.
LineBuilder = Callable[[Events, Decided, int, int], list[bytes]]


def envelope_lines(envelope: Envelope) -> LineBuilder:
    """Returns the builder of output lines in the format of ``envelope``."""

    def build(events: Events, decided: Decided, token: int, at_ns: int) -> list[bytes]:
        joined = decided.joined()
        lines: list[bytes] = []
        if len(joined):
            payloads = decided.foreign, decided.primary
            pairs = decided.pairs
            which = joined if pairs is None else np.repeat(joined, pairs)
            lines = envelope.joined(
                taken(events, which), decided.primaries, *payloads, token=token, at_ns=at_ns, pairs=pairs
            )
            if pairs is not None:  # each row has all lines of its event
                each = iter(lines)
                lines = [b"".join(islice(each, count)) for count in pairs]
        if not decided.undone:
            return lines
        undone = envelope.undone(
            taken(events, list(decided.undone)),
            [decided.reasons[row] for row in decided.undone],
            token=token,
            at_ns=at_ns,
            primaries=list(decided.undone.values()),
            inline={at: decided.inline[row] for at, row in enumerate(decided.undone) if row in decided.inline},
        )
        of_row = dict(zip([*joined.tolist(), *decided.undone], [*lines, *undone], strict=True))
        return [of_row[row] for row in sorted(of_row)]

    return build


def taken(batch: _Batch, rows: list[int] | RowIndexes) -> _Batch:
    """Selects rows; most batches are taken whole, in order."""
    n = len(batch)
    numbers = rows if isinstance(rows, list) else rows.tolist()
    return batch if len(numbers) == n and numbers == list(range(n)) else batch.take(np.array(rows, np.intp))


def rows_of(events: Events, decided: Decided, lines: list[bytes], token: int) -> Rows:
    order = decided.order()
    chosen = taken(events, order)
    return Rows(
        digests=chosen.digests,
        times=chosen.times,
        tokens=np.full(len(order), token, dtype=np.uint64),
        kinds=np.frombuffer(decided.kinds, np.uint8)[order],
        tags=tags_of(chosen),
        generations=chosen.generations,
        lines=lines,
    )


def unregistered(decided: Decided) -> JoinAnswers:
    """Returns a batch's answers as decided, before any of its events is registered."""
    n = len(decided.outcomes)
    verdicts = replace(Verdicts.plain(np.frombuffer(decided.outcomes, np.uint8)), reasons=decided.reasons)
    return JoinAnswers(verdicts, np.zeros(n, np.bool_), ambiguous=decided.ambiguous, unpaired=decided.unpaired)


def merge_reply(events: Events, decided: Decided, reply: Reply, datacentre: str) -> JoinAnswers:
    """Returns a batch's answers: the outcomes of registered rows, and the decisions on the others."""
    order, verdicts = decided.order(), reply.verdicts
    if verdicts.says(Outcome.RETRY):
        for row in order[verdicts.outcomes == Outcome.RETRY].tolist():
            decided.reasons[row] = UNKNOWN_REASON
    if len(order) == len(events):
        verdicts = replace(verdicts, reasons=decided.reasons) if decided.reasons else verdicts
        return JoinAnswers(verdicts, reply.same_line, ambiguous=decided.ambiguous, unpaired=decided.unpaired)
    answers = unregistered(decided)
    answers.same_line[order] = reply.same_line
    verdicts = answers.verdicts.put([(order, verdicts)])
    if decided.repeats:
        verdicts = _with_repeats(events, decided, verdicts, answers.same_line, datacentre)
    return replace(answers, verdicts=replace(verdicts, reasons=decided.reasons))


def _with_repeats(events: Events, decided: Decided, verdicts: Verdicts, same_line: Mask, datacentre: str) -> Verdicts:
    """Answers ids repeated in a batch by the first one's outcome: taken, or the same. Sets their ``same_line``."""
    repeats = np.array(list(decided.repeats), np.intp)
    firsts = np.array(list(decided.repeats.values()), np.intp)
    first = verdicts.take(firsts)
    ours = (first.outcomes >= Outcome.JOINED) & (first.outcomes <= Outcome.REJECTED)
    mine = Verdicts(
        np.full(len(firsts), Outcome.TAKEN, np.uint8),
        first.owner_tokens,
        np.frombuffer(decided.kinds, np.uint8)[firsts],
        tags_of(events.take(firsts)),
        np.zeros(len(firsts), np.uint8),
        (datacentre,),
        events.times[firsts],
    )
    verdicts = verdicts.put([(repeats, first), (repeats[ours], mine.take(np.flatnonzero(ours)))])
    same_line[repeats] = verdicts.owner_tags[repeats] == tags_of(events.take(repeats))
    return verdicts
