"""What answers of joiners and of the registry say about the other datacentres (see ``homes``). Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from photon.batch.columns import I64, U8, Mask, RowIndexes
from photon.dispatcher.events import Owners
from photon.dispatcher.homes import NOBODY, YIELDED, Evidence, Homes
from photon.dispatcher.open_events import OpenEvents
from photon.joiner.api import Outcome, TakenBy


def of_answers(
    table: OpenEvents, rows: RowIndexes, outcomes: U8, taken: Mapping[int, TakenBy], homes: Homes, now: float
) -> Evidence:
    """Of a joiner's answers to a batch. ``taken``: those that were, by place in ``rows``. ``now``: monotonic s."""
    evidence = Evidence()
    counts, left_to = table.counts_as_evidence(rows), table.left_to[rows]
    decided = counts & (outcomes >= Outcome.JOINED) & (outcomes <= Outcome.REJECTED)
    evidence.missed.update(left_to[decided & (left_to >= 0)].tolist())
    own = rows[decided & (left_to == NOBODY)]
    evidence.own = len(own)
    evidence.slowest_s = now - float(table.placed_at[own].min(initial=now))
    for at, by in taken.items():
        if not counts[at]:
            continue
        owner, left = homes.number.get(by.datacentre, NOBODY), int(left_to[at])
        if left == NOBODY:
            evidence.contested += owner != homes.own
        elif left == owner:
            evidence.in_time[owner] += 1
            evidence.wasted += 1
    return evidence


def of_look_ups(
    table: OpenEvents, found: RowIndexes, owners: Owners, absent: RowIndexes, fresh: Mask, homes: Homes
) -> Evidence:
    """Of events that the registry knows, with who registered each, and of those that it does not know.

    ``fresh``: which of those it knows were never read before.
    """
    evidence = Evidence(own=int(np.count_nonzero(table.left_to[absent] == YIELDED)))
    if not len(found):
        return evidence
    numbers = np.array([homes.number.get(name, NOBODY) for name in owners.names], np.int64)
    owner: I64 = numbers[owners.datacentre]
    left_to = table.left_to[found]
    tells = fresh & (owner != homes.own) & (owner != NOBODY) & table.counts_as_evidence(found)
    if homes.yielding:  # or else it was yielded in an earlier time
        evidence.contested += int(np.count_nonzero(tells & (left_to == YIELDED)))
    unplaced = tells & (left_to == NOBODY)  # nobody was waited for: it is ahead of us
    evidence.ahead = Counter(owner[unplaced].tolist())
    evidence.in_time = Counter(owner[tells & (left_to == owner)].tolist())
    if unplaced.any():
        evidence.contested += int(np.count_nonzero(homes.own_ones(table.digests[found[unplaced]].tobytes())))
    return evidence
