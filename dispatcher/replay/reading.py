"""Rereads chunks of logs, even if the files were renamed. Files are found and read in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from photon.adapters.contract import LINES, Framing, LogFile
from photon.adapters.logs.api import Block
from photon.adapters.logs.elsewhere import is_final, key_of
from photon.adapters.logs.framings import headed_pieces, open_anywhere
from photon.adapters.logs.identity import HEAD_BYTES, PROOF_BYTES, proof_of, read_head, record_of
from photon.adapters.logs.links import LinkOutside, log_path
from photon.adapters.logs.log_finder import LogFound, find_logs, holding
from photon.adapters.logs.place_ids import CONTEXT_BYTES
from photon.adapters.logs.reader import Source
from photon.adapters.logs.reading import ReadBytes
from photon.dispatcher.replay.coverage import Chunk

PROBE_BYTES = 1 << 16
BLOCK_BYTES = 1 << 20
CANDIDATES_MAX = 16  # most logs tried that begin with the same record and were renamed since


class Reads(Protocol):
    async def blocks(self, chunk: Chunk) -> list[Block] | None:
        """Returns the records that begin in the chunk, or ``None`` if no file holds this log now. Raises OSError."""

    async def live(self) -> set[str]:
        """Returns identities of existing logs. Raises OSError."""

    async def rest(self) -> None:
        """Closes open files; the next read opens them again."""


@dataclass(eq=False)
class LogFiles:
    """Implements ``Reads`` for a directory of logs. Serialises its callers."""

    directory: Path
    patterns: Sequence[str]
    has_header: bool
    max_record: int
    framing: Framing = LINES
    links: Sequence[str] = ()

    def __post_init__(self) -> None:
        self._logs: dict[str, LogFound] = {}
        self._open: tuple[str, LogFound, Source] | None = None  # the log read last
        self._lock = threading.Lock()  # a thread may still be reading when its caller was cancelled

    async def blocks(self, chunk: Chunk) -> list[Block] | None:
        return await asyncio.to_thread(self._blocks, chunk)

    async def live(self) -> set[str]:
        return set(await asyncio.to_thread(self._find))

    async def rest(self) -> None:
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._open is not None:
            self._open[2].close()
            self._open = None

    def _blocks(self, chunk: Chunk) -> list[Block] | None:
        with self._lock:
            opened = self._source(chunk)
            if opened is None:
                return None
            log, source = opened
            reads = list(records_between(source, log.head.data_start, chunk.begin, chunk.end, self.max_record))
            return [
                Block(
                    chunk.identity, LogFile(log.file.path, header), piece.offset, piece.data, piece.end,
                    before=read.ahead_of(piece.offset),
                )
                for read in reads
                for piece, header in headed_pieces(source, read.begin, read.data, self.framing, log.head.header)
            ]  # fmt: skip

    def _find(self) -> dict[str, LogFound]:
        return find_logs(
            self.directory, self.patterns, has_header=self.has_header, framing=self.framing, links=self.links
        )

    def _source(self, chunk: Chunk) -> tuple[LogFound, Source] | None:
        """Opens the log's file; ``None`` if no file holds this log any more."""
        identity = chunk.identity
        if self._open is not None:
            name, log, source = self._open
            there = name == identity and self._key(log) == source.key
            if there and (source.compressed or self._holds(source, log, identity)):
                return log, source  # checking the start of a compressed file again would inflate it again
            self._close()
        for known in (True, False):
            if not known:
                self._logs = self._find()
            candidates = holding(self._logs, identity)[:CANDIDATES_MAX]
            for found in candidates:
                try:
                    place = log_path(self.directory, found.file.path, self.links)
                    source = open_anywhere(place, self.framing, self.max_record)
                except (FileNotFoundError, LinkOutside):
                    continue
                self._open = (identity, found, source)
                alone = len(candidates) == 1  # otherwise others begin like it, and its proof decides
                if self._holds(source, found, identity) and (alone or _is_proved(source, chunk)):
                    return found, source
                self._close()
        return None

    def _key(self, log: LogFound) -> tuple[int, int] | None:
        try:
            return key_of(self.directory, log.file.path)
        except FileNotFoundError:
            return None

    def _holds(self, source: Source, log: LogFound, identity: str) -> bool:
        data = source.read(0, HEAD_BYTES)
        head = read_head(
            log.file.path, data, has_header=self.has_header, final=True, framing=self.framing,
            by_path=is_final(self.directory),
        )  # fmt: skip
        return head is not None and record_of(head.identity) == record_of(identity)


def _is_proved(source: Source, chunk: Chunk) -> bool:
    """False if the bytes before the position to which the log was read are no longer the ones read."""
    front = min(PROOF_BYTES, chunk.read_to)
    return not chunk.proof or proof_of(source.read(chunk.read_to - front, front)) == chunk.proof


def records_between(source: Source, data_start: int, begin: int, end: int, max_record: int) -> Iterator[ReadBytes]:
    """Yields the whole records that begin in [``begin``, ``end``). Reads sequentially, as compressed files require.

    Omits records longer than ``max_record``: they were rejected when first read. A last line without a line end gets
    one.
    """
    at = _line_begin(source, max(begin, data_start), data_start)
    while at is not None and at < end:
        front = min(CONTEXT_BYTES, at)
        raw = source.read(at - front, front + BLOCK_BYTES)
        before, data = raw[:front], raw[front:]
        if not data:
            return
        whole = data.rfind(b"\n") + 1
        if not whole:
            record = _long_record(source, at, front, max_record)
            if record:
                yield ReadBytes(at, before, record)
            at = next_line(source, at + max(len(record) - 1, 0))
            continue
        if at + whole > end:
            whole = data.find(b"\n", max(end - 1 - at, 0)) + 1
        yield ReadBytes(at, before, data[:whole])
        at += whole


def _long_record(source: Source, at: int, front: int, max_record: int) -> bytes:
    """Returns a record that ends after one block, or with the log; empty if it is longer than the limit."""
    data = source.read(at - front, front + max_record + 2)[front:]
    newline = data.find(b"\n")
    if newline >= 0:
        return data[: newline + 1]
    return data.rstrip(b"\r") + b"\n" if len(data) < max_record + 2 else b""


def _line_begin(source: Source, at: int, data_start: int) -> int | None:
    """Returns the start of the first record at or after ``at``; ``None`` if there is none."""
    return at if at <= data_start else next_line(source, at - 1)


def next_line(source: Source, at: int) -> int | None:
    while True:
        front = min(CONTEXT_BYTES, at)  # a compressed file keeps the bytes that ids by place are made of
        data = source.read(at - front, front + PROBE_BYTES)
        newline = data.find(b"\n", front)
        if newline >= 0:
            return at - front + newline + 1
        if len(data) <= front:
            return None
        at += len(data) - front
