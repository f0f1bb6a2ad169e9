"""Sample records of a join's logs, and which id, key and time the join's rule gave to each. Pure.

The rule that derives them may be code, and what code does shows in what it makes of bytes. So whoever begins to read
a log has what it makes of one of its first records kept here, before any of the log's ids is asked for; and whoever
starts makes it again of the same bytes and compares, before it asks for an id. What was kept first holds.
"""

from __future__ import annotations

from collections.abc import Sequence

from photon.idregistry.core import commands as c

FIRST = 8  # of each side of a join: these stay
NEWEST = 32  # of each side: after these come others in their place


def with_others(known: tuple[c.Sample, ...], others: Sequence[c.Sample]) -> tuple[c.Sample, ...]:
    """The same object if nothing changes."""
    records = {(each.side, each.record) for each in known}
    news = [each for each in others if (each.side, each.record) not in records]
    if not news:
        return known
    found: list[c.Sample] = []
    for side in c.SIDES:
        of_side = [each for each in (*known, *news) if each.side == side]
        found += of_side if len(of_side) <= FIRST + NEWEST else [*of_side[:FIRST], *of_side[-NEWEST:]]
    return tuple(found)
