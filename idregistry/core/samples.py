"""Sample records of a join's logs, and which id, key and time the join's rule gave to each. Pure.

The rule that derives them may be code, and only its answers show what code does to bytes. So a process that begins to
read a log has its answer for one of the log's first records kept here, before it asks for any id of the log; and each
process that starts derives the answer from the same bytes again and compares, before it asks for an id. The answer
that was kept first holds.
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
