"""Lines of Kubernetes' container logs (CRI), ``<time> <stream> <content>``, read through a reader of the contents.

``logs.cri_source`` makes these lines from the runtime's output. It passes on lines that are not CRI, which are
rejected here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from photon.adapters.contract import BadRecord, ForeignHeader, Headers, LogFile
from photon.adapters.formats.base import SidePayloads, SideReader, Stop
from photon.adapters.times import TimeReader

CRI_TIME = rb"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?(?:Z|[+-][0-9]{2}:[0-9]{2})"
CRI_LABEL = CRI_TIME + rb" std(?:out|err) "
_RECORD = re.compile(rb"(?:" + CRI_LABEL + rb")(.*)", re.DOTALL)
_LINES = re.compile(rb"^" + CRI_LABEL + rb"(.*)\n", re.MULTILINE)
_NOT_CRI = "is not a line of a CRI log, <time> <stdout|stderr> <P|F> <content>"


class Contents(NamedTuple):
    """The ``contents`` of each record; empty for those in ``bad``, by row."""

    contents: list[bytes]
    bad: dict[int, BadRecord]


class CriSide(SideReader):
    """Reads one side through ``inner``, which is given the contents."""

    def __init__(self, inner: SideReader, time: TimeReader | None = None, ids: SideReader | None = None) -> None:
        """``time`` reads the event's time at the start of a line. Without it, ``inner`` reads the event's time.

        ``ids``: a reader of event ids, if events have them; its keys are the ids. Used only with ``time``.
        """
        self._inner, self._time, self._ids = inner, time, ids

    def key(self, record: bytes, file: LogFile) -> bytes:
        return self._inner.key(_content(record), file)

    def header(self, record: bytes, file: LogFile) -> ForeignHeader:
        (header,) = self.headers((record,), file).rows()
        if isinstance(header, BadRecord):
            raise header
        return header

    def payload(self, record: bytes, file: LogFile) -> bytes | None:
        return self._inner.payload(_content(record), file)

    def payloads(self, records: Sequence[bytes], files: Sequence[LogFile]) -> SidePayloads:
        contents, bad = _contents(records)
        found = self._inner.payloads(contents, files)
        return SidePayloads(found.payloads, {**found.bad, **bad}) if bad else found

    def stops_at(self, record: bytes) -> Stop | None:
        match = _RECORD.match(record)
        stop = None if match is None else self._inner.stops_at(match[1])
        return stop if stop is None or match is None else stop._replace(at=match.start(1) + stop.at)

    def headers(self, records: Sequence[bytes], file: LogFile) -> Headers:
        contents, bad = _contents(records)
        if self._time is None:
            found = self._inner.headers(contents, file)
            return found._replace(others={**found.others, **bad}) if bad else found
        times = self._line_times(records, bad)
        keys = _present(self._inner, contents, file, bad)
        ids: Sequence[bytes | None] = [None] * len(contents)
        if self._ids is not None:
            ids = _present(self._ids, contents, file, bad, "id")
        return Headers(keys, times, ids, bad)

    def times(self, records: Sequence[bytes], file: LogFile) -> Headers:
        contents, bad = _contents(records)
        if self._time is None:
            found = self._inner.times(contents, file)
            return found._replace(others={**found.others, **bad})
        none = [b""] * len(contents)
        return Headers(none, self._line_times(records, bad), none, bad)

    def keys_of(self, records: Sequence[bytes], file: LogFile) -> list[bytes | None]:
        contents, bad = _contents(records)
        keys = self._inner.keys_of(contents, file)
        for row in bad:
            keys[row] = None
        return keys

    def keys(self, block: bytes, file: LogFile) -> list[bytes | None]:
        contents = _LINES.findall(block)
        if len(contents) != block.count(b"\n"):
            return super().keys(block, file)
        return self._inner.keys(b"\n".join([*contents, b""]), file)

    def _line_times(self, records: Sequence[bytes], bad: dict[int, BadRecord]) -> list[int]:
        """Returns each line's time, 0 for rows in ``bad``. Adds the rows whose time is invalid to ``bad``."""
        assert self._time is not None
        times, from_text = [], self._time.from_text
        for row, record in enumerate(records):
            try:
                times.append(0 if row in bad else from_text(record.partition(b" ")[0]))
            except ValueError as error:
                bad[row] = BadRecord(f"the line's time {error}")
                times.append(0)
        return times


def _contents(records: Sequence[bytes]) -> Contents:
    lines = b"\n".join([*records, b""])
    every = _LINES.findall(lines)
    if len(every) == len(records) == lines.count(b"\n"):
        return Contents(every, {})
    found = list(map(_RECORD.match, records))
    contents = [b"" if match is None else match[1] for match in found]
    return Contents(contents, {row: BadRecord(_NOT_CRI) for row, match in enumerate(found) if match is None})


def _content(record: bytes) -> bytes:
    match = _RECORD.match(record)
    if match is None:
        raise BadRecord(_NOT_CRI)
    return match[1]


def _present(
    reader: SideReader, contents: Sequence[bytes], file: LogFile, bad: dict[int, BadRecord], what: str = "key"
) -> list[bytes]:
    """Returns the keys. Adds rows without a key to ``bad``, with a reason that calls the key ``what``."""
    keys = reader.keys_of(contents, file)
    if all(keys):
        return keys  # type: ignore[return-value]
    for row, key in enumerate(keys):
        if not key and row not in bad:  # a skipped record's key is empty
            try:
                keys[row] = reader.key(contents[row], file)
            except BadRecord as why:
                about = why.reason.startswith("key ")
                bad[row] = BadRecord(what + why.reason.removeprefix("key")) if about else why
    return [key or b"" for key in keys]
