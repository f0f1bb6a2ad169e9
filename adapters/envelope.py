"""Output records: one JSON object a line, built in batches by joining bytes.

joined/    event_id, key, event_time_ns, foreign, primary, source, primary_source, pair and pairs (if an event is
           joined with all primary events of its key: this is pair 1, 2, … of ``pairs``), joined_at, token
           with ``time = "primary"``: event_time_ns is the primary event's, and registered_ns after it is the time
           under which the id is in the registry
           for an unmatched event (``unmatched = "inline"``): event_id, key, event_time_ns, reason, foreign, primary
           (null), source, primary_source (if the two are not a pair), joined_at, token
others     unmatched, filtered, rejected and late: event_id, key, event_time_ns (if known), reason,
           record (the original text with redacted fields hidden, or null), source, primary_source
           (filtered), decided_at, token

``event_id``, ``key`` and ``record`` that are not UTF-8 are replaced by ``…_raw_base64``, and so are payloads that an
adapter returns as ``None``. ``source`` is {"file", "offset"}: the offset counts uncompressed bytes, the file is
relative to its log directory. Times are UTC with microseconds, ``token`` is 16 hex digits and always the line's last
member; both can be left out. The order of members is part of the format: ``envelope_reader`` relies on it.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType

import numpy as np
import orjson

from photon.adapters.containment import Fault, Guard
from photon.adapters.contract import Adapter, LogFile
from photon.adapters.formats.delimited import as_in_log
from photon.adapters.shown_records import ShownRecord, shown
from photon.adapters.times import rfc3339_us
from photon.batch.events import Events
from photon.batch.records import PrimaryRecord, Records

NONE_INLINE: Mapping[int, bytes | None] = MappingProxyType({})
FILE_NAMES_MAX = 8192  # file names whose JSON is remembered
# Text that needs no escaping in JSON.
_PLAIN = re.compile(rb"[ !#-\[\]-~]*+")


class Envelope:
    """Builds the lines of one output. Not thread-safe (it remembers file names)."""

    def __init__(
        self, *, with_joined_at: bool = True, with_token: bool = True, adapter: Adapter | None = None
    ) -> None:
        """``adapter`` supplies the redactions for events that are not joined; ``None`` means no redactions."""
        self._adapter = adapter
        self._with_joined_at = with_joined_at
        self._with_token = with_token
        self._files: dict[str, bytes] = {}

    def joined(
        self,
        events: Events,
        primaries: Records,
        foreign: Sequence[bytes | None],
        primary: Sequence[bytes | None],
        *,
        token: int,
        at_ns: int,
        pairs: Sequence[int] | None = None,
    ) -> list[bytes]:
        """Returns one line, with its newline, for each row.

        All columns have the same length, except ``pairs``: the number of consecutive rows of each event. If given,
        the lines of an event are numbered.

        Raises ValueError if a payload holds a newline, which would split the line. For an adapter that is not one of
        ours check ``faults.payload_fault`` first.
        """
        template = _JOINED
        if None in foreign or None in primary:
            template = _JOINED_RAW
            by_side = (b"foreign", foreign, events.records), (b"primary", primary, primaries.records)
            foreign, primary = (
                [self._payload(name, *both) for both in zip(payloads, records, strict=True)]
                for name, payloads, records in by_side
            )
        times: tuple[Sequence[int], ...] = (events.times.tolist(),)
        if self._adapter is not None and self._adapter.has_time_of_primary:
            template = template.replace(_TIME, _TIME + b'"registered_ns":%d,')
            times = self._times_of(self._adapter, primaries, times[0]), *times
        columns = zip(
            _ids_and_keys(events),
            *times,
            foreign,
            primary,
            self._sources(events),
            events.offsets.tolist(),
            self._sources(primaries),
            primaries.offsets.tolist(),
            strict=True,
        )
        tail = self._tail(b"joined_at", token, at_ns)
        if pairs is None:
            lines = [template % row + tail for row in columns]
        else:
            places = [b',"pair":%d,"pairs":%d' % (at + 1, count) for count in pairs for at in range(count)]
            lines = [b"%b%b%b" % (template % row, at, tail) for row, at in zip(columns, places, strict=True)]
        if b"".join(lines).count(b"\n") != len(lines):
            at = next(at for at, line in enumerate(lines) if line.find(b"\n") != len(line) - 1)
            place = f"{events.files[events.file_index[at]].path}:{events.offsets[at]}"
            raise ValueError(f"the payload of {place} holds a newline")
        return lines

    def _times_of(self, adapter: Adapter, primaries: Records, others: Sequence[int]) -> list[int]:
        """Returns each primary record's event time, or the time in ``others`` if it is unreadable."""
        times = list(others)
        for number, file in enumerate(primaries.files):
            rows = np.flatnonzero(primaries.file_index == number).tolist()
            read = Guard(adapter).many(partial(adapter.primary_times, [primaries.records[row] for row in rows], file))
            for row, time in zip(rows, () if isinstance(read, Fault) else read, strict=False):
                times[row] = time if isinstance(time, int) else others[row]
        return times

    def undone(
        self,
        events: Events,
        reasons: Sequence[str],
        *,
        token: int | None,
        at_ns: int,
        primaries: Sequence[PrimaryRecord | None] | None = None,
        inline: Mapping[int, bytes | None] = NONE_INLINE,
    ) -> list[bytes]:
        """Returns one line for each event that was not joined: unmatched, filtered, rejected or late (no ``token``).

        ``inline`` maps the rows of unmatched events that are written among the joined ones to their foreign
        payloads.
        """
        apart, among = self._tail(b"decided_at", token, at_ns), self._tail(b"joined_at", token, at_ns)
        lines = []
        rows = list(zip(events.records, events.of_file(), reasons, strict=True))
        columns = zip(
            _ids_and_keys(events),
            events.times.tolist(),
            shown(self._adapter, rows),
            events.of_file(),
            events.offsets.tolist(),
            primaries or [None] * len(rows),
            strict=True,
        )
        for row, (names, time_ns, what, file, offset, primary) in enumerate(columns):
            head = b'%b,"event_time_ns":%d,' % (names, time_ns)
            held, tail = _held(what), apart
            if row in inline:
                held, tail = self._payload(b"foreign", inline[row], rows[row][0]) + _NO_PRIMARY, among
            lines.append(self._line(head, what.reason, held, file.path, offset, primary, tail))
        return lines

    def unreadable(self, record: bytes, file: LogFile, offset: int, reason: str, *, at_ns: int) -> bytes:
        """Returns the line of a record without id, key or time: rejected before it became an event."""
        (what,) = shown(self._adapter, [(record, file, reason)])
        tail = self._tail(b"decided_at", None, at_ns)
        return self._line(b"", what.reason, _held(what), file.path, offset, None, tail)

    def _line(
        self,
        head: bytes,
        reason: str,
        held: bytes,
        path: str,
        offset: int,
        primary: PrimaryRecord | None,
        tail: bytes,
    ) -> bytes:
        found = b""
        if primary is not None:
            found = b',"primary_source":%b%d}' % (self._source(primary.file.path), primary.offset)
        why = orjson.dumps(reason.encode("utf-8", "backslashreplace").decode())
        return b'{%b"reason":%b,%b,"source":%b%d}%b%b' % (head, why, held, self._source(path), offset, found, tail)

    def _payload(self, side: bytes, payload: bytes | None, record: bytes) -> bytes:
        if payload is not None:
            return b'"%b":%b' % (side, payload)
        if self._adapter is not None:
            foreign = side == b"foreign"
            record = as_in_log(record, self._adapter.foreign_framing if foreign else self._adapter.primary_framing)
        return _raw(side, record)

    def _sources(self, rows: Events | Records) -> list[bytes]:
        of_file = [self._source(file.path) for file in rows.files]
        return [of_file[at] for at in rows.file_index.tolist()]

    def _source(self, path: str) -> bytes:
        known = self._files.get(path)
        if known is None:
            if len(self._files) >= FILE_NAMES_MAX:
                self._files.clear()
            name = orjson.dumps(path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"))
            known = self._files[path] = b'{"file":%b,"offset":' % name
        return known

    def _tail(self, name: bytes, token: int | None, at_ns: int) -> bytes:
        at = b',"%b":"%b"' % (name, rfc3339_us(at_ns).encode()) if self._with_joined_at else b""
        by = b',"token":"%016x"' % token if self._with_token and token is not None else b""
        return at + by + b"}\n"


def is_inline(line: bytes) -> bool:
    """True if the line of an unmatched event belongs in ``joined`` (``unmatched = "inline"``).

    No other line can contain the bytes searched for, because quotes inside its texts are escaped.
    """
    return _NO_PRIMARY + b',"source":' in line


def member(name: bytes, value: bytes) -> bytes:
    """Returns ``"name":"value"``, or ``"name_raw_base64":…`` for a value that is not UTF-8."""
    if _PLAIN.fullmatch(value):
        return b'"%b":"%b"' % (name, value)
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return _raw(name, value)
    return b'"%b":%b' % (name, orjson.dumps(text))


_NO_PRIMARY = b',"primary":null'
_TIME = b'"event_time_ns":%d,'
_JOINED = b'{%b,"event_time_ns":%d,"foreign":%b,"primary":%b,"source":%b%d},"primary_source":%b%d}'
_JOINED_RAW = b'{%b,"event_time_ns":%d,%b,%b,"source":%b%d},"primary_source":%b%d}'


def _ids_and_keys(events: Events) -> list[bytes]:
    names = list(zip(events.ids, events.keys, strict=True))
    if _PLAIN.fullmatch(b"".join(map(b"".join, names))):
        return [b'"event_id":"%b","key":"%b"' % both for both in names]
    return [member(b"event_id", event_id) + b"," + member(b"key", key) for event_id, key in names]


def _held(what: ShownRecord) -> bytes:
    return b'"record":null' if what.record is None else member(b"record", what.record)


def _raw(name: bytes, value: bytes) -> bytes:
    return b'"%b_raw_base64":"%b"' % (name, b64encode(value))
