"""What answers of joiners and of the registry say about the other datacentres (see ``homes``). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from photon.dispatcher.events import Item
from photon.dispatcher.homes import NOBODY, YIELDED, Evidence, Homes
from photon.dispatcher.queues import is_evidence
from photon.joiner.api import Outcome, TakenBy


def of_answers(
    items: Sequence[Item], outcomes: Sequence[Outcome], taken: Mapping[int, TakenBy], homes: Homes, now: float
) -> Evidence:
    """Of a joiner's answers to a batch. ``now``: monotonic seconds."""
    evidence = Evidence()
    first = now
    for row, (item, outcome) in enumerate(zip(items, outcomes, strict=True)):
        if not is_evidence(item):
            continue
        left_to = item.left_to
        if Outcome.JOINED <= outcome <= Outcome.REJECTED:
            if left_to >= 0:
                evidence.missed[left_to] += 1
            elif left_to == NOBODY:
                evidence.own += 1
                first = min(first, item.placed_at)
        elif outcome is Outcome.TAKEN and (by := taken.get(row)) is not None:
            owner = homes.number.get(by.datacentre, NOBODY)
            if left_to == NOBODY:
                evidence.contested += owner != homes.own
            elif left_to == owner:
                evidence.in_time[owner] += 1
                evidence.wasted += 1
    evidence.slowest_s = now - first
    return evidence


def of_look_ups(found: Sequence[tuple[Item, TakenBy]], others: Sequence[Item], homes: Homes) -> Evidence:
    """Of events that the registry knows, with who registered each, and of those that it does not know."""
    evidence = Evidence(own=sum(item.left_to == YIELDED for item in others))
    unplaced: list[Item] = []
    for item, by in found:
        owner = homes.number.get(by.datacentre, NOBODY)
        if owner in (homes.own, NOBODY) or not is_evidence(item):
            continue
        if item.left_to == YIELDED:
            evidence.contested += homes.yielding  # or else it was yielded in an earlier time
        elif item.left_to == NOBODY:  # nobody was waited for: it is ahead of us
            evidence.ahead[owner] += 1
            unplaced.append(item)
        elif item.left_to == owner:
            evidence.in_time[owner] += 1
    if unplaced:
        evidence.contested += int(homes.own_ones(b"".join([item.event.digest for item in unplaced])).sum())
    return evidence
