"""Watermarks of a pipeline's output: event times up to which the output is complete, with cursors.

A *pair* is a time and a cursor: every record with an earlier event time that this pipeline will ever publish is
before the cursor. Pairs are journaled in ``watermarks.jsonl``, oldest first; times and cursors never decrease,
except where a slot was retired with less than it had shown. Each pair is valid by itself, so old ones may be dropped.
As a line of JSON::

    {"photon_watermark":1,"at_ns":…,"exact_ns":…,"percentile_ns":…,"waiting":12,"held_by":[…],"cursor":{…}}

``exact_ns`` is the time of the pair. Few future records are older than ``percentile_ns``; ``waiting`` is the number
of unpublished events before it; ``held_by`` tells operators why ``exact_ns`` is held back. A record that breaks a
promise is *late*: it follows the cursor of a pair whose ``exact_ns`` is newer. A file's late records have their own
line::

    {"photon_late":1,"file":"joined/east-1-000003.jsonl","end":73400320,"records":3,"oldest_ns":…}

``end``: the end of the last of these records, in uncompressed bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from photon.config.clock import NS_PER_S
from photon.config.decoding import DECODE_ERRORS
from photon.config.disk import AppendFile, Disk
from photon.config.errors import PhotonError
from photon.config.versioned_file import decoded
from photon.outputs.cursor import Cursor

JOURNAL = Path("verifier") / "watermarks.jsonl"  # in a pipeline's state directory
STEP_NS = NS_PER_S // 10  # times of pairs are multiples of this, so that events before them can be counted
LINES_MAX = 8192  # lines of the journal, which is then rewritten with fewer; also limits the pairs held by a reader
BYTES_MAX = 16 << 20  # limit of the journal, as each pair has the cursor of all slots
NEWEST_KEPT, OLDER_KEPT = 2048, 2048


class _PairLine(msgspec.Struct, frozen=True, tag_field="photon_watermark", tag=1):
    at_ns: int
    exact_ns: int | None
    percentile_ns: int | None
    waiting: int
    held_by: tuple[str, ...]
    cursor: msgspec.Raw


class _LateLine(msgspec.Struct, frozen=True, tag_field="photon_late", tag=1):
    file: str
    end: int
    records: int
    oldest_ns: int


@dataclass(frozen=True, slots=True)
class Pair:
    at_ns: int  # wall clock when the pair was determined
    exact_ns: int | None  # None means that nothing is known
    percentile_ns: int | None
    # Events read before ``percentile_ns`` but not published: those without a verdict, and one for each slot with
    # unshown ones.
    waiting: int
    cursor: Cursor
    held_by: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """One line without newline."""
        cursor = msgspec.Raw(self.cursor.encode())
        line = _PairLine(self.at_ns, self.exact_ns, self.percentile_ns, self.waiting, self.held_by, cursor)
        return msgspec.json.encode(line)

    def is_before(self, cursor: Cursor, kinds: Collection[str]) -> bool:
        """True if a reader of these kinds at ``cursor`` has read everything before this pair's cursor."""
        own = cursor.positions
        return all(at <= own.get(log, (0, 0)) for log, at in self.cursor.positions.items() if log.kind in kinds)


@dataclass(frozen=True, slots=True)
class Late:
    file: str
    end: int
    records: int
    oldest_ns: int

    def encode(self) -> bytes:
        """One line without newline."""
        return msgspec.json.encode(_LateLine(self.file, self.end, self.records, self.oldest_ns))


Entry = Pair | Late


def decode(data: bytes) -> Iterator[Entry]:
    """Yields the entries of whole lines. Ignores a torn line, as the others are valid without it."""
    for line in data.split(b"\n"):
        with suppress(*DECODE_ERRORS, PhotonError):
            yield _decoded(line)


def _decoded(line: bytes) -> Entry:
    if line.startswith(b'{"photon_late"'):
        late = decoded(line, _LateLine)
        return Late(late.file, late.end, late.records, late.oldest_ns)
    pair = decoded(line, _PairLine)
    cursor = Cursor.decode(bytes(pair.cursor), str(JOURNAL))
    return Pair(pair.at_ns, pair.exact_ns, pair.percentile_ns, pair.waiting, cursor, pair.held_by)


def read_journal(disk: Disk, state: Path) -> list[Entry]:
    """Reads the journal of the pipeline with this state directory, oldest entry first. Raises OSError."""
    path = state / JOURNAL
    if not disk.exists(path):
        return []
    data = disk.read(path)
    return list(decode(data[: data.rfind(b"\n") + 1]))


def pairs_of(entries: Iterable[Entry]) -> list[Pair]:
    return [each for each in entries if isinstance(each, Pair)]


def late_in(entries: Iterable[Entry]) -> int:
    """Returns the number of late records."""
    return sum(each.records for each in entries if isinstance(each, Late))


def newest_before(pairs: Sequence[Pair], cursor: Cursor, kinds: Collection[str]) -> Pair | None:
    """Returns the newest pair that is valid for a reader of these kinds at this cursor, or ``None``."""
    return next((pair for pair in reversed(pairs) if pair.is_before(cursor, kinds)), None)


class PairsHeard:
    """Receives a pipeline's pairs, and finds the valid one for a moving reader of these kinds."""

    def __init__(self, kinds: Collection[str]) -> None:
        self._kinds = kinds
        self._pairs: list[Pair] = []
        self._said: tuple[int | None, int | None] = (None, None)

    def add(self, pairs: Iterable[Pair]) -> None:
        self._pairs += pairs
        if len(self._pairs) > LINES_MAX:
            self._pairs = pairs_of(thinned(self._pairs, NEWEST_KEPT, OLDER_KEPT))

    def moved(self, cursor: Cursor) -> Pair | None:
        """Returns the newest pair that is valid for a reader at ``cursor``, if its times are later than those
        returned last.
        """
        found = newest_before(self._pairs, cursor, self._kinds)
        if found is None:
            return None
        del self._pairs[: self._pairs.index(found)]
        times = (found.exact_ns, found.percentile_ns)
        if not any(_is_later(now, said) for now, said in zip(times, self._said, strict=True)):
            return None  # or an older pair, as the last returned one is no longer in the journal
        self._said = times
        return found


class WatermarkTail(PairsHeard):
    """Reads the pairs of a journal, each time only new entries."""

    def __init__(self, disk: Disk, state: Path, kinds: Collection[str]) -> None:
        """``state``: the pipeline's state directory."""
        super().__init__(kinds)
        self._disk, self._path = disk, state / JOURNAL
        self._read_to = 0

    def moved(self, cursor: Cursor) -> Pair | None:
        """See PairsHeard. Raises OSError."""
        size = self._disk.size(self._path) if self._disk.exists(self._path) else 0
        if size < self._read_to:  # rewritten with fewer lines
            self._read_to, self._pairs = 0, []
        if size > self._read_to:
            data = self._disk.read(self._path, self._read_to, size - self._read_to)
            whole = data.rfind(b"\n") + 1
            self._read_to += whole
            self.add(pairs_of(decode(data[:whole])))
        return super().moved(cursor)


def _is_later(now_ns: int | None, said_ns: int | None) -> bool:
    return now_ns is not None and (said_ns is None or now_ns > said_ns)


def thinned(entries: Sequence[Entry], newest: int, older: int) -> list[Entry]:
    """Thins a list to its ``newest`` newest pairs and at most ``older`` earlier ones, evenly spaced; merges late
    records by file.
    """
    pairs = pairs_of(entries)
    late: dict[str, Late] = {}
    for each in entries:
        if isinstance(each, Late):
            before = late.get(each.file, Late(each.file, 0, 0, each.oldest_ns))
            late[each.file] = Late(
                each.file,
                max(before.end, each.end),
                before.records + each.records,
                min(before.oldest_ns, each.oldest_ns),
            )
    old = pairs[:-newest]
    step = max(1, -(-len(old) // older))
    return [*late.values(), *old[::-step][::-1], *pairs[-newest:]]


class Journal:
    """``watermarks.jsonl``, which one process at a time appends to, syncing each line. Raises OSError."""

    def __init__(self, disk: Disk, state: Path) -> None:
        self._disk = disk
        self._state = state
        self._file: AppendFile | None = None
        self._lines = 0

    def begin(self) -> list[Entry]:
        """Reads the journal, rewrites it with only the entries to keep, and returns these."""
        self._disk.make_dir((self._state / JOURNAL).parent)
        kept, data = _fewer(read_journal(self._disk, self._state))
        self._disk.replace(self._state / JOURNAL, data)  # if this fails, the old file is still open
        file = self._disk.append(self._state / JOURNAL)
        self.close()
        self._file, self._lines = file, len(kept)
        return kept

    def add(self, entry: Entry) -> None:
        """Raises OSError; then the next call rewrites the journal before it appends."""
        line = entry.encode() + b"\n"
        if self._file is None or self._lines + 1 >= LINES_MAX or self._file.size + len(line) > BYTES_MAX:
            self.begin()
        assert self._file is not None
        try:
            self._file.write(line)
            self._file.sync()
        except OSError:
            self.close()  # its end may be torn
            raise
        self._lines += 1

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _fewer(entries: Sequence[Entry]) -> tuple[list[Entry], bytes]:
    """Returns the entries to keep, and their lines: at most half of the journal's byte limit, so that the next pair
    does not cause another rewrite; but at least the newest two pairs.
    """
    newest, older = NEWEST_KEPT, OLDER_KEPT
    while True:
        kept = thinned(entries, newest, older)
        data = b"".join(entry.encode() + b"\n" for entry in kept)
        if len(data) <= BYTES_MAX // 2 or newest == older == 1:
            return kept, data
        newest, older = max(1, newest // 2), max(1, older // 2)
