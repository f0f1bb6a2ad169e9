"""Converts feeds and requests of cache nodes to the columns of eventstore.proto, and back. Pure. Little endian."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from photon.adapters.contract import LogFile
from photon.batch.records import Records
from photon.config.rpc import Service, WireError
from photon.eventstore import eventstore_pb2 as pb
from photon.eventstore.columns import KEYS_MAX, MESSAGE_BYTES_MAX, REPLY_BYTES_MAX
from photon.eventstore.found_records import FoundRecords
from photon.eventstore.index import I64, U64
from photon.eventstore.segments import CacheCounts, Gathered, Segment

SOURCE_BYTES = 16
SEGMENTS_MAX = 4096  # in one feed
FEED_BYTES_MAX = (
    MESSAGE_BYTES_MAX // 2
)  # limit of a feed's segments, columns included; a larger segment is never sent
HASHES_MAX = 16 * KEYS_MAX  # in one request
OFFSET_MAX = (1 << 63) - 1
CACHE = Service(pb.DESCRIPTOR, "Cache", bytes_max=MESSAGE_BYTES_MAX, fields_max=SEGMENTS_MAX + 16)


class Piece(NamedTuple):
    """One node's records of one block: a CacheSegment, encoded as in a CacheFeed."""

    message: bytes
    data_bytes: int  # of the records

    @property
    def size(self) -> int:
        return len(self.message)


class NodeCounts(NamedTuple):
    cache: CacheCounts
    bytes_max: int
    fed_bytes: int
    fed_events: int


def source_of(rule: bytes) -> bytes:
    """Returns a digest of the rule that identifies the logs and determines their keys."""
    return hashlib.blake2b(rule, digest_size=SOURCE_BYTES).digest()


def piece(
    identity: str, file: LogFile, data: Sequence[bytes], hashes: U64, starts: npt.NDArray[np.integer], offsets: U64
) -> Piece:
    """Encodes a segment whose records are the concatenated ``data``; columns as in eventstore.proto.

    Writes protobuf's encoding by hand, so that the records, most of the bytes, are copied once rather than three
    times.
    """
    size = sum(map(len, data))
    columns = (
        hashes.astype("<u8", copy=False).tobytes(),
        starts.astype("<u4").tobytes(),
        offsets.astype("<u8", copy=False).tobytes(),
    )
    name = pb.LogFileName(path=file.path, header=file.header).SerializeToString()
    begin = _field(1, identity.encode()) + _field(2, name) + _head(3, size)
    end = b"".join(_field(number, column) for number, column in enumerate(columns, 4))
    return Piece(b"".join((_head(2, len(begin) + size + len(end)), begin, *data, end)), size)


def feed(source: bytes, pieces: Sequence[Piece]) -> bytes:
    return b"".join((_field(1, source), *(piece.message for piece in pieces)))


def _field(number: int, value: bytes) -> bytes:
    return _head(number, len(value)) + value


def _head(number: int, size: int) -> bytes:
    """Returns the encoded head of a field (wire type 2) of ``size`` bytes."""
    out = bytearray((number << 3 | 2,))
    while size > 0x7F:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    out.append(size)
    return bytes(out)


def fed(message: pb.CacheFeed) -> list[tuple[Segment, U64, I64]]:
    """Decodes a CacheFeed into the arguments of SegmentCache.put. Raises WireError."""
    _check_source(message.source)
    out = []
    for each in message.segments:
        hashes = np.frombuffer(each.hashes, dtype="<u8") if len(each.hashes) % 8 == 0 else None
        if hashes is None or len(each.starts) != 4 * len(hashes) or len(each.offsets) != 8 * len(hashes):
            raise WireError("the columns of a segment do not fit together")
        starts = np.frombuffer(each.starts, dtype="<u4")
        if len(hashes) and (int(starts.max()) >= len(each.data) or bool((hashes[1:] < hashes[:-1]).any())):
            raise WireError("the columns of a segment do not fit its data")
        offsets = np.frombuffer(each.offsets, dtype="<u8")
        if len(offsets) and int(offsets.max()) > OFFSET_MAX:
            raise WireError("a segment has an impossible offset")
        gathered = Gathered(starts, offsets)
        file = LogFile(each.file.path, each.file.header)
        segment = Segment(each.identity, file, 0, each.data, len(hashes), gathered)
        out.append((segment, hashes, np.arange(len(hashes))))
    return out


def find(source: bytes, hashes: U64) -> pb.CacheFind:
    """Encodes a CacheFind of at most HASHES_MAX hashes."""
    return pb.CacheFind(source=source, hashes=hashes.astype("<u8", copy=False).tobytes())


def asked(message: pb.CacheFind) -> U64:
    """Returns the hashes in a CacheFind. Raises WireError."""
    _check_source(message.source)
    if len(message.hashes) % 8 or len(message.hashes) > 8 * HASHES_MAX:
        raise WireError(f"{len(message.hashes)} bytes of hashes; at most {HASHES_MAX} of 8 bytes are allowed")
    return np.frombuffer(message.hashes, dtype="<u8")


def found(located: FoundRecords, bytes_max: int = REPLY_BYTES_MAX) -> pb.CacheFound:
    """Encodes a CacheFound. Omits records beyond ``bytes_max``: the logs answer those."""
    records = located.records
    sizes = np.fromiter(map(len, records.records), "<u4", len(records))
    fit = int(np.searchsorted(np.cumsum(sizes, dtype=np.int64), bytes_max, "right"))
    return pb.CacheFound(
        rows=located.rows[:fit].astype("<u4").tobytes(),
        log_indexes=records.file_index[:fit].astype("<u4", copy=False).tobytes(),
        offsets=records.offsets[:fit].astype("<u8").tobytes(),
        sizes=sizes[:fit].tobytes(),
        records=b"".join(records.records[:fit]),
        logs=[
            pb.CachedLog(identity=identity, file=pb.LogFileName(path=file.path, header=file.header))
            for identity, file in zip(located.identities, records.files, strict=True)
        ],
    )


def located(message: pb.CacheFound, rows: I64) -> FoundRecords:
    """Decodes the records found; hash i of the request was for the caller's row ``rows[i]``. Raises WireError."""
    columns = message.rows, message.log_indexes, message.sizes
    count = len(message.rows) // 4
    if any(len(column) != 4 * count for column in columns) or len(message.offsets) != 8 * count:
        raise WireError("the columns of a cache node's answer do not fit together")
    at, indexes, sizes = (np.frombuffer(column, dtype="<u4") for column in columns)
    ends = np.cumsum(sizes, dtype=np.int64)
    if (int(ends[-1]) if count else 0) != len(message.records):
        raise WireError("the sizes in a cache node's answer do not fit its records")
    if count and (at.max() >= len(rows) or indexes.max() >= len(message.logs)):
        raise WireError("a cache node's answer has records that were not requested")
    offsets = np.frombuffer(message.offsets, dtype="<u8")
    if count and int(offsets.max()) > OFFSET_MAX:
        raise WireError("a cache node's answer has an impossible offset")
    data = message.records
    cut = [data[begin:end] for begin, end in zip((ends - sizes).tolist(), ends.tolist(), strict=True)]
    files = [LogFile(log.file.path, log.file.header) for log in message.logs]
    return FoundRecords(
        rows[at], [log.identity for log in message.logs], Records(files, indexes, offsets.astype(np.int64), cut)
    )


def counts_reply(counts: NodeCounts) -> pb.CacheCountsReply:
    cache = counts.cache
    return pb.CacheCountsReply(
        hits=cache.hits,
        misses=cache.misses,
        evictions=cache.evictions,
        segments=cache.segments,
        held_bytes=cache.bytes,
        entries=cache.entries,
        bytes_max=counts.bytes_max,
        fed_bytes=counts.fed_bytes,
        fed_events=counts.fed_events,
    )


def counts_of(message: pb.CacheCountsReply) -> NodeCounts:
    cache = CacheCounts(
        message.hits, message.misses, message.evictions, message.segments, message.held_bytes, message.entries
    )
    return NodeCounts(cache, message.bytes_max, message.fed_bytes, message.fed_events)


def _check_source(source: bytes) -> None:
    if len(source) != SOURCE_BYTES:
        raise WireError(f"a source of {len(source)} bytes; it has {SOURCE_BYTES}")
