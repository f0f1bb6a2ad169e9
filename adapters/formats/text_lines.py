r"""Converts lines of text files to UTF-8 records: decodes, drops and joins lines.

The steps are: the text is decoded, colours (terminal escapes) are removed, the first ``skip_lines`` lines and
lines that begin with ``comment`` are dropped, and lines that belong to the one before are joined to it. The result
depends only on the file's bytes, however they are divided; a line's first LINE_BYTES determine its kind.

In a record of several lines, ``joint`` replaces the line ends inside. Only the next line shows that the record is
complete, so the record's line end is returned with that line. At LINES_MAX lines or BYTES_MAX bytes a record ends,
and the next line begins another: a pattern that never matches costs no memory.

With ``cri`` the lines are those that ``cri_source`` makes, and these rules apply to their contents. A
record has the time and stream of its first line, and ends where a line of the other stream follows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from photon.adapters.contract import Cut, Framing
from photon.adapters.formats.cri import CRI_TIME
from photon.adapters.formats.encodings import UTF8, Bytes, bytes_of, with_state

LINES_MAX = 1000
BYTES_MAX = 512 << 10
LINE_BYTES = 16 << 10  # bytes of a line that determine its kind
PART_BYTES = 4 * LINE_BYTES  # an unfinished line is returned in parts from this length on
LINE_END = b"\v"  # in place of a line end in a record; ``\n`` in the payload
BLANKS = b" \t"  # a delimiter: runs of blanks and tabs
_LABEL, _STREAMS = re.compile(CRI_TIME + rb" std(out|err) "), {b"out": 1, b"err": 2}
COLOUR = re.compile(rb"\x1b\[[0-9;:?]*[ -/]*[@-~]")
_COLOUR_BYTES = 32  # longer ones are text
_KEPT, _DROPPED = 1, 2  # a line whose beginning was returned, or left out


class _Place(NamedTuple):
    """The place of a file's next byte."""

    skipped: int = 0  # first lines that were left out
    lines: int = 0  # lines of the record that the next line may belong to; 0 if none
    size: int = 0  # of that record
    inside: int = 0  # _KEPT or _DROPPED within a line; 0 at its beginning
    stream: int = 0  # of that record, with ``cri``: 1 for stdout, 2 for stderr, 0 for no line of CRI


@dataclass(frozen=True, slots=True)
class TextLines(Framing):
    encoding: str = UTF8
    skip_lines: int = 0
    comment: bytes = b""
    begins: bytes = b""  # lines that match begin a record, others belong to it
    continues: bytes = b""  # lines that match belong to the record before
    joint: bytes = LINE_END
    colours: bool = False
    cri: bool = False

    @property
    def gathers(self) -> bool:
        return bool(self.begins or self.continues)

    def ended(self, data: bytes, state: bytes) -> bytes:
        way, _ = self._at(data, state)
        return data if way is None or len(data) % way.width else data + way.newline

    def cut(self, data: bytes, state: bytes) -> Cut:
        way, at = self._at(data, state)
        end = 0 if way is None else way.after_last_line(data) or _part(data, way)
        if way is None or not end:
            return Cut(b"", 0, state)
        text = way.utf8(data[way.mark : end])
        if self.colours:
            text = COLOUR.sub(b"", text)
        records, at = self._records(text, at)
        return Cut(records, end, b"%s %d %d %d %d %d" % (way.codec.encode(), *at))

    def _at(self, data: bytes, state: bytes) -> tuple[Bytes | None, _Place]:
        if not state:
            return bytes_of(self.encoding, data), _Place()
        codec, *numbers = state.split(b" ")
        return with_state(self.encoding, codec), _Place(*map(int, numbers))

    def _records(self, text: bytes, at: _Place) -> tuple[bytes, _Place]:
        if at.skipped == self.skip_lines and at.inside != _DROPPED and not (self.comment or self.gathers):
            return text, at
        skipped, lines, size, inside, stream = at
        out: list[bytes] = []
        *whole, part = text.split(b"\n")
        for line, ended in [*((each, True) for each in whole), *([(part, False)] if part else ())]:
            if not inside:
                if skipped < self.skip_lines:
                    skipped += 1
                    inside = _DROPPED
                elif self.comment and line.startswith(self.comment):
                    inside = _DROPPED
                else:
                    inside = _KEPT
                    before, content = stream, line
                    if self.cri and line.strip():  # a blank line has no label
                        label = _LABEL.match(line)
                        stream, content = (_STREAMS[label[1]], line[label.end() :]) if label else (0, line)
                    if lines and not (stream == before and self._belongs(content, lines, size)):
                        out.append(b"\n")
                        lines = size = 0
                    elif lines:
                        out.append(self.joint)
                        line = content
                    lines += 1
            if inside == _KEPT:
                kept = line.removesuffix(b"\r") if ended and self.gathers else line
                out.append(kept)
                size += len(kept)
                if ended and not self.gathers:
                    out.append(b"\n")
                    lines = size = 0
            inside = 0 if ended else inside
        return b"".join(out), _Place(skipped, lines, size, inside, stream)

    def _belongs(self, line: bytes, lines: int, size: int) -> bool:
        """True if a line belongs to the record before it. Blank lines do."""
        if lines >= LINES_MAX or size >= BYTES_MAX:
            return False
        line = line[:LINE_BYTES]
        if not line.strip():
            return True
        if self.begins and re.match(self.begins, line):
            return False
        return bool(self.begins) or re.match(self.continues, line) is not None


def _part(data: bytes, way: Bytes) -> int:
    """Returns how many bytes of a long unfinished line can be returned without splitting a character, line end or
    colour."""
    end = len(data) - len(data) % way.width
    if end < PART_BYTES * way.width:
        return 0
    if way.width == 2 and 0xD8 <= data[end - 1 - (way.codec == "utf-16-be")] < 0xDC:
        end -= 2
    if data.endswith("\r".encode(way.codec), 0, end):
        end -= way.width
    escape = data.rfind("\x1b".encode(way.codec), end - _COLOUR_BYTES * way.width, end)
    return escape if escape > 0 and not escape % way.width else end
