"""What the backends of the file map share when they put places together: pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from photon.eventstore.file_map import PLACES_PER_KEY_MAX, MappedLog
from photon.eventstore.index import I64


def first_places(
    rows: I64,
    logs: I64,
    offsets: I64,
    known: Sequence[MappedLog],
    log_name: Callable[[str], str],
    *,
    last: bool = False,
) -> tuple[I64, I64, I64]:
    """PLACES_PER_KEY_MAX of each row, the first in file order, or the ``last``. ``rows`` ascend;
    ``known``: all logs by number."""
    if len(rows) <= PLACES_PER_KEY_MAX:
        return rows, logs, offsets
    starts = np.searchsorted(rows, rows, side="left")
    if int((np.arange(len(rows)) - starts).max()) < PLACES_PER_KEY_MAX:
        return rows, logs, offsets
    ranked = sorted(known[:], key=lambda log: log.order(log_name))
    ranks = np.empty(len(ranked), dtype=np.int64)
    ranks[[log.number for log in ranked]] = np.arange(len(ranked))
    order = np.lexsort((offsets, ranks[logs], rows))
    at = np.arange(len(rows))
    rank = np.searchsorted(rows, rows, side="right") - 1 - at if last else at - starts
    order = order[rank < PLACES_PER_KEY_MAX]
    return rows[order], logs[order], offsets[order]


def predecessors(
    asked: Sequence[tuple[int, int]], entries: Sequence[tuple[int, int, int]], window: int
) -> list[tuple[int, int, int, int]]:
    """For each asked (microseconds, row), both ascending: the last entry not after it in each log.

    Entries (microseconds, log, offset) ascend; one older than ``window`` does not count. Gives
    (row, log, offset, microseconds of the entry).
    """
    out = []
    latest: dict[int, tuple[int, int]] = {}  # log -> microseconds, offset
    at = 0
    for micros, row in asked:
        while at < len(entries) and entries[at][0] <= micros:
            entry_micros, log, offset = entries[at]
            latest[log] = (entry_micros, offset)
            at += 1
        for log, (entry_micros, offset) in latest.items():
            if micros - entry_micros <= window:
                out.append((row, log, offset, entry_micros))
    return out
