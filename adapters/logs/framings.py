"""What a side's framing changes in the way of a byte from the file to a block of records."""

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


def as_lines(source: Source, framing: Framing) -> Source:
    """An open file whose bytes are to be lines."""
    if framing.kind == OWN:
        return OwnSource(source, framing)
    if framing.kind == "cri":
        return CriSource(source)
    return VarintSource(source) if framing.kind == "varint" else source


def open_anywhere(path: Path | LogPath, framing: Framing, max_record: int = 1 << 20) -> Source:
    """A file as lines for one who reads it at any place. Raises OSError."""
    source = as_lines(open_source(path), framing)
    return QuotedSource(source, framing, max_record) if framing.kind == "quoted" else source


class Lines:
    """Marks the line ends that end no record; nothing but for ``quoted``."""

    def __init__(self, framing: Framing, max_record: int) -> None:
        self._quoted = QuotedLines(framing, max_record) if framing.kind == "quoted" else None

    def has_record(self, data: bytes) -> bool:
        """Whether the data begin with a whole record."""
        return b"\n" in data if self._quoted is None else self._quoted.has_record(data)

    def marked(self, data: bytes, *, inside: bool, final: bool = False) -> bytes:
        """As QuotedLines has it. ``inside``: the data begin inside a record that is being skipped."""
        if self._quoted is None:
            return data
        if not inside:
            return self._quoted.marked(data, final=final)
        begin = data.find(b"\n") + 1
        return data[:begin] + self._quoted.marked(data[begin:], final=final) if begin else data


def headed_blocks(log: TrackedLog, piece: Piece, source: Source | None) -> list[Block]:
    """A piece of one of Zeek's logs as blocks, each under its header. Raises OSError.

    Where the header in force is not known (the log was not read up to here), the log's bytes before it tell.
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
    """Whole records, each run under its header. Raises OSError."""
    piece = Piece(offset, data, offset + len(data))
    if framing.kind != "zeek":
        return [Headed(piece, header)]
    return split_headers(piece, header_before(source, offset))[0]


def header_before(source: Source, offset: int) -> bytes:
    """The header in force at a line's begin. Raises OSError."""
    scan = HeaderScan()
    while scan.at < offset:
        data = source.read(scan.at, min(SCAN_BYTES, offset - scan.at))
        if not data:
            break
        scan.feed(data)
    return scan.header
