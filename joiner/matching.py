"""Chooses the primary events with which an event is joined, if not simply the first with its key. Pure.

``match = "all"``: all within the time bounds, in file order; if an event has several keys, key by key. ``match =
"latest"``: the latest by event time of those within the time bounds and not after the event; if several have that
time, the last in file order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from photon.adapters.containment import Fault, Guard, primary_keys_of
from photon.adapters.contract import Adapter, BadRecord, Matching
from photon.adapters.faults import printed
from photon.adapters.key_lists import keys_in, keys_named
from photon.batch.columns import I64
from photon.batch.events import Events
from photon.batch.records import PrimaryRecord, Records
from photon.eventstore.api import SET_BYTES_MAX, SET_MAX, EventLookUps, LookUpCode
from photon.joiner.api import WAIT_NS

TOO_MANY_REASON = f"more than {SET_MAX:,} primary events, or {SET_BYTES_MAX >> 20} MiB of them, have its key"
# Limit of an event's payloads, ids and keys over all its records, which are written and copied together.
PAIRS_BYTES_MAX = 32 << 20
ESCAPED_BYTES = 6  # the most that a byte of an id or key takes in a record
TOO_LONG_REASON = f"its records with all primary events of its key would have more than {PAIRS_BYTES_MAX >> 20} MiB"
OTHER_MATCH_REASON = "the event store was started with another match; restart it with the settings of the joiners"
NONE_WITHIN_REASON = "no primary event of its key lies within its time bounds"
NONE_BEFORE_REASON = "all primary events of its key are later than the event"


class Chosen(NamedTuple):
    """The chosen records. ``found`` has one record for each row with any; rows with an empty set are ABSENT."""

    found: EventLookUps
    sets: Mapping[int, Sequence[int]]  # row that is FOUND -> indexes in ``records`` of those it is joined with
    records: Records
    # Row that is FOUND -> why the choice is impossible, because of the record in ``found``.
    faults: Mapping[int, Fault]
    reasons: Mapping[int, str]  # row that is ABSENT -> why, although its key has primary events


def suits(matching: Matching, found: EventLookUps) -> bool:
    """True if the store's answers fit this join's settings.

    If ``match`` was changed and not all processes are restarted yet, the store may return a single record that the
    joiner would take for a whole set, or sets instead of single records.
    """
    if matching.whole_sets:
        return not len(found.found) or found.counts is not None
    return len(found.found) == found.codes.count(LookUpCode.FOUND) and LookUpCode.TOO_MANY not in found.codes


class Question(NamedTuple):
    """The arguments of ``EventStore.look_up`` for a batch: all keys of its events."""

    keys: Sequence[bytes]
    as_of: list[int]
    times: list[int] | None
    rows: I64 | None  # the event of each key, ascending; ``None`` if each event has one key


def question(adapter: Adapter, events: Events) -> Question:
    times = events.times if adapter.matching.match == "latest" else None
    if not adapter.several_keys:
        return Question(list(events.keys), events.as_of.tolist(), None if times is None else times.tolist(), None)
    each = [keys_in(key) for key in events.keys]
    rows = np.repeat(np.arange(len(events)), list(map(len, each)))
    return Question([key for keys in each for key in keys], events.as_of[rows].tolist(), None, rows)


def of_events(asked: Question, found: EventLookUps) -> EventLookUps:
    """Turns the answers for keys into answers for events: a set per event, in the order of its keys.

    An event has its set only once each of its keys has one.
    """
    rows = asked.rows
    if rows is None:
        return found
    each, counts = np.frombuffer(found.codes, np.uint8), np.zeros(len(rows), np.int64)
    counts[each == LookUpCode.FOUND] = found.per_row()
    codes = np.full(rows[-1] + 1 if len(rows) else 0, LookUpCode.ABSENT, np.uint8)
    for code in _OF_EVENT:
        codes[rows[each == code]] = code
    total = np.bincount(rows, counts, len(codes))
    of_record = np.repeat(rows, counts)
    size = np.bincount(of_record, list(map(len, found.found.records)), len(codes))
    codes[(codes == LookUpCode.FOUND) & ((total > SET_MAX) | (size > SET_BYTES_MAX))] = LookUpCode.TOO_MANY
    has = codes == LookUpCode.FOUND
    kept = found.found.take(np.flatnonzero(has[of_record]))
    return EventLookUps(codes.tobytes(), kept, {}, None if found.counts is None else total[has].astype(np.uint32))


# Codes by rising weight: an event has the last one among its keys.
_OF_EVENT = (LookUpCode.FOUND, LookUpCode.TOO_MANY, LookUpCode.GONE, LookUpCode.UNAVAILABLE, LookUpCode.NOT_YET)


def choose(matching: Matching, guard: Guard, events: Events, found: EventLookUps) -> Chosen:
    """Chooses records from the whole sets in ``found``. Ignores records without the event's key."""
    records, codes = found.found, bytearray(found.codes)
    adapter = guard.adapter
    keys, times = primary_keys_of(guard, records), _times(matching, guard, records)
    waits = (events.as_of == WAIT_NS).tolist()
    sets: dict[int, Sequence[int]] = {}
    faults: dict[int, Fault] = {}
    reasons: dict[int, str] = {}
    end = 0
    for row, count in zip(found.rows().tolist(), found.per_row().tolist(), strict=True):
        its = range(end, end := end + count)
        wanted = frozenset(keys_named(adapter, events.keys[row]))
        named = [at for at in its if keys[at] in wanted]
        if len(wanted) > 1:  # a record has one key, regardless of the one it was found by
            first: dict[PrimaryRecord, int] = {}
            for at in named:
                first.setdefault(records.row(at), at)
            named = list(first.values())
        if waits[row]:  # not final, regardless of the source
            codes[row] = LookUpCode.NOT_YET
        elif unknown := next(((at, key) for at in its if isinstance(key := keys[at], Fault)), None):
            sets[row], faults[row] = (unknown[0],), unknown[1]  # it may belong to the set
        elif not named:
            sets[row] = its[:1]
        elif fault := next(((at, time) for at in named if isinstance(time := times[at], Fault)), None):
            sets[row], faults[row] = (fault[0],), fault[1]
        elif chosen := _chosen(matching, int(events.times[row]), named, times):
            sets[row] = chosen
        else:
            codes[row] = LookUpCode.ABSENT
            reasons[row] = NONE_BEFORE_REASON if matching.before_ns is None else NONE_WITHIN_REASON
    firsts = np.array([its[0] for its in sets.values()], np.intp)
    return Chosen(EventLookUps(bytes(codes), records.take(firsts)), sets, records, faults, reasons)


def _chosen(matching: Matching, time_ns: int, named: list[int], times: Sequence[int | Fault]) -> list[int]:
    if not matching.needs_time:
        return named
    first = None if matching.before_ns is None else time_ns - matching.before_ns
    last = time_ns if matching.match == "latest" else time_ns + (matching.after_ns or 0)
    within = [(time, at) for at in named if isinstance(time := times[at], int) and time <= last]
    within = [each for each in within if first is None or each[0] >= first]
    return [max(within)[1]] if within and matching.match == "latest" else [at for _, at in within]


def _times(matching: Matching, guard: Guard, records: Records) -> Sequence[int | Fault]:
    """Returns the event time of each record, if the join needs it."""
    if not matching.needs_time:
        return [0] * len(records)

    def ask(each: PrimaryRecord) -> int | Fault:
        try:
            time = guard.adapter.primary_time(each.record, each.file)
        except BadRecord as bad:
            return Fault(f"the event time of its primary event cannot be read: {printed(bad.reason)}")
        return time if isinstance(time, int) else Fault("the adapter's primary_time is not an integer")

    return guard.each(records.rows(), ask)
