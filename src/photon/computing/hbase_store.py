"""A store in HBase, so that processes on several machines can own the intervals of one topology: one row for each
key.

HBase changes one row at a time, conditionally; a commit changes many. So a commit takes effect at one moment, a
mutation of the interval's own row that compares its previous content: sequencer and version. Key rows are written
after it:

    TOPOLOGY 0 INTERVAL 0 i          c:head (JSON), c:s0, c:s1, … standing, c:r0, … redo: all rows of the last commit
    TOPOLOGY 0 INTERVAL 0 r NUMBER   c:r, the redo beyond REDO_PARTS
    TOPOLOGY 0 INTERVAL 0 k COMPUTATION 0 KEY       c:m (msgpack, as ``_RowMeta``), c:0, c:1, … data
    TOPOLOGY 0 INTERVAL 0 o SENDER 0 TARGET 0 LAST  c:m (as ``_ChunkMeta``), c:0, … productions on their way

Steps of a commit, and a crash after each:

    1. redo beyond REDO_PARTS      nothing has happened
    2. the interval's row, if it has the head that this owner wrote last: THE MOMENT
    3. the rows of the redo        the interval's next owner does this before anything else
    4. it returns; the next one begins

Every version is one more than the last and is HBase's timestamp of all its writes, so a row has the value of the
highest commit, regardless of the order of writes. Hence the rules:

- **Nothing is written twice, and nothing halfway.** Step 3 may be repeated by anybody at any time: it writes what was
  committed, at the version it was committed with.
- **A zombie writes nothing** (MillWheel 6.2): its head has been replaced, so step 2 is refused. It may still write
  rows of its earlier commits (step 3), which its successor wrote before its own first commit: the same bytes at the
  same version, below all later ones. That holds for every row, even untouched ones, without comparing anything in
  them.
- **Redo parts that are newer than the head's commit prove that its rows are written**: an owner begins step 1 only
  after step 3 of the previous commit.
- **A removed row stays as an empty cell**: a compaction of HBase forgets deletions, and then a slow write would
  restore the row. After GRACE_S, when no earlier write can still be on its way, the cell is deleted.

Timers are in memory, read from the rows at the start.
"""

from __future__ import annotations

import heapq
import secrets
import struct
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TypeVar

import msgspec

from photon.computing.errors import ComputingError, Fenced, Retired
from photon.computing.hbase_rows import Cells, Put, VersionedRows
from photon.computing.intervals import Interval
from photon.computing.store import Chunk, Commit, Due, Row, fenced
from photon.config.clock import NS_PER_S
from photon.config.decoding import DECODE_ERRORS
from photon.config.errors import UsageError
from photon.config.versioned_file import decoded

PART_BYTES = 1 << 20  # per cell: HBase refuses more than 10 MiB
REDO_PARTS = 8  # in the interval's own row
ROW_BYTES_MAX = 64 << 20
KEY_BYTES_MAX = 1_000  # longer ones are hashed
GRACE_S = 3600.0  # HBase's own clients try a call for 20 minutes at most
SWEEP_ROWS = 500
SWEEP_S = 20.0  # wait of ``close`` for a sweep under way: every run may be short, and none would finish one
_HEAD, _META = b"head", b"m"
_LAST, _PART = struct.Struct(">Q"), struct.Struct(">I")
_GONE: Mapping[bytes, bytes] = {_META: b"", b"0": b""}

D = TypeVar("D")


class _Head(msgspec.Struct, frozen=True, kw_only=True, tag_field="photon_computing", tag=1):
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


class _RowMeta(msgspec.Struct, array_like=True, frozen=True):
    computation: str
    key: str
    event_ns: int | None
    wall_ns: int | None
    aside: int
    parts: int


class _ChunkMeta(msgspec.Struct, array_like=True, frozen=True):
    sender: str
    target: str
    last: int
    parts: int


class _Timers:
    """The next timers of keys, in order."""

    def __init__(self) -> None:
        self._times: dict[str, int] = {}
        self._heap: list[Due] = []  # may contain outdated entries

    def put(self, key: str, time_ns: int | None) -> None:
        if time_ns == self._times.get(key):
            return
        if time_ns is None:
            del self._times[key]
            return
        self._times[key] = time_ns
        heapq.heappush(self._heap, Due(time_ns, key))
        if len(self._heap) > 2 * len(self._times) + 1_000:
            self._heap = [Due(at, name) for name, at in self._times.items()]
            heapq.heapify(self._heap)

    def due(self, until_ns: int, limit: int) -> list[Due]:
        heap, found = self._heap, dict[Due, None]()
        while heap and heap[0].time_ns <= until_ns and len(found) < limit:
            due = heapq.heappop(heap)
            if self._times.get(due.key) == due.time_ns:
                found[due] = None
        for due in found:
            heapq.heappush(heap, due)
        return list(found)


@dataclass(slots=True)
class _Index:
    """The index of all rows, so that they need not be read."""

    # By computation and whether on the wall clock
    timers: dict[tuple[str, bool], _Timers] = field(default_factory=dict)
    aside: dict[tuple[str, str], int] = field(default_factory=dict)
    # Sender and target -> the last numbers of its chunks, in order.
    lasts: dict[tuple[str, str], list[int]] = field(default_factory=dict)

    def put(self, computation: str, key: str, event_ns: int | None, wall_ns: int | None, aside: int) -> None:
        for wall, at in ((False, event_ns), (True, wall_ns)):
            timers = self.timers.get((computation, wall))
            if timers is None and at is not None:
                timers = self.timers[computation, wall] = _Timers()
            if timers is not None:
                timers.put(key, at)
        if aside:
            self.aside[computation, key] = aside
        else:
            self.aside.pop((computation, key), None)


class HBaseStore:
    """Of one interval of a topology. Raises ComputingError, UsageError."""

    def __init__(self, rows: VersionedRows, topology: str, interval: Interval) -> None:
        """Creates only the interval's own row."""
        if "\0" in topology or "\0" in interval.id:
            raise UsageError(f"the topology {topology!r}: its name must not hold a zero byte")
        self.interval = interval
        self._rows = rows
        self._base = prefix_of(topology, interval.id)
        self._head: _Head | None = None  # the last one that this store wrote, as the owner
        self._known: _Index | None = None
        self._sweeping: threading.Thread | None = None
        new = _Head(interval=interval.id, low=interval.low, high=interval.high)
        if not self._cells():
            self._swap(None, new)
        head = self._now()[1]
        if (head.low, head.high) != (interval.low, interval.high):
            raise ComputingError(
                f"HBase has the interval {interval.id} of {topology} as {head.low:#010x} to {head.high:#010x}, "
                f"not as {interval.low:#010x} to {interval.high:#010x}"
            )

    # -- the interval's row
    def successors(self) -> tuple[str, ...]:
        return self._now()[1].successors

    def acquire(self, owner: str, *, revive: bool = False) -> int:
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
        _, head, cells = self._now()
        return self._joined(cells, b"s", head.standing, head.committed)

    def commit(self, sequencer: int, commit: Commit) -> None:
        head = self._owned(sequencer)
        puts = self._puts(commit)
        redo = _parts(msgspec.msgpack.encode(puts))
        standing = _parts(commit.standing)
        version = head.version + 1
        self._rows.put([(self._redo_row(n), {b"r": part}) for n, part in _numbered(redo)[REDO_PARTS:]], version)
        new = msgspec.structs.replace(
            self._sweep_sometimes(head), version=version, committed=version, standing=len(standing), redo=len(redo)
        )
        own = {b"s%d" % n: part for n, part in _numbered(standing)}
        own |= {b"r%d" % n: part for n, part in _numbered(redo)[:REDO_PARTS]}
        self._own(head, new, own)
        self._head = None  # this owner commits nothing more unless the rows are written
        self._rows.put(puts, version)
        self._head = new
        self._note(commit)

    def retire(self, sequencer: int, successors: tuple[str, ...]) -> None:
        head = self._owned(sequencer)
        self._own(head, msgspec.structs.replace(head, version=head.version + 1, successors=successors))

    def _owned(self, sequencer: int) -> _Head:
        if self._head is None or self._head.sequencer != sequencer:
            raise Fenced(fenced(self.interval.id))
        if self._head.successors:
            raise Retired(self.interval.id, self._head.successors)
        return self._head

    def _own(self, head: _Head, new: _Head, values: Mapping[bytes, bytes] = {}) -> None:
        if self._swap(msgspec.json.encode(head), new, values):
            self._head = new
            return
        self._head = None
        if successors := self.successors():
            raise Retired(self.interval.id, successors)
        raise Fenced(fenced(self.interval.id))

    def _swap(self, before: bytes | None, new: _Head, values: Mapping[bytes, bytes] = {}) -> bool:
        written = {_HEAD: msgspec.json.encode(new), **values}
        return self._rows.replace(self._base + b"i", _HEAD, before, written, new.version)

    def _cells(self) -> Cells:
        return self._rows.get([self._base + b"i"])[0]

    def _now(self) -> tuple[bytes, _Head, Cells]:
        cells = self._cells()
        if _HEAD not in cells:
            raise ComputingError(f"the interval {self.interval.id} is not in HBase any more")
        data = cells[_HEAD].value
        try:
            return data, decoded(data, _Head), cells
        except DECODE_ERRORS as error:
            raise self._damaged(str(error)) from None

    def _redo(self, head: _Head, cells: Cells) -> None:
        """Writes the rows of the last commit."""
        names = [self._redo_row(n) for n in range(REDO_PARTS, head.redo)]
        found = [cells.get(b"r%d" % n) for n in range(min(head.redo, REDO_PARTS))]
        found += [each.get(b"r") for each in self._rows.get(names)]
        parts = [each for each in found if each is not None]
        if any(each.version > head.committed for each in parts):
            return  # a later owner did it and went on to the next commit
        if len(parts) < head.redo or any(each.version < head.committed for each in parts):
            raise self._damaged("the last commit is not there in full")
        if parts:
            puts = self._decoded(b"".join(each.value for each in parts), msgspec.msgpack.Decoder(list[Put]))
            self._rows.put(puts, head.committed)

    # -- rows
    def load(self, computation: str, keys: Sequence[str]) -> dict[str, Row]:
        found = self._rows.get([self._key_row(computation, key) for key in keys])
        rows = (self._row(cells) for cells in found)
        return {row.key: row for row in rows if row is not None}

    def scan(self) -> Iterator[Row]:
        for _, cells in self._rows.scan(self._base + b"k"):
            if (row := self._row(cells)) is not None:
                yield row

    def due(self, computation: str, wall: bool, until_ns: int, limit: int) -> list[Due]:
        timers = self._index().timers.get((computation, wall))
        return [] if timers is None else timers.due(until_ns, limit)

    def aside(self) -> Iterable[tuple[str, str, int]]:
        return [(*place, count) for place, count in self._index().aside.items()]

    def chunks(self) -> Iterable[Chunk]:
        found = []
        for _, cells in self._rows.scan(self._base + b"o"):
            if (meta := self._meta(cells, _CHUNK)) is not None:
                data = self._joined(cells, b"", meta.parts, cells[_META].version)
                found.append(Chunk(meta.sender, meta.target, meta.last, data))
        return sorted(found, key=lambda chunk: (chunk.sender, chunk.last))

    def close(self) -> None:
        """Waits for a sweep under way. The rows stay open: they belong to the caller."""
        if self._sweeping is not None:
            self._sweeping.join(SWEEP_S)

    def _row(self, cells: Cells) -> Row | None:
        if (meta := self._meta(cells, _ROW)) is None:
            return None
        data = self._joined(cells, b"", meta.parts, cells[_META].version)
        return Row(meta.computation, meta.key, data, meta.event_ns, meta.wall_ns, meta.aside)

    def _index(self) -> _Index:
        if self._known is None:
            self._known = index = _Index()
            for _, cells in self._rows.scan(self._base + b"k", [_META]):
                if (row := self._meta(cells, _ROW)) is not None:
                    index.put(row.computation, row.key, row.event_ns, row.wall_ns, row.aside)
            for _, cells in self._rows.scan(self._base + b"o", [_META]):
                if (chunk := self._meta(cells, _CHUNK)) is not None:
                    index.lasts.setdefault((chunk.sender, chunk.target), []).append(chunk.last)
        return self._known

    def _note(self, commit: Commit) -> None:
        index = self._index()
        for row in commit.rows:
            gone = row.data is None
            index.put(
                row.computation, row.key, None if gone else row.event_ns, None if gone else row.wall_ns,
                0 if gone else row.aside,
            )  # fmt: skip
        for sender, target, upto in commit.done:
            lasts = index.lasts.get((sender, target), [])
            lasts[:] = [each for each in lasts if each > upto]
        for chunk in commit.added:
            index.lasts.setdefault((chunk.sender, chunk.target), []).append(chunk.last)

    # -- writing
    def _puts(self, commit: Commit) -> list[Put]:
        """Writes for a commit's rows. Raises ComputingError for a row that HBase would refuse."""
        puts: dict[bytes, Mapping[bytes, bytes]] = {}
        for row in commit.rows:
            puts[self._key_row(row.computation, row.key)] = self._row_values(row)
        lasts = self._index().lasts
        for sender, target, upto in commit.done:
            for last in lasts.get((sender, target), ()):
                if last <= upto:
                    puts[self._chunk_row(sender, target, last)] = _GONE
        for chunk in commit.added:
            parts = _parts(chunk.data)
            meta = msgspec.msgpack.encode(_ChunkMeta(chunk.sender, chunk.target, chunk.last, len(parts)))
            puts[self._chunk_row(chunk.sender, chunk.target, chunk.last)] = _values(meta, parts)
        return list(puts.items())

    def _row_values(self, row: Row) -> Mapping[bytes, bytes]:
        if row.data is None:
            return _GONE
        if len(row.data) > ROW_BYTES_MAX:
            raise ComputingError(
                f"computation {row.computation}, key {row.key!r}: its row has {len(row.data)} bytes, more than "
                f"{ROW_BYTES_MAX}, which is what HBase should hold of one"
            )
        parts = _parts(row.data)
        meta = _RowMeta(row.computation, row.key, row.event_ns, row.wall_ns, row.aside, len(parts))
        return _values(msgspec.msgpack.encode(meta), parts)

    def _key_row(self, computation: str, key: str) -> bytes:
        plain = f"{computation}\0{key}".encode()
        if len(plain) > KEY_BYTES_MAX or "\0" in computation:
            plain = b"\0" + blake2b(msgspec.msgpack.encode((computation, key))).digest()
        return self._base + b"k" + plain

    def _chunk_row(self, sender: str, target: str, last: int) -> bytes:
        return b"%so%s\0%s\0%s" % (self._base, sender.encode(), target.encode(), _LAST.pack(last))

    def _redo_row(self, number: int) -> bytes:
        return b"%sr%s" % (self._base, _PART.pack(number))

    # -- reading
    def _meta(self, cells: Cells, decoder: msgspec.msgpack.Decoder[D]) -> D | None:
        """``None`` means that it was removed."""
        data = cells[_META].value if _META in cells else b""
        return self._decoded(data, decoder) if data else None

    def _joined(self, cells: Cells, prefix: bytes, count: int, version: int) -> bytes:
        """Older parts are left over from a longer value."""
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
        return ComputingError(f"what HBase has of the interval {self.interval.id} is damaged: {what}")

    # -- removed rows
    def _sweep_sometimes(self, head: _Head) -> _Head:
        """Sweeps if due, and returns the head with the next removal mark. The mark is in the interval's row, as no
        process may run for that long."""
        now_ns = self._rows.clock.now_ns()
        if 0 <= now_ns - head.since_ns < GRACE_S * NS_PER_S:
            return head
        if head.removed and now_ns > head.since_ns:  # otherwise the clock was ahead
            self._sweeping = threading.Thread(target=self._sweep_quietly, args=(head.removed,), daemon=True)
            self._sweeping.start()
        return msgspec.structs.replace(head, removed=head.version, since_ns=now_ns)

    def _sweep_quietly(self, upto: int) -> None:
        try:
            self.sweep(upto)
        except ComputingError:  # tried again later
            return

    def sweep(self, upto: int) -> None:
        """Deletes rows that were removed up to a version."""
        for kind in (b"k", b"o"):
            gone: list[tuple[bytes, int]] = []
            for row, cells in self._rows.scan(self._base + kind, [_META]):
                meta = cells[_META]
                if not meta.value and meta.version <= upto:
                    gone.append((row, meta.version))
                if len(gone) >= SWEEP_ROWS:
                    self._rows.delete(gone)
                    gone = []
            self._rows.delete(gone)


_ROW, _CHUNK = msgspec.msgpack.Decoder(_RowMeta), msgspec.msgpack.Decoder(_ChunkMeta)


def prefix_of(topology: str, interval: str) -> bytes:
    """The prefix of all rows of the interval."""
    return b"%s\0%s\0" % (topology.encode(), interval.encode())


def _parts(data: bytes) -> list[bytes]:
    return [data[at : at + PART_BYTES] for at in range(0, len(data), PART_BYTES)]


def _numbered(parts: Sequence[bytes]) -> list[tuple[int, bytes]]:
    return list(enumerate(parts))


def _values(meta: bytes, parts: Sequence[bytes]) -> Mapping[bytes, bytes]:
    return {_META: meta, **{b"%d" % n: part for n, part in enumerate(parts)}}
