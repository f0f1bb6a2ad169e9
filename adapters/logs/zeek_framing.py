r"""Header lines in Zeek's and W3C's logs: removed from the records, and kept as the header in force. Pure.

Lines that begin with ``#`` are not records (Zeek writes a ``#`` that begins a record as ``\x23``). ``#separator``
begins a new header. Only header lines that affect how records are read are kept, so that the header is the same bytes
after each restart or rotation; ``#path``, ``#open`` and ``#close`` are not kept, nor W3C's ``#Date``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from photon.adapters.logs.framing import Piece

HEADER_BYTES_MAX = 1 << 18  # a longer header is dropped: Zeek writes no such header
_HEADER_LINES = re.compile(rb"(?:(?>#[^\n]*+\n))++")
_KEPT = (b"#fields", b"#types", b"#set_separator", b"#empty_field", b"#unset_field")


class Headed(NamedTuple):
    """Records, and the header that applies to them."""

    piece: Piece
    header: bytes


def after_lines(header: bytes, lines: bytes) -> bytes:
    """Returns the header in force after header lines (each ended by a newline)."""
    for line in lines.split(b"\n")[:-1]:
        line = line.removesuffix(b"\r")
        if line.startswith((b"#separator", b"#Fields:")):
            header = line
        elif line.startswith(_KEPT):
            directive = re.split(rb"[^#a-z_]", line, maxsplit=1)[0]
            kept = [each for each in header.split(b"\n") if each and not each.startswith(directive)]
            header = b"\n".join([*kept, line])
        if len(header) > HEADER_BYTES_MAX:
            header = b""
    return header


def split_headers(piece: Piece, header: bytes) -> tuple[list[Headed], bytes]:
    """Splits a piece at its header lines. Returns each run of records with its header, and the last header."""
    data = piece.data
    if not data.startswith(b"#") and b"\n#" not in data:
        return [Headed(piece, header)], header
    out: list[Headed] = []
    at = 0
    for match in _header_lines(data, len(data)):
        if match.start() > at:
            begin, end = piece.offset + at, piece.offset + match.start()
            out.append(Headed(Piece(begin, data[at : match.start()], end), header))
        header = after_lines(header, match[0])
        at = match.end()
    if at < len(data) or piece.oversized:
        out.append(Headed(Piece(piece.offset + at, data[at:], piece.end, piece.oversized), header))
    return out, header


def _header_lines(data: bytes, end: int) -> Iterator[re.Match[bytes]]:
    """Yields each run of header lines that ends in ``data[:end]``. Uses bytes.find, as most logs have few."""
    at = 0 if data.startswith(b"#") else data.find(b"\n#") + 1
    while (at or data.startswith(b"#")) and at < end:
        match = _HEADER_LINES.match(data, at, end)
        if match is None:
            return
        yield match
        at = data.find(b"\n#", match.end()) + 1
        if not at:
            return


class HeaderScan:
    """Finds the header in force at any place of a log from the bytes before it, in pieces of any size."""

    def __init__(self) -> None:
        self.at = 0
        self.header = b""
        self._begins = True  # the next byte begins a line
        self._line = b""  # an incomplete header line

    def feed(self, data: bytes) -> None:
        """Scans the next bytes of the log."""
        self.at += len(data)
        data = self._line + data
        if not self._line and not self._begins:  # the rest of a record
            begin = data.find(b"\n") + 1
            if not begin:
                return
            data = data[begin:]
        end = data.rfind(b"\n") + 1
        for match in _header_lines(data, end):
            self.header = after_lines(self.header, match[0])
        rest = data[end:]
        self._line = rest if rest.startswith(b"#") and len(rest) <= HEADER_BYTES_MAX else b""
        self._begins = not rest
