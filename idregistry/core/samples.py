"""Sample records of a join's logs, with the id, key and time that the join's rule gave to each. Pure.

The rule may be code, and only its results show how code treats bytes. So a process that begins to read a log stores
the rule's result for one of the log's first records here, before it asks for any of the log's ids. Each process that
starts computes the result from the same bytes and compares, before it asks for an id. The first stored result counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from photon.idregistry.core import commands as c

FIRST = 8  # first samples per side of a join: these are permanent
NEWEST = 32  # newest samples per side: further ones replace the oldest of these


def with_others(known: tuple[c.Sample, ...], others: Sequence[c.Sample]) -> tuple[c.Sample, ...]:
    """Adds samples to ``known`` and drops surplus ones. Returns ``known`` itself if nothing changes."""
    records = {(each.side, each.record) for each in known}
    news = [each for each in others if (each.side, each.record) not in records]
    if not news:
        return known
    found: list[c.Sample] = []
    for side in c.SIDES:
        of_side = [each for each in (*known, *news) if each.side == side]
        found += of_side if len(of_side) <= FIRST + NEWEST else [*of_side[:FIRST], *of_side[-NEWEST:]]
    return tuple(found)
