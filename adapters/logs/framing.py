r"""Cuts bytes into whole records: pure, and without work per line.

A record ends with ``\n``; a ``\r`` before it belongs to the line end and stays in the data. A partial last line
waits. A record longer than the limit is skipped with bounded memory and reported with its position.
"""

from __future__ import annotations

from dataclasses import dataclass

from photon.adapters.logs.api import OversizedRecord

OVERSIZED_HEAD_BYTES = 1024  # bytes of an oversized record kept for the report


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole records, and the oversized ones directly after them."""

    offset: int  # of data[0]
    data: bytes
    end: int  # of the log's first byte after this piece
    oversized: tuple[OversizedRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class LongRecord:
    """An oversized record whose end has not been seen yet."""

    offset: int
    length: int  # bytes seen of it
    head: bytes


@dataclass(frozen=True, slots=True)
class Framed:
    """The result of ``frame``. ``next``: where to resume; ``long``: the record that is being skipped there."""

    pieces: list[Piece]
    next: int
    long: LongRecord | None = None


def frame(
    data: bytes, offset: int, *, max_record: int, final: bool = False, long: LongRecord | None = None
) -> Framed:
    """Cuts bytes that begin at ``offset``, the start of a line or inside ``long``.

    ``final``: nothing follows these bytes; a last line without line end is whole, and gets one.
    """
    pieces: list[Piece] = []
    if long is not None:
        end = data.find(b"\n")
        seen = len(data) if end < 0 else end
        long = LongRecord(long.offset, long.length + seen, long.head)
        if end < 0 and not final:
            return Framed(pieces, offset + seen, long)
        skipped = seen if end < 0 else end + 1
        record = OversizedRecord(long.offset, long.length, long.head)
        pieces.append(Piece(long.offset, b"", offset + skipped, (record,)))
        data, offset = data[skipped:], offset + skipped
    whole = data.rfind(b"\n") + 1
    rest = len(data) - whole
    if rest and final:
        pieces += _cut(data + b"\n", offset, max_record)
        last = pieces[-1]
        pieces[-1] = Piece(last.offset, last.data, last.end - 1, last.oversized)
        return Framed(pieces, offset + len(data))
    if whole:
        pieces += _cut(data if not rest else data[:whole], offset, max_record)
    if rest > max_record:
        head = data[whole : whole + OVERSIZED_HEAD_BYTES]
        return Framed(pieces, offset + len(data), LongRecord(offset + whole, rest, head))
    return Framed(pieces, offset + whole)


def _cut(whole: bytes, offset: int, max_record: int) -> list[Piece]:
    """Splits whole records if one is longer than ``max_record``."""
    if len(whole) <= max_record + 1:
        return [Piece(offset, whole, offset + len(whole))]
    pieces: list[Piece] = []
    start = at = 0  # start of the data not returned yet; start of a line
    while at < len(whole):
        newline = whole.rfind(b"\n", at, at + max_record + 1)
        if newline >= 0:
            at = newline + 1
            continue
        stop = whole.index(b"\n", at + max_record)
        head = whole[at:stop].removesuffix(b"\r")[:OVERSIZED_HEAD_BYTES]
        record = OversizedRecord(offset + at, stop - at, head)
        if at == start and pieces:
            before = pieces.pop()
            pieces.append(Piece(before.offset, before.data, offset + stop + 1, (*before.oversized, record)))
        else:
            pieces.append(Piece(offset + start, whole[start:at], offset + stop + 1, (record,)))
        start = at = stop + 1
    if start < len(whole):
        pieces.append(Piece(offset + start, whole[start:], offset + len(whole)))
    return pieces
