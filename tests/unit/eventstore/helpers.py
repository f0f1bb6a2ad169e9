"""What the event store's tests share: a small adapter, a clock set by hand, blocks from text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from photon.adapters.contract import Adapter, BadRecord, ForeignHeader, LogFile
from photon.adapters.logs.identity import log_name
from photon.batch.records import PrimaryRecord
from photon.config.clock import SystemClock
from photon.config.disk import RealDisk
from photon.eventstore import file_map
from photon.eventstore.block_keys import BlockKeys, block_keys
from photon.eventstore.file_map import FileMap, MapKind, MappedBlock, MapSettings
from photon.eventstore.found_records import FoundRecords, ReadResults
from photon.eventstore.index import hash_keys
from photon.eventstore.segments import CacheEventStore

LOG = LogFile("a.log")


NOTHING = PrimaryRecord(b"", LOG, 0)


def told(reads: ReadResults) -> list[tuple[str, PrimaryRecord]]:
    """What became of each place: found, not there, unavailable."""
    found, not_there = reads.told()
    out = [("unavailable", NOTHING)] * len(reads)
    for place in not_there.tolist():
        out[place] = ("not there", NOTHING)
    for place, record in zip(found.rows.tolist(), found.records.rows(), strict=True):
        out[place] = ("found", record)
    return out


def listed(located: FoundRecords) -> list[tuple[int, str, PrimaryRecord]]:
    """One by one."""
    identities = [located.identity(at) for at in range(len(located))]
    return list(zip(located.rows.tolist(), identities, located.records.rows(), strict=True))


class LineAdapter(Adapter):
    """Records ``key,anything``; a record without a comma is bad, and ``raise,`` makes the adapter raise."""

    def primary_key(self, record: bytes, file: LogFile) -> bytes:
        key, comma, _ = record.partition(b",")
        if not comma:
            raise BadRecord("no comma")
        if key == b"raise":
            raise RuntimeError("adapter bug")
        return key

    def foreign_header(self, record: bytes, file: LogFile) -> ForeignHeader:
        return ForeignHeader(self.primary_key(record, file), 0)

    def foreign_payload(self, record: bytes, file: LogFile) -> bytes | None:
        return record

    def primary_payload(self, record: bytes, file: LogFile) -> bytes | None:
        return record


class ManualClock:
    """Moves when told."""

    def __init__(self, now_ns: int = 1_000) -> None:
        self.ns = now_ns

    def now_ns(self) -> int:
        return self.ns

    def monotonic(self) -> float:
        return self.ns / 1e9


def block(
    keys: Sequence[bytes], starts: Sequence[int], *, identity: str = "a", path: str = "a.log", begin: int, end: int
) -> MappedBlock:
    hashes = hash_keys(keys)
    order = np.argsort(hashes, kind="stable")
    return MappedBlock(
        identity, LogFile(path), begin, end, keys, np.array(starts, dtype=np.int64), hashes[order], order
    )


def open_or_rebuild(directory: Path, settings: MapSettings) -> tuple[FileMap, str]:
    return file_map.open_map(directory, settings, log_name, RealDisk(), SystemClock(), None)


def open_map(
    directory: Path, kind: MapKind = MapKind.DENSE, rule: bytes = b"rule", *, last: bool = False, **windows: int
) -> FileMap:
    settings = MapSettings(rule, kind, last=last, **windows)
    opened, rebuilt = open_or_rebuild(directory, settings)
    assert not rebuilt
    return opened


def put_lines(cache: CacheEventStore, adapter: Adapter, identity: str, path: str, offset: int, data: bytes) -> None:
    """Warms the cache with a block as the reader would."""
    found = block_keys(adapter, data, LogFile(path))
    cache.put(identity, LogFile(path), offset, data, found.hashes, found.starts[found.order])


def same_keys(found: BlockKeys, wanted: BlockKeys) -> bool:
    """Whether both found the same, the keys themselves left aside."""
    columns = ("starts", "hashes", "order")
    equal = all(np.array_equal(getattr(found, name), getattr(wanted, name)) for name in columns)
    return equal and found.bad == wanted.bad
