"""A dispatcher's report: figures, metrics, details for the status page, and the events that wait longest for a
verdict, with the time since, the tries and the reason. Its cost is bounded, regardless of how many events wait.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

from photon.adapters.logs.lag import NO_LAG, Lag
from photon.adapters.times import NO_TIME_NS
from photon.batch.columns import I64
from photon.config.clock import Clock
from photon.config.metrics.histogram import Histogram
from photon.config.metrics.readings import Readings, Source
from photon.dispatcher.contents import Conflict
from photon.dispatcher.events import Stretch
from photon.dispatcher.homes import HomeStatus
from photon.dispatcher.ledger import HOUR_NS, UNKNOWN_HOUR, Ledger, Verdict
from photon.dispatcher.open_events import OpenEvent
from photon.dispatcher.retry import SETTLED_NS
from photon.joiner.api import Outcome


@dataclass(frozen=True, slots=True)
class Status:
    """A dispatcher's current figures, for progress views. Counts include uncommitted ones."""

    read: int
    verdicts: Mapping[Verdict, int]
    reread: int
    wasted: int  # joins thrown away because another datacentre was first
    retimed: int  # lines whose id was registered with another event time
    bytes_read: int
    bytes_known: int
    in_flight: int  # batches
    stored: int  # events in the retry store
    look_ups: int
    attempts: int
    oldest_first_read_ns: int | None  # of the oldest event without a verdict
    caught_up: bool
    ambiguous: int = 0  # joined or rejected although several different primary records have their key
    unpaired: int = 0  # unmatched although their primary record exists: outside the join's bounds
    left: int = 0  # events that are currently left to their home
    head_start_s: float = 0.0
    homes: Sequence[HomeStatus] = ()
    lag: Lag = NO_LAG
    stored_bytes: int = 0  # of the retry store
    oldest_stored_ns: int | None = None  # first read of the event stored longest
    joiners_failing: int = 0  # temporarily excluded
    problems: Mapping[str, int] = field(default_factory=dict)
    arrived: int = 0  # events tried because their primary event had arrived
    followed: bool = False  # the event store reports arrivals
    reopened: int = 0  # ids that the registry gave up and nobody has registered since
    reopened_missing: int = 0  # of these, ids that are in no log here
    unread: tuple[str, ...] = ()  # a line for each log that is not read to its end
    unended: tuple[str, ...] = ()  # once: a line for each log whose last line waits for its end
    conflicting: int = 0  # lines of this run with another line's id but different content,
    conflict: Conflict | None = None  # one of these lines
    alike: tuple[str, ...] = ()  # a line for each log whose lines, which have no ids, may equal another's

    @property
    def pending(self) -> int:
        return self.read - sum(self.verdicts.values())


class JoinTimes:
    def __init__(self) -> None:
        self.since_read = Histogram()  # from the first read of the event's line
        self.since_event = Histogram()  # from the event's own time

    def joined(self, times: I64, first_read_ns: I64, now_ns: int) -> None:
        """Adds joined events' delays, from their event times and first reads. ``now_ns``: wall clock."""
        if len(times):
            self.since_read.add(now_ns - first_read_ns)
            self.since_event.add(now_ns - times[times != NO_TIME_NS])


ID_CHARS_MAX = 200
NOT_YET = "its primary event has not been found yet"
NEXT_RUN = "it waits for the next run: it cannot get a verdict in this one"
UNANSWERED = "no verdict came: a joiner, its event store or the registry did not answer, or was overloaded"
TOO_NEW = "its event time is in the future"
LEFT = "it is left to its home datacentre for a while"
ON_ITS_WAY = "it is on its way to a joiner"
BEFORE_RESTART = "it is tried again"
_REASONS = {Outcome.RETRY: UNANSWERED, Outcome.NOT_YET: NOT_YET, Outcome.TOO_NEW: TOO_NEW}


@dataclass(frozen=True, slots=True)
class Pending:
    """One event without a verdict. Times: ns of the wall clock; ``next_try_ns`` is ``None`` if unknown."""

    event_id: str
    log: str
    offset: int
    first_read_ns: int
    tries: int
    next_try_ns: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class OldRow:
    event_id: bytes
    event_time_ns: int
    log: str
    offset: int
    first_read_ns: int
    attempts: int
    next_try_ns: int
    trigger_ns: int


def oldest_stretches(heads: Iterable[Stretch], limit: int) -> list[Stretch]:
    """Returns the ``limit`` stretches whose events wait longest. ``heads``: the oldest stretch of each log."""
    return heapq.nsmallest(limit, (s for s in heads if s.left), key=lambda stretch: stretch.first_read_ns)


def oldest(held: Iterable[Iterable[OpenEvent]], rows: Sequence[OldRow], now_ns: int, limit: int) -> list[Pending]:
    """Returns the ``limit`` events that wait longest. ``held``: events of ``oldest_stretches``; ``rows``: rows of the
    retry store.
    """
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
        _shown(row.event_id), row.log, row.offset, row.first_read_ns, row.attempts, _time(row.next_try_ns), reason
    )


def _time(ns: int) -> int | None:
    return ns if 0 < ns < SETTLED_NS else None


def _shown(event_id: bytes) -> str:
    text = event_id.decode("utf-8", "backslashreplace")
    return text if len(text) <= ID_CHARS_MAX else f"{text[:ID_CHARS_MAX]}…"


HOURS_SHOWN = 48  # number of newest hours shown
LOGS_SHOWN = 10
PENDING_SHOWN = 20
PREFIX = "photon_dispatcher"


class Reported(Protocol):
    """The interface through which metrics and details read the engine."""

    @property
    def times(self) -> JoinTimes: ...

    def status(self) -> Status: ...

    def ledger(self) -> Ledger: ...

    def oldest(self, limit: int) -> list[Pending]: ...


def reads(join: str, engine: Callable[[], Reported], clock: Clock, *, retry_limit: int) -> Source:

    def read(into: Readings) -> None:
        now = engine()
        put_status(into, join, now.status(), clock.now_ns())
        into.put(f"{PREFIX}_retry_store_limit_bytes", retry_limit, join=join)
        into.put_histogram(f"{PREFIX}_join_seconds", now.times.since_read, join=join)
        into.put_histogram(f"{PREFIX}_event_age_seconds", now.times.since_event, join=join)

    return read


def put_status(into: Readings, join: str, status: Status, now_ns: int) -> None:
    """Reports a dispatcher's metrics. ``now_ns``: wall clock."""
    into.put_all(
        PREFIX,
        {
            "read_total": status.read,
            "reread_total": status.reread,
            "wasted_joins_total": status.wasted,
            "retimed_total": status.retimed,
            "ambiguous_total": status.ambiguous,
            "unpaired_total": status.unpaired,
            "look_ups_total": status.look_ups,
            "attempts_total": status.attempts,
            "arrived_total": status.arrived,
            "arrivals_followed": status.followed,
            "pending_events": status.pending,
            "oldest_pending_seconds": _age_s(status.oldest_first_read_ns, now_ns),
            "logs": status.lag.logs,
            "logs_behind": status.lag.behind,
            "lag_bytes": status.lag.bytes,
            "lag_seconds": _age_s(status.lag.oldest_ns, now_ns),
            "log_bytes": status.bytes_known,
            "batches_in_flight": status.in_flight,
            "retry_store_events": status.stored,
            "retry_store_bytes": status.stored_bytes,
            "retry_store_oldest_seconds": _age_s(status.oldest_stored_ns, now_ns),
            "joiners_failing": status.joiners_failing,
            "waiting_for_home_events": status.left,
            "head_start_seconds": status.head_start_s,
            "reopened_ids": status.reopened,
            "reopened_missing_ids": status.reopened_missing,
            "caught_up": status.caught_up,
        },
        join=join,
    )
    for verdict, count in status.verdicts.items():
        into.put(f"{PREFIX}_events_total", count, join=join, verdict=verdict.name.lower())
    for kind, count in status.problems.items():
        into.put(f"{PREFIX}_log_problems_total", count, join=join, kind=kind)
    for home in status.homes:
        labels = {"join": join, "home": home.datacentre}
        into.put(f"{PREFIX}_home_trusted", home.trusted, **labels)
        into.put(f"{PREFIX}_left_to_home_total", home.left, **labels)
        into.put(f"{PREFIX}_home_in_time_total", home.in_time, **labels)


def details_of(join: str, engine: Reported, clock: Clock) -> dict[str, Any]:
    """Returns the ledger by hour, the logs that wait longest, and the oldest events without a verdict."""
    status, now_ns = engine.status(), clock.now_ns()
    ledger = engine.ledger()
    hours = sorted(ledger.hours.items(), reverse=True)[:HOURS_SHOWN]
    return {
        "join": join,
        "ledger": [
            {"hour_s": None if hour == UNKNOWN_HOUR else hour * HOUR_NS // 10**9, **line.as_dict(), **line.apart()}
            for hour, line in hours
        ],
        "total": {**ledger.total.as_dict(), **ledger.total.apart()},
        "unbalanced_hours": len(ledger.unbalanced),
        "lag": [
            {"log": log.path, "bytes": log.bytes, "seconds": _age_s(log.since_ns, now_ns)}
            for log in status.lag.worst[:LOGS_SHOWN]
        ],
        "unread": list(status.unread[:LOGS_SHOWN]),
        "oldest": [_pending(each, now_ns) for each in engine.oldest(PENDING_SHOWN)],
    }


def _pending(event: Pending, now_ns: int) -> dict[str, Any]:
    next_ns = event.next_try_ns
    return {
        "event_id": event.event_id,
        "log": event.log,
        "offset": event.offset,
        "age_s": _age_s(event.first_read_ns, now_ns),
        "tries": event.tries,
        "next_try_s": None if next_ns is None else (next_ns - now_ns) / 1e9,
        "reason": event.reason,
    }


def _age_s(since_ns: int | None, now_ns: int) -> float:
    return max(now_ns - since_ns, 0) / 1e9 if since_ns else 0.0
