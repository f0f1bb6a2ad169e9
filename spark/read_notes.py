"""Notes that tasks make about the log slices they read. Needs no pyspark."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np

from photon.batch.columns import I64
from photon.spark.arrow_columns import HOUR_NS
from photon.spark.key_filter import Hours


class ReadNote(msgspec.Struct, kw_only=True):
    """A note about a slice of a log that was read."""

    what: str
    datacentre: str
    identity: str
    begin: int
    slices: int  # number of slices of the log
    bytes: int  # on disk
    first_ns: int | None = None
    last_ns: int | None = None  # Event times of all its foreign events, regardless of the window.
    fresh_first_ns: int | None = None
    fresh_last_ns: int | None = None  # the same for events after the known part of the log
    log: str = ""  # its path relative to the log directory
    damaged: bool = False  # it could not be read to its end, or its checksum is wrong
    why: str = ""
    at: int = 0  # why, and from which byte on
    # Verified pieces with an event that lacked a primary event found in this slice
    met: set[Hours] = msgspec.field(default_factory=set)

    def add(self, times: I64, ends: I64, since: int) -> None:
        """Adds records.

        ``ends``: offsets of the records' ends, without line ends. Records that end at ``since`` or later are fresh.
        """
        self.first_ns, self.last_ns = _wider(self.first_ns, self.last_ns, times)
        fresh = times[np.asarray(ends) >= since]
        self.fresh_first_ns, self.fresh_last_ns = _wider(self.fresh_first_ns, self.fresh_last_ns, fresh)


def _wider(first_ns: int | None, last_ns: int | None, times: I64) -> tuple[int | None, int | None]:
    if not len(times):
        return first_ns, last_ns
    first, last = int(np.min(times)), int(np.max(times))
    return first if first_ns is None else min(first_ns, first), last if last_ns is None else max(last_ns, last)


def note_down(accumulator: Any, note: ReadNote) -> None:
    """Sends the note. Call it in a task once the slice has been read to its end."""
    if accumulator is not None:
        accumulator.add([msgspec.msgpack.encode(note)])


def hours_of_logs(
    notes: Iterable[ReadNote], *, fresh: bool = False
) -> dict[tuple[str, str, str], tuple[int | None, int | None, bool]]:
    """Returns for each log (side, datacentre, identity) the first and last hour of its events, and True if it could
    be read to its end. Logs with unread slices are left out. ``fresh``: hours of fresh records only."""
    logs: dict[tuple[str, str, str], list[ReadNote]] = {}
    for note in notes:
        logs.setdefault((note.what, note.datacentre, note.identity), []).append(note)
    found = {}
    for name, slices in logs.items():
        if len({each.begin for each in slices}) == slices[0].slices:
            names = ("fresh_first_ns", "fresh_last_ns") if fresh else ("first_ns", "last_ns")
            times = [time for each in slices for name in names if (time := getattr(each, name)) is not None]
            first, last = (min(times) // HOUR_NS, max(times) // HOUR_NS) if times else (None, None)
            found[name] = first, last, not any(each.damaged for each in slices)
    return found


__all__ = ["Hours", "ReadNote", "hours_of_logs", "note_down"]
