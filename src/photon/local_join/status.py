"""The status of a running join, its final result, and their text. Pure: times are arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from photon.config.words import duration, missing_keys, size
from photon.fleet.counters import VERDICTS


@dataclass(frozen=True, slots=True)
class Status:
    at_s: float  # seconds since the run began
    ledger: Mapping[str, int]
    foreign_read: int  # bytes read
    foreign_known: int
    primary_read: int
    primary_known: int
    primary_events: int
    missing_logs: int = 0  # number of unreadable primary logs that look-ups need
    missing_keys: int = 0  # number of requested keys in those logs


@dataclass(frozen=True, slots=True)
class JoinResult:
    """The result of one run. The defaults are for a run that was stopped while starting."""

    ledger: Mapping[str, int] = field(default_factory=dict)
    rejected: int = 0  # events rejected in this run
    # a line for each foreign log that was not read to the end
    unread: tuple[str, ...] = ()
    # a line for each log that begins like another, if lines have no ids; the common beginning was counted once
    alike: tuple[str, ...] = ()
    unended: tuple[str, ...] = ()  # a line for each log with an unfinished last line
    conflicting: int = 0  # lines with the event id of another line but different content, if ids were inferred
    ambiguous: int = 0  # inferred primary keys that have several different primary events
    # Output records that do not own their id in the registry: duplicates, or written without a registration.
    unowned: int = 0
    missing: int = 0  # primary logs with unreadable records or unknown keys
    stopped: bool = True  # stopped before all events had a verdict


@dataclass(frozen=True, slots=True)
class Rates:
    events: float  # verdicts per second
    left_s: float | None  # seconds until the backlog is done; `None` if unknown or no backlog


def rates(before: Status, now: Status) -> Rates:
    span = max(now.at_s - before.at_s, 1e-9)
    done = sum(now.ledger[name] - before.ledger[name] for name in VERDICTS)
    backlog = (now.foreign_known - now.foreign_read) + (now.primary_known - now.primary_read)
    speed = (now.foreign_read - before.foreign_read + now.primary_read - before.primary_read) / span
    return Rates(done / span, backlog / speed if backlog > 0 and speed > 0 else None)


def line(before: Status, now: Status) -> str:
    """Formats the status as one line, for logs and pipes."""
    speed = rates(before, now)
    parts = [f"{now.at_s:7.1f} s", f"read {now.ledger['read']:,}"]
    parts += [f"{name} {now.ledger[name]:,}" for name in VERDICTS if now.ledger[name] or name == "joined"]
    parts.append(f"pending {now.ledger['pending']:,}")
    parts.append(f"{speed.events:,.0f}/s")
    parts.append(f"lag {size(max(0, now.foreign_known - now.foreign_read))}")
    if speed.left_s is not None:
        parts.append(f"{duration(speed.left_s)} left")
    if now.missing_logs:
        parts.append(missing(now))
    return "  ".join(parts)


def missing(now: Status) -> str:
    """Describes the keys that events wait for, and the unreadable primary logs that have them."""
    return f"{missing_keys(now.missing_keys, now.missing_logs, 'primary log')} that cannot be read"
