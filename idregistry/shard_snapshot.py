"""A shard's state, and its snapshot as chunks of at most 1 MiB.

Each chunk is one tagged MessagePack map: a head (magic and version), the slots, the ids as packed rows of
``id_table.ROW`` per time bucket, their generations where these are not 0, and an end that counts the ids, so that a
snapshot cut short is noticed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Annotated

import msgspec
import numpy as np

from photon.idregistry import commands as c
from photon.idregistry.id_table import MAX_BUCKET_BITS, ROW, BucketRows, Rows

MAGIC = "PHOTSHRD"
VERSION = 1
NO_BOUNDARY = -(2**63)
_ROWS_PER_CHUNK = 16_384  # 560 KiB
_GENERATIONS_PER_CHUNK = 65_536
_SLOTS_PER_CHUNK = 1_024
_INCARNATIONS_PER_ITEM = 65_536


class SnapshotError(ValueError):
    """Chunks that are not a whole snapshot of ours."""


# -- the state ------------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class SlotState:
    """A slot as this shard knows it."""

    datacentre: int  # index into the names; -1 while only a fence is known
    newest: int
    fenced: bool = False


@dataclass(slots=True)
class ShardState:
    """Everything but the ids."""

    number: int = 0  # 0 until configured
    ranges: tuple[c.Range, ...] = ()
    boundary: int = NO_BOUNDARY
    datacentres: list[str] = field(default_factory=list)
    slots: dict[str, SlotState] = field(default_factory=dict)
    incarnations: dict[int, str] = field(default_factory=dict)  # -> slot


@dataclass(frozen=True, slots=True)
class ShardImage:
    """A shard as of one entry."""

    applied: int
    bucket_bits: int
    state: ShardState
    buckets: list[BucketRows]


# -- the chunks -----------------------------------------------------------------------------------------------------
Count = Annotated[int, msgspec.Meta(ge=0)]
SlotItem = tuple[c.Name, Annotated[int, msgspec.Meta(ge=-1, le=254)], Count, bool, list[c.Incarnation]]
"""name, datacentre, newest, fenced, some of its incarnations."""


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


class _Slots(_Chunk, frozen=True, tag="slots"):
    items: list[SlotItem]


class _Ids(_Chunk, frozen=True, tag="ids"):
    bucket: int
    rows: bytes


class _Generations(_Chunk, frozen=True, tag="generations"):
    bucket: int
    rows: list[tuple[Count, Count]]


class _End(_Chunk, frozen=True, tag="end"):
    ids: Count


_decoder = msgspec.msgpack.Decoder(_Head | _Slots | _Ids | _Generations | _End)
_encode = msgspec.msgpack.Encoder().encode


def write_shard(image: ShardImage) -> Iterable[bytes]:
    """The image's chunks. The state is encoded now, the rows (which nobody changes any more) when they are read."""
    state = image.state
    head = _Head(
        MAGIC,
        VERSION,
        image.applied,
        image.bucket_bits,
        state.number,
        state.ranges,
        state.boundary,
        state.datacentres,
    )
    first = [_encode(head), *_slot_chunks(state)]
    return itertools.chain(first, _row_chunks(image.buckets))


def _slot_chunks(state: ShardState) -> Iterator[bytes]:
    held: dict[str, list[int]] = {name: [] for name in state.slots}
    for incarnation, name in state.incarnations.items():
        held[name].append(incarnation)
    items: list[SlotItem] = []
    weight = 0
    for name, slot in state.slots.items():
        incarnations = held[name]
        for start in range(0, max(len(incarnations), 1), _INCARNATIONS_PER_ITEM):
            part = incarnations[start : start + _INCARNATIONS_PER_ITEM]
            if items and (len(items) >= _SLOTS_PER_CHUNK or weight + len(part) > _INCARNATIONS_PER_ITEM):
                yield _encode(_Slots(items))
                items, weight = [], 0
            items.append((name, slot.datacentre, slot.newest, slot.fenced, part))
            weight += len(part)
    if items:
        yield _encode(_Slots(items))


def _row_chunks(buckets: list[BucketRows]) -> Iterator[bytes]:
    ids = 0
    for bucket in buckets:
        for start in range(0, len(bucket.rows), _ROWS_PER_CHUNK):
            yield _encode(_Ids(bucket.number, bucket.rows[start : start + _ROWS_PER_CHUNK].tobytes()))
        ids += len(bucket.rows)
        pairs = sorted(bucket.generations.items())
        for start in range(0, len(pairs), _GENERATIONS_PER_CHUNK):
            yield _encode(_Generations(bucket.number, pairs[start : start + _GENERATIONS_PER_CHUNK]))
    yield _encode(_End(ids))


def read_shard(chunks: Iterable[bytes]) -> ShardImage:
    """What ``write_shard`` wrote. Raises SnapshotError."""
    image: ShardImage | None = None
    parts: dict[int, list[bytes]] = {}
    generations: dict[int, dict[int, int]] = {}
    expected = None
    for data in chunks:
        chunk = _decode(data)
        if image is None:
            image = _begin(chunk)
        elif isinstance(chunk, _Slots):
            _read_slots(chunk, image.state)
        elif isinstance(chunk, _Ids):
            parts.setdefault(chunk.bucket, []).append(chunk.rows)
        elif isinstance(chunk, _Generations):
            generations.setdefault(chunk.bucket, {}).update(chunk.rows)
        elif isinstance(chunk, _End):
            expected = chunk.ids
    if image is None or expected is None:
        raise SnapshotError("shard snapshot: cut short")
    for number in sorted(parts):
        rows = _read_rows(parts.pop(number))
        image.buckets.append(BucketRows(number, rows, generations.get(number, {})))
    ids = sum(len(bucket.rows) for bucket in image.buckets)
    if ids != expected:
        raise SnapshotError(f"shard snapshot: {ids} ids, should be {expected}")
    return image


def _decode(data: bytes) -> _Head | _Slots | _Ids | _Generations | _End:
    try:
        chunk: _Head | _Slots | _Ids | _Generations | _End = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise SnapshotError(f"shard snapshot: {error}") from None
    return chunk


def _begin(chunk: _Chunk) -> ShardImage:
    if not isinstance(chunk, _Head) or chunk.magic != MAGIC:
        raise SnapshotError("shard snapshot: does not start with its head")
    if chunk.version != VERSION:
        raise SnapshotError(f"shard snapshot: version {chunk.version} is not {VERSION}, of another release of Photon")
    state = ShardState(chunk.number, chunk.ranges, chunk.boundary, list(chunk.datacentres))
    return ShardImage(chunk.applied, chunk.bucket_bits, state, [])


def _read_slots(chunk: _Slots, state: ShardState) -> None:
    for name, datacentre, newest, fenced, incarnations in chunk.items:
        if datacentre >= len(state.datacentres):
            raise SnapshotError(f"shard snapshot: slot {name} is in an unknown datacentre")
        state.slots[name] = SlotState(datacentre, newest, fenced)
        for incarnation in incarnations:
            state.incarnations[incarnation] = name


def _read_rows(parts: list[bytes]) -> Rows:
    data = b"".join(parts)
    if len(data) % ROW.itemsize:
        raise SnapshotError(f"shard snapshot: {len(data)} bytes of rows is no multiple of {ROW.itemsize}")
    return np.frombuffer(data, ROW).copy()  # writable
