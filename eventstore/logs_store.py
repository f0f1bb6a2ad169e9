"""LogsEventStore: reads primary records at the places the file map names (paper, section 3.4.2).

A batch is read log by log in the order of offsets, neighbours in one read, so that catching up reads old logs
sequentially. What stands at a place is judged in log_pass.py. Any thread may read; one log is best read by one thread
at a time (log_reads.py sees to it), since each that reads it at the same moment opens the file for itself.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from photon.adapters.contract import Adapter, LogFile
from photon.adapters.logs.framed import Lines
from photon.eventstore.file_map import MappedLog
from photon.eventstore.header_index import HeaderIndex
from photon.eventstore.log_files import LogBytes, open_log
from photon.eventstore.log_pass import UNAVAILABLE, LogPass, Read, ReadRecord
from photon.eventstore.log_window import LogWindow
from photon.eventstore.pages import PAGES_BYTES_MAX, Pages
from photon.eventstore.span_probes import PROBE_BYTES, SpanProbes, bytes_per_micro, guess
from photon.eventstore.wanted import Wanted, WantedPlaces

GAP_BYTES = 1 << 17
"""Places no further apart are read together."""
READ_BYTES_MAX = 1 << 20
CHECKED_TOGETHER = 512
"""Records whose keys are found in one call."""
OPEN_LOGS_MAX = 64
SPEEDS_MAX = 1 << 14
"""Logs of which it is remembered how fast they grew."""
HEADER_INDEXES_MAX = 1024
RECORD_BYTES_MAX = 1 << 20

Resolver = Callable[[str], str | None]
"""Log identity -> its file's present path relative to the log directory; None when it is not there now."""
Give = Callable[[Sequence[int], Sequence[ReadRecord]], None]
"""Takes the answers of the places with these indexes."""

GONE = "its file is gone"
OTHER_BYTES = "its file holds other bytes than were read from it, or is damaged"


class Troubles:
    """Is told which logs cannot be read, and which can. This one ignores it."""

    def failed(self, log: MappedLog, why: str, keys: Sequence[bytes]) -> None:
        """``keys`` were asked for, and may stand in this log. Any thread."""

    def succeeded(self, log: MappedLog) -> None:
        """Some of its records were read. Any thread."""


@dataclass(slots=True)
class ReadCounts:
    """Since the start."""

    places: int = 0
    bytes: int = 0
    """Uncompressed."""


class LogsEventStore:
    """Reads records out of one join's primary logs."""

    def __init__(
        self,
        directory: Path,
        adapter: Adapter,
        resolve: Resolver,
        *,
        record_bytes_max: int = RECORD_BYTES_MAX,
        pages_bytes_max: int = PAGES_BYTES_MAX,
        troubles: Troubles | None = None,
    ) -> None:
        self._directory = directory
        self._adapter = adapter
        self._resolve = resolve
        self._record_bytes_max = record_bytes_max
        self._pages = Pages(pages_bytes_max)
        self._troubles = troubles or Troubles()
        self._framing = adapter.primary_framing
        self._lines = Lines(self._framing, record_bytes_max) if self._framing.kind == "quoted" else None
        self._lock = threading.Lock()  # around what follows
        self._headers: OrderedDict[str, HeaderIndex] = OrderedDict()  # identity -> of the log
        self._idle: OrderedDict[str, tuple[str, LogBytes]] = OrderedDict()  # identity -> path, open file
        self._opened = 0
        self._counts = ReadCounts()
        self._speeds: OrderedDict[str, float] = OrderedDict()  # identity -> bytes a microsecond, as last seen

    def is_there(self, log: MappedLog) -> bool:
        """Whether there is a file of this log now."""
        return self._resolve(log.identity) is not None

    def read(self, wanted: WantedPlaces | Sequence[Wanted]) -> list[ReadRecord]:
        """Aligned with ``wanted``."""
        places = wanted if isinstance(wanted, WantedPlaces) else WantedPlaces.of(wanted)
        out: list[ReadRecord] = [UNAVAILABLE] * len(places)
        for indexes in places.by_log().values():

            def give(at: Sequence[int], reads: Sequence[ReadRecord], into: Sequence[int] = indexes.tolist()) -> None:
                for i, read in zip(at, reads, strict=True):
                    out[into[i]] = read

            self.read_log(places.taken(indexes), give)
        return out

    def read_log(self, wanted: WantedPlaces, give: Give, stopped: Callable[[], bool] = lambda: False) -> None:
        """Reads places of one log and gives answers as soon as they are known. What is not given is unavailable.

        ``stopped`` is asked between two reads of the file: whoever asked may have gone.
        """
        log = wanted.logs[0]
        left = np.argsort(wanted.offsets, kind="stable").tolist()
        why = ""
        for _ in range(2):  # what map and file disagree about is tried once more with the file freshly opened
            why = self._read_open(log, wanted, left, give, stopped)
            if not left or why == GONE or stopped():
                break
        if left and not stopped():
            self._troubles.failed(log, why or OTHER_BYTES, [wanted.keys[i] for i in left])

    def _read_open(
        self,
        log: MappedLog,
        wanted: WantedPlaces,
        left: list[int],
        give: Give,
        stopped: Callable[[], bool],
    ) -> str:
        """Reads what is ``left`` and takes out of it what it gave. Why some is left, where it is the file's fault."""
        try:
            opened = self._take(log)
        except OSError as err:
            return f"it cannot be opened ({err.strerror})"
        if opened is None:
            return GONE
        path, source = opened
        window, aside = LogWindow(source, self._lines), LogWindow(source)
        each = LogPass(self._adapter, LogFile(path, log.file.header), window, self._record_bytes_max)
        asked, given, keep = list(left), set[int](), False
        try:
            # Where records are no plain lines a guess may be inside one, or have another header.
            if self._framing.kind == "lines" and wanted.spans.any():
                probes = SpanProbes(LogPass(self._adapter, each.file, aside, self._record_bytes_max))
                for i, found in self._probed(probes, log, wanted, asked):
                    give([i], [found])
                    given.add(i)
            left[:] = [i for i in asked if i not in given]
            for indexes, reads in self._passed(each, log, wanted, left, source, stopped):
                known = range(len(reads)) if UNAVAILABLE not in reads else _known(reads)
                give([indexes[at] for at in known], [reads[at] for at in known])
                given.update(indexes[at] for at in known)
            keep = (len(given) == len(asked) or stopped()) and not source.unlinked()
        except OSError as err:
            return f"it cannot be read ({err.strerror})"
        except Exception as err:  # whatever a damaged file makes a library raise: the log is named, the others go on
            return f"it cannot be read ({' '.join(repr(err).split())})"
        finally:
            left[:] = [i for i in asked if i not in given]
            self._put_back(log, path, source, keep=keep)
            with self._lock:
                self._counts.places += len(asked)
                self._counts.bytes += window.bytes_read + aside.bytes_read
        if given:
            self._troubles.succeeded(log)
        return ""

    def _passed(
        self,
        each: LogPass,
        log: MappedLog,
        wanted: WantedPlaces,
        indexes: Sequence[int],
        source: LogBytes,
        stopped: Callable[[], bool],
    ) -> Iterator[tuple[Sequence[int], list[ReadRecord]]]:
        """What stands at these places (ascending offsets), some at a time."""
        window, path = each.window, each.file.path
        headers = self._headers_of(log) if self._framing.kind == "zeek" else None
        alike = headers is None and not wanted.spans.any()
        offsets = wanted.offsets.tolist()
        waiting: list[int] = []
        cut: list[bytes | None] = []
        since = window.bytes_read
        try:
            for group, stop in _ranges(offsets, wanted.stops().tolist(), indexes):
                if stopped():
                    break
                window.cover(offsets[group[0]], stop)
                if alike:
                    waiting += group
                    cut += each.cut([offsets[i] for i in group])
                    if len(waiting) >= CHECKED_TOGETHER or window.bytes_read - since >= READ_BYTES_MAX:
                        yield waiting, each.checked(wanted, waiting, cut)
                        waiting, cut, since = [], [], window.bytes_read
                    continue
                reads = []
                for i in group:
                    if headers is not None:
                        each.file = LogFile(path, headers.at(source, offsets[i]))
                    reads.append(each.record(wanted[i]))
                yield group, reads
        except Exception:  # what was read before it counts
            if waiting:
                yield waiting, each.checked(wanted, waiting, cut)
            raise
        if waiting:
            yield waiting, each.checked(wanted, waiting, cut)

    def _headers_of(self, log: MappedLog) -> HeaderIndex:
        with self._lock:
            headers = self._headers.pop(log.identity, None) or HeaderIndex()
            self._headers[log.identity] = headers
            if len(self._headers) > HEADER_INDEXES_MAX:
                self._headers.popitem(last=False)
        return headers

    def _probed(
        self, probes: SpanProbes, log: MappedLog, places: WantedPlaces, asked: Sequence[int]
    ) -> Iterator[tuple[int, ReadRecord]]:
        """Those that guesses find."""
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
                yield i, found

    # -- open files ------------------------------------------------------------------------------------------------
    def _take(self, log: MappedLog) -> tuple[str, LogBytes] | None:
        """An open file for this caller alone; None when there is none of this identity. Raises OSError."""
        with self._lock:
            idle = self._idle.pop(log.identity, None)
            self._opened += idle is None
            number = self._opened
        if idle is not None:
            return idle
        path = self._resolve(log.identity)
        if path is None:
            return None
        try:
            return path, open_log(self._directory / path, self._pages, number, self._framing)
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
        """Of this moment."""
        with self._lock:
            return ReadCounts(self._counts.places, self._counts.bytes)

    def close(self) -> None:
        """Closes the files that nobody reads just now."""
        with self._lock:
            idle, self._idle = list(self._idle.values()), OrderedDict()
        for _, source in idle:
            source.close()


def _known(reads: Sequence[ReadRecord]) -> list[int]:
    return [at for at, read in enumerate(reads) if read.outcome is not Read.UNAVAILABLE]


def _ranges(offsets: Sequence[int], stops: Sequence[int], indexes: Sequence[int]) -> Iterator[tuple[list[int], int]]:
    """Groups of indexes (ascending offsets) that one read serves, and up to where it reads."""
    group: list[int] = []
    begin = stop = 0
    for index in indexes:
        offset, its_stop = offsets[index], stops[index]
        if group and (offset > stop + GAP_BYTES or its_stop - begin > READ_BYTES_MAX):
            yield group, stop
            group = []
        if not group:
            begin, stop = offset, its_stop
        elif its_stop > stop:
            stop = its_stop
        group.append(index)
    if group:
        yield group, stop
