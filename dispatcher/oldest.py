"""The events that have waited longest for a verdict: which, since when, how often tried, and why they wait. Pure.

Reading them costs no more than so many rows and so many stretches, however many events wait.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from photon.dispatcher.events import Stretch
from photon.dispatcher.open_events import OpenEvent
from photon.dispatcher.retry import SETTLED_NS
from photon.joiner.api import Outcome

ID_CHARS_MAX = 200
NOT_YET = "its primary event has not been found yet"
NEXT_RUN = "it waits for the next run: nothing can give it a verdict in this one"
UNANSWERED = "no verdict came: a joiner, its event store or the registry did not answer, or was overloaded"
TOO_NEW = "its event time lies in the future"
LEFT = "it is left to its home datacentre for a moment"
ON_ITS_WAY = "it is on its way to a joiner"
BEFORE_RESTART = "it is tried again"
_REASONS = {Outcome.RETRY: UNANSWERED, Outcome.NOT_YET: NOT_YET, Outcome.TOO_NEW: TOO_NEW}


@dataclass(frozen=True, slots=True)
class Pending:
    """One event. Times: ns of the wall clock; ``next_try_ns`` None: not known."""

    event_id: str
    log: str
    offset: int
    first_read_ns: int
    tries: int
    next_try_ns: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class OldRow:
    """A row of the retry store, without its record."""

    event_id: bytes
    event_time_ns: int
    log: str
    offset: int
    first_read_ns: int
    attempts: int
    next_try_ns: int
    trigger_ns: int


def oldest_stretches(heads: Iterable[Stretch], limit: int) -> list[Stretch]:
    """``heads``: of each log the oldest one in memory. Those with events that have waited longest."""
    return heapq.nsmallest(limit, (s for s in heads if s.left), key=lambda stretch: stretch.first_read_ns)


def oldest(held: Iterable[Iterable[OpenEvent]], rows: Sequence[OldRow], now_ns: int, limit: int) -> list[Pending]:
    """``held``: of ``oldest_stretches``; ``rows``: the oldest ones of the retry store."""
    found = [_of_row(row, now_ns) for row in rows[:limit]]
    for events in held:
        found += map(_of_held, islice(events, limit))
    return heapq.nsmallest(limit, found, key=lambda pending: pending.first_read_ns)


def _of_held(held: OpenEvent) -> Pending:
    if held.settled:
        reason = NEXT_RUN
    elif held.left:
        reason = LEFT
    elif held.waits and held.last is not None:
        reason = _REASONS.get(held.last, UNANSWERED)
    else:
        reason = ON_ITS_WAY
    event = held.event
    return Pending(
        _shown(event.event_id),
        event.file.path,
        event.offset,
        held.first_read_ns,
        held.attempts,
        _time(held.next_try_ns) if held.waits else None,
        reason,
    )


def _of_row(row: OldRow, now_ns: int) -> Pending:
    if row.trigger_ns < SETTLED_NS:
        reason = NOT_YET
    elif row.next_try_ns >= SETTLED_NS:
        reason = NEXT_RUN
    elif not row.attempts:
        reason = BEFORE_RESTART
    else:
        reason = TOO_NEW if row.event_time_ns > now_ns else UNANSWERED
    return Pending(
        _shown(row.event_id),
        row.log,
        row.offset,
        row.first_read_ns,
        row.attempts,
        _time(row.next_try_ns),
        reason,
    )


def _time(ns: int) -> int | None:
    return ns if 0 < ns < SETTLED_NS else None


def _shown(event_id: bytes) -> str:
    text = event_id.decode("utf-8", "backslashreplace")
    return text if len(text) <= ID_CHARS_MAX else f"{text[:ID_CHARS_MAX]}…"
