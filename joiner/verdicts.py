"""What is to become of each event of a batch, before it is registered: store's answer and adapter's word. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import xxhash

from photon.adapters.containment import Fault, Guard
from photon.adapters.contract import Adapter, BadRecord, Filtered, Joined, Pair
from photon.adapters.envelope import Envelope
from photon.adapters.faults import joined_fault
from photon.adapters.logs.identity import log_name
from photon.eventstore.api import EventLookUps, Found, PrimaryRecord
from photon.eventstore.shared_keys import shared
from photon.idregistry.api import Kind
from photon.joiner.api import UNKNOWN_REASON, WAIT_NS, ForeignEvent, JoinAnswers, Outcome, TakenBy
from photon.joiner.instructions import Reply
from photon.joiner.rows import Rows

REASON_CHARS_MAX = 500
LOG_NAMES_MAX = 65_536
"""Logs whose name is remembered without its rotation suffix."""
HUNG_TIMES = 3
"""An event from which the adapter did not come back so often, here, is rejected; until then it is retried."""
HUNG_EVENTS_MAX = 10_000
ABSENT_REASON = "no primary event has this key"


@dataclass(slots=True)
class Decided:
    """Verdicts to register, as columns by event row; the other rows have their outcome already."""

    outcomes: list[Outcome]
    reasons: dict[int, str] = field(default_factory=dict)
    joined: list[int] = field(default_factory=list)
    primaries: list[PrimaryRecord] = field(default_factory=list)
    payloads: list[Joined] = field(default_factory=list)
    undone: list[int] = field(default_factory=list)
    undone_kinds: list[Kind] = field(default_factory=list)
    undone_primaries: list[PrimaryRecord | None] = field(default_factory=list)
    mismatched: list[int] = field(default_factory=list)
    """Rows for which the store found a record that has another key."""
    ambiguous: list[int] = field(default_factory=list)
    """Rows whose key several primary records share that differ; joined to one of them, or rejected."""
    repeats: dict[int, int] = field(default_factory=dict)
    """Row -> the earlier row of the same id in this batch (rule 2)."""

    def add_undone(self, row: int, kind: Kind, reason: str, primary: PrimaryRecord | None = None) -> None:
        """This row leaves a line that says why it was not joined."""
        self.reasons[row] = reason[:REASON_CHARS_MAX]
        self.undone.append(row)
        self.undone_kinds.append(kind)
        self.undone_primaries.append(primary)


class Judge:
    """Applies an adapter to what the store found. It remembers only what the adapter did not come back from."""

    def __init__(self, adapter: Adapter, *, check_payloads: bool) -> None:
        """``check_payloads``: whether what the adapter returns is checked to be JSON on one line."""
        self._adapter = adapter
        self._check = check_payloads
        self._hung: dict[bytes, int] = {}

    def decide(
        self,
        events: Sequence[ForeignEvent],
        found: EventLookUps,
        outstanding: Collection[bytes],
        early: Collection[bytes] = (),
    ) -> Decided:
        """``outstanding``: digests whose registration is under way; they are not registered again. ``early``: those
        of them that wait for the registry's clock."""
        decided = Decided([Outcome.RETRY] * len(events))
        known = [
            (row, primary)
            for row, (answer, primary) in enumerate(zip(found.answers, found.records, strict=True))
            if answer is Found.FOUND and primary is not None and events[row].digest not in outstanding
        ]
        guard = Guard(self._adapter)
        keys = dict(zip([row for row, _ in known], self._keys(guard, known), strict=True))
        seen: dict[bytes, int] = {}
        chosen: list[tuple[int, PrimaryRecord]] = []
        for row, (event, answer) in enumerate(zip(events, found.answers, strict=True)):
            if event.digest in outstanding:
                if event.digest in early:
                    decided.outcomes[row] = Outcome.TOO_NEW
                else:
                    decided.reasons[row] = UNKNOWN_REASON
            elif answer is Found.NOT_YET or (answer is Found.ABSENT and event.unmatched_as_of_ns == WAIT_NS):
                decided.outcomes[row] = Outcome.NOT_YET
            elif answer is Found.UNAVAILABLE:
                decided.reasons[row] = "the event store cannot say now: its log says why"
            elif (first := seen.setdefault(event.digest, row)) != row:
                decided.repeats[row] = first
            elif answer is Found.ABSENT:
                decided.add_undone(row, Kind.UNMATCHED, ABSENT_REASON)
            elif (primary := found.records[row]) is None:
                decided.reasons[row] = "the event store found a record and did not send it"
            elif isinstance(key := keys[row], Fault):
                self._settle(decided, row, event, primary, key)
            elif key != event.key:
                decided.mismatched.append(row)
                del seen[event.digest]
            else:
                chosen.append((row, primary))
        if found.ambiguous:
            chosen = self._ambiguous(decided, events, found, chosen)
        for (row, primary), result in zip(chosen, self._results(guard, events, chosen), strict=True):
            self._settle(decided, row, events[row], primary, result)
        return decided

    def _ambiguous(
        self,
        decided: Decided,
        events: Sequence[ForeignEvent],
        found: EventLookUps,
        chosen: list[tuple[int, PrimaryRecord]],
    ) -> list[tuple[int, PrimaryRecord]]:
        """Those of ``chosen`` that are joined, as the join says of keys that several primary records share."""
        decided.ambiguous = [row for row, _ in chosen if row in found.ambiguous]
        if self._adapter.primary_duplicates != "reject":
            return chosen
        for row, primary in chosen:
            if (other := found.ambiguous.get(row)) is not None:
                reason = f"several primary events have its key: {shared(events[row].key, primary, other)}"
                decided.add_undone(row, Kind.REJECTED, reason, primary)
        return [each for each in chosen if each[0] not in found.ambiguous]

    def _keys(self, guard: Guard, known: list[tuple[int, PrimaryRecord]]) -> list[bytes | Fault | None]:
        """Whether a record is what the key names: the store's index is not to be trusted with money."""
        primary_key = self._adapter.primary_key

        def ask(each: tuple[int, PrimaryRecord]) -> bytes | None:
            try:
                return primary_key(each[1].record, each[1].file)
            except BadRecord:
                return None

        return guard.each(known, ask)

    def _results(
        self, guard: Guard, events: Sequence[ForeignEvent], chosen: list[tuple[int, PrimaryRecord]]
    ) -> Sequence[object]:
        """What the adapter makes of each pair: all at once where it can, one by one where that goes wrong."""
        adapter = self._adapter
        if adapter.joins_many and chosen:
            pairs = [
                Pair(event.record, event.file, primary.record, primary.file)
                for event, primary in ((events[row], primary) for row, primary in chosen)
            ]
            many: object = guard.many(lambda: adapter.join_many(pairs))
            if isinstance(many, list) and len(many) == len(pairs):
                return many
            return guard.each(pairs, lambda pair: adapter.join(*pair))
        join = adapter.join

        def ask(each: tuple[int, PrimaryRecord]) -> object:
            event, primary = events[each[0]], each[1]
            return join(event.record, event.file, primary.record, primary.file)

        return guard.each(chosen, ask)

    def _settle(
        self, decided: Decided, row: int, event: ForeignEvent, primary: PrimaryRecord, result: object
    ) -> None:
        if isinstance(result, Joined):
            fault = joined_fault(result) if self._check else None
            if fault is None:
                decided.joined.append(row)
                decided.primaries.append(primary)
                decided.payloads.append(result)
            else:
                decided.add_undone(row, Kind.REJECTED, fault, primary)
        elif isinstance(result, Filtered):
            decided.add_undone(row, Kind.FILTERED, str(result.reason), primary)
        elif isinstance(result, Fault) and result.hung and (times := self._times_hung(event.digest)) < HUNG_TIMES:
            decided.reasons[row] = f"{result.reason}: time {times} of {HUNG_TIMES}"[:REASON_CHARS_MAX]  # RETRY
        elif isinstance(result, Fault | BadRecord):
            decided.add_undone(row, Kind.REJECTED, str(result.reason), primary)
        else:
            reason = f"the adapter returned {type(result).__name__}, not Joined or Filtered"
            decided.add_undone(row, Kind.REJECTED, reason, primary)

    def _times_hung(self, digest: bytes) -> int:
        """With this time. A slow machine must not cost an event, so one time-out is no verdict yet."""
        times = self._hung.pop(digest, 0) + 1
        if times < HUNG_TIMES:
            if len(self._hung) >= HUNG_EVENTS_MAX:
                del self._hung[next(iter(self._hung))]  # the longest known; it begins to count anew
            self._hung[digest] = times
        return times


def settle_mismatched(events: Sequence[ForeignEvent], decided: Decided, read_past_ns: int) -> None:
    """The store's record had another key: a miss, as far as the primary logs have been read."""
    first_of = {events[row].digest: row for row in decided.joined + decided.undone}
    for row in decided.mismatched:
        event = events[row]
        if event.unmatched_as_of_ns == WAIT_NS or read_past_ns < event.unmatched_as_of_ns:
            decided.outcomes[row] = Outcome.NOT_YET
        elif (first := first_of.setdefault(event.digest, row)) != row:
            decided.repeats[row] = first
        else:
            decided.add_undone(row, Kind.UNMATCHED, ABSENT_REASON)


def tag_of(event: ForeignEvent) -> int:
    """Tells a line that is read again from another line with the same id.

    Of the record, its offset and its log's name without rotation suffix: a log that is rolled keeps its tags, and the
    same line in a copy of the log has another one.
    """
    return line_tag(event.record, event.offset, event.file.path)


def line_tag(record: bytes, offset: int, path: str) -> int:
    """``tag_of`` the event that stands there."""
    return xxhash.xxh32_intdigest(record, (offset ^ _log_seed(path)) & 0xFFFFFFFF)


@lru_cache(maxsize=LOG_NAMES_MAX)
def _log_seed(path: str) -> int:
    return xxhash.xxh32_intdigest(log_name(path).encode("utf-8", "surrogateescape"))


LineBuilder = Callable[[Sequence[ForeignEvent], Decided, int, int], list[bytes]]
"""(events, decided, token, now in ns) -> a line for each of ``decided.joined``, then for each of ``undone``."""


def envelope_lines(envelope: Envelope) -> LineBuilder:
    """The output format of ``photon.adapters.envelope``."""

    def build(events: Sequence[ForeignEvent], decided: Decided, token: int, at_ns: int) -> list[bytes]:
        lines: list[bytes] = []
        if decided.joined:
            chosen = [events[row] for row in decided.joined]
            lines = envelope.joined(chosen, decided.primaries, decided.payloads, token=token, at_ns=at_ns)
        if decided.undone:
            lines += envelope.undone(
                [events[row] for row in decided.undone],
                [decided.reasons[row] for row in decided.undone],
                token=token,
                at_ns=at_ns,
                primaries=decided.undone_primaries,
            )
        return lines

    return build


def rows_of(events: Sequence[ForeignEvent], decided: Decided, lines: list[bytes], token: int) -> Rows:
    """The columns to log and register: first the joined rows, then the undone ones."""
    order = decided.joined + decided.undone
    chosen = [events[row] for row in order]
    n = len(chosen)
    kinds = np.full(n, Kind.JOINED, dtype=np.uint8)
    kinds[len(decided.joined) :] = decided.undone_kinds
    return Rows(
        digests=b"".join([event.digest for event in chosen]),
        times=np.array([event.event_time_ns for event in chosen], dtype=np.int64),
        tokens=np.full(n, token, dtype=np.uint64),
        kinds=kinds,
        tags=np.array([tag_of(event) for event in chosen], dtype=np.uint32),
        generations=np.array([event.generation for event in chosen], dtype=np.uint32),
        lines=lines,
    )


def settle_repeats(
    events: Sequence[ForeignEvent],
    decided: Decided,
    answers: JoinAnswers,
    owner_tags: Mapping[int, int],
    datacentre: str,
) -> None:
    """The second record of an id in one batch is answered by what became of the first: taken, or the same.

    ``owner_tags``: by event row, where it was taken.
    """
    if not decided.repeats:
        return
    kind_of = dict.fromkeys(decided.joined, Kind.JOINED) | dict(
        zip(decided.undone, decided.undone_kinds, strict=True)
    )
    for row, first in decided.repeats.items():
        outcome = answers.outcomes[first]
        tag = tag_of(events[row])
        if outcome is Outcome.TAKEN:
            owner = answers.taken[first]
            answers.taken[row] = replace(owner, same_line=owner_tags.get(first) == tag)
        elif outcome in (Outcome.JOINED, Outcome.FILTERED, Outcome.UNMATCHED, Outcome.REJECTED):
            outcome = Outcome.TAKEN
            same_line = tag == tag_of(events[first])
            answers.taken[row] = TakenBy(datacentre, kind_of[first], same_line, events[first].event_time_ns)
        answers.outcomes[row] = outcome


def merge_reply(events: Sequence[ForeignEvent], decided: Decided, reply: Reply, datacentre: str) -> JoinAnswers:
    """The answers to a batch: what was decided before, and what became of the rows that were registered."""
    answers = JoinAnswers(decided.outcomes, reasons=decided.reasons, ambiguous=decided.ambiguous)
    order = decided.joined + decided.undone
    for row, outcome in zip(order, reply.outcomes, strict=True):
        answers.outcomes[row] = outcome
        if outcome is Outcome.RETRY:
            answers.reasons[row] = UNKNOWN_REASON
    for at, owner in reply.taken.items():
        answers.taken[order[at]] = owner
    settle_repeats(events, decided, answers, {order[at]: tag for at, tag in reply.owner_tags.items()}, datacentre)
    return answers
