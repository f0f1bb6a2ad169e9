"""What tasks note of the slices of logs they read. Needs no pyspark."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np

from photon.batch.columns import I64
from photon.spark.arrow_columns import HOUR_NS
from photon.spark.key_filter import Hours


class ReadNote(msgspec.Struct, kw_only=True):
    """A slice of a log, as it was read."""

    what: str
    datacentre: str
    identity: str
    begin: int
    slices: int
    """Into so many the log was cut."""
    bytes: int
    """On disk."""
    first_ns: int | None = None
    last_ns: int | None = None
    """Event times of all its foreign events, of whatever window."""
    timeless: bool = False
    """It has records without an event time."""
    met: set[Hours] = msgspec.field(default_factory=set)
    """Verified pieces of which an event lacked a primary event that this slice has."""

    def add_times(self, times: I64) -> None:
        if len(times):
            first, last = int(np.min(times)), int(np.max(times))
            self.first_ns = first if self.first_ns is None else min(self.first_ns, first)
            self.last_ns = last if self.last_ns is None else max(self.last_ns, last)


def note_down(accumulator: Any, note: ReadNote) -> None:
    """In a task, when the slice was read to its end."""
    if accumulator is not None:
        accumulator.add([msgspec.msgpack.encode(note)])


def hours_of_logs(notes: Iterable[ReadNote]) -> dict[tuple[str, str, str], tuple[int | None, int | None, bool]]:
    """(side, datacentre, identity) -> first and last hour, and whether nothing in it lacks a time; of logs of which
    every slice was read."""
    logs: dict[tuple[str, str, str], list[ReadNote]] = {}
    for note in notes:
        logs.setdefault((note.what, note.datacentre, note.identity), []).append(note)
    found = {}
    for name, slices in logs.items():
        if len({each.begin for each in slices}) == slices[0].slices:
            times = [time for each in slices for time in (each.first_ns, each.last_ns) if time is not None]
            first, last = (min(times) // HOUR_NS, max(times) // HOUR_NS) if times else (None, None)
            found[name] = first, last, not any(each.timeless for each in slices)
    return found


__all__ = ["Hours", "ReadNote", "hours_of_logs", "note_down"]
