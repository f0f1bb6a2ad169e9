"""How long events took from their line to their join, counted a batch at a time."""

from __future__ import annotations

from photon.batch.columns import I64
from photon.config.metrics.histogram import Histogram


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
