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

from photon.adapters.contract import Adapter, LogFile
from photon.adapters.logs.framed import Lines
from photon.eventstore.file_map import MappedLog
from photon.eventstore.header_index import HeaderIndex
from photon.eventstore.log_files import LogBytes, open_log
from photon.eventstore.log_pass import UNAVAILABLE, LogPass, Read, ReadRecord, Wanted
from photon.eventstore.log_window import LogWindow
from photon.eventstore.pages import PAGES_BYTES_MAX, Pages
from photon.eventstore.span_probes import PROBE_BYTES, SpanProbes, bytes_per_micro, guess

GAP_BYTES = 1 << 17
"""Places no further apart are read together."""
READ_BYTES_MAX = 4 << 20
OPEN_LOGS_MAX = 64
SPEEDS_MAX = 1 << 14
"""Logs of which it is remembered how fast they grew."""
HEADER_INDEXES_MAX = 1024
RECORD_BYTES_MAX = 1 << 20

Resolver = Callable[[str], str | None]
"""Log identity -> its file's present path relative to the log directory; None when it is not there now."""
Give = Callable[[int, ReadRecord], None]
"""Takes the answer of the place with this index."""

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

    def read(self, wanted: Sequence[Wanted]) -> list[ReadRecord]:
        """Aligned with ``wanted``."""
        out: list[ReadRecord] = [UNAVAILABLE] * len(wanted)
        for indexes in by_log(wanted).values():

            def give(at: int, read: ReadRecord, indexes: Sequence[int] = indexes) -> None:
                out[indexes[at]] = read

            self.read_log([wanted[i] for i in indexes], give)
        return out

    def read_log(self, wanted: Sequence[Wanted], give: Give, stopped: Callable[[], bool] = lambda: False) -> None:
        """Reads places of one log and gives each answer as soon as it is known. What is not given is unavailable.

        ``stopped`` is asked between two reads of the file: whoever asked may have gone.
        """
        log = wanted[0].log
        left = sorted(range(len(wanted)), key=lambda i: wanted[i].offset)
        why = ""
        for _ in range(2):  # what map and file disagree about is tried once more with the file freshly opened
            why = self._read_open(log, wanted, left, give, stopped)
            if not left or why == GONE or stopped():
                break
        if left and not stopped():
            self._troubles.failed(log, why or OTHER_BYTES, [wanted[i].key for i in left])

    def _read_open(
        self,
        log: MappedLog,
        wanted: Sequence[Wanted],
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
        headers = self._headers_of(log) if self._framing.kind == "zeek" else None
        asked, given, keep = list(left), set[int](), False
        try:
            if self._framing.kind == "lines":  # else a guess may be inside a record, or have another header
                probes = SpanProbes(LogPass(self._adapter, each.file, aside, self._record_bytes_max))
                for i, found in self._probed(probes, log, wanted, asked):
                    give(i, found)
                    given.add(i)
            for group in _ranges(wanted, [i for i in asked if i not in given]):
                if stopped():
                    break
                window.cover(wanted[group[0]].offset, max(wanted[i].stop for i in group))
                for i in group:
                    if headers is not None:
                        each.file = LogFile(path, headers.at(source, wanted[i].offset))
                    read = each.record(wanted[i])
                    if read.outcome is not Read.UNAVAILABLE:
                        give(i, read)
                        given.add(i)
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

    def _headers_of(self, log: MappedLog) -> HeaderIndex:
        with self._lock:
            headers = self._headers.pop(log.identity, None) or HeaderIndex()
            self._headers[log.identity] = headers
            if len(self._headers) > HEADER_INDEXES_MAX:
                self._headers.popitem(last=False)
        return headers

    def _probed(
        self, probes: SpanProbes, log: MappedLog, wanted: Sequence[Wanted], asked: Sequence[int]
    ) -> Iterator[tuple[int, ReadRecord]]:
        """Those that guesses find."""
        alone = [i for i in asked if wanted[i].span > PROBE_BYTES and wanted[i].alone]
        speed = bytes_per_micro([wanted[i] for i in alone])
        with self._lock:
            if speed is not None:
                self._speeds[log.identity] = speed
                if len(self._speeds) > SPEEDS_MAX:
                    self._speeds.popitem(last=False)
            speed = self._speeds.get(log.identity)
        if speed is None:
            return
        for _, i in sorted((guess(wanted[i], speed), i) for i in alone):
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


def by_log(wanted: Sequence[Wanted]) -> dict[int, list[int]]:
    """Log number -> indexes of the places in it."""
    logs: dict[int, list[int]] = {}
    for index, each in enumerate(wanted):
        logs.setdefault(each.log.number, []).append(index)
    return logs


def _ranges(wanted: Sequence[Wanted], indexes: Sequence[int]) -> Iterator[list[int]]:
    """Groups of indexes (ascending offsets) that one read serves."""
    group: list[int] = []
    stop = 0
    for index in indexes:
        want = wanted[index]
        if group and (want.offset > stop + GAP_BYTES or want.stop - wanted[group[0]].offset > READ_BYTES_MAX):
            yield group
            group = []
        stop = max(stop, want.stop) if group else want.stop
        group.append(index)
    if group:
        yield group


__all__ = [
    "GONE",
    "OTHER_BYTES",
    "LogsEventStore",
    "Read",
    "ReadCounts",
    "ReadRecord",
    "Resolver",
    "Troubles",
    "Wanted",
    "by_log",
]
