"""Skips a pipeline's foreign logs: finds them as the follower does, plans new positions, and commits those.

For a dispatcher that lost its state or is too far behind, while another datacentre still reads the same logs
(protocol rule 11); the caller must make sure that one does. Skipped lines are not counted: the ledger stays balanced
without them. ``begin`` does the same when a pipeline starts for the first time.

A skip to the end continues after the last line end; a skip to a time, at the first record whose event time is at
least that. A plain file is bisected rather than read, as its records are nearly in the order of event time. The place
found is moved back until the LOOK_BACK_BYTES before it hold no record of the requested time, and records without a
time count as new: if in doubt, less is skipped. A compressed file must be read through.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace

from photon.adapters.contract import Adapter, LogFile
from photon.adapters.logs.api import Block, LogPosition
from photon.adapters.logs.discovery import check_directory, compile_patterns, discover
from photon.adapters.logs.elsewhere import FoundFile, is_final
from photon.adapters.logs.framings import header_before, open_anywhere
from photon.adapters.logs.identity import (
    COMPRESSED_SUFFIXES,
    HEAD_BYTES,
    PROOF_BYTES,
    Head,
    proof_of,
    proof_of_whole,
    read_head,
)
from photon.adapters.logs.links import log_path
from photon.adapters.logs.problems import LogDirectoryError, ProblemReporter
from photon.adapters.logs.reader import Source
from photon.config.disk import RealDisk
from photon.dispatcher.database import STATE_NAME
from photon.dispatcher.moving import settle, settling
from photon.dispatcher.partitions import Partition, all_of, file_of, read_number, there
from photon.dispatcher.process import Places, state_rule
from photon.dispatcher.replay.coverage import unknown_from
from photon.dispatcher.replay.reading import next_line
from photon.dispatcher.state import Changes, State
from photon.idregistry.api import Digester
from photon.joiner.foreign_columns import headers_of, records_of

PROBE_BYTES = 1 << 16  # read in one place to find its time, and the length of its records
BLOCK_BYTES = 1 << 20
# This much without a record of the requested time, before the first one found, is enough to trust it.
LOOK_BACK_BYTES = 4 << 20

# (offset, whole lines there) -> (offset, event time in ns) of each readable record.
Times = Callable[[int, bytes], list[tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class Log:
    """A log to skip. ``begin``: where it would be read from; ``data_start``: start of its first record."""

    position: LogPosition  # as known; offset 0 if unknown
    data_start: int
    disk_bytes: int

    @property
    def begin(self) -> int:
        """The offset, in uncompressed bytes, where the log would be read from."""
        return max(self.position.offset, self.data_start)


@dataclass(frozen=True, slots=True)
class Skip:
    """The part of a log to skip: [``log.begin``, ``to``), in uncompressed bytes."""

    log: Log
    to: int
    records: int  # estimated: the skipped bytes by the mean length of sampled records
    oldest_ns: int | None  # event times of the first and last skipped records that were sampled
    newest_ns: int | None
    proof: bytes = b""  # of a position at ``to``

    @property
    def skipped(self) -> int:
        return self.to - self.log.begin

    def position(self) -> LogPosition:
        known = self.log.position
        return LogPosition(known.identity, known.path, self.to, known.header, self.proof)


def times_of(adapter: Adapter, log: Log) -> Times:
    file = LogFile(log.position.path, log.position.header)

    def times(offset: int, data: bytes) -> list[tuple[int, int]]:
        records, offsets = records_of(Block(log.position.identity, file, offset, data, offset + len(data)))
        _, times, _, others = headers_of(records, file, adapter)
        return [(at, times[row]) for row, at in enumerate(offsets) if row not in others]

    return times


def plan(log: Log, source: Source, times: Times, to_ns: int | None, *, max_record: int) -> Skip:
    """Plans a skip to the first record at ``to_ns``; ``None`` means to the end. Raises OSError."""
    begin = log.begin
    if source.compressed:
        to, samples = _through(source, begin, times, to_ns, max_record)
    else:
        to = _end(source, begin, source.size())
        if to_ns is not None:
            to = _search(source, begin, to, times, to_ns, max_record)
        last = _line_begin(source, max(begin, to - PROBE_BYTES), begin, to)
        samples = [(begin, _lines(source, begin, min(to, begin + PROBE_BYTES), max_record))]
        samples.append((last, _lines(source, last, to, max_record)))
    skip = _described(log, to, samples, times)
    # Reading back in a compressed file would inflate it again: there the next commit proves the position.
    return skip if source.compressed else replace(skip, proof=proof_at(source, skip.to))


def proof_at(source: Source, at: int) -> bytes:
    """Returns a position's proof (see LogPosition), computed from the file. Raises OSError."""
    front = min(PROOF_BYTES, at)
    return proof_of(source.read(at - front, front))


def _described(log: Log, to: int, samples: Sequence[tuple[int, bytes]], times: Times) -> Skip:
    skipped = to - log.begin
    (first_at, first), (last_at, last) = samples[0], samples[-1]
    if skipped <= 0:
        return Skip(log, log.begin, 0, None, None)
    looked, lines = len(first) + len(last), first.count(b"\n") + last.count(b"\n")
    whole = len(first) == skipped
    records = first.count(b"\n") if whole else round(skipped * lines / looked) if looked else 0
    seen = [at for _, at in (*times(first_at, first), *times(last_at, last))]
    return Skip(log, to, records, min(seen, default=None), max(seen, default=None))


# -- plain files: any place at any time ------------------------------------------------------------------------------
def _end(source: Source, begin: int, size: int) -> int:
    """Returns the end of the last line; ``begin`` if there is none."""
    upper = size
    while upper > begin:
        lower = max(begin, upper - BLOCK_BYTES)
        newline = source.read(lower, upper - lower).rfind(b"\n")
        if newline >= 0:
            return lower + newline + 1
        upper = lower
    return begin


def _line_begin(source: Source, at: int, begin: int, end: int) -> int:
    """Returns the start of the first line at or after ``at``, at most ``end``. Both bounds are starts of lines."""
    if at <= begin:
        return begin
    found = next_line(source, at - 1)
    return end if found is None else min(found, end)


def _lines(source: Source, start: int, stop: int, max_record: int) -> bytes:
    """Returns the whole lines in [``start``, ``stop``), or one longer line if it is within the limit."""
    data = source.read(start, stop - start)
    whole = data.rfind(b"\n") + 1
    if not whole and start < stop:
        data = source.read(start, max(stop - start, max_record + 2))
        whole = data.find(b"\n") + 1
    return data[:whole]


def _search(source: Source, begin: int, end: int, times: Times, to_ns: int, max_record: int) -> int:
    """Returns the first record from ``begin`` whose event time is at least ``to_ns``; ``end`` if there is none."""

    def first_in(lower: int, upper: int) -> tuple[int | None, int]:
        """Searches the lines from ``lower``. Returns (the first such record or ``None``, where the search ended)."""
        start = _line_begin(source, lower, begin, end)
        data = _lines(source, start, min(max(upper, start + 1), end), max_record)
        seen = times(start, data)
        if not seen:  # of unknown time: treated as new
            return start, max(start + len(data), upper)
        return next((offset for offset, at in seen if at >= to_ns), None), start + len(data)

    low, high, found, looked = begin, end, end, end
    while high - low > PROBE_BYTES:
        middle = (low + high) // 2
        hit, seen_to = first_in(middle, middle + PROBE_BYTES)
        if hit is None:
            low = middle
        else:
            high, found, looked = middle, hit, seen_to
    quiet, upper = 0, min(looked, end)
    while upper > begin and quiet < LOOK_BACK_BYTES:
        step = BLOCK_BYTES
        while (lower := _line_begin(source, upper - step, begin, upper)) >= upper:
            step *= 2  # one long line
        hit = next((offset for offset, at in _timed(source, lower, upper, times, max_record) if at >= to_ns), None)
        if hit is None:
            quiet += upper - lower
        else:
            found, quiet = min(found, hit), 0
        upper = lower
    return found


def _timed(source: Source, lower: int, upper: int, times: Times, max_record: int) -> Iterator[tuple[int, int]]:
    """Yields (offset, event time) of the records in [``lower``, ``upper``), in bounded memory."""
    at = lower
    while at < upper:
        data = _lines(source, at, min(upper, at + BLOCK_BYTES), max_record)
        if not data:  # longer than the limit: not a record
            at = _line_begin(source, at + 1, lower, upper)
            continue
        yield from times(at, data)
        at += len(data)


# -- compressed files: sequentially only -----------------------------------------------------------------------------
def _through(
    source: Source, begin: int, times: Times, to_ns: int | None, max_record: int
) -> tuple[int, list[tuple[int, bytes]]]:
    """Reads through a log.

    Returns (where to continue, the first and the last whole lines before it with their offsets).
    """
    first: tuple[int, bytes] | None = None
    last = (begin, b"")
    to = begin
    for offset, data in _forward(source, begin, max_record):
        hit = None if to_ns is None else next((o for o, at in times(offset, data) if at >= to_ns), None)
        if hit is not None:
            data = data[: hit - offset]
        first = first or (offset, data)
        to = offset + len(data)
        last = (offset, data) if data else last
        if hit is not None:
            break
    return to, [first or last, last]


def _forward(source: Source, begin: int, max_record: int) -> Iterator[tuple[int, bytes]]:
    """Yields whole lines, block by block, with their offsets. For lines longer than the limit, only an offset."""
    at, rest = begin, b""
    long = False
    while data := source.read(at + len(rest), BLOCK_BYTES):
        data = rest + data
        if long:
            newline = data.find(b"\n")
            skipped = len(data) if newline < 0 else newline + 1
            at, data, long = at + skipped, data[skipped:], newline < 0
            if not long:
                yield at, b""
        whole = data.rfind(b"\n") + 1
        if whole:
            yield at, data[:whole]
        at, rest = at + whole, data[whole:]
        if len(rest) > max_record:
            at, rest, long = at + len(rest), b"", True


@dataclass(frozen=True, slots=True)
class Skips:
    """One skip for each existing log; ``problems``: a line for each file that could not be examined."""

    skips: list[Skip] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def moved(self) -> list[Skip]:
        return [skip for skip in self.skips if skip.skipped > 0]


@contextmanager
def locked_states(
    places: Places, join: str, adapter: Adapter, digester: Digester, *, create: bool
) -> Iterator[dict[Partition, State]]:
    """Locks and opens the state of all dispatchers. Yields none if none exists and ``create`` is false.

    Raises StateError, also while one of the dispatchers runs.
    """
    path, disk, rule = places.state / STATE_NAME, RealDisk(), state_rule(join, adapter, digester)
    if not create and not there(path):
        yield {}
        return
    with ExitStack() as stack:
        with settling(path):
            if create:
                settle(disk, path, places.partition.count, places.output, rule)
            states = {
                each: stack.enter_context(closing(State(file_of(path, each), rule=rule)))
                for each in all_of(read_number(path).dispatchers)
            }
        yield states


def plan_skips(
    places: Places,
    adapter: Adapter,
    known: Iterable[LogPosition],
    to_ns: int | None,
    *,
    mine: Callable[[str], bool] = lambda identity: True,
) -> Skips:
    """Returns the part of each log that would be skipped: all of it if ``to_ns`` is ``None``. Changes nothing.

    Raises LogDirectoryError.
    """
    check_directory(places.foreign)
    planned = Skips()
    told = ProblemReporter(lambda problem: planned.problems.append(str(problem)))
    try:
        found = discover(places.foreign, compile_patterns(places.patterns), told, links=adapter.foreign_links)
    except OSError as error:
        raise LogDirectoryError(
            f"cannot be listed ({error.strerror})", str(places.foreign), "make it readable for this user"
        ) from None
    positions = {position.identity: position for position in known}
    framing = adapter.foreign_framing
    for each, head in _logs(places, found, adapter, planned.problems):
        if not mine(head.identity):
            continue
        before = positions.get(head.identity)
        offset = before.offset if before else 0
        if offset > each.size and not (each.path.endswith(COMPRESSED_SUFFIXES) or framing.forward):
            offset = 0  # truncated since, so it would be read again from its start
        position = LogPosition(head.identity, each.path, offset, head.header)
        log = Log(position, head.data_start, each.size)
        try:
            with closing(_opened(places, each, adapter)) as source:
                if before and before.proof not in (b"", proof_of_whole(each.key), proof_at(source, offset)):
                    log = replace(log, position=replace(position, offset=0))  # another log, read from its start
                header = header_before(source, head.fingerprint_at) if framing.kind == "zeek" else head.header
                times = times_of(adapter, replace(log, position=replace(log.position, header=header)))
                planned.skips.append(plan(log, source, times, to_ns, max_record=places.max_record))
        except OSError as error:
            planned.problems.append(f"{each.path}: cannot be read ({error.strerror})")
    return planned


def commit_skips(states: Mapping[Partition, State], skips: Skips) -> None:
    """Moves the positions, in one transaction per dispatcher. Raises StateError."""
    for partition, state in states.items():
        moved = [skip for skip in skips.moved if partition.holds(skip.log.position.identity)]
        spans = [unknown_from(skip.log.position.identity, skip.to) for skip in moved]
        state.commit(Changes(positions={each.log.position.identity: each.position() for each in moved}, spans=spans))


def _opened(places: Places, file: FoundFile, adapter: Adapter) -> Source:
    """Opens a log's file. Raises OSError."""
    return open_anywhere(log_path(places.foreign, file.path, adapter.foreign_links), adapter.foreign_framing)


def _logs(
    places: Places, found: Sequence[FoundFile], adapter: Adapter, problems: list[str]
) -> Iterator[tuple[FoundFile, Head]]:
    """Yields the file from which each log is read. Chooses like the follower: plain before compressed, then by name.

    Files without a complete record are not logs yet, and have nothing to skip.
    """
    claims: dict[str, list[tuple[FoundFile, Head]]] = {}
    final = is_final(places.foreign)
    for each in found:
        try:
            with closing(_opened(places, each, adapter)) as source:
                head = read_head(
                    each.path, source.read(0, HEAD_BYTES), has_header=adapter.foreign_has_header, final=final,
                    framing=adapter.foreign_framing, by_path=final,
                )  # fmt: skip
        except OSError as error:
            problems.append(f"{each.path}: cannot be read ({error.strerror})")
            continue
        if head is not None:
            claims.setdefault(head.identity, []).append((each, head))
    for files in claims.values():
        yield min(files, key=lambda claim: (claim[0].path.endswith(COMPRESSED_SUFFIXES), claim[0].path))


class Place(enum.Enum):
    BEGINNING = "beginning"
    END = "end"


def begin(places: Places, join: str, adapter: Adapter, digester: Digester, read_from: Place | int) -> Skips | None:
    """Skips logs before a pipeline's first start. Returns ``None`` if it continues from an existing state.

    Call it before the dispatcher opens its state.

    ``read_from``: a place, or the least event time in ns to read. It applies only to logs that exist at that moment;
    later ones are read from their start.

    If it crashes, all logs are read from their start. Raises StateError, LogDirectoryError.
    """
    path, partition = places.state / STATE_NAME, places.partition
    another_number = read_number(path).dispatchers != partition.count and there(path)
    if read_from is Place.BEGINNING or another_number or file_of(path, partition).exists():
        return None
    to_ns = None if isinstance(read_from, Place) else read_from
    skips = plan_skips(places, adapter, [], to_ns, mine=partition.holds)
    rule = state_rule(join, adapter, digester)
    with settling(path):
        settle(RealDisk(), path, partition.count, places.output, rule)
        with closing(State(file_of(path, partition), rule=rule)) as state:
            commit_skips({partition: state}, skips)
    return skips
