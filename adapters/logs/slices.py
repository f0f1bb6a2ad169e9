"""Reads existing logs, each once, in slices that many readers share: for batch jobs.

The follower's own functions decide which files are one log, how records are cut and which header applies. A slice
owns the records that *begin* in it, so slices may be cut at any byte: together they own each record once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from photon.adapters.contract import LINES, Framing, LogFile
from photon.adapters.logs.api import Block
from photon.adapters.logs.discovery import check_directory, compile_patterns, discover
from photon.adapters.logs.elsewhere import elsewhere, is_final, size_and_time
from photon.adapters.logs.files import ends_in_middle
from photon.adapters.logs.framing import Framed, LongRecord, Piece, frame
from photon.adapters.logs.framings import Lines, as_lines, header_before
from photon.adapters.logs.identity import (
    COMPRESSED_SUFFIXES,
    HEAD_BYTES,
    Head,
    head_by_path,
    log_name,
    read_head,
)
from photon.adapters.logs.links import log_path
from photon.adapters.logs.log_finder import LogFound, hold_the_same, logs_of
from photon.adapters.logs.own_framing import settle
from photon.adapters.logs.place_ids import CONTEXT_BYTES
from photon.adapters.logs.problems import Problem, ProblemKind, ProblemReporter
from photon.adapters.logs.reader import CHECKSUM_WRONG, Source, open_source
from photon.adapters.logs.reading import ReadBytes
from photon.adapters.logs.unended_lines import RestRule, Writing, waits
from photon.adapters.logs.zeek_framing import Headed, split_headers
from photon.config.errors import PhotonError

READ_BYTES = 1 << 20  # bytes read at a time; a block is at most this long, or one longer record


@dataclass(frozen=True, slots=True)
class StandingLog:
    """A log as it was found at the start of a job: one stream of bytes."""

    path: str  # relative to the log directory
    identity: str
    header: bytes
    data_start: int
    size: int  # bytes on disk
    mtime_ns: int
    splittable: bool  # reading may start at any byte; other logs are read as a whole


@dataclass(frozen=True, slots=True)
class Slice:
    """Records that begin at ``begin <= offset < end``; ``end`` is ``None`` for the log's end."""

    log: StandingLog
    begin: int
    end: int | None


@dataclass(slots=True, eq=False)
class LogUnreadable(PhotonError):
    """A log cannot be read from ``offset``. ``str()`` is one line."""

    path: Path
    offset: int
    why: str

    @property
    def is_whole(self) -> bool:
        """True if only a checksum is wrong: all records of the log were returned."""
        return self.why.endswith(CHECKSUM_WRONG)

    def __str__(self) -> str:
        return f"{self.path}: {self.why}, from byte {self.offset} on; restore it, or remove it to continue without it"


@dataclass(frozen=True, slots=True)
class Reading:
    """Settings with which a directory's logs are read."""

    patterns: Sequence[str] = ("**/*",)
    has_header: bool = False
    framing: Framing = LINES
    max_record: int = 1 << 20
    rest: RestRule | None = None  # when a last line without its line end counts; ``None`` means always
    links: Sequence[str] = ()  # directories that links may lead into


def standing_logs(directory: Path, reading: Reading, report: Callable[[Problem], None]) -> list[StandingLog]:
    """Returns every log below a directory that has a whole record, by path.

    Copies under any names are one log; it is read from the file that the follower would use (``preference``).

    Raises LogDirectoryError, and OSError if the directory cannot be listed.
    """
    check_directory(directory)
    if (there := elsewhere(directory)) is not None:
        there.renew()  # a long-lived process has an older list
    problems = ProblemReporter(report)
    found = []
    for file in discover(directory, compile_patterns(reading.patterns), problems, links=reading.links):
        head = _head(directory, file.path, reading, problems)
        if head is not None:
            found.append(LogFound(file, head))

    def opened(path: str) -> Source:
        return as_lines(open_source(log_path(directory, path, reading.links)), reading.framing)

    def same(one: LogFound, other: LogFound) -> bool:
        return bool(hold_the_same(one, other, opened))

    logs = []
    for identity, (log, *others) in logs_of(found, opened, same).items():
        _tell_copies(log.file.path, [each.file.path for each in others], problems)
        logs.append(_standing(log, identity, reading))
    return sorted(logs, key=lambda log: log.path)


def _standing(log: LogFound, identity: str, reading: Reading) -> StandingLog:
    file, head = log.file, log.head
    plain = reading.framing.splittable and not file.path.endswith(COMPRESSED_SUFFIXES)
    return StandingLog(file.path, identity, head.header, head.data_start, file.size, file.mtime_ns, plain)


def _tell_copies(read: str, others: Sequence[str], problems: ProblemReporter) -> None:
    what = f"has the same bytes as {read}, up to the end of the shorter file: only {read} is read"
    for path in others:
        if path.endswith(COMPRESSED_SUFFIXES) == read.endswith(COMPRESSED_SUFFIXES):
            problems.tell(ProblemKind.COPY, path, what)


def _head(directory: Path, path: str, reading: Reading, problems: ProblemReporter) -> Head | None:
    if is_final(directory) and not (reading.has_header or reading.framing.first_line):
        return head_by_path(path)
    try:
        source = as_lines(open_source(log_path(directory, path, reading.links)), reading.framing)
        try:
            data = source.read(0, HEAD_BYTES)
            if source.cut_short() and rests(directory, path, reading) and settle(source):
                data = source.read(0, HEAD_BYTES)
            broken = source.damage() or (source.cut_short() and ends_in_middle(path))
        finally:
            source.close()
    except OSError as error:
        problems.tell(ProblemKind.UNREADABLE, path, f"cannot be read ({error.strerror})")
        return None
    of_data = partial(
        read_head, path, data, has_header=reading.has_header, framing=reading.framing, by_path=is_final(directory)
    )
    head = of_data(final=False)
    if head is None and broken:
        problems.tell(ProblemKind.DAMAGED, path, str(broken))
    elif head is None and rests(directory, path, reading):
        head = of_data(final=True)
    return head


def rests(directory: Path, path: str, reading: Reading) -> bool:
    """True if an unfinished last line counts as complete. Call it after the line was read."""
    if is_final(directory):
        return True
    written_ns: dict[str, int] = {}
    for each in (path, log_name(path)):
        with suppress(OSError):
            _, written_ns[each] = size_and_time(log_path(directory, each, reading.links))
    packed = path.endswith(COMPRESSED_SUFFIXES)
    return path in written_ns and not waits(
        reading.rest, Writing(packed, written_ns[path], written_ns.get(log_name(path)))
    )


def cut(log: StandingLog, bytes_max: int) -> list[Slice]:
    """Cuts a log, if possible, into slices of at most ``bytes_max``. Bytes written later belong to the last slice."""
    if not log.splittable or log.size - log.data_start <= bytes_max:
        return [Slice(log, log.data_start, log.size if log.splittable else None)]
    begins = range(log.data_start, log.size, bytes_max)
    return [Slice(log, begin, min(begin + bytes_max, log.size)) for begin in begins]


def open_log(directory: Path, path: str, reading: Reading, begin: int = 0) -> Source:
    """Opens a log as lines, to be read from ``begin`` on. Raises LogUnreadable."""
    try:
        return as_lines(open_source(log_path(directory, path, reading.links)), reading.framing)
    except OSError as error:
        raise LogUnreadable(directory / path, begin, f"cannot be read ({error.strerror})") from error


def read_slice(directory: Path, part: Slice, reading: Reading, source: Source | None = None) -> Iterator[Block]:
    """Yields blocks of the records that begin in a slice. ``source``: the log, if the caller has opened it.

    Raises LogUnreadable, also if a log is damaged after records that were returned.
    """
    if source is None:
        with closing(open_log(directory, part.log.path, reading, part.begin)) as own:
            yield from read_slice(directory, part, reading, own)
        return
    reader = _SliceReader(source, part, reading, directory)
    try:
        yield from reader.blocks()
    except OSError as error:
        path = directory / part.log.path
        raise LogUnreadable(path, reader.at, f"cannot be read ({error.strerror})") from None


class _SliceReader:
    """Reads from record to record, as the follower does."""

    def __init__(self, source: Source, part: Slice, reading: Reading, directory: Path) -> None:
        self._source = source
        self._part = part
        self._reading = reading
        self._directory = directory
        self._lines = Lines(reading.framing, reading.max_record)
        # For Zeek's logs: of a slice that begins later, the log's header is the one in force there.
        self._in_force = part.log.header if part.begin > part.log.data_start else b""
        self._long: LongRecord | None = None
        self._read = ReadBytes(part.begin, b"", b"")
        self.at = part.begin  # end of the bytes read so far

    def blocks(self) -> Iterator[Block]:
        """Yields the slice's blocks. Raises LogUnreadable, OSError."""
        end, log = self._part.end, self._part.log
        if self._reading.framing.kind == "zeek" and self._part.begin > log.data_start and not log.header:
            self._in_force = header_before(self._source, self._part.begin)
        self.at = self._first_record()
        at_end = False
        while not at_end and (end is None or (self._long.offset if self._long is not None else self.at) < end):
            pieces, at_end, broken = self._step()
            for piece in pieces:
                kept = piece if end is None else _beginning_before(piece, end)
                if kept is not None:
                    yield from self._made(kept)
            if broken:
                raise LogUnreadable(self._directory / self._part.log.path, self.at, broken)

    def _first_record(self) -> int:
        """Returns the start of the first record at or after the slice's start, or the log's end."""
        begin = self._part.begin
        if begin <= self._part.log.data_start:
            return self._part.log.data_start
        at = begin - 1
        while data := self._source.read(at, READ_BYTES):
            stop = data.find(b"\n")
            if stop >= 0:
                return at + stop + 1
            at += len(data)
        return at

    def _step(self) -> tuple[list[Piece], bool, str]:
        """Returns the next records, True if these were all, and why the bytes after them cannot be read."""
        want, front = READ_BYTES, min(CONTEXT_BYTES, self.at)
        while True:
            raw = self._source.read(self.at - front, front + want)
            data = raw[front:]
            at_end = len(data) < want
            if at_end or self._long or want > self._reading.max_record or self._lines.has_record(data):
                break
            want = min(want * 2, max(self._reading.max_record + 1, READ_BYTES + 1))
        unended = at_end and self._source.cut_short()
        if unended and rests(self._directory, self._part.log.path, self._reading) and settle(self._source):
            return self._step()
        broken = (self._source.damage() or self._cut_short()) if at_end else ""
        lines, framed = self._framed(data, final=False)
        unended = at_end and (framed.long is not None or framed.next < self.at + len(data))
        whole = unended and not broken and not self._source.cut_short()
        if whole and rests(self._directory, self._part.log.path, self._reading):
            lines, framed = self._framed(data, final=True)
        self._read = ReadBytes(self.at, raw[:front], lines)
        self.at, self._long = framed.next, framed.long
        return framed.pieces, at_end, broken

    def _framed(self, data: bytes, *, final: bool) -> tuple[bytes, Framed]:
        lines = self._lines.marked(data, inside=self._long is not None, final=final)
        return lines, frame(lines, self.at, max_record=self._reading.max_record, final=final, long=self._long)

    def _cut_short(self) -> str:
        """Describes the end of a compressed file that is cut short; empty for a plain one, which may still grow."""
        path = self._part.log.path
        return ends_in_middle(path) if path.endswith(COMPRESSED_SUFFIXES) and self._source.cut_short() else ""

    def _made(self, piece: Piece) -> Iterator[Block]:
        log, headed = self._part.log, [Headed(piece, self._part.log.header)]
        if self._reading.framing.kind == "zeek":
            headed, self._in_force = split_headers(piece, self._in_force)
        for each, header in headed:
            yield Block(
                log.identity, LogFile(log.path, header), each.offset, each.data, each.end, each.oversized,
                before=self._read.ahead_of(each.offset),
            )  # fmt: skip


def _beginning_before(piece: Piece, end: int) -> Piece | None:
    """Returns a piece without the records that begin at ``end`` or later."""
    oversized = tuple(long for long in piece.oversized if long.offset < end)
    if piece.offset + len(piece.data) <= end:
        return piece if len(oversized) == len(piece.oversized) else Piece(piece.offset, piece.data, end, oversized)
    if piece.offset >= end:
        return Piece(piece.offset, b"", end, oversized) if oversized else None
    stop = piece.data.find(b"\n", end - 1 - piece.offset) + 1
    return Piece(piece.offset, piece.data[:stop], piece.offset + stop)
