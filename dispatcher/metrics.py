"""A dispatcher's metrics and what the status page shows of it, read from its status."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from photon.config.clock import Clock
from photon.config.metrics.readings import Readings, Source
from photon.dispatcher.ledger import HOUR_NS, UNKNOWN_HOUR
from photon.dispatcher.oldest import Pending
from photon.dispatcher.status import Status

if TYPE_CHECKING:
    from photon.dispatcher.engine import DispatcherEngine

HOURS_SHOWN = 48
"""The newest ones."""
LOGS_SHOWN = 10
PENDING_SHOWN = 20
PREFIX = "photon_dispatcher"


def reads(join: str, engine: Callable[[], DispatcherEngine], clock: Clock, *, retry_limit: int) -> Source:
    """``engine``: the present one; ``retry_limit``: bytes."""

    def read(into: Readings) -> None:
        now = engine()
        status = now.status()
        put_status(into, join, status, clock.now_ns())
        into.put(f"{PREFIX}_retry_store_limit_bytes", retry_limit, join=join)
        into.put_histogram(f"{PREFIX}_join_seconds", now.times.since_read, join=join)
        into.put_histogram(f"{PREFIX}_event_age_seconds", now.times.since_event, join=join)

    return read


def put_status(into: Readings, join: str, status: Status, now_ns: int) -> None:
    """``now_ns``: wall clock."""
    into.put_all(
        PREFIX,
        {
            "read_total": status.read,
            "reread_total": status.reread,
            "wasted_joins_total": status.wasted,
            "retimed_total": status.retimed,
            "ambiguous_total": status.ambiguous,
            "look_ups_total": status.look_ups,
            "attempts_total": status.attempts,
            "woken_total": status.woken,
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


def details_of(join: str, engine: DispatcherEngine, clock: Clock) -> dict[str, Any]:
    """The ledger by hour, the logs that wait longest, and the oldest events without a verdict."""
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
