"""Records over several lines: line ends inside quoted fields are marked, so that a record is one line.

Each such line end becomes LINE_END_MARK, also one byte, so offsets are those of the file; the format restores it.
A quote that opens a field and is never properly closed must not swallow the log: where no well-formed record of
allowed length begins, a line is a record by itself (which the format rejects), and the next line begins the next one.
So a reader that begins at a wrong line recovers after that record.
"""

from __future__ import annotations

import bisect
import re

import numpy as np

from photon.adapters.contract import Framing
from photon.adapters.formats.cut_lines import cut_lines
from photon.adapters.formats.delimited import LINE_END_MARK, NO_MARK, in_order
from photon.adapters.formats.field_text import plain_text, quoted_text
from photon.adapters.logs.forward import ForwardBytes
from photon.adapters.logs.reader import Source

READ_BYTES = 1 << 20
MARKS_MAX = 4096  # starts of records that are remembered, evenly spread
MARK_SPACING_BYTES = 1 << 20


class QuotedLines:
    """Marks line ends inside quoted fields, for one quote and delimiter."""

    def __init__(self, framing: Framing, max_record: int) -> None:
        self._quote = framing.quote
        self._max_record = max_record
        q, d = re.escape(framing.quote), re.escape(framing.delimiter)
        e = self._escape = framing.escape
        inside, on_a_line = quoted_text(q, escape=e), quoted_text(q, rb"\n", e)
        plain = rb"(?!%b)%b" % (q, plain_text(framing.delimiter, e, rb"\n"))
        field = rb"(?:%b%b%b|%b)" % (q, inside, q, plain)
        one_line = rb"(?:%b%b%b|%b)" % (q, on_a_line, q, plain)
        self._open = re.compile(rb"(?:(?>%b%b))*+%b%b\n" % (one_line, d, q, on_a_line))
        self._delimiter = framing.delimiter
        self._record = re.compile(rb"%b(?:(?>%b%b))*+\r?\n" % (field, d, field))
        self._begun = re.compile(rb"(?:(?>%b%b))*+(?:%b%b(?:%b\r?)?|%b)\Z" % (field, d, q, inside, q, plain))
        self._last = re.compile(rb"%b(?:(?>%b%b))*+\r?\Z" % (field, d, field))

    def marked(self, data: bytes, *, final: bool = False) -> bytes:
        """Returns ``data``, which begins with a record, with the line ends inside fields marked.

        All line ends of an incomplete last record are marked, so that the record waits, unless ``final``.
        """
        data = data.replace(LINE_END_MARK, NO_MARK)
        if self._quote not in data or b"\n" not in data:
            return data
        parts: list[bytes] = []
        at = done = 0
        for begin in self._doubtful(data):
            if begin < at or (found := self._open.match(data, begin)) is None:
                continue
            at = found.end()
            end = self._end(data, begin, final)
            if end > begin:
                parts += data[done:begin], data[begin : end - 1].replace(b"\n", LINE_END_MARK)
                done, at = end - 1, end
            elif not end:
                parts += data[done:begin], data[begin:].replace(b"\n", LINE_END_MARK)
                return b"".join(parts)
        return b"".join([*parts, data[done:]]) if parts else data

    def has_record(self, data: bytes) -> bool:
        """True if ``data`` begins with a whole record, or with a line that is a record of its own."""
        if b"\n" not in data or self._open.match(data) is None:
            return b"\n" in data
        return self._end(data, 0, False) != 0

    def _doubtful(self, data: bytes) -> list[int]:
        """Returns the starts of lines in which a quote neither opens after a delimiter nor closes before one."""
        array, starts, ends = cut_lines(data)
        quotes = np.flatnonzero(array == self._quote[0])
        doubtful = ~in_order(array, starts, ends, quotes, self._delimiter[0])
        if self._escape and self._escape in data:
            doubtful |= np.isin(np.arange(len(ends)), np.searchsorted(ends, np.flatnonzero(array == self._escape[0])))
        begins: list[int] = starts[doubtful].tolist()
        return begins

    def _end(self, data: bytes, begin: int, final: bool) -> int:
        """Returns the end of the record; 0: more bytes are needed; -1: its first line is a record of its own.

        A ``final`` record has no line end; it is treated as if it had one.
        """
        match = self._record.match(data, begin)
        if match is not None:
            return match.end() if match.end() - begin <= self._max_record + 1 else -1
        if final and self._last.match(data, begin) is not None and len(data) - begin <= self._max_record:
            return len(data) + 1
        if final or len(data) - begin > self._max_record or self._begun.match(data, begin) is None:
            return -1
        return 0


class QuotedSource(ForwardBytes):
    """A source with the bytes of ``inner``, in which line ends inside fields are marked, one byte for one.

    For readers that begin anywhere (skipping, replay); the follower reads from record to record and does not need it.

    Only a record's start tells what is inside quotes, so this is a forward stream like compressed files:
    reading back begins at the nearest remembered record.
    """

    compressed = True

    def __init__(self, inner: Source, framing: Framing, max_record: int = 1 << 20) -> None:
        self._inner = inner
        self.key = inner.key
        self._lines = QuotedLines(framing, max_record)
        self._max_record = max_record
        self._marks = [0]
        self._spacing = MARK_SPACING_BYTES
        self._restart(0)

    def _restart(self, offset: int) -> None:
        self._start = self._taken = self._marks[bisect.bisect_right(self._marks, offset) - 1]
        self._inside = False  # in the middle of a record that is longer than the limit
        self._buffer = bytearray()

    def _more(self, limit: int) -> bytes:
        want = READ_BYTES
        while True:
            raw = self._inner.read(self._taken, want)
            at_end = len(raw) < want
            if self._inside:
                begin = raw.find(b"\n") + 1 or len(raw)
                self._inside = not raw.endswith(b"\n", 0, begin)
                return self._give(raw[:begin])
            lines = self._lines.marked(raw, final=at_end)
            whole = lines.rfind(b"\n") + 1
            if at_end or whole:
                self._remember()
                return self._give(lines if at_end else lines[:whole])
            if want > self._max_record:
                self._inside = True
                return self._give(lines)
            want = min(want * 2, max(self._max_record + 1, READ_BYTES + 1))

    def _give(self, piece: bytes) -> bytes:
        self._taken += len(piece)
        return piece

    def _remember(self) -> None:
        if self._taken >= self._marks[-1] + self._spacing:
            self._marks.append(self._taken)
            if len(self._marks) > MARKS_MAX:
                self._marks = self._marks[::2]
                self._spacing *= 2

    def size(self) -> int:
        return self._inner.size()

    def consumed(self) -> int:
        return self._inner.consumed() if self._inner.compressed else self._taken

    def damage(self) -> str:
        return self._inner.damage()

    def cut_short(self) -> bool:
        return self._inner.cut_short()

    def unlinked(self) -> bool:
        return self._inner.unlinked()

    def close(self) -> None:
        self._inner.close()
