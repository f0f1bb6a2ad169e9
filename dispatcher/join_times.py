"""How long events took from their line to their join, counted a batch at a time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

import numpy as np

from photon.config.metrics.histogram import Histogram
from photon.dispatcher.events import Item
from photon.joiner.api import Outcome


class JoinTimes:
    """Of the events that this process saw joined."""

    def __init__(self) -> None:
        self.since_read = Histogram()
        """From the first read of the event's line."""
        self.since_event = Histogram()
        """From the event's own time."""

    def joined(self, items: Sequence[Item], outcomes: Sequence[Outcome], now_ns: int) -> None:
        """``outcomes`` are aligned with the items; those that were joined count. ``now_ns``: wall clock."""
        joined = list(compress(items, [outcome == Outcome.JOINED for outcome in outcomes]))
        if not joined:
            return
        read = np.fromiter([item.first_read_ns for item in joined], np.int64, len(joined))
        self.since_read.add(now_ns - read)
        event = np.fromiter([item.event.event_time_ns for item in joined], np.int64, len(joined))
        self.since_event.add(now_ns - event)
