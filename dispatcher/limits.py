"""Bounds of a dispatcher."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of what is held in memory, and the size of batches."""

    batch_events: int = 1000
    batch_bytes: int = 8 << 20
    batch_wait_s: float = 0.005
    window_bytes: int = 64 << 20
    """Events in memory whose stretch is not behind its log's offset. Reading stops above it."""
    left_events: int = 200_000
    """Events that are left to their home at a time. Reading stops above it, and no more retries are loaded."""
    catch_up_share: float = 0.05
    """Of the work, for events behind while fresh ones wait (``queues.Shares``); not with --once."""
    hold_s: float = 5.0
    """An event that waits for its next try stays in memory so long before it goes to the retry store."""
    hold_once_s: float = 60.0
    """The same where the run ends with the logs: nobody waits for what comes behind, so reading pauses instead while
    the primary logs catch up."""
    spill_bytes: int = 48 << 20
    """Above so much of the window the oldest events that wait for their next try go to the retry store earlier."""
    retry_store_bytes: int = 10 << 30
    spill_rows: int = 20_000  # at most so many new rows of the retry store in one transaction (and one stretch more)
    parse_records: int = 1000
