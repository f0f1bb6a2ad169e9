"""Chooses which of a key's primary events an event is joined with, if not simply the first. Pure.

``match = "all"``: all within the bounds, in file order. ``match = "latest"``: the one with the latest event time
among those within the bounds and not after the event; of several with the same time the last in file order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from photon.adapters.containment import Fault, Guard, primary_keys_of
from photon.adapters.contract import BadRecord, Matching
from photon.adapters.faults import printed
from photon.batch.events import Events
from photon.batch.records import PrimaryRecord, Records
from photon.eventstore.api import SET_BYTES_MAX, SET_MAX, EventLookUps, LookUpCode
from photon.joiner.api import WAIT_NS

TOO_MANY_REASON = f"more than {SET_MAX:,} primary events, or {SET_BYTES_MAX >> 20} MiB of them, have its key"
PAIRS_BYTES_MAX = 32 << 20
"""Limit for an event's payloads, ids and keys in all its records, which are written and copied together."""
ESCAPED_BYTES = 6  # the most that a byte of an id or key takes in a record
TOO_LONG_REASON = f"its records with all primary events of its key would have more than {PAIRS_BYTES_MAX >> 20} MiB"
OTHER_MATCH_REASON = "the event store was started with another match; restart it with the settings of the joiners"
NONE_WITHIN_REASON = "no primary event of its key lies within its time bounds"
NONE_BEFORE_REASON = "no primary event of its key is as early as it"


class Chosen(NamedTuple):
    """``found``: for each joined row one record of its set; rows with an empty set are ABSENT."""

    found: EventLookUps
    sets: Mapping[int, Sequence[int]]  # row that is FOUND -> indexes in ``records`` of those it is joined with
    records: Records
    faults: Mapping[int, Fault]
    """Row that is FOUND -> why the choice is impossible; the record in ``found`` is at fault."""
    reasons: Mapping[int, str]  # row that is ABSENT -> why, although its key has primary events


def suits(matching: Matching, found: EventLookUps) -> bool:
    """True if the store answers as this join asks.

    If ``match`` was changed and not all processes were restarted yet, one may give a single record that the other
    would take for a whole set, or sets instead of single records.
    """
    if matching.whole_sets:
        return not len(found.found) or found.counts is not None
    return len(found.found) == found.codes.count(LookUpCode.FOUND) and LookUpCode.TOO_MANY not in found.codes


def choose(matching: Matching, guard: Guard, events: Events, found: EventLookUps) -> Chosen:
    """``found``: whole sets. Records with another key than the event names are left out."""
    records, codes = found.found, bytearray(found.codes)
    keys, times = primary_keys_of(guard, records), _times(matching, guard, records)
    waits = (events.as_of == WAIT_NS).tolist()
    sets: dict[int, Sequence[int]] = {}
    faults: dict[int, Fault] = {}
    reasons: dict[int, str] = {}
    end = 0
    for row, count in zip(found.rows().tolist(), found.per_row().tolist(), strict=True):
        its = range(end, end := end + count)
        named = [at for at in its if keys[at] == events.keys[row]]
        if waits[row]:  # from any source, it is not final
            codes[row] = LookUpCode.NOT_YET
        elif unknown := next(((at, key) for at in its if isinstance(key := keys[at], Fault)), None):
            sets[row], faults[row] = (unknown[0],), unknown[1]  # it is unknown if it belongs to the set
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
    """The event time of each record, if it matters."""
    if not matching.needs_time:
        return [0] * len(records)

    def ask(each: PrimaryRecord) -> int | Fault:
        try:
            time = guard.adapter.primary_time(each.record, each.file)
        except BadRecord as bad:
            return Fault(f"the event time of its primary event cannot be read: {printed(bad.reason)}")
        return time if isinstance(time, int) else Fault("the adapter's primary_time gives no integer")

    return guard.each(records.rows(), ask)
