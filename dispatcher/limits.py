"""Bounds of a dispatcher."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on memory, and the size of batches."""

    batch_events: int = 1000
    batch_bytes: int = 8 << 20
    batch_wait_s: float = 0.005
    # Least time between two batches that are not full: events read, due or arriving meanwhile go together.
    gather_s: float = 0.0
    # Events in memory whose stretch is not before its log's offset. Reading stops above it.
    window_bytes: int = 64 << 20
    # Events left to their home at a time. At the limit reading stops, and no more retries are loaded.
    left_events: int = 200_000
    # Share of the work for events behind while fresh ones wait (``queues.Shares``); not with --once.
    catch_up_share: float = 0.05
    # How long an event that waits for its next try stays in memory before it goes to the retry store.
    hold_s: float = 5.0
    # The same if the run ends with the logs: nobody waits for later events, so reading pauses instead while the
    # primary logs catch up.
    hold_once_s: float = 60.0
    # Window size above which the oldest events waiting for their next try go to the retry store earlier.
    hold_bytes: int = 48 << 20
    retry_store_bytes: int = 10 << 30
    new_rows: int = 20_000  # most new rows of the retry store in one transaction (and one stretch more)
    parse_records: int = 1000
