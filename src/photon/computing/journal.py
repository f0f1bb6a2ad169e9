"""Records the status of a running topology: the watermarks of its published streams, and the status of its processes.

A published stream has the watermark of the owner furthest behind. ``photon read --with-watermark`` and other
topologies find it in the same place as a pipeline's watermark (``photon.outputs.watermarks``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from photon.computing.publisher import LATE_NAME
from photon.computing.wire import ENDED_NS, NEVER_NS, Watermark
from photon.config.clock import NS_PER_S
from photon.config.decoding import DECODE_ERRORS
from photon.config.disk import Disk
from photon.config.metrics.readings import Readings
from photon.config.versioned_file import decoded
from photon.outputs.log.format import slot_of
from photon.outputs.next_read import end_of
from photon.outputs.output_places import OutputPlace
from photon.outputs.watermarks import Journal, Late, Pair, decode, pairs_of

STATUS_SUFFIX = ".status.json"
COUNTED = ("records", "repeated", "late", "timers", "produced", "published")


class Status(msgspec.Struct, kw_only=True, tag_field="photon_computation", tag=1):
    """The status of an interval's owner, written to ``INTERVAL.status.json`` once a second. Not durable."""

    topology: str
    interval: str
    pid: int
    at_ns: int
    ended: bool = False  # with ``--once``: all work is done
    counts: dict[str, int] = {}
    records_per_s: float = 0.0
    published_records: int = 0
    watermarks: dict[str, Watermark] = {}  # of each computation
    published: dict[str, Watermark] = {}  # of the visible part of each published stream
    sources: dict[str, Watermark] = {}  # of the part read of each source
    exact: bool = False  # True if any computation follows the exact watermark
    held_by: dict[str, list[str]] = {}  # source -> places that hold its watermark back
    held: str = ""  # why input is held back now
    faults: list[str] = []
    topology_version: int = 0


def read_status(disk: Disk, state: Path) -> list[Status]:
    """Reads the status of all owners. Raises OSError."""
    found = []
    for name in disk.names(state):
        if name.endswith(STATUS_SUFFIX):
            try:
                found.append(decoded(disk.read(state / name), Status))
            except DECODE_ERRORS:
                continue  # written by another release
    return found


def write_status(disk: Disk, state: Path, status: Status) -> None:
    path = state / f"{status.interval}{STATUS_SUFFIX}"
    new = path.with_suffix(".new")
    new.write_bytes(msgspec.json.encode(status) + b"\n")
    disk.rename(new, path)


def put_status(into: Readings, found: Iterable[Status]) -> None:
    """Adds the status as metrics."""
    for each in found:
        labels = {"topology": each.topology, "interval": each.interval}
        counts = {**each.counts, "published": each.published_records}
        counted = {f"{name}_total": counts.get(name, 0) for name in COUNTED}
        into.put_all("photon_computing", {**counted, "aside": counts.get("aside", 0)}, **labels)
        for computation, mark in each.watermarks.items():
            if NEVER_NS < mark.percentile_ns < ENDED_NS:
                into.put("photon_computing_watermark_seconds", mark.percentile_ns / NS_PER_S,
                         **labels, computation=computation)  # fmt: skip
            into.put("photon_computing_waiting", mark.waiting, **labels, computation=computation)


class PublishedWatermark:
    """The watermark journal of one published stream. For one process at a time."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._place = OutputPlace.of_join(directory)
        self._journal: Journal | None = None  # created with the first pair
        self._last = Pair(0, None, None, 0, end_of(()))
        self._late: Counter[str] = Counter()  # slot -> number of its records reported as late

    def say(self, marks: Iterable[Watermark], at_ns: int) -> None:
        """Journals the lowest of all owners' watermarks, each of which covers the records that its owner has
        published. The end of time is not journaled, because it applies to one run only: a later run continues. Raises
        PublishedDamaged, OSError."""
        marks = list(marks)
        exact_ns, percentile_ns = (
            None if NEVER_NS in each or ENDED_NS in each else min(each)
            for each in ([mark.exact_ns for mark in marks], [mark.percentile_ns for mark in marks])
        )
        late = [each for each in self._found_late() if each.records]
        if exact_ns is None and percentile_ns is None and not late:
            return
        if self._journal is None:
            journal = Journal(self._disk, self._place.state)
            entries = journal.begin()
            self._journal = journal  # only now: without its entries, times might go back
            self._last = next(iter(pairs_of(entries)[-1:]), self._last)
            for each in entries:
                if isinstance(each, Late):
                    self._late[slot_of(each.file)] += each.records
        for each in late:
            if (more := each.records - self._late[slot_of(each.file)]) > 0:
                self._journal.add(replace(each, records=more))
                self._late[slot_of(each.file)] += more
        last = self._last
        exact_ns, percentile_ns = _later(last.exact_ns, exact_ns), _later(last.percentile_ns, percentile_ns)
        if (last.exact_ns, last.percentile_ns) == (exact_ns, percentile_ns):
            return
        waiting, end = max(mark.waiting for mark in marks), end_of(self._place.published(self._disk))
        self._last = Pair(at_ns, exact_ns, percentile_ns, waiting, end)
        self._journal.add(self._last)

    def _found_late(self) -> Iterator[Late]:
        """Yields the late records of each slot."""
        for state in self._place.states(self._disk):
            if self._disk.exists(path := state / LATE_NAME):
                yield from (each for each in decode(self._disk.read(path)) if isinstance(each, Late))

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()


def _later(known_ns: int | None, said_ns: int | None) -> int | None:
    return max((each for each in (known_ns, said_ns) if each is not None), default=None)


def streams_said(found: Iterable[Status], intervals: Iterable[str]) -> Mapping[str, list[Watermark]]:
    """Returns the watermarks of all owners, by stream, for streams that every owner reports."""
    by_interval = {each.interval: each.published for each in found}
    expected = list(intervals)
    streams = {stream for marks in by_interval.values() for stream in marks}
    return {
        stream: [by_interval[each][stream] for each in expected]
        for stream in streams
        if all(stream in by_interval.get(each, {}) for each in expected)
    }
