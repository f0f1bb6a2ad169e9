"""Converts JSON to one object a line. Reads arrays, lists within objects, and objects without line ends between them.

A record is an object at the top level, or in one array; with ``records``, one in the list of this name in each outer
object. Line ends inside become carriage returns, which are white space in JSON. Other members of the outer object are
left out. Anything else between records ends the log: its writer meant another layout.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from photon.adapters.contract import BadRecord, Cut, Framing
from photon.adapters.formats.encodings import UTF8, bytes_of, with_state

SHOWN_BYTES = 40
_TOKEN = re.compile(rb'"(?:(?>[^"\\]++|\\.))*+"|[]["{}]', re.DOTALL)
_BETWEEN = re.compile(rb"[ \t\r\n,\x1e]*+")  # \x1e begins each text of a JSON sequence (RFC 7464)
_COLON = re.compile(rb"\s*:\s*")
DEPTH_MAX = 1000
_CLOSES = {b"}": b"{M", b"]": b"[R"}


@dataclass(frozen=True, slots=True)
class JsonObjects(Framing):
    encoding: str = UTF8
    records: str = ""

    def cut(self, data: bytes, state: bytes) -> Cut:
        codec, _, rest = state.partition(b" ")
        way = with_state(self.encoding, codec) if state else bytes_of(self.encoding, data)
        if way is None:
            return Cut(b"", 0, state)
        whole = len(data) - len(data) % way.width
        if way.width == 2 and whole and 0xD8 <= data[whole - 1 - (way.codec == "utf-16-be")] < 0xDC:
            whole -= 2
        text = way.utf8(data[way.mark : whole])
        lines, used, rest = self._objects(text, rest)
        if way.codec != UTF8 and used < len(text):
            errors = "surrogateescape" if way.width == 1 else "surrogatepass"
            used = len(text[:used].decode(UTF8, errors).encode(way.codec, errors))
        elif way.codec != UTF8:
            used = whole - way.mark
        begun = bool(state) or used > 0
        return Cut(lines, used + way.mark * begun, way.codec.encode() + b" " + rest if begun else b"")

    def _objects(self, text: bytes, open_: bytes) -> tuple[bytes, int, bytes]:
        """Returns the records as lines, the length of text used, and the brackets open at its end, one byte each:
        ``[``, ``{``, ``R`` for the list of records, and ``M`` for the object that holds that list.
        """
        places = (b"MR",) if self.records else (b"", b"[")
        out: list[bytes] = []
        used = at = 0  # bytes used; end of the last token
        begin, depth = -1, 0  # of the open record
        name, name_end = b"", 0  # the last text outside records
        for match in _TOKEN.finditer(text):
            token = match[0]
            if token == b'"':  # not closed yet
                return b"".join(out), used if begin < 0 else begin, open_
            if begin >= 0:
                if token in b"{[":
                    depth += 1
                elif token in b"}]":
                    depth -= 1
                    if not depth:
                        used = at = match.end()
                        out += (text[begin:used].replace(b"\n", b"\r"), b"\n")
                        begin = -1
                continue
            among = open_ in places
            if among or not open_:
                _check_between(text[at : match.start()])
            at = match.end()
            if among and token == b"{":
                begin, depth = match.start(), 1
                used = begin
                continue
            if token.startswith(b'"'):
                if among or not open_:
                    _check_between(token)
                name, name_end = token[1:-1], at
                continue
            if token in b"}]":
                open_ = self._closed(token, open_)
            elif token == b"[" and (among or not open_) and (open_ or self.records):
                raise BadRecord("an array where an object is expected")
            elif len(open_) >= DEPTH_MAX:
                raise BadRecord("is nested too deeply")
            else:
                named = open_ in (b"{", b"M") and token == b"[" and name == self.records.encode()
                named = named and _COLON.fullmatch(text, name_end, match.start()) is not None
                open_ = b"MR" if named else open_ + token
            used = at
        if begin < 0 and (open_ in places or not open_):
            _check_between(text[at:])
            used = len(text)
        return b"".join(out), used, open_

    def _closed(self, token: bytes, open_: bytes) -> bytes:
        if not open_ or open_[-1] not in _CLOSES[token]:
            raise BadRecord(f"{_shown(token)} closes nothing")
        if self.records and open_ == b"{":
            raise BadRecord(f"the object that ends here has no list {self.records!r}")
        return open_[:-1]


def _check_between(text: bytes) -> None:
    """Raises BadRecord for anything but separators between records."""
    blank = _BETWEEN.match(text)
    if blank is not None and blank.end() < len(text):
        raise BadRecord(f"{_shown(text[blank.end() :])} between JSON objects")


def _shown(text: bytes) -> str:
    return repr(text[:SHOWN_BYTES].decode("utf-8", "backslashreplace"))
