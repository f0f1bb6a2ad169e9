"""LogsEventStore: reads primary records at the places the file map names (paper, section 3.4.2).

A batch is read log by log in the order of offsets, with neighbours in one read, so that catching up reads old logs
sequentially. log_pass.py checks the records. Any thread may read, but one log should be read by one thread at a time
(log_reads.py ensures this), since parallel readers open the file separately.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from photon.adapters.contract import Adapter, LogFile
from photon.adapters.logs.framings import Lines
from photon.adapters.logs.links import log_path
from photon.batch.records import PrimaryRecord
from photon.eventstore.file_map import MappedLog
from photon.eventstore.found_records import FoundRecords, ReadResults
from photon.eventstore.index import I64, Mask
from photon.eventstore.log_files import PAGES_BYTES_MAX, LogBytes, Pages, open_log
from photon.eventstore.log_pass import (
    PROBE_BYTES,
    HeaderIndex,
    LogPass,
    LogWindow,
    SpanProbes,
    bytes_per_micro,
    guess,
)
from photon.eventstore.places_to_read import PlacesToRead, PlaceToRead

GAP_BYTES = 1 << 17  # places no further apart are read together
READ_BYTES_MAX = 1 << 20
CHECKED_TOGETHER = 512  # records whose keys are found in one call
OPEN_LOGS_MAX = 64
SPEEDS_MAX = 1 << 14  # logs whose growth is remembered
HEADER_INDEXES_MAX = 1024
RECORD_BYTES_MAX = 1 << 20

# Log identity -> its file's present path relative to the log directory; ``None`` if it is not there now.
Resolver = Callable[[str], str | None]
Tell = Callable[[FoundRecords, I64], None]  # see ReadResults.tell

GONE = "its file is gone"
OTHER_BYTES = "its file has changed since it was read, or is damaged"


class ReadTroubles:
    """Receives reports of logs that cannot be read or are readable again. This base class ignores them."""

    def failed(self, log: MappedLog, why: str, keys: Sequence[bytes]) -> None:
        """Notes that reading ``log`` failed; the requested ``keys`` may be in it. Called on any thread."""

    def succeeded(self, log: MappedLog) -> None:
        """Notes that some records of ``log`` were read. Called on any thread."""

    def elsewhere(self, log: MappedLog, key: bytes) -> None:
        """Notes that ``log`` is gone, but its requested ``key`` was found in another log. Called on any thread."""


@dataclass(slots=True)
class ReadCounts:
    """Totals since the start."""

    places: int = 0
    bytes: int = 0  # uncompressed


@dataclass(eq=False)
class LogsEventStore:
    directory: Path
    adapter: Adapter
    resolve: Resolver
    record_bytes_max: int = RECORD_BYTES_MAX
    pages_bytes_max: int = PAGES_BYTES_MAX
    troubles: ReadTroubles = field(default_factory=ReadTroubles)

    def __post_init__(self) -> None:
        self._pages = Pages(self.pages_bytes_max)
        self._framing = self.adapter.primary_framing
        self._lines = Lines(self._framing, self.record_bytes_max) if self._framing.kind == "quoted" else None
        self._lock = threading.Lock()  # guards the following fields
        self._headers: OrderedDict[str, HeaderIndex] = OrderedDict()  # by log identity
        self._idle: OrderedDict[str, tuple[str, LogBytes]] = OrderedDict()  # identity -> path, open file
        self._opened = 0
        self._counts = ReadCounts()
        self._speeds: OrderedDict[str, float] = OrderedDict()  # identity -> bytes per microsecond, when last seen

    def is_there(self, log: MappedLog) -> bool:
        return self.resolve(log.identity) is not None

    def read(self, wanted: PlacesToRead | Sequence[PlaceToRead]) -> ReadResults:
        places = wanted if isinstance(wanted, PlacesToRead) else PlacesToRead.of(wanted)
        reads = ReadResults(len(places))
        for log, indexes in places.by_log():
            self.read_log(log, places, indexes, reads.tell)
        return reads

    def read_log(
        self,
        log: MappedLog,
        wanted: PlacesToRead,
        indexes: I64,
        tell: Tell,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """Reads places in one log (``indexes`` into ``wanted``), and passes results to ``tell`` as they come. Places
        without a result are unavailable.

        Ends early once ``stopped`` returns True, which is checked between reads of the file.
        """
        left = indexes[np.argsort(wanted.offsets[indexes], kind="stable")]
        known = np.zeros(len(wanted), dtype=np.bool_)
        why = ""
        for _ in range(2):  # if map and file disagree, try once more with the file freshly opened
            why = self._read_open(log, wanted, left, known, tell, stopped)
            left = left[~known[left]]
            if not len(left) or why == GONE or stopped():
                break
        if len(left) and not stopped():
            self.troubles.failed(log, why or OTHER_BYTES, [wanted[i].key for i in left.tolist()])

    def _read_open(
        self, log: MappedLog, wanted: PlacesToRead, asked: I64, known: Mask, tell: Tell, stopped: Callable[[], bool]
    ) -> str:
        """Reads the places ``asked``, by ascending offset, and marks those with a result in ``known``.

        Returns a reason if the file cannot be opened or read, else an empty string.
        """
        try:
            opened = self._take(log)
        except OSError as err:
            return f"it cannot be opened ({err.strerror})"
        if opened is None:
            return GONE
        path, source = opened
        window, aside = LogWindow(source, self._lines), LogWindow(source)
        file = LogFile(path, log.file.header)
        each = LogPass(self.adapter, log.identity, file, window, self.record_bytes_max)
        keep, left = False, asked
        try:
            # If records are not plain lines, a guess may be inside one, or have another header.
            if self._framing.splittable and wanted.spans[asked].any():
                probes = SpanProbes(LogPass(self.adapter, log.identity, file, aside, self.record_bytes_max))
                probed: list[tuple[int, str, PrimaryRecord]] = []
                try:
                    probed += self._probed(probes, log, wanted, asked.tolist())
                finally:  # bytes read before a failure count
                    met = FoundRecords.of(probed)
                    tell(met, np.empty(0, np.int64))
                    known[met.rows] = True
                left = asked[~known[asked]]
            for located, not_there in self._passed(each, log, wanted, left, source, stopped):
                tell(located, not_there)
                known[located.rows] = known[not_there] = True
            left = asked[~known[asked]]
            keep = (not len(left) or stopped()) and not source.unlinked()
        except OSError as err:
            return f"it cannot be read ({err.strerror})"
        # any error a library raises for a damaged file: the log is reported, the others continue
        except Exception as err:
            return f"it cannot be read ({' '.join(repr(err).split())})"
        finally:
            self._put_back(log, path, source, keep=keep)
            with self._lock:
                self._counts.places += len(asked)
                self._counts.bytes += window.bytes_read + aside.bytes_read
        if len(left) < len(asked):
            self.troubles.succeeded(log)
        return ""

    def _passed(
        self,
        each: LogPass,
        log: MappedLog,
        wanted: PlacesToRead,
        asked: I64,
        source: LogBytes,
        stopped: Callable[[], bool],
    ) -> Iterator[tuple[FoundRecords, I64]]:
        """Yields (records found, places with other records), some at a time. ``asked``: by ascending offset."""
        window, path = each.window, each.file.path
        headers = self._headers_of(log) if self._framing.kind == "zeek" else None
        alike = headers is None and not wanted.spans[asked].any()
        indexes, offsets, stops = asked.tolist(), wanted.offsets[asked], wanted.stops()[asked]
        begins = offsets.tolist()
        waiting: list[int] = []
        cut: list[bytes | None] = []
        since = window.bytes_read
        try:
            for first, end, stop in _ranges(offsets, stops):
                if stopped():
                    break
                window.cover(begins[first], stop)
                if alike:
                    waiting += indexes[first:end]
                    cut += each.cut(begins[first:end])
                    if len(waiting) >= CHECKED_TOGETHER or window.bytes_read - since >= READ_BYTES_MAX:
                        yield each.checked(wanted, waiting, cut)
                        waiting, cut, since = [], [], window.bytes_read
                elif headers is None:
                    yield each.each(wanted, indexes[first:end])
                else:
                    for at in range(first, end):
                        each.file = LogFile(path, headers.at(source, begins[at]))
                        yield each.each(wanted, indexes[at : at + 1])
        except Exception:  # bytes read before it count
            if waiting:
                yield each.checked(wanted, waiting, cut)
            raise
        if waiting:
            yield each.checked(wanted, waiting, cut)

    def _headers_of(self, log: MappedLog) -> HeaderIndex:
        with self._lock:
            headers = self._headers.pop(log.identity, None) or HeaderIndex()
            self._headers[log.identity] = headers
            if len(self._headers) > HEADER_INDEXES_MAX:
                self._headers.popitem(last=False)
        return headers

    def _probed(
        self, probes: SpanProbes, log: MappedLog, places: PlacesToRead, asked: Sequence[int]
    ) -> Iterator[tuple[int, str, PrimaryRecord]]:
        wanted = {i: places[i] for i in asked if places.spans[i] > PROBE_BYTES and places.alone[i]}
        speed = bytes_per_micro(list(wanted.values()))
        with self._lock:
            if speed is not None:
                self._speeds[log.identity] = speed
                if len(self._speeds) > SPEEDS_MAX:
                    self._speeds.popitem(last=False)
            speed = self._speeds.get(log.identity)
        if speed is None:
            return
        for _, i in sorted((guess(want, speed), i) for i, want in wanted.items()):
            found = probes.find(wanted[i], speed)
            if found is not None:
                yield i, log.identity, found

    # -- open files ------------------------------------------------------------------------------------------------
    def _take(self, log: MappedLog) -> tuple[str, LogBytes] | None:
        """Opens a log for this caller alone. Returns (path, file); ``None`` if the file is gone. Raises OSError."""
        with self._lock:
            idle = self._idle.pop(log.identity, None)
            self._opened += idle is None
            number = self._opened
        if idle is not None:
            return idle
        path = self.resolve(log.identity)
        if path is None:
            return None
        try:
            place = log_path(self.directory, path, self.adapter.primary_links)
            return path, open_log(place, self._pages, number, self._framing)
        except FileNotFoundError:
            return None

    def _put_back(self, log: MappedLog, path: str, source: LogBytes, *, keep: bool) -> None:
        closing = []
        with self._lock:
            if not keep or log.identity in self._idle:
                closing.append(source)
            else:
                self._idle[log.identity] = (path, source)
            while len(self._idle) > OPEN_LOGS_MAX:
                closing.append(self._idle.popitem(last=False)[1][1])
        for each in closing:
            each.close()

    def counts(self) -> ReadCounts:
        with self._lock:
            return ReadCounts(self._counts.places, self._counts.bytes)

    def close(self) -> None:
        with self._lock:
            idle, self._idle = list(self._idle.values()), OrderedDict()
        for _, source in idle:
            source.close()


def _ranges(offsets: I64, stops: I64) -> Iterator[tuple[int, int, int]]:
    """Groups ascending offsets by read. Yields (first index, end index, end of the read)."""
    furthest = np.maximum.accumulate(stops)
    gaps = (offsets[1:] > furthest[:-1] + GAP_BYTES).nonzero()[0] + 1
    begins, reach = offsets.tolist(), furthest.tolist()
    first = 0
    for gap in (*gaps.tolist(), len(begins)):
        while first < gap:
            end = max(bisect_right(reach, begins[first] + READ_BYTES_MAX, first, gap), first + 1)
            yield first, end, reach[end - 1]
            first = end
