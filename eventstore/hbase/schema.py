"""Encodes rows and cells of the file map's table. Pure. One column family, big-endian parts of fixed width, format
version 1.

    dense   salt 1 | life 4 | hash, its other bytes 7               13 bytes; salt = the hash's first byte
    version as dense, then 2**63 - 1 - event time, 8       20 bytes: the newest of a key comes first
    sparse  salt 1 | life 4 | server ip 16 | process id 4 | bucket 8    33 bytes; salt = that of row_keys, spread out
    mark    region's first row | 0 | life 4 | 'mark'                so it lies in that region and nowhere else

    dense   column m: log 8 | offset 5                     value empty     one cell a place
    sparse  column m: microseconds 8 | log 8               value offset 5  one cell an entry
    mark    column m:s | slot 1, m:c | checkpoint mod 64   value mark 8

The salt comes first, so a table split by first bytes takes writes in all regions at once, and all ids of a process
are in one region, in order. A *bucket* is microseconds // W. The entries that an id may follow are in its bucket and
the bucket before, so two rows are read instead of a range scanned. The *life* is random, drawn when a map is made:
rows of an earlier map, another join or another key rule are never seen, and expire. A *log* is the digest of a log's
identity, so that rows do not depend on the map's log numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from photon.config.clock import NEVER_NS
from photon.eventstore.file_map import Version
from photon.eventstore.hbase import schema
from photon.eventstore.hbase.api import Cells, HBase, Put, Region
from photon.eventstore.index import I64, U64
from photon.eventstore.sparse import PREFIX_BYTES, SALTS

FAMILY = b"m"
LIFE_BYTES = 4
MARK_BYTES = 8
DENSE_ROW_BYTES = 1 + LIFE_BYTES + 7
_COLUMN = FAMILY + b":"
_PLACE_BYTES = len(_COLUMN) + 8 + 5
_ENTRY_BYTES = len(_COLUMN) + 8 + 8
_SALT_STEP = 256 // SALTS
REGIONS = 16  # regions of a new table
CHECKPOINTS_KEPT = 64
SLOTS = 2
META = b"hbase:meta"
_STATE = b"info:state"
_INSTANCE = (b"info:sn", b"info:server", b"info:serverstartcode", b"info:seqnumDuringOpen", _STATE)


def split_keys(regions: int = REGIONS) -> list[bytes]:
    """Returns the keys at which to split a table into ``regions`` regions (2 to 256)."""
    return [bytes([256 * i // regions]) for i in range(1, regions)]


def log_digest(identity: str) -> bytes:
    return blake2b(identity.encode(), digest_size=8).digest()


# -- dense ---------------------------------------------------------------------------------------------------------
def dense_rows(life: bytes, hashes: U64) -> list[bytes]:
    raw = hashes.astype(">u8").tobytes()
    return [raw[i : i + 1] + life + raw[i + 1 : i + 8] for i in range(0, len(raw), 8)]


def dense_puts(life: bytes, digests: Sequence[bytes], hashes: U64, logs: I64, offsets: I64) -> Iterator[Put]:
    """Yields one put per entry. ``digests``: digests of the logs, by number."""
    rows = dense_rows(life, hashes)
    for row, log, offset in zip(rows, logs.tolist(), offsets.tolist(), strict=True):
        yield Put(row, {_COLUMN + digests[log] + offset.to_bytes(5, "big"): b""})


def dense_places(cells: Cells, numbers: Mapping[bytes, int]) -> Iterator[tuple[int, int]]:
    """Yields (log number, offset) of each place in known logs."""
    for column in cells:
        number = numbers.get(column[2:10])
        if number is not None and len(column) == _PLACE_BYTES:
            yield number, int.from_bytes(column[10:], "big")


# -- versions ------------------------------------------------------------------------------------------------------
def version_row(key: bytes, time_ns: int) -> bytes:
    """Returns the row of a key's records at ``time_ns``. ``key``: the key's dense row."""
    return key + (NEVER_NS - time_ns).to_bytes(8, "big")


def version_puts(life: bytes, digests: Sequence[bytes], versions: Iterable[tuple[int, Version]]) -> Iterator[Put]:
    """Yields one put per version, with the hash of its key."""
    for key, version in versions:
        (row,) = dense_rows(life, np.array([key], np.uint64))
        column = _COLUMN + digests[version.log] + version.offset.to_bytes(5, "big")
        yield Put(version_row(row, version.time_ns), {column: b""})


def versions_of(row: bytes, cells: Cells, numbers: Mapping[bytes, int]) -> list[Version]:
    """Returns the versions in one row that are in known logs."""
    time_ns = NEVER_NS - int.from_bytes(row[DENSE_ROW_BYTES:], "big")
    return [Version(time_ns, *place) for place in dense_places(cells, numbers)]


# -- sparse --------------------------------------------------------------------------------------------------------
def sparse_row(life: bytes, prefix: bytes, bucket: int) -> bytes:
    """Returns the row of a process's bucket. ``prefix``: see ``sparse.process_prefix``."""
    return bytes([prefix[0] * _SALT_STEP]) + life + prefix[1:PREFIX_BYTES] + bucket.to_bytes(8, "big")


def sparse_cell(micros: int, digest: bytes, offset: int) -> tuple[bytes, bytes]:
    return _COLUMN + micros.to_bytes(8, "big") + digest, offset.to_bytes(5, "big")


def sparse_entries(cells: Cells, numbers: Mapping[bytes, int]) -> Iterator[tuple[int, int, int]]:
    """Yields (microseconds, log number, offset) of each entry in known logs."""
    for column, value in cells.items():
        number = numbers.get(column[10:])
        if number is not None and len(column) == _ENTRY_BYTES:
            yield int.from_bytes(column[2:10], "big"), number, int.from_bytes(value, "big")


# -- marks ---------------------------------------------------------------------------------------------------------
def mark_row(life: bytes, region: Region) -> bytes:
    return region.start + b"\0" + life + b"mark"


def mark_cells(mark: bytes, slot: int, checkpoint: int | None) -> Cells:
    """Returns the cells that a commit writes to each region. ``checkpoint``: the checkpoint that it ends, if any."""
    cells = {_COLUMN + b"s%d" % slot: mark}
    if checkpoint is not None:
        cells[_COLUMN + b"c%d" % (checkpoint % CHECKPOINTS_KEPT)] = mark
    return cells


def instances(regions: Iterable[Region], meta: Mapping[bytes, Cells]) -> tuple[bytes, ...] | None:
    """Returns a value for each region that changes whenever the region is reopened; ``None`` while one is not open.

    Derived from hbase:meta, where the master writes which server is to open a region *before* that server may open
    it. The server's name includes its start code. So if a reader sees the same value before and after a look-up, the
    region was not reopened during it.
    """
    out = []
    for region in regions:
        cells = meta.get(region.name, {})
        if cells.get(_STATE) != b"OPEN":
            return None
        out.append(b"\0".join(cells.get(column, b"") for column in _INSTANCE))
    return tuple(out)


@dataclass(frozen=True, slots=True)
class VerifiedRegions:
    """Regions that, in these incarnations, contain everything committed."""

    regions: list[Region]
    instances: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class RegionView:
    """A look-up's view of the regions, taken before it reads. ``verified`` is ``None`` if no region is verified."""

    verified: VerifiedRegions | None
    recovering: bool


def read_instances(hbase: HBase, regions: Sequence[Region]) -> tuple[bytes, ...] | None:
    """Reads the present incarnations of these regions; ``None`` while one is not open."""
    # Whole rows: with columns given, HBase 2.6.1 does not find some rows of hbase:meta after a flush (its Bloom
    # filters there are by row and column, and use another order of rows than the table).
    rows = hbase.read(schema.META, [region.name for region in regions])
    return schema.instances(regions, rows)


def surviving_checkpoint(marks: Sequence[frozenset[bytes]], closed: dict[bytes, int]) -> int:
    """Returns the checkpoint to go back to, 0 for the beginning. ``marks``: of each region; ``closed``: checkpoints
    by mark.

    It is the one before the newest whose mark every region has; hbase_file_map.py says why.
    """
    kept = min(max((closed[mark] for mark in each if mark in closed), default=0) for each in marks)
    return max((number for number in closed.values() if number < kept), default=0)
