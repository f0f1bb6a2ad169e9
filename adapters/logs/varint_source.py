"""Length-delimited messages (each preceded by its length, a varint) as lines of base64, addressed by their offsets.

All code that follows and looks up logs works on lines; here a binary log becomes lines. Offsets, the limit on a
record's length and resuming refer to this text. It is a forward stream like compressed files: the position of a line
depends on all messages before it. After a restart they are processed again; reading back begins at the nearest
remembered message.

An incomplete message waits, like a last line; only its length tells when it is complete, so if reading ends
there, it is reported (``cut_short``). An empty message is the line ``=``.
"""

from __future__ import annotations

from binascii import b2a_base64

from photon.adapters.logs.forward import ForwardBytes, Marks
from photon.adapters.logs.reader import Source

READ_BYTES = 1 << 18  # bytes of messages read at a time
VARINT_BYTES_MAX = 5
MESSAGE_BYTES_MAX = (1 << 31) - 1  # Protobuf's own limit; a larger length shows that this is not such a log
# A longer message is encoded in parts of this size, a multiple of 3: their base64 can be concatenated.
PART_BYTES = 3 << 16
EMPTY_LINE = b"=\n"


class VarintSource(ForwardBytes):
    """A source that converts the messages of ``inner``, which may be compressed, to lines."""

    compressed = True

    def __init__(self, inner: Source) -> None:
        self._inner = inner
        self.key = inner.key
        self._marks = Marks()  # starts of messages
        self._restart(0)

    def _restart(self, offset: int) -> None:
        self._start, self._taken, _ = self._marks.before(offset)
        self._made = self._start
        self._waiting = b""
        self._at = 0
        self._left = 0  # bytes left of a message that is returned in parts
        self._damage = ""
        self._buffer = bytearray()

    def _position(self) -> int:
        """Returns the offset in ``inner`` of the next byte to decode."""
        return self._taken - len(self._waiting) + self._at

    def _fill(self, count: int) -> bool:
        """Reads until the next ``count`` bytes are available. Returns False if the file ends earlier."""
        while len(self._waiting) - self._at < count:
            more = self._inner.read(self._taken, max(READ_BYTES, count))
            if not more:
                return False
            self._waiting = self._waiting[self._at :] + more
            self._at = 0
            self._taken += len(more)
        return True

    def _head(self) -> tuple[int, int] | None:
        """Returns (bytes of the varint, length) of the next message; ``None`` if it has not arrived."""
        self._fill(VARINT_BYTES_MAX)
        length = shift = 0
        for size, byte in enumerate(self._waiting[self._at : self._at + VARINT_BYTES_MAX], 1):
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                if length > MESSAGE_BYTES_MAX:
                    break
                return size, length
            shift += 7
        else:
            if shift < 7 * VARINT_BYTES_MAX:
                return None
        self._damage = f"no valid message length at byte {self._position()}"
        return None

    def _more(self, limit: int) -> bytes:
        """Returns the next lines, about ``limit`` bytes."""
        lines: list[bytes] = []
        made = 0
        while made < limit and not self._damage:
            line = self._part() if self._left else self._message()
            if not line:
                break
            lines.append(line)
            made += len(line)
            self._made += len(line)
        return b"".join(lines)

    def _message(self) -> bytes:
        head = self._head()
        if head is None:
            return b""
        size, length = head
        if length > PART_BYTES:
            self._marks.add(self._made, self._position())
            self._at += size
            self._left = length
            return self._part()
        if not self._fill(size + length):
            return b""
        self._marks.add(self._made, self._position())
        begin = self._at + size
        self._at = begin + length
        return b2a_base64(self._waiting[begin : self._at]) if length else EMPTY_LINE

    def _part(self) -> bytes:
        count = min(self._left, PART_BYTES)
        if not self._fill(count):
            return b""
        part = self._waiting[self._at : self._at + count]
        self._at += count
        self._left -= count
        return b2a_base64(part, newline=not self._left)

    def size(self) -> int:
        return self._inner.size()

    def consumed(self) -> int:
        return self._inner.consumed() if self._inner.compressed else self._position()

    def damage(self) -> str:
        return self._damage or self._inner.damage()

    def cut_short(self) -> bool:
        return not self.damage() and (bool(self._left) or len(self._waiting) > self._at or self._inner.cut_short())

    def unlinked(self) -> bool:
        return self._inner.unlinked()

    def close(self) -> None:
        self._inner.close()
