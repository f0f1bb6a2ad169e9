"""LogsEventStore: reads primary records at the places the file map names (paper, section 3.4.2).

A batch is read log by log in the order of offsets, neighbours in one read, so that catching up reads old logs
sequentially. Every record's key is verified by the adapter. That the right bytes are in front of it is verified
too: a place whose record is neither the asked one nor one with the same hash says that the file is another one than
was mapped (renamed a moment ago, say), and is answered *unavailable*, never *not there*.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from photon.adapters.contract import Adapter, LogFile
from photon.eventstore.file_map import MappedLog
from photon.eventstore.index import hash_keys
from photon.eventstore.log_files import PAGES_BYTES_MAX, LogBytes, new_pages, open_log
from photon.eventstore.records import key_of, keys_of_block, record_at
from photon.eventstore.row_keys import parse_event_id

RECORD_GUESS_BYTES = 4096
"""Read for one record at first; a longer one costs a second read."""
GAP_BYTES = 1 << 17
"""Places no further apart are read together."""
READ_BYTES_MAX = 4 << 20
OPEN_LOGS_MAX = 64
RECORD_BYTES_MAX = 1 << 20

Resolver = Callable[[str], str | None]
"""Log identity -> its file's present path relative to the log directory; None when it is not there now."""


_NO_FILE = LogFile("")


class Read(enum.Enum):
    """What became of reading one place."""

    FOUND = 1
    NOT_THERE = 2
    UNAVAILABLE = 3


@dataclass(frozen=True, slots=True)
class Wanted:
    """One place to read (file_map.Places has the meaning of span and anchor)."""

    row: int
    key: bytes
    log: MappedLog
    offset: int
    span: int
    anchor: int

    @property
    def stop(self) -> int:
        """Bytes up to here are read at first."""
        return self.offset + self.span + RECORD_GUESS_BYTES


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """``record`` and its place, where the outcome is FOUND."""

    outcome: Read
    file: LogFile = _NO_FILE
    offset: int = 0
    record: bytes = b""


NOT_THERE = ReadRecord(Read.NOT_THERE)
UNAVAILABLE = ReadRecord(Read.UNAVAILABLE)


class LogsEventStore:
    """Reads records out of one join's primary logs. One caller at a time."""

    def __init__(
        self,
        directory: Path,
        adapter: Adapter,
        resolve: Resolver,
        *,
        record_bytes_max: int = RECORD_BYTES_MAX,
        pages_bytes_max: int = PAGES_BYTES_MAX,
    ) -> None:
        self._directory = directory
        self._adapter = adapter
        self._resolve = resolve
        self._record_bytes_max = record_bytes_max
        self._pages = new_pages(pages_bytes_max)
        self._open: OrderedDict[str, tuple[str, LogBytes]] = OrderedDict()  # identity -> path, file
        self._opened = 0

    def read(self, wanted: Sequence[Wanted]) -> list[ReadRecord]:
        """Aligned with ``wanted``."""
        out: list[ReadRecord] = [UNAVAILABLE] * len(wanted)
        by_log: dict[int, list[int]] = {}
        for index, each in enumerate(wanted):
            by_log.setdefault(each.log.number, []).append(index)
        for indexes in by_log.values():
            indexes.sort(key=lambda i: wanted[i].offset)
            self._read_log(wanted, indexes, out)
            # What the map and the file disagree about is tried once more with the file freshly opened.
            again = [i for i in indexes if out[i].outcome is Read.UNAVAILABLE]
            if again:
                self._close(wanted[again[0]].log.identity)
                self._read_log(wanted, again, out)
        return out

    def _read_log(self, wanted: Sequence[Wanted], indexes: Sequence[int], out: list[ReadRecord]) -> None:
        log = wanted[indexes[0]].log
        opened = self._log_bytes(log)
        if opened is None:
            return
        path, source = opened
        file = LogFile(path, log.file.header)
        try:
            for group in _ranges(wanted, indexes):
                begin = wanted[group[0]].offset
                data = source.read(begin, max(wanted[i].stop for i in group) - begin)
                for i in group:
                    out[i] = self._record(wanted[i], file, source, data, begin)
            if source.unlinked():
                self._close(log.identity)
        except OSError:
            self._close(log.identity)

    def _record(self, want: Wanted, file: LogFile, source: LogBytes, data: bytes, begin: int) -> ReadRecord:
        at = want.offset - begin
        if want.span:
            return self._search(want, file, source, data[at : at + want.span + RECORD_GUESS_BYTES])
        record = self._whole_record(source, data, begin, at)
        if record is not None and key_of(self._adapter, record, file) == want.key:
            return ReadRecord(Read.FOUND, file, want.offset, record)
        if want.log.rewritten or (record is not None and self._explains(record, file, want.key)):
            return NOT_THERE
        return UNAVAILABLE

    def _explains(self, record: bytes, file: LogFile, key: bytes) -> bool:
        """Whether the map was right to name this record, though it is not the asked one.

        It has another key of the same hash; or it is malformed, and the scan took it for one with the key.
        """
        there = key_of(self._adapter, record, file)
        if there is None:
            return keys_of_block(self._adapter, record + b"\n", file) == [key]
        hashes = hash_keys([there, key])
        return bool(hashes[0] == hashes[1])

    def _whole_record(self, source: LogBytes, data: bytes, begin: int, at: int) -> bytes | None:
        """The record at ``data[at]``, read on where it is longer; None beyond the end and for oversized ones."""
        if at >= len(data):
            return None
        if data.find(b"\n", at) >= 0:
            return record_at(data, at)
        length = 4 * RECORD_GUESS_BYTES
        while True:
            more = source.read(begin + at, length)
            if b"\n" in more or len(more) < length:
                return record_at(more, 0) if more and len(more) <= self._record_bytes_max + 2 else None
            if length > self._record_bytes_max + 2:
                return None
            length = min(length * 4, self._record_bytes_max + 3)

    def _search(self, want: Wanted, file: LogFile, source: LogBytes, window: bytes) -> ReadRecord:
        """The first record with the key that begins within the span."""
        first = self._whole_record(source, window, want.offset, 0)
        if not want.log.rewritten and not self._is_anchor(want, first, file):
            return UNAVAILABLE
        for start in self._starts(want, file, window):
            record = self._whole_record(source, window, want.offset, start)
            if record is not None and key_of(self._adapter, record, file) == want.key:
                return ReadRecord(Read.FOUND, file, want.offset + start, record)
        return NOT_THERE

    def _is_anchor(self, want: Wanted, record: bytes | None, file: LogFile) -> bool:
        there = None if record is None else key_of(self._adapter, record, file)
        asked = parse_event_id(want.key)
        return there is not None and asked is not None and parse_event_id(there) == (asked[0], want.anchor)

    def _starts(self, want: Wanted, file: LogFile, window: bytes) -> Iterator[int]:
        """Where records that may have the key begin: where its bytes stand, and where the adapter says so."""
        at = window.find(want.key)
        while at >= 0:
            start = window.rfind(b"\n", 0, at) + 1
            if start < want.span:
                yield start
            line_end = window.find(b"\n", at)
            at = window.find(want.key, line_end) if line_end >= 0 else -1
        whole = window.rfind(b"\n") + 1
        start = 0
        for key in keys_of_block(self._adapter, window[:whole], file):
            if key == want.key and start < want.span:
                yield start
            start = window.find(b"\n", start) + 1
        if whole < want.span:
            yield whole  # the record that the window cuts

    # -- open files ------------------------------------------------------------------------------------------------
    def _log_bytes(self, log: MappedLog) -> tuple[str, LogBytes] | None:
        opened = self._open.get(log.identity)
        if opened is not None:
            self._open.move_to_end(log.identity)
            return opened
        path = self._resolve(log.identity)
        if path is None:
            return None
        try:
            self._opened += 1
            source = open_log(self._directory / path, self._pages, self._opened)
        except OSError:
            return None
        self._open[log.identity] = (path, source)
        if len(self._open) > OPEN_LOGS_MAX:
            self._close(next(iter(self._open)))
        return path, source

    def _close(self, identity: str) -> None:
        opened = self._open.pop(identity, None)
        if opened is not None:
            opened[1].close()

    def close(self) -> None:
        """Closes the files."""
        for identity in list(self._open):
            self._close(identity)


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
