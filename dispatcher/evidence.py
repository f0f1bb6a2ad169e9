"""What answers of joiners and of the registry say about the other datacentres (see ``homes``). Pure."""

from __future__ import annotations

from collections import Counter

import numpy as np

from photon.batch.columns import I64, Mask, RowIndexes
from photon.batch.verdicts import Verdicts
from photon.dispatcher.homes import NOBODY, YIELDED, Evidence, Homes
from photon.dispatcher.open_events import OpenEvents
from photon.joiner.api import Outcome

# Numpy is slow to compare with a member of an enumeration.
_JOINED, _REJECTED, _TAKEN = int(Outcome.JOINED), int(Outcome.REJECTED), int(Outcome.TAKEN)


def of_answers(table: OpenEvents, rows: RowIndexes, verdicts: Verdicts, homes: Homes, now: float) -> Evidence:
    """Of a joiner's answers to a batch. ``now``: monotonic s."""
    evidence = Evidence()
    outcomes = verdicts.outcomes
    counts, left_to = table.counts_as_evidence(rows), table.left_to[rows]
    decided = counts & (outcomes >= _JOINED) & (outcomes <= _REJECTED)
    evidence.missed.update(left_to[decided & (left_to >= 0)].tolist())
    own = rows[decided & (left_to == NOBODY)]
    evidence.own = len(own)
    evidence.slowest_s = now - float(table.placed_at[own].min(initial=now))
    taken = counts & (outcomes == _TAKEN) & (verdicts.owner_kinds != 0)
    if taken.any():
        owner, left_to = _owners(verdicts, homes)[taken], left_to[taken]
        evidence.contested += int(np.count_nonzero((left_to == NOBODY) & (owner != homes.own)))
        in_time = owner[(left_to == owner) & (left_to != NOBODY)]
        evidence.in_time.update(in_time.tolist())
        evidence.wasted += len(in_time)
    return evidence


def _owners(verdicts: Verdicts, homes: Homes) -> I64:
    """The numbers of the datacentres that own the ids."""
    numbers = np.array([homes.number.get(name, NOBODY) for name in verdicts.datacentres], np.int64)
    owners: I64 = numbers[verdicts.owner_datacentres]
    return owners


def of_look_ups(
    table: OpenEvents, found: RowIndexes, owners: Verdicts, absent: RowIndexes, fresh: Mask, homes: Homes
) -> Evidence:
    """Of events that the registry knows, with who registered each, and of those that it does not know.

    ``fresh``: which of those it knows were never read before.
    """
    evidence = Evidence(own=int(np.count_nonzero(table.left_to[absent] == YIELDED)))
    if not len(found):
        return evidence
    owner = _owners(owners, homes)
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
