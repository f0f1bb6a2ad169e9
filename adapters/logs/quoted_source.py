"""A log of records over several lines as a stream of lines, for those who enter it anywhere (skipping, replay).

What stands inside quotes is known only from the record's begin, so this is a forward stream as compressed files are:
reading back begins at the nearest record that was remembered. The follower needs none of it: it reads from record to
record.
"""

from __future__ import annotations

import bisect

from photon.adapters.contract import Framing
from photon.adapters.logs.forward import ForwardBytes
from photon.adapters.logs.quoted_framing import QuotedLines
from photon.adapters.logs.reader import Source

READ_BYTES = 1 << 20
MARKS_MAX = 4096
"""So many records' begins are remembered, evenly spread."""
MARK_SPACING_BYTES = 1 << 20


class QuotedSource(ForwardBytes):
    """``inner`` with the line ends inside fields marked; of the same length."""

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
