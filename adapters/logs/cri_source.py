"""Container logs of Kubernetes (CRI) as lines ``<time> <stream> <content>``, addressed by offsets of those lines.

A runtime writes ``<time> <stdout|stderr> <P|F> <content>``. It cuts long lines into parts: any number marked P, then
one marked F. Parts of the two streams may be interleaved. This module joins the parts of one stream into one line
with the time of the first part, in the order of the parts marked F. An empty line of the container becomes a blank
line. A line that is not CRI is left unchanged, for the adapter to reject; one that could then be mistaken for a line
made here gets a leading blank.

This is a forward stream, like compressed files. Its bytes depend only on those of the file, so offsets stay valid
over restarts. Parts wait until the part marked F arrives (``cut_short``). At most HELD_BYTES of them are kept in
memory for each stream; the parts of a longer record are read again once its last one has arrived.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from photon.adapters.formats.cri import CRI_LABEL, CRI_TIME
from photon.adapters.logs.forward import ForwardBytes, Marks
from photon.adapters.logs.reader import Source

READ_BYTES = 1 << 18  # read from the file at a time
HELD_BYTES = 1 << 20  # of one stream's waiting parts in memory; the parts of a longer record are read again
COMPARED_BYTES = 1024  # compared before the bytes to be read; they show whether the file was overwritten
HEAD_BYTES_MAX = 128  # time, stream and tags are shorter
_LABEL = rb"(" + CRI_TIME + rb" (stdout|stderr) )"
_TAGS = rb"(?::[^ \n]{0,64})?"  # tags that may follow P or F
_HEAD = re.compile(_LABEL + rb"([PF])" + _TAGS + rb"(?: |(?=\n))")
_LIKE_MADE = re.compile(_LABEL)
_WHOLE = re.compile(rb"^(" + CRI_LABEL + rb")F" + _TAGS + rb" (.*\n)", re.MULTILINE)
_BLANK = (b"\n", b"\r\n")


class Fragment(NamedTuple):
    """A line, or a piece of a line that is longer than the data read at once."""

    at: int  # offset of its line, -1: it continues the previous fragment
    label: bytes  # time and stream
    stream: bytes  # empty if this is not a CRI line
    whole: bool  # marked F
    begin: int  # offset of the content
    content: bytes  # with the line end, if it is there


class Cutter:
    """Cuts a file's bytes, in pieces of any size, into lines with parsed heads."""

    def __init__(self, at: int, *, inside: bool = False) -> None:
        self.at = at  # offset of the next byte, or of ``rest``
        self.inside = inside  # the next byte is not a line's first
        self.rest = b""  # start of a line whose head is incomplete

    def feed(self, data: bytes) -> list[Fragment]:
        """Returns the lines and pieces of lines in ``data``. A last line with half a head stays in ``rest``."""
        data, begin, base = self.rest + data, 0, self.at
        self.rest = b""
        found = []
        while begin < len(data):
            end = data.find(b"\n", begin) + 1 or len(data)
            ended = data.endswith(b"\n", begin, end)
            if self.inside:
                found.append(Fragment(-1, b"", b"", False, base + begin, data[begin:end]))
            elif (made := self._begun(data, begin, end, ended, base)) is None:
                self.rest = data[begin:]
                break
            else:
                found.append(made)
            self.inside = not ended
            begin = end
        self.at = base + begin
        return found

    @staticmethod
    def _begun(data: bytes, begin: int, end: int, ended: bool, base: int) -> Fragment | None:
        """Returns the line at ``begin``, or ``None`` if too little of it has been read to classify it."""
        head = _HEAD.match(data, begin, end)
        if head is None:
            if not ended and end - begin < HEAD_BYTES_MAX:
                return None
            mark = b" " if _LIKE_MADE.match(data, begin, end) else b""
            return Fragment(base + begin, mark, b"", True, base + begin, data[begin:end])
        label, stream, tag = head.groups()
        content = data[head.end() : end]
        if content in (b"", b"\r"):  # may be a blank line
            return None
        return Fragment(base + begin, label, stream, tag == b"F", base + head.end(), content)


class Parts:
    """The parts of a record whose last one has not arrived."""

    def __init__(self, first: Fragment) -> None:
        self.label, self.stream, self.begin = first.label, first.stream, first.at
        self.held = bytearray()
        self.size = 0

    def add(self, content: bytes) -> None:
        self.size += len(content)
        if self.size <= HELD_BYTES:
            self.held += content
        else:
            self.held.clear()


class Again:
    """Reads the parts of a long record again, up to ``end``."""

    def __init__(self, inner: Source, parts: Parts, end: int) -> None:
        self._inner, self._stream, self._end = inner, parts.stream, end
        self._at = parts.begin
        self._cutter = Cutter(self._at)
        self._mine = False  # True if the last fragment's line is a part

    def more(self) -> bytes | None:
        """Returns the next bytes of the record's content; ``None`` at the end of its parts. Raises OSError."""
        data = self._inner.read(self._at, min(READ_BYTES, self._end - self._at))
        if not data:
            return None
        self._at += len(data)
        made = []
        for each in self._cutter.feed(data):
            if each.at >= 0:
                self._mine = each.stream == self._stream
            if self._mine:
                made.append(each.content.removesuffix(b"\n"))
        return b"".join(made)


class CriSource(ForwardBytes):
    """A source that converts the records of ``inner``, which may be compressed, to lines."""

    compressed = True

    def __init__(self, inner: Source) -> None:
        self._inner = inner
        self.key = inner.key
        self._marks = Marks()  # starts of lines at which no parts wait
        self._restart(0)

    def _restart(self, offset: int) -> None:
        self._start, self._taken, _ = self._marks.before(offset)
        self._before = b""  # the last bytes that were taken
        self._made = self._start
        self._cutter = Cutter(self._taken)
        self._waiting: dict[bytes, Parts] = {}  # by stream
        self._part: Parts | None = None  # the record that the last started line belongs to
        self._again: Again | None = None
        self._buffer = bytearray()

    def _more(self, limit: int) -> bytes:
        while True:
            if self._again is not None:
                made = self._again.more()
                if made is None:
                    self._again, made = None, b""
            else:
                data = self._next()
                if not data:
                    return b""
                made = self._lines(data)
            self._made += len(made)
            if made:
                return made

    def _next(self) -> bytes:
        """Returns the file's next bytes.

        Returns nothing if the bytes before them have changed, because the file has been replaced; this makes the
        follower look again.
        """
        known = self._before
        data = self._inner.read(self._taken - len(known), len(known) + READ_BYTES)
        if not data.startswith(known):
            self._marks = Marks()
            self._restart(0)
            return b""
        self._before, data = data[-COMPARED_BYTES:], data[len(known) :]
        self._taken += len(data)
        return data

    def _lines(self, data: bytes) -> bytes:
        """Converts data to lines. Fast if all its lines are whole records, as in most blocks except at their ends."""
        begun = self._cutter.inside or self._cutter.rest
        begin = (data.find(b"\n") + 1 or len(data)) if begun else 0
        end = max(data.rfind(b"\n") + 1, begin)
        made = self._cut(data[:begin])
        if self._again is None:
            made += self._whole_lines(data[begin:end])
        if self._again is None:
            if not (self._waiting or self._cutter.rest or self._cutter.inside):
                self._marks.add(self._made + len(made), self._cutter.at)
            made += self._cut(data[end:])
        return made

    def _whole_lines(self, lines: bytes) -> bytes:
        found = [] if self._waiting else _WHOLE.findall(lines)
        if len(found) != lines.count(b"\n"):
            return self._cut(lines)
        self._cutter.at += len(lines)
        if b" \n" in lines or b" \r\n" in lines:
            found = [(b"" if content in _BLANK else label, content) for label, content in found]
        return b"".join([label + content for label, content in found])

    def _cut(self, data: bytes) -> bytes:
        made: list[bytes | bytearray] = []
        for each in self._cutter.feed(data) if data else ():
            if each.at >= 0:
                self._part = None if each.whole else self._waiting.setdefault(each.stream, Parts(each))
            if self._part is not None:
                self._part.add(each.content.removesuffix(b"\n"))
            elif (parts := self._waiting.pop(each.stream, None)) is None:
                blank = each.stream and each.content in _BLANK
                made += (each.content,) if blank else (each.label, each.content)
            elif parts.size <= HELD_BYTES:
                made += (parts.label, parts.held, each.content)
            else:
                made.append(parts.label)
                self._again = Again(self._inner, parts, each.at)
                self._taken, self._before, self._cutter = each.begin, b"", Cutter(each.begin, inside=True)
                break
        return b"".join(made)

    def size(self) -> int:
        return self._inner.size()

    def consumed(self) -> int:
        return self._inner.consumed() if self._inner.compressed else self._cutter.at

    def damage(self) -> str:
        return self._inner.damage()

    def cut_short(self) -> bool:
        torn = bool(self._waiting or self._cutter.rest)
        return not self.damage() and (torn or self._inner.cut_short())

    def unlinked(self) -> bool:
        return self._inner.unlinked()

    def close(self) -> None:
        self._inner.close()
