"""What a dispatcher says of itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from photon.adapters.logs.lag import NO_LAG, Lag
from photon.batch.columns import I64
from photon.config.metrics.histogram import Histogram
from photon.dispatcher.homes import HomeStatus
from photon.dispatcher.ledger import Verdict


@dataclass(frozen=True, slots=True)
class Status:
    """For progress views. Counts include what the next commit will make durable."""

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
    oldest_first_read_ns: int | None  # of an event without a verdict
    caught_up: bool
    ambiguous: int = 0  # joined or rejected though several primary records that differ have their key
    left: int = 0  # events that are left to their home now
    head_start_s: float = 0.0
    homes: Sequence[HomeStatus] = ()
    lag: Lag = NO_LAG
    stored_bytes: int = 0  # of the retry store
    oldest_stored_ns: int | None = None  # first read of the event that has been there for longest
    joiners_failing: int = 0  # left alone for a while
    problems: Mapping[str, int] = field(default_factory=dict)
    woken: int = 0  # events tried because their primary event had come
    followed: bool = False  # whether the event store tells of such
    reopened: int = 0  # ids that the registry gave up and nobody has registered since
    reopened_missing: int = 0  # of them, those that stand in no log here
    unread: tuple[str, ...] = ()  # a line for each log that is not read to its end
    unended: tuple[str, ...] = ()  # once: one for each log whose last line waits for its end

    @property
    def pending(self) -> int:
        return self.read - sum(self.verdicts.values())


class JoinTimes:
    """Of the events that this process saw joined."""

    def __init__(self) -> None:
        self.since_read = Histogram()
        """From the first read of the event's line."""
        self.since_event = Histogram()
        """From the event's own time."""

    def joined(self, times: I64, first_read_ns: I64, now_ns: int) -> None:
        """Some events were: their own times, and when they were first read. ``now_ns``: wall clock."""
        if len(times):
            self.since_read.add(now_ns - first_read_ns)
            self.since_event.add(now_ns - times)
