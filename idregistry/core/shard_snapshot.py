"""A shard's state, and its snapshot as chunks of at most 1 MiB.

Each chunk is one tagged MessagePack map: a head (magic and version), the slots, the ids as packed rows of
``id_table.ROW`` per time bucket, generations other than 0, and an end that counts the ids, so that a snapshot cut
short is noticed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
import numpy as np

from photon.config.versioned_file import other_version
from photon.idregistry.core import commands as c
from photon.idregistry.core.id_bucket import ROW, FrozenBucket, Rows
from photon.idregistry.core.id_table import MAX_BUCKET_BITS, IdTable
from photon.idregistry.core.shard_standing import Sharding, Standing

MAGIC = "PHOTSHRD"
VERSION = 2
NO_BOUNDARY = c.NO_TIME
_ROWS_PER_CHUNK = 16_384  # 560 KiB
_GENERATIONS_PER_CHUNK = 65_536
_SLOTS_PER_CHUNK = 1_024
_INCARNATIONS_PER_ITEM = 65_536


class SnapshotError(ValueError):
    """The chunks are not a complete snapshot."""


# -- the state ------------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class SlotState:
    datacentre: int  # index into the datacentres' names; -1 while only a fence is known
    newest: int
    fenced: bool = False


@dataclass(slots=True)
class ShardState:
    sharding: Sharding = field(default_factory=Sharding)
    boundary: int = NO_BOUNDARY
    datacentres: list[str] = field(default_factory=list)
    slots: dict[str, SlotState] = field(default_factory=dict)
    incarnations: dict[int, str] = field(default_factory=dict)  # -> slot
    watermarks: dict[int, int] = field(default_factory=dict)  # incarnation -> batch below which all ids are cleared
    held: bool = False  # restored from a backup and not opened yet


@dataclass(frozen=True, slots=True)
class ShardImage:
    """A shard's state as of log entry ``applied``."""

    applied: int
    bucket_bits: int
    state: ShardState
    buckets: list[FrozenBucket] = field(default_factory=list)  # buckets of a snapshot to be written
    table: IdTable = field(default_factory=IdTable)  # table of a snapshot that was read


# -- the chunks -----------------------------------------------------------------------------------------------------
Count = Annotated[int, msgspec.Meta(ge=0)]
# name, datacentre, newest, fenced, some of its incarnations.
SlotItem = tuple[c.Name, Annotated[int, msgspec.Meta(ge=-1, le=254)], Count, bool, list[c.Incarnation]]


class _Chunk(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="k"):
    pass


class _Head(_Chunk, frozen=True, tag="head"):
    magic: str
    version: int
    applied: Count
    bucket_bits: Annotated[int, msgspec.Meta(ge=1, le=MAX_BUCKET_BITS)]
    number: Annotated[int, msgspec.Meta(ge=0, le=c.MAX_SHARDS)]
    ranges: tuple[c.Range, ...]
    boundary: c.TimeNs
    datacentres: list[str]
    standing: Standing
    latest: c.TimeNs
    held: bool


class _Slots(_Chunk, frozen=True, tag="slots"):
    items: list[SlotItem]


class _Watermarks(_Chunk, frozen=True, tag="watermarks"):
    items: list[tuple[c.Incarnation, Count]]


class _Ids(_Chunk, frozen=True, tag="ids"):
    bucket: int
    rows: bytes


class _Generations(_Chunk, frozen=True, tag="generations"):
    bucket: int
    rows: list[tuple[Count, Count]]


class _End(_Chunk, frozen=True, tag="end"):
    ids: Count


_decoder = msgspec.msgpack.Decoder(_Head | _Slots | _Watermarks | _Ids | _Generations | _End)
_encode = msgspec.msgpack.Encoder().encode
PEEK_BYTES = 64
# the encoder's first bytes of a chunk of ids, and of its rows
_IDS_BEGIN, _ROWS_NAME = b"\x83\xa1k\xa3ids", b"\xa4rows"


def write_shard(image: ShardImage) -> Iterable[bytes]:
    """Returns the chunks of a snapshot. The state is encoded now, the frozen rows when they are read."""
    return itertools.chain(state_chunks(image), _row_chunks(image.buckets))


def state_chunks(image: ShardImage) -> list[bytes]:
    """Returns the chunks before the ids: the same bytes for the same state and VERSION."""
    state = image.state
    head = _Head(
        MAGIC,
        VERSION,
        image.applied,
        image.bucket_bits,
        state.sharding.number,
        state.sharding.ranges,
        state.boundary,
        state.datacentres,
        state.sharding.standing,
        state.sharding.latest,
        state.held,
    )
    return [_encode(head), *_slot_chunks(state), *_watermark_chunks(state)]


def _slot_chunks(state: ShardState) -> Iterator[bytes]:
    held: dict[str, list[int]] = {name: [] for name in state.slots}
    for incarnation, name in state.incarnations.items():
        held[name].append(incarnation)
    slots = (((name, s.datacentre, s.newest, s.fenced), held[name]) for name, s in state.slots.items())
    for items in slot_items(slots, _SLOTS_PER_CHUNK):
        yield _encode(_Slots(items))


def slot_items(slots: Iterable[tuple[tuple[Any, ...], list[int]]], most: int) -> Iterator[list[Any]]:
    """Packs (a slot's fields, its incarnations) into lists of items, one list per chunk, of at most ``most`` items. A
    slot with many incarnations takes several items.
    """
    items: list[Any] = []
    weight = 0
    for fields, incarnations in slots:
        for start in range(0, max(len(incarnations), 1), _INCARNATIONS_PER_ITEM):
            part = incarnations[start : start + _INCARNATIONS_PER_ITEM]
            if items and (len(items) >= most or weight + len(part) > _INCARNATIONS_PER_ITEM):
                yield items
                items, weight = [], 0
            items.append((*fields, part))
            weight += len(part)
    if items:
        yield items


def _watermark_chunks(state: ShardState) -> Iterator[bytes]:
    items = sorted(state.watermarks.items())
    for start in range(0, len(items), _INCARNATIONS_PER_ITEM):
        yield _encode(_Watermarks(items[start : start + _INCARNATIONS_PER_ITEM]))


def _row_chunks(buckets: list[FrozenBucket]) -> Iterator[bytes]:
    ids = 0
    for bucket in buckets:
        while bucket.position < bucket.count:
            yield _encode(_Ids(bucket.number, bucket.read(_ROWS_PER_CHUNK).tobytes()))
        ids += bucket.count
        pairs = sorted(bucket.generations.items())
        for start in range(0, len(pairs), _GENERATIONS_PER_CHUNK):
            yield _encode(_Generations(bucket.number, pairs[start : start + _GENERATIONS_PER_CHUNK]))
    yield _encode(_End(ids))


def read_shard(chunks: Iterable[bytes]) -> ShardImage:
    """Reads the output of ``write_shard``. Raises SnapshotError."""
    reading = ShardReading()
    for chunk in chunks:
        reading.take(chunk)
    return reading.done()


class ShardReading:
    """Reads a snapshot chunk by chunk, in a few milliseconds each, without a second copy of the ids.

    Implements raft.api.Restoring. Raises SnapshotError.
    """

    def __init__(self, replace: Callable[[ShardImage], None] = lambda image: None) -> None:
        """``replace``: called by ``finish`` with the whole state."""
        self._replace = replace
        self._image: ShardImage | None = None
        self._expected: int | None = None

    def take(self, data: bytes) -> None:
        chunk = _decode(data)
        image = self._image
        if image is None:
            self._image = _begin(chunk)
        elif isinstance(chunk, _Slots):
            _read_slots(chunk, image.state)
        elif isinstance(chunk, _Watermarks):
            image.state.watermarks.update(chunk.items)
        elif isinstance(chunk, _Ids):
            image.table.load(chunk.bucket, _read_rows(chunk.rows))
        elif isinstance(chunk, _Generations):
            try:
                image.table.load_generations(chunk.bucket, chunk.rows)
            except ValueError as error:
                raise SnapshotError(f"shard snapshot: {error}") from None
        elif isinstance(chunk, _End):
            self._expected = chunk.ids

    def done(self) -> ShardImage:
        """Returns the state. Call it after the last chunk."""
        image = self._image
        if image is None or self._expected is None:
            raise SnapshotError("shard snapshot: cut short")
        if len(image.table) != self._expected:
            raise SnapshotError(f"shard snapshot: {len(image.table)} ids instead of {self._expected}")
        return image

    def finish(self) -> None:
        self._replace(self.done())


def _decode(data: bytes) -> _Chunk:
    try:
        chunk: _Chunk = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise SnapshotError(f"shard snapshot: {error}") from None
    return chunk


# -- single chunks, for readers that share the work -----------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class HeadFacts:
    shard: int
    bucket_bits: int
    boundary: int


def head_facts(chunk: bytes) -> HeadFacts:
    """Returns the facts in a snapshot's first chunk. Raises SnapshotError."""
    image = _begin(_decode(chunk))
    return HeadFacts(image.state.sharding.number, image.bucket_bits, image.state.boundary)


def peek_ids(begin: bytes, length: int) -> tuple[int, int] | None:
    """Returns the bucket and number of rows of a chunk of ids, from its first PEEK_BYTES and its length; ``None`` for
    other chunks.
    """
    at = begin.find(_ROWS_NAME)
    if not begin.startswith(_IDS_BEGIN) or at < 0:
        return None
    data_at = at + len(_ROWS_NAME)
    chunk = _decode(begin[:data_at] + b"\xc4\0")
    assert isinstance(chunk, _Ids)
    data_at += {0xC4: 2, 0xC5: 3, 0xC6: 5}[begin[data_at]]  # MessagePack's bin 8, 16 and 32
    return chunk.bucket, (length - data_at) // ROW.itemsize


def ids_of(chunk: bytes) -> tuple[int, Rows]:
    """Returns the bucket and rows of a chunk of ids. Raises SnapshotError."""
    decoded = _decode(chunk)
    if not isinstance(decoded, _Ids):
        raise SnapshotError("shard snapshot: a chunk holds no ids")
    return decoded.bucket, _read_rows(decoded.rows)


def generations_of(chunk: bytes) -> tuple[int, list[tuple[int, int]]] | None:
    """Returns bucket and (row, generation) of a chunk of generations; ``None`` for others. Raises SnapshotError."""
    decoded = _decode(chunk)
    return (decoded.bucket, decoded.rows) if isinstance(decoded, _Generations) else None


def held_head(chunk: bytes) -> bytes:
    """Changes a snapshot's first chunk so that the shard starts closed to inserts. Raises SnapshotError."""
    head = _decode(chunk)
    _begin(head)
    return _encode(msgspec.structs.replace(head, held=True))


def _begin(chunk: _Chunk) -> ShardImage:
    if not isinstance(chunk, _Head) or chunk.magic != MAGIC:
        raise SnapshotError("shard snapshot: does not start with its head")
    if chunk.version != VERSION:
        raise SnapshotError(f"shard snapshot: {other_version(chunk.version, VERSION)}")
    state = ShardState(
        Sharding(chunk.number, chunk.ranges, chunk.standing, chunk.latest),
        chunk.boundary,
        list(chunk.datacentres),
        held=chunk.held,
    )
    return ShardImage(chunk.applied, chunk.bucket_bits, state, table=IdTable(chunk.bucket_bits))


def _read_slots(chunk: _Slots, state: ShardState) -> None:
    for name, datacentre, newest, fenced, incarnations in chunk.items:
        if datacentre >= len(state.datacentres):
            raise SnapshotError(f"shard snapshot: slot {name} is in an unknown datacentre")
        state.slots[name] = SlotState(datacentre, newest, fenced)
        for incarnation in incarnations:
            state.incarnations[incarnation] = name


def _read_rows(data: bytes) -> Rows:
    if len(data) % ROW.itemsize:
        raise SnapshotError(f"shard snapshot: {len(data)} bytes of rows is not a multiple of {ROW.itemsize}")
    return np.frombuffer(data, ROW)
