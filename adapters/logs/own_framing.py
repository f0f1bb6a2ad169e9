"""Converts files to lines with a user's framing (``Framing.cut``). Offsets count the bytes of these lines.

This is a forward stream, like compressed files: the position of a line depends on all bytes before it. After a
restart they are processed again; reading back begins at the nearest remembered place, with the state there.
"""

from __future__ import annotations

import traceback

from photon.adapters.contract import BadRecord, Cut, Framing
from photon.adapters.logs.forward import ForwardBytes, Marks
from photon.adapters.logs.reader import Source

READ_BYTES = 1 << 18  # read from the file at a time
COMPARED_BYTES = 1024  # compared before the bytes to be read; they show whether the file was overwritten
UNUSED_BYTES_MAX = 64 << 20  # passed to ``cut`` without any of them being used
STATE_BYTES_MAX = 64 << 10


class OwnSource(ForwardBytes):
    """A source that converts the records of ``inner``, which may be compressed, to lines."""

    compressed = True

    def __init__(self, inner: Source, framing: Framing, *, settled: bool = False) -> None:
        """``settled``: treat an unfinished last record as complete; its line has no line end."""
        self._inner = inner
        self._settled = self._always = settled
        self._framing = framing
        self.key = inner.key
        self._marks = Marks()
        self._restart(0)

    def _restart(self, offset: int) -> None:
        self._start, self._taken, self._state = self._marks.before(offset)
        self._made = self._start
        self._before = b""  # the last bytes that were used
        self._unused = 0  # bytes after ``_taken`` that were passed to ``cut``
        self._damage = ""
        self._ended = False  # the buffer ends with a record that has no end in the file
        self._buffer = bytearray()

    def _more(self, limit: int) -> bytes:
        while not self._damage:
            known = self._before
            want = READ_BYTES + 2 * self._unused
            data = self._inner.read(self._taken - len(known), len(known) + want)
            if not data.startswith(known):
                # The file has been replaced: return nothing, which tells the follower to look again.
                self._marks = Marks()
                self._restart(0)
                return b""
            if len(data) - len(known) <= self._unused:
                return self._rest(data[len(known) :]) if self._settled else b""
            if self._ended:  # the file has grown, and the record with it
                self._settled = self._always
                self._restart(self._start)
                continue
            if text := self._take(known, data[len(known) :]):
                return text
        return b""

    def _take(self, before: bytes, data: bytes) -> bytes:
        made = cut_checked(self._framing, data, self._state)
        if isinstance(made, str):
            made = self._up_to_fault(data, made)
        self._made += len(made.text)
        self._taken += made.used
        self._unused = len(data) - made.used
        self._state = made.state
        self._before = (before + data[: made.used])[-COMPARED_BYTES:]
        if not self._damage:
            self._marks.add(self._made, self._taken, self._state)
            if self._unused > UNUSED_BYTES_MAX:
                self._damage = f"no record ends within {UNUSED_BYTES_MAX} bytes of byte {self._taken}"
        return made.text

    def _rest(self, data: bytes) -> bytes:
        """Returns the file's last bytes, an unfinished record, as a line; empty if they are not a record."""
        whole = self._framing.ended(data, self._state) if self._unused and not self._ended else b""
        made = cut_checked(self._framing, whole, self._state) if whole else ""
        if isinstance(made, str) or made.used != len(whole):
            return b""
        self._ended = True
        return made.text.removesuffix(b"\n")

    def waits_for_its_end(self) -> bool:
        can_end = type(self._framing).ended is not Framing.ended
        return bool(self._unused) and can_end and not (self._damage or self._inner.cut_short())

    def settle(self) -> bool:
        """Treats an unfinished last record as complete. Returns False if it is not a record."""
        if not self.waits_for_its_end():
            return False
        self._settled = True
        self._buffer += self._more(1)
        return self._ended

    def _up_to_fault(self, data: bytes, fault: str) -> Cut:
        """Returns the records before the byte at which ``cut`` fails."""
        made, good, bad = Cut(b"", 0, self._state), 0, len(data)
        while bad - good > 1:
            middle = (good + bad) // 2
            tried = cut_checked(self._framing, data[:middle], self._state)
            if isinstance(tried, str):
                bad, fault = middle, tried
            else:
                good, made = middle, tried
        self._damage = f"{fault}, at byte {self._taken + good}"
        return made

    def raw(self, length: int) -> bytes:
        """Returns the file's first bytes unchanged. Raises OSError."""
        return self._inner.read(0, length)

    def size(self) -> int:
        return self._inner.size()

    def consumed(self) -> int:
        return self._inner.consumed() if self._inner.compressed else self._taken

    def damage(self) -> str:
        return self._damage or self._inner.damage()

    def cut_short(self) -> bool:
        unused = bool(self._unused) and not self._ended
        return not self.damage() and (unused or self._inner.cut_short())

    def unlinked(self) -> bool:
        return self._inner.unlinked()

    def close(self) -> None:
        self._inner.close()


def settle(source: Source) -> bool:
    """Treats an unfinished last record as complete. Returns False if it is not a record, or nothing changed."""
    return isinstance(source, OwnSource) and source.settle()


def waits_for_its_end(source: Source) -> bool:
    """True if the file ends in the middle of a record that can still be completed."""
    return isinstance(source, OwnSource) and source.waits_for_its_end()


def cut_checked(framing: Framing, data: bytes, state: bytes) -> Cut | str:
    """Returns the answer of ``framing``, or one line with the reason why it is invalid."""
    name = f"{type(framing).__name__}.cut"
    try:
        made: object = framing.cut(data, state)
    except BadRecord as bad:
        return bad.reason
    except Exception as error:
        said = "".join(traceback.format_exception_only(error))  # works even if its str() raises
        return f"{name} failed ({' '.join(said.split())[:300]})"
    if not isinstance(made, Cut) or not (type(made.text) is bytes is type(made.state)) or type(made.used) is not int:
        return f"{name} gave no Cut of bytes, int and bytes"
    if not 0 <= made.used <= len(data) or (made.text and not made.used):
        return f"{name} used {made.used} of {len(data)} bytes for {len(made.text)} bytes of text"
    if len(made.state) > STATE_BYTES_MAX:
        return f"{name} gave a state of {len(made.state)} bytes, more than {STATE_BYTES_MAX}"
    return made
