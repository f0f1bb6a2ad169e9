"""The persistent state of an interval's owner: one row for each key, in a store of rows (``photon.rows``).

A store belongs to one interval of keys. Acquiring it returns a *sequencer* higher than all before. Each commit
compares the sequencer, so an owner that does not know it was replaced writes nothing (MillWheel 6.2). A commit is
atomic: it takes effect when the interval's own row is changed, by a compare-and-set of its head, which has sequencer
and version:

    i                     c:head (JSON), c:s0, c:s1, … standing, c:r0, … redo: all rows of the last commit
    r NUMBER              c:r, the redo beyond REDO_PARTS
    k COMPUTATION 0 KEY   c:m (msgpack, as ``_RowMeta``), c:0, c:1, … data that is longer than INLINE_BYTES
    k COMPUTATION 0 KEY 0 PART  likewise: entries of its state, and records set aside
    o SENDER 0 TARGET 0 LAST  c:m (as ``_ChunkMeta``), c:0, … productions in flight

In memory and in SQLite the same step writes all rows of a commit. HBase changes one row at a time, so a commit has
these steps. After each, a crash means:

    1. redo beyond REDO_PARTS      nothing has happened
    2. the interval's row, if it has the head that this owner wrote last: THE MOMENT
    3. the rows of the redo        the interval's next owner does this before anything else
    4. it returns; the next one begins

Each commit has a version one higher than the last, and all its cells have that version. So a row has the value of the
latest commit, regardless of the order of writes. This gives four rules:

- **Nothing is written twice, and nothing halfway.** Step 3 may be repeated by any owner at any time: it writes the
  committed data, at the version of the commit.
- **A zombie writes nothing** (MillWheel 6.2): its head has been replaced, so step 2 is refused. It may still write
  rows of its earlier commits (step 3), which its successor wrote before its own first commit: the same bytes at the
  same version, below all later ones. That holds for every row, even untouched ones, without comparing anything in
  them.
- **Redo parts that are newer than the head's commit prove that its rows are written**: an owner begins step 1 only
  after step 3 of the previous commit.
- **A removed row stays as an empty cell**: a compaction of HBase forgets deletions, and then a slow write would
  restore the row. After GRACE_S, when no earlier write can still arrive, the cell is deleted.

Timers are kept in memory, and are read from the rows at the start. Checksums (CRC-32) detect flipped bits: they
precede metas, standing and redo, and are in the meta of data in parts.
"""

from __future__ import annotations

import heapq
import secrets
import struct
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple, TypeVar
from zlib import crc32

import msgspec

from photon.computing.errors import ComputingError, Fenced, Retired
from photon.computing.intervals import Interval
from photon.config.clock import NS_PER_S, Clock, SystemClock
from photon.config.decoding import DECODE_ERRORS
from photon.config.errors import UsageError
from photon.config.versioned_file import decoded
from photon.rows.api import Cell, Change, Delete, Put, Read, Rows, RowsFailed, behind
from photon.rows.hbase.rows import HBaseRows
from photon.rows.memory import MemoryRows
from photon.rows.sqlite import SqliteRows

APPLICATION = 0x50484F43  # of a SQLite file: "PHOC"
GROUPS = ({b"c": 1},)
THREADS = 3  # per process and Thrift server of HBase: a connection occupies one of its 16 threads
CALL_SECONDS_MAX = 60.0  # seconds for a call of HBase with its repetitions: a region may be moving
PART_BYTES = 1 << 20  # per cell: HBase refuses more than 10 MiB
INLINE_BYTES = 512  # data in the meta; more is not read at the start
REDO_PARTS = 8  # redo parts in the interval's own row
ROW_BYTES_MAX = 64 << 20
KEY_BYTES_MAX = 1_000  # longer ones are hashed
GRACE_S = 3600.0  # HBase's own clients try a call for 20 minutes at most
PAGE_ROWS, PAGE_WHOLE_ROWS = 1_000, 100
SWEEP_S = 20.0  # wait of ``close`` for a running sweep, which short runs would otherwise never finish
_HEAD, _META = b"chead", b"cm"
_LAST, _PART, _CRC = struct.Struct(">Q"), struct.Struct(">I"), struct.Struct(">I")

D = TypeVar("D")
Cells = Mapping[bytes, Cell]  # column -> its cell


class Row(NamedTuple):
    """The row of one computation and key. ``data``: see ``row``; ``None`` means removed. ``event_ns``, ``wall_ns``:
    the times of its next timers. ``aside``: number of records and timers waiting for the computation to be fixed."""

    computation: str
    key: str
    data: bytes | None
    event_ns: int | None = None
    wall_ns: int | None = None
    aside: int = 0


class Chunk(NamedTuple):
    """Productions of one commit for one target, in the order of their numbers; ``last`` is the highest."""

    sender: str
    target: str
    last: int
    data: bytes


class Due(NamedTuple):
    time_ns: int
    key: str


@dataclass(slots=True)
class Commit:
    rows: Sequence[Row] = ()
    added: Sequence[Chunk] = ()
    done: Sequence[tuple[str, str, int]] = ()  # (sender, target, upto): acknowledged chunks
    standing: bytes = b""  # positions, cursors, watermarks: the engine's state as a whole


class _Head(msgspec.Struct, frozen=True, kw_only=True, tag_field="photon_computing", tag=2):
    interval: str
    low: int
    high: int
    sequencer: int = 0
    version: int = 1  # of this row: one more with each change
    owner: str = ""
    token: str = ""  # unique to this owner
    successors: tuple[str, ...] = ()
    committed: int = 0  # the version of the last commit
    standing: int = 0  # parts of that commit's standing
    redo: int = 0  # parts of its redo
    removed: int = 0  # rows removed up to this version are deleted GRACE_S after
    since_ns: int = 0  # this time


class _RowMeta(msgspec.Struct, array_like=True, frozen=True, gc=False):
    computation: str
    key: str
    event_ns: int | None
    wall_ns: int | None
    aside: int
    parts: int  # cells that have the data
    data: bytes  # the data, or its checksum if there are parts


class _ChunkMeta(msgspec.Struct, array_like=True, frozen=True):
    sender: str
    target: str
    last: int
    parts: int
    data: bytes


class _Timers:
    """The next timer of each key, in order of time."""

    def __init__(self) -> None:
        self._times: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []  # may contain outdated entries

    def put(self, key: str, time_ns: int | None) -> None:
        if time_ns == self._times.get(key):
            return
        if time_ns is None:
            del self._times[key]
            return
        self._times[key] = time_ns
        heapq.heappush(self._heap, (time_ns, key))
        if len(self._heap) > 2 * len(self._times) + 1_000:
            self._heap = [(at, name) for name, at in self._times.items()]
            heapq.heapify(self._heap)

    def due(self, until_ns: int, limit: int) -> list[Due]:
        heap, found = self._heap, dict[tuple[int, str], None]()
        while heap and heap[0][0] <= until_ns and len(found) < limit:
            time_ns, key = due = heapq.heappop(heap)
            if self._times.get(key) == time_ns:
                found[due] = None
        for due in found:
            heapq.heappush(heap, due)
        return list(map(Due._make, found))


@dataclass(slots=True)
class _Index:
    """The index of all rows, so that they need not be read."""

    # By computation and whether on the wall clock
    timers: dict[tuple[str, bool], _Timers] = field(default_factory=dict)
    aside: dict[tuple[str, str], int] = field(default_factory=dict)
    # Sender and target -> the last numbers of its chunks, in order.
    lasts: dict[tuple[str, str], list[int]] = field(default_factory=dict)

    def put(self, computation: str, key: str, event_ns: int | None, wall_ns: int | None, aside: int) -> None:
        for place, at in (((computation, False), event_ns), ((computation, True), wall_ns)):
            if place in self.timers:
                self.timers[place].put(key, at)
            elif at is not None:
                self.timers[place] = timers = _Timers()
                timers.put(key, at)
        if aside:
            self.aside[computation, key] = aside
        elif self.aside:
            self.aside.pop((computation, key), None)


class Store:
    """The store of one interval.

    If a call raises ComputingError or RowsFailed, its commit was written either completely or not at all.
    """

    def __init__(
        self, rows: Rows, interval: Interval | None, *, where: object, base: bytes = b"", clock: Clock | None = None,
        closes: bool = False,
    ) -> None:  # fmt: skip
        """Creates only the interval's own row. ``interval``: ``None`` means that the row exists. ``where``: used in
        messages; ``base``: see ``prefix_of``; ``closes``: ``close`` also closes ``rows``."""
        self._rows, self._base, self._where, self._closes = rows, base, where, closes
        self._clock = clock or SystemClock()
        self._head: _Head | None = None  # the last one written by this store as owner
        self._known: _Index | None = None
        self._sweeping: threading.Thread | None = None
        if interval is not None and not self._cells():
            self._swap(None, _Head(interval=interval.id, low=interval.low, high=interval.high))
        head = self._now()[1]
        self.interval = Interval(head.low, head.high, head.interval)
        if interval is not None and interval != self.interval:
            is_, wanted = (f"{each.id} ({each.low:#010x} to {each.high:#010x})" for each in (self.interval, interval))
            raise ComputingError(f"{where}: has the interval {is_}, not {wanted}")

    # -- the interval's row
    def successors(self) -> tuple[str, ...]:
        """The intervals that replaced this one, if it is retired; otherwise empty."""
        return self._now()[1].successors

    def acquire(self, owner: str, *, revive: bool = False) -> int:
        """Makes a new owner, which fences earlier ones, and returns its sequencer. ``owner``: shown to operators.
        ``revive``: reopens a retired store. Raises Retired."""
        while True:
            before, head, cells = self._now()
            if head.successors and not revive:
                raise Retired(self.interval.id, head.successors)
            new = msgspec.structs.replace(
                head, sequencer=head.sequencer + 1, version=head.version + 1, owner=owner,
                token=secrets.token_hex(8), successors=(),
            )  # fmt: skip
            if self._swap(before, new):
                break
        self._redo(head, cells)
        self._head, self._known = new, None
        return new.sequencer

    def standing(self) -> bytes:
        """The committed standing; empty if nothing was committed yet."""
        _, head, cells = self._now()
        data = self._joined(cells, b"cs", head.standing, head.committed)
        return self._opened(data) if data else data

    def commit(self, sequencer: int, commit: Commit) -> None:
        """Commits durably. If it raises Fenced or Retired, nothing was written."""
        head = self._owned(sequencer)
        version = head.version + 1
        puts = self._puts(commit, version)
        standing, redo = _parts(_sealed(commit.standing)), list[bytes]()
        own = [Cell(b"cs%d" % n, version, part) for n, part in enumerate(standing)]
        if not self._rows.atomic:
            redo = _parts(_sealed(msgspec.msgpack.encode(puts)))
            numbered = [(self._redo_row(n), Cell(b"cr", version, part)) for n, part in enumerate(redo)]
            self._rows.put([Put(row, [cell]) for row, cell in numbered[REDO_PARTS:]])
            own += [Cell(b"cr%d" % n, version, part) for n, part in enumerate(redo[:REDO_PARTS])]
        new = msgspec.structs.replace(
            self._sweep_sometimes(head), version=version, committed=version, standing=len(standing), redo=len(redo)
        )
        self._own(head, new, own, puts)
        self._note(commit)

    def retire(self, sequencer: int, successors: tuple[str, ...]) -> None:
        """Prevents any further acquisition or commit. Raises Fenced."""
        head = self._owned(sequencer)
        self._own(head, msgspec.structs.replace(head, version=head.version + 1, successors=successors))

    def _owned(self, sequencer: int) -> _Head:
        if self._head is None or self._head.sequencer != sequencer:
            raise Fenced(fenced(self.interval.id))
        if self._head.successors:
            raise Retired(self.interval.id, self._head.successors)
        return self._head

    def _own(self, head: _Head, new: _Head, cells: Sequence[Cell] = (), puts: Sequence[Put] = ()) -> None:
        self._head = None  # this owner cannot commit again unless everything is written
        if self._swap(msgspec.json.encode(head), new, cells, puts):
            self._head = new
            return
        if successors := self.successors():
            raise Retired(self.interval.id, successors)
        raise Fenced(fenced(self.interval.id))

    def _swap(self, before: bytes | None, new: _Head, cells: Sequence[Cell] = (), puts: Sequence[Put] = ()) -> bool:
        written = [Cell(_HEAD, new.version, msgspec.json.encode(new)), *cells]
        return self._rows.commit(Change(self._base + b"i", written, before), puts)

    def _cells(self) -> Cells:
        return _by_column(self._rows.read([Read(self._base + b"i", (b"c",))])[0])

    def _now(self) -> tuple[bytes, _Head, Cells]:
        cells = self._cells()
        if _HEAD not in cells:
            raise ComputingError(f"{self._where}: its interval is missing")
        data = cells[_HEAD].value
        try:
            return data, decoded(data, _Head), cells
        except DECODE_ERRORS as error:
            raise ComputingError(f"{self._where}: cannot be read: {error}") from None

    def _redo(self, head: _Head, cells: Cells) -> None:
        """Writes the rows of the last commit."""
        found = [cells.get(b"cr%d" % n) for n in range(min(head.redo, REDO_PARTS))]
        beyond = self._rows.read([Read(self._redo_row(n), (b"cr",)) for n in range(REDO_PARTS, head.redo)])
        found += [each[0] if each else None for each in beyond]
        parts = [each for each in found if each is not None]
        if any(each.version > head.committed for each in parts):
            return  # a later owner did it and has committed since
        if len(parts) < head.redo or any(each.version < head.committed for each in parts):
            raise self._damaged("the last commit is incomplete")
        if parts:
            data = self._opened(b"".join(each.value for each in parts))
            puts = self._decoded(data, msgspec.msgpack.Decoder(list[Put]))
            self._rows.put(puts)

    # -- rows
    def load(self, computation: str, keys: Sequence[str]) -> dict[str, Row]:
        """Returns the rows that exist, by key."""
        found = self._rows.read([Read(self._key_row(computation, key), (b"c",)) for key in keys])
        rows = (self._row(_by_column(cells)) for cells in found)
        return {row.key: row for row in rows if row is not None}

    def scan(self) -> Iterator[Row]:
        """Yields all rows, for a split or a merge."""
        for _, cells in self._scan(b"k", b"c", PAGE_WHOLE_ROWS):
            if (row := self._row(_by_column(cells))) is not None:
                yield row

    def parts(self, prefix: str, key: str) -> Iterator[Row]:
        """Yields, in order, the key's rows whose computation begins with ``prefix``, such as entries of its state."""
        begin = self._key_row(prefix, key)
        for _, cells in self._scan_from(begin, behind(begin), b"c", PAGE_WHOLE_ROWS):
            if (row := self._row(_by_column(cells))) is not None:
                yield row

    def due(self, computation: str, wall: bool, until_ns: int, limit: int) -> list[Due]:
        """Returns at most ``limit`` keys whose next timer is not after ``until_ns``, ordered by time."""
        timers = self._index().timers.get((computation, wall))
        return [] if timers is None else timers.due(until_ns, limit)

    def aside(self) -> Iterable[tuple[str, str, int]]:
        """Returns (computation, key, number) for keys with records or timers set aside."""
        return [(*place, count) for place, count in self._index().aside.items()]

    def chunks(self) -> Iterable[Chunk]:
        """Returns the unacknowledged chunks, ordered by sender and number."""
        found = []
        for _, each in self._scan(b"o", b"c", PAGE_WHOLE_ROWS):
            cells = _by_column(each)
            if (meta := self._meta(cells[_META], _CHUNK)) is not None:
                found.append(Chunk(meta.sender, meta.target, meta.last, self._data(meta, cells)))
        return sorted(found, key=lambda chunk: (chunk.sender, chunk.last))

    def close(self) -> None:
        """Waits for a running sweep, then closes the store."""
        if self._sweeping is not None:
            self._sweeping.join(SWEEP_S)
        if self._closes:
            self._rows.close()

    def _row(self, cells: Cells) -> Row | None:
        meta_cell = cells.get(_META)
        if meta_cell is None or (meta := self._meta(meta_cell, _ROW)) is None:
            return None
        data = self._data(meta, cells)
        return Row(meta.computation, meta.key, data, meta.event_ns, meta.wall_ns, meta.aside)

    def _scan(self, kind: bytes, column: bytes, limit: int) -> Iterator[tuple[bytes, list[Cell]]]:
        """Yields the rows of a kind that have this column, or a column of this family."""
        return self._scan_from(self._base + kind, behind(self._base + kind), column, limit)

    def _scan_from(self, begin: bytes, end: bytes, column: bytes, limit: int) -> Iterator[tuple[bytes, list[Cell]]]:
        while True:
            found = self._rows.scan(begin, end, (column,), limit)
            yield from found
            if len(found) < limit:
                return
            begin = found[-1][0] + b"\0"

    def _index(self) -> _Index:
        if self._known is None:
            self._known = index = _Index()
            for _, [cell] in self._scan(b"k", _META, PAGE_ROWS):
                if (row := self._meta(cell, _ROW)) is not None:
                    index.put(row.computation, row.key, row.event_ns, row.wall_ns, row.aside)
            for _, [cell] in self._scan(b"o", _META, PAGE_ROWS):
                if (chunk := self._meta(cell, _CHUNK)) is not None:
                    index.lasts.setdefault((chunk.sender, chunk.target), []).append(chunk.last)
        return self._known

    def _note(self, commit: Commit) -> None:
        index = self._index()
        for computation, key, data, event_ns, wall_ns, aside in commit.rows:
            if data is None:
                index.put(computation, key, None, None, 0)
            else:
                index.put(computation, key, event_ns, wall_ns, aside)
        for sender, target, upto in commit.done:
            lasts = index.lasts.get((sender, target), [])
            lasts[:] = [each for each in lasts if each > upto]
        for chunk in commit.added:
            index.lasts.setdefault((chunk.sender, chunk.target), []).append(chunk.last)

    # -- writing
    def _puts(self, commit: Commit, version: int) -> list[Put]:
        """Returns the writes for a commit's rows. Raises ComputingError for a row that HBase would refuse."""
        puts: dict[bytes, Put] = {}
        for row in commit.rows:
            at = self._key_row(row.computation, row.key)
            puts[at] = (
                self._gone(at, version) if row.data is None else Put(at, self._row_cells(row, row.data, version))
            )
        lasts = self._index().lasts
        for sender, target, upto in commit.done:
            for last in lasts.get((sender, target), ()):
                if last <= upto:
                    at = self._chunk_row(sender, target, last)
                    puts[at] = self._gone(at, version)
        for chunk in commit.added:
            inline, parts = _split(chunk.data)
            meta = _ChunkMeta(chunk.sender, chunk.target, chunk.last, len(parts), inline)
            at = self._chunk_row(chunk.sender, chunk.target, chunk.last)
            puts[at] = Put(at, _with_parts(meta, parts, version))
        return list(puts.values())

    def _row_cells(self, row: Row, data: bytes, version: int) -> list[Cell]:
        if len(data) > ROW_BYTES_MAX:
            raise ComputingError(
                f"computation {row.computation}, key {row.key!r}: its row has {len(data)} bytes, more than "
                f"{ROW_BYTES_MAX}, the limit for HBase"
            )
        computation, key, _, event_ns, wall_ns, aside = row
        inline, parts = _split(data)
        return _with_parts(_RowMeta(computation, key, event_ns, wall_ns, aside, len(parts), inline), parts, version)

    def _gone(self, row: bytes, version: int) -> Put:
        if self._rows.atomic:
            return Put(row, None)
        return Put(row, [Cell(_META, version, b""), Cell(b"c0", version, b"")])

    def _key_row(self, computation: str, key: str) -> bytes:
        """Returns the name of a key's row. All rows of a key share a prefix that no other key's rows have."""
        own, _, part = computation.partition("/")
        plain = f"{own}\0{key}".encode()
        if len(plain) > KEY_BYTES_MAX or plain.count(b"\0") > 1:
            plain = b"\0" + blake2b(msgspec.msgpack.encode((own, key))).digest()
        return b"%sk%s\0%s" % (self._base, plain, part.encode()) if part else b"%sk%s" % (self._base, plain)

    def _chunk_row(self, sender: str, target: str, last: int) -> bytes:
        return b"%so%s\0%s\0%s" % (self._base, sender.encode(), target.encode(), _LAST.pack(last))

    def _redo_row(self, number: int) -> bytes:
        return b"%sr%s" % (self._base, _PART.pack(number))

    # -- reading
    def _meta(self, cell: Cell, decoder: msgspec.msgpack.Decoder[D]) -> D | None:
        """Decodes the meta; ``None`` means that the row was removed."""
        return self._decoded(self._opened(cell.value), decoder) if cell.value else None

    def _data(self, meta: _RowMeta | _ChunkMeta, cells: Cells) -> bytes:
        if not meta.parts:
            return meta.data
        return self._opened(meta.data + self._joined(cells, b"c", meta.parts, cells[_META].version))

    def _opened(self, sealed: bytes) -> bytes:
        """Checks and returns the data that was given to ``_sealed``."""
        data = sealed[_CRC.size :]
        if sealed[: _CRC.size] != _CRC.pack(crc32(data)):
            raise self._damaged(
                "a checksum is wrong, as after a fault of its disk; restore a backup of the state, with the "
                "published directories of the same time"
            )
        return data

    def _joined(self, cells: Cells, prefix: bytes, count: int, version: int) -> bytes:
        """Joins the parts of a value. Ignores parts of older versions, which are left over from a longer value."""
        parts = [cells.get(b"%s%d" % (prefix, n)) for n in range(count)]
        data = [each.value for each in parts if each is not None and each.version == version]
        if len(data) < count:
            raise self._damaged("a part of a row is missing")
        return b"".join(data)

    def _decoded(self, data: bytes, decoder: msgspec.msgpack.Decoder[D] | msgspec.json.Decoder[D]) -> D:
        try:
            return decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise self._damaged(str(error)) from None

    def _damaged(self, what: str) -> ComputingError:
        return ComputingError(f"{self._where}: is damaged: {what}")

    # -- removed rows
    def _sweep_sometimes(self, head: _Head) -> _Head:
        """Sweeps if due, and returns the head with the next removal mark. The mark is kept in the interval's row,
        because a process may not run long enough. An atomic store leaves no rows to sweep."""
        if self._rows.atomic:
            return head
        now_ns = self._clock.now_ns()
        if 0 <= now_ns - head.since_ns < GRACE_S * NS_PER_S:
            return head
        if head.removed and now_ns > head.since_ns:  # otherwise the clock was ahead
            self._sweeping = threading.Thread(target=self._sweep_quietly, args=(head.removed,), daemon=True)
            self._sweeping.start()
        return msgspec.structs.replace(head, removed=head.version, since_ns=now_ns)

    def _sweep_quietly(self, upto: int) -> None:
        try:
            self.sweep(upto)
        except (ComputingError, RowsFailed):  # retried later
            return

    def sweep(self, upto: int) -> None:
        """Deletes the cells of rows that were removed up to version ``upto``."""
        for kind in (b"k", b"o"):
            gone: list[Delete] = []
            for row, [cell] in self._scan(kind, _META, PAGE_ROWS):
                if not cell.value and cell.version <= upto:
                    gone.append(Delete(row, None, cell.version))
                if len(gone) >= PAGE_ROWS:
                    self._rows.delete(gone)
                    gone = []
            self._rows.delete(gone)


_ROW, _CHUNK = msgspec.msgpack.Decoder(_RowMeta), msgspec.msgpack.Decoder(_ChunkMeta)
_encode = msgspec.msgpack.Encoder().encode


def in_memory(interval: Interval) -> Store:
    """Returns a store for tests. It keeps its content across engines, as long as it is referenced."""
    return Store(MemoryRows(GROUPS), interval, where="memory")


def in_file(path: Path, interval: Interval | None = None) -> Store:
    """Opens a store in its own SQLite file, which it creates if missing."""
    rows = SqliteRows(path, GROUPS, APPLICATION, survives_power=True, one_thread=True)
    return Store(rows, interval, where=path, closes=True)


def on_hbase(rows: Rows, topology: str, interval: Interval, clock: Clock | None = None) -> Store:
    """Returns the store of one interval; several stores share ``rows``."""
    if "\0" in topology or "\0" in interval.id:
        raise UsageError(f"the topology {topology!r}: its name must not contain a zero byte")
    return Store(
        rows, interval, base=prefix_of(topology, interval.id), where=f"HBase, {topology} {interval.id}", clock=clock
    )


def hbase_rows(addresses: Sequence[str], table: str) -> HBaseRows:
    """Returns HBase's rows, without connecting yet. ``addresses``: host:port of each Thrift 2 server. Raises
    UsageError."""
    return HBaseRows(addresses, "--hbase", table, GROUPS, threads=THREADS, call_s=CALL_SECONDS_MAX)


def prefix_of(topology: str, interval: str) -> bytes:
    """Returns the prefix of all rows of the interval."""
    return b"%s\0%s\0" % (topology.encode(), interval.encode())


def _by_column(cells: Sequence[Cell]) -> Cells:
    return {cell.column: cell for cell in cells}


def _parts(data: bytes) -> list[bytes]:
    return [data[at : at + PART_BYTES] for at in range(0, len(data), PART_BYTES)]


def _sealed(data: bytes) -> bytes:
    return _CRC.pack(crc32(data)) + data


def _split(data: bytes) -> tuple[bytes, list[bytes]]:
    """Returns (data, []) if the data fits into the meta; otherwise (its checksum, its parts)."""
    return (data, []) if len(data) <= INLINE_BYTES else (_CRC.pack(crc32(data)), _parts(data))


def _with_parts(meta: _RowMeta | _ChunkMeta, parts: Sequence[bytes], version: int) -> list[Cell]:
    first = Cell(_META, version, _sealed(_encode(meta)))
    return [first, *(Cell(b"c%d" % n, version, part) for n, part in enumerate(parts))] if parts else [first]


def fenced(interval: str) -> str:
    return f"another process has taken over the interval {interval} of keys: this one ends without writing"
