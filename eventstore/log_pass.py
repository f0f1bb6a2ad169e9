"""Reads records at places of one log, in ascending order; the adapter verifies each key.

If the record at a place has neither the requested key nor one with the same hash, the file is not the mapped one
(perhaps it was just renamed): the answer is then *unavailable*, never *not there*.

``SpanProbes`` guesses an id's place in a span, so that a sparse look-up reads some tens of KiB instead of half a
span. Ids contain times, so their offsets can be interpolated: from the span's anchor, at the rate at which the log
grew, and again from the record at the first guess. If the guesses fail, the id is searched for from the anchor on.

Guesses are made only for keys without an exact place in the same log (``PlaceToRead.alone``): of two records with the
same id the second has an exact place, and a guess might find it before the first.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np

from photon.adapters.containment import Fault, Guard, primary_keys_of
from photon.adapters.contract import Adapter, LogFile
from photon.adapters.logs.framings import Lines
from photon.adapters.logs.zeek_framing import HeaderScan
from photon.batch.records import PrimaryRecord, Records
from photon.eventstore.block_keys import key_of, keys_of_block, record_at
from photon.eventstore.found_records import FoundRecords
from photon.eventstore.index import I64, hash_keys
from photon.eventstore.log_files import LogBytes
from photon.eventstore.places_to_read import RECORD_GUESS_BYTES, SEARCH_BYTES, PlacesToRead, PlaceToRead
from photon.eventstore.sparse import parse_event_id

SCAN_BYTES = 1 << 20


class LogWindow:
    """The bytes of one log around the places to read, from ``begin`` on.

    Places are requested in ascending order, so neighbours share one read.
    """

    def __init__(self, source: LogBytes, lines: Lines | None = None) -> None:
        """``lines``: marks line ends that do not end a record; all places must then be starts of records."""
        self._source = source
        self._lines = lines
        self._raw = b""
        self.begin = 0
        self.data = b""
        self.bytes_read = 0  # from the file, uncompressed
        self._at_end = False  # growth does not matter, as the mapped part existed before

    @property
    def end(self) -> int:
        return self.begin + len(self.data)

    def cover(self, begin: int, stop: int) -> None:
        """Reads until ``data`` has the bytes in [``begin``, ``stop``), or up to the log's end. Raises OSError.

        Bytes before ``begin`` may be dropped.
        """
        if not self.begin <= begin <= self.end:
            self.begin, self.data, self._raw = begin, b"", b""
            self._at_end = False
        end = self.end
        if stop <= end or self._at_end:
            return
        more = self._source.read(end, stop - end)
        self._at_end = len(more) < stop - end
        self.bytes_read += len(more)
        self._raw = self._raw[begin - self.begin :] + more
        self.data = self._raw if self._lines is None else self._lines.marked(self._raw, inside=False)
        self.begin = begin


class HeaderIndex:
    """Finds the Zeek header that applies at an offset of one log.

    Scans the bytes before the offset, and remembers the state every SCAN_BYTES. Not thread-safe.
    """

    def __init__(self) -> None:
        self._marks = [HeaderScan()]  # the scan's state at 0, SCAN_BYTES, 2 * SCAN_BYTES, …

    def at(self, source: LogBytes, offset: int) -> bytes:
        """Returns the header that applies to the record at ``offset``. Raises OSError."""
        scan = copy(self._marks[min(offset // SCAN_BYTES, len(self._marks) - 1)])
        while scan.at < offset:
            data = source.read(scan.at, min(SCAN_BYTES - scan.at % SCAN_BYTES, offset - scan.at))
            if not data:
                break
            scan.feed(data)
            if scan.at == len(self._marks) * SCAN_BYTES:
                self._marks.append(copy(scan))
        return scan.header


class NoRecord(enum.Enum):
    NOT_THERE = 1
    UNAVAILABLE = 2


@dataclass(eq=False)
class LogPass:
    """Reads records at places of one log, through ``window``."""

    adapter: Adapter
    identity: str
    file: LogFile
    window: LogWindow
    record_bytes_max: int

    def cut(self, offsets: Sequence[int]) -> list[bytes | None]:
        """Returns the records that begin at ``offsets``, all in the window; ``None`` for one without a line end."""
        data, begin = self.window.data, self.window.begin
        out: list[bytes | None] = []
        for offset in offsets:
            end = data.find(b"\n", offset - begin)
            out.append(None if end < 0 else data[offset - begin : end].removesuffix(b"\r"))
        return out

    def checked(self, wanted: PlacesToRead, at: Sequence[int], cut: list[bytes | None]) -> tuple[FoundRecords, I64]:
        """Returns (records with the requested keys, places with other records). ``at``: places without a span, by
        ascending offset; ``cut``: the bytes there.

        All keys are compared at once; places that fail are checked one by one. Raises OSError.
        """
        places = np.array(at, np.int64)
        whole = [record or b"" for record in cut] if None in cut else cut
        records = Records((self.file,), np.zeros(len(cut), np.uint32), wanted.offsets[places], whole)  # type: ignore[arg-type]
        here = FoundRecords(places, (self.identity,), records)
        keys = primary_keys_of(Guard(self.adapter), records)
        asked = list(map(wanted.keys.__getitem__, wanted.rows[places].tolist()))
        if whole is cut and keys == asked:
            return here, np.empty(0, np.int64)
        right = [record is not None and key == want for record, key, want in zip(cut, keys, asked, strict=True)]
        others, not_there = self.each(wanted, places[np.logical_not(right)].tolist())
        return FoundRecords.concat([here.take(np.flatnonzero(right)), others]), not_there

    def each(self, wanted: PlacesToRead, at: Iterable[int]) -> tuple[FoundRecords, I64]:
        """Like ``checked``, for places of any kind, one by one. Raises OSError."""
        found, not_there = [], []
        for place in at:
            record = self.record(wanted[place])
            if isinstance(record, PrimaryRecord):
                found.append((place, self.identity, record))
            elif record is NoRecord.NOT_THERE:
                not_there.append(place)
        return FoundRecords.of(found), np.array(not_there, np.int64)

    def record(self, want: PlaceToRead) -> PrimaryRecord | NoRecord:
        """Reads the record at one place. Raises OSError."""
        if want.span:
            return self._search(want)
        record = self.whole_record(want.offset, want.offset)
        if record is not None and self.key(record) == want.key:
            return PrimaryRecord(record, self.file, want.offset)
        if want.log.rewritten or (record is not None and self._explains(record, want.key)):
            return NoRecord.NOT_THERE
        return NoRecord.UNAVAILABLE

    def key(self, record: bytes) -> bytes | None:
        """Returns a record's key; ``None`` if it has none or the key is unknown."""
        key = key_of(self.adapter, record, self.file)
        return key if isinstance(key, bytes) else None

    def _explains(self, record: bytes, key: bytes) -> bool:
        """True if the map may point to this record although it does not have the requested key.

        Either its key has the same hash, or it is malformed and the scan saw the key in it.
        """
        there = key_of(self.adapter, record, self.file)
        if isinstance(there, Fault):
            return False
        if not there:
            return keys_of_block(self.adapter, record + b"\n", self.file) == [key]
        hashes = hash_keys([there, key])
        return bool(hashes[0] == hashes[1])

    def whole_record(self, keep: int, start: int) -> bytes | None:
        """Returns the record at ``start``; ``None`` beyond the log's end or if the record is oversized.

        The window keeps the bytes from ``keep`` on.
        """
        window = self.window
        length = RECORD_GUESS_BYTES
        while True:
            window.cover(keep, start + length)
            at = start - window.begin
            if window.data.find(b"\n", at) >= 0:
                return record_at(window.data, at)
            if window.end < start + length:  # the log's last line has no line end
                return record_at(window.data, at) if 0 < window.end - start <= self.record_bytes_max + 2 else None
            if length > self.record_bytes_max + 2:
                return None
            length = min(length * 4, self.record_bytes_max + 3)

    # -- within a span -----------------------------------------------------------------------------------------------
    def _search(self, want: PlaceToRead) -> PrimaryRecord | NoRecord:
        if not want.log.rewritten and not self._is_anchor(want, self.whole_record(want.offset, want.offset)):
            return NoRecord.UNAVAILABLE
        for start in self._starts(want):
            record = self.whole_record(want.offset, start)
            if record is not None and self.key(record) == want.key:
                return PrimaryRecord(record, self.file, start)
        return NoRecord.NOT_THERE

    def _is_anchor(self, want: PlaceToRead, record: bytes | None) -> bool:
        there = None if record is None else self.key(record)
        asked = parse_event_id(want.key)
        return there is not None and asked is not None and parse_event_id(there) == (asked[0], want.anchor)

    def _starts(self, want: PlaceToRead) -> Iterator[int]:
        """Yields starts of records that may have the key: where its bytes occur, then where the adapter finds it."""
        yield from self._literal_starts(want)
        window, stop = self.window, want.offset + want.span
        window.cover(want.offset, stop + RECORD_GUESS_BYTES)
        data = window.data[want.offset - window.begin : stop + RECORD_GUESS_BYTES - window.begin]
        whole = data.rfind(b"\n") + 1
        start = 0
        for key in keys_of_block(self.adapter, data[:whole], self.file):
            if start >= want.span:
                return
            if key == want.key:
                yield want.offset + start
            start = data.find(b"\n", start) + 1
        if whole < want.span and whole < len(data):
            yield want.offset + whole  # the record cut off by the available bytes

    def _literal_starts(self, want: PlaceToRead) -> Iterator[int]:
        window, stop = self.window, want.offset + want.span
        looked, length = want.offset, SEARCH_BYTES
        while looked < stop:
            reach = min(want.offset + length, stop) + RECORD_GUESS_BYTES
            window.cover(want.offset, reach)
            at = window.data.find(want.key, looked - window.begin)
            while at >= 0:
                start = window.begin + window.data.rfind(b"\n", want.offset - window.begin, at) + 1
                start = max(start, want.offset)
                if start >= stop:
                    return
                yield start
                line_end = window.data.find(b"\n", max(start - window.begin, 0))
                at = window.data.find(want.key, line_end) if line_end >= 0 else -1
            if window.end < reach:
                return
            looked = max(want.offset, window.end - len(want.key))  # a key cut by the end is found next time
            length *= 2


PROBE_BYTES = 1 << 15  # read around a guess
PROBES_MAX = 3
KEPT_BYTES = 1 << 17  # bytes before the last guess that are kept


def bytes_per_micro(wanted: Sequence[PlaceToRead]) -> float | None:
    """Returns a log's bytes per microsecond between the first and the last anchor; ``None`` if not positive."""
    anchors = [(each.offset, each.anchor) for each in wanted if each.span and each.anchor >= 0]
    if not anchors:
        return None
    first, last = min(anchors), max(anchors)
    if last[0] <= first[0] or last[1] <= first[1]:
        return None
    return (last[0] - first[0]) / (last[1] - first[1])


def guess(want: PlaceToRead, speed: float) -> int:
    """Returns the likely offset of the id, within its span. ``speed``: see ``bytes_per_micro``."""
    asked = parse_event_id(want.key)
    ahead = 0.0 if asked is None else (asked[1] - want.anchor) * speed
    return want.offset + round(min(max(ahead, 0.0), want.span))


class SpanProbes:
    """Probes one log for ids. Call ``find`` in the order of guesses, so that neighbours share reads."""

    def __init__(self, looked: LogPass) -> None:
        """``looked``: a pass with its own window."""
        self._pass = looked
        self._window = looked.window

    def find(self, want: PlaceToRead, speed: float) -> PrimaryRecord | None:
        """Returns the record if a guess finds it. Raises OSError."""
        asked = parse_event_id(want.key)
        if asked is None:
            return None
        at = guess(want, speed)
        for _ in range(PROBES_MAX):
            begin = max(want.offset, at - PROBE_BYTES // 2)
            end = min(begin + PROBE_BYTES, want.offset + want.span)
            self._cover(begin, end)
            found = self._in(want, begin, end)
            if found is not None:
                return found
            there = self._first_id(begin)
            if there is None or there[1] <= want.anchor or there[0] <= want.offset:
                return None
            local = (there[0] - want.offset) / (there[1] - want.anchor)
            again = there[0] + round((asked[1] - there[1]) * local)
            if begin <= again < end:  # it should have been here
                return None
            at = min(max(again, want.offset), want.offset + want.span)
        return None

    def _cover(self, begin: int, end: int) -> None:
        """Extends the window to ``begin``–``end``. Keeps some bytes before that, as the next guess may be earlier."""
        window = self._window
        keep = max(window.begin, begin - KEPT_BYTES)
        if window.begin <= begin <= window.end + PROBE_BYTES and keep <= window.end:
            window.cover(keep, end)
        else:
            window.cover(begin, end)

    def _in(self, want: PlaceToRead, begin: int, end: int) -> PrimaryRecord | None:
        window = self._window
        at = window.data.find(want.key, begin - window.begin, end - window.begin)
        if at < 0:
            return None
        start = window.data.rfind(b"\n", 0, at) + 1
        if start == 0 and window.begin > want.offset:
            return None  # the record begins before the available bytes
        start += window.begin
        record = self._pass.whole_record(window.begin, start)
        if record is None or start >= want.offset + want.span or self._pass.key(record) != want.key:
            return None
        return PrimaryRecord(record, self._pass.file, start)

    def _first_id(self, begin: int) -> tuple[int, int] | None:
        """Returns (offset, microseconds) of the first whole record from ``begin`` on."""
        window = self._window
        line_end = window.data.find(b"\n", begin - window.begin)
        if line_end < 0:
            return None
        start = window.begin + line_end + 1
        record = self._pass.whole_record(window.begin, start)
        key = None if record is None else self._pass.key(record)
        parsed = None if key is None else parse_event_id(key)
        return None if parsed is None else (start, parsed[1])
