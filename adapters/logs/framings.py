"""Turns the bytes of a file into records, according to its side's framing."""

from __future__ import annotations

from pathlib import Path

from photon.adapters.contract import OWN, Framing, LogFile
from photon.adapters.logs.api import Block
from photon.adapters.logs.cri_source import CriSource
from photon.adapters.logs.framing import Piece
from photon.adapters.logs.links import LogPath
from photon.adapters.logs.own_framing import OwnSource
from photon.adapters.logs.quoted_framing import QuotedLines, QuotedSource
from photon.adapters.logs.reader import Source, open_source
from photon.adapters.logs.tracked_logs import TrackedLog
from photon.adapters.logs.varint_source import VarintSource
from photon.adapters.logs.zeek_framing import Headed, HeaderScan, split_headers

SCAN_BYTES = 1 << 20


def as_lines(source: Source, framing: Framing, *, settled: bool = False) -> Source:
    """Converts an open file to lines. ``settled``: see OwnSource."""
    if framing.before is not None:
        source = as_lines(source, framing.before, settled=settled)
    if framing.kind == OWN:
        return OwnSource(source, framing, settled=settled)
    if framing.kind == "cri":
        return CriSource(source)
    return VarintSource(source) if framing.kind == "varint" else source


def open_anywhere(path: Path | LogPath, framing: Framing, max_record: int = 1 << 20) -> Source:
    """Opens a file as lines, for random access. Raises OSError."""
    source = as_lines(open_source(path), framing, settled=True)
    return QuotedSource(source, framing, max_record) if framing.kind == "quoted" else source


class Lines:
    """Marks line ends inside records; does nothing except for ``quoted``."""

    def __init__(self, framing: Framing, max_record: int) -> None:
        self._quoted = QuotedLines(framing, max_record) if framing.kind == "quoted" else None

    def has_record(self, data: bytes) -> bool:
        """True if the data begins with a complete record."""
        return b"\n" in data if self._quoted is None else self._quoted.has_record(data)

    def marked(self, data: bytes, *, inside: bool, final: bool = False) -> bytes:
        """Marks lines as QuotedLines does. ``inside``: the data begins inside a record that is being skipped."""
        if self._quoted is None:
            return data
        if not inside:
            return self._quoted.marked(data, final=final)
        begin = data.find(b"\n") + 1
        return data[:begin] + self._quoted.marked(data[begin:], final=final) if begin else data


def headed_blocks(log: TrackedLog, piece: Piece, source: Source | None) -> list[Block]:
    """Splits a piece of a Zeek log into blocks, each with its header. Raises OSError.

    If the header in force is unknown (the log was not read up to here), it is found in the log's bytes before the
    piece.
    """
    if piece.offset <= log.data_start:
        log.in_force = b""
    elif log.in_force is None:
        log.in_force = log.resumed or (b"" if source is None else header_before(source, piece.offset))
    headed, log.in_force = split_headers(piece, log.in_force)
    return [
        Block(log.identity, LogFile(log.path, header), each.offset, each.data, each.end, each.oversized)
        for each, header in headed
    ]


def headed_pieces(source: Source, offset: int, data: bytes, framing: Framing, header: bytes) -> list[Headed]:
    """Splits whole records into runs that share a header. Raises OSError."""
    piece = Piece(offset, data, offset + len(data))
    if framing.kind != "zeek":
        return [Headed(piece, header)]
    return split_headers(piece, header_before(source, offset))[0]


def header_before(source: Source, offset: int) -> bytes:
    """Returns the header in force at the start of a line. Raises OSError."""
    scan = HeaderScan()
    while scan.at < offset:
        data = source.read(scan.at, min(SCAN_BYTES, offset - scan.at))
        if not data:
            break
        scan.feed(data)
    return scan.header
