"""Shared helpers of the event store's tests: a small adapter, a manually set clock, blocks from text."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import numpy as np

from photon.adapters.contract import Adapter, BadRecord, ForeignHeader, LogFile
from photon.adapters.logs.follower import Follower
from photon.adapters.logs.identity import log_name
from photon.adapters.logs.unended_lines import RestRule
from photon.batch.records import PrimaryRecord
from photon.config.clock import SystemClock
from photon.config.disk import RealDisk
from photon.eventstore import engine
from photon.eventstore.api import LookUpCode
from photon.eventstore.block_keys import BlockKeys, block_keys
from photon.eventstore.file_map import FileMap, MapKind, MappedBlock, MapSettings
from photon.eventstore.found_records import FoundRecords, ReadResults
from photon.eventstore.index import hash_keys
from photon.eventstore.keyless import KeylessRecords
from photon.eventstore.logs_store import LogsEventStore
from photon.eventstore.primary_reader import PrimaryReader
from photon.eventstore.segments import CacheEventStore
from photon.eventstore.shared_keys import SharedKeys
from photon.eventstore.tiered import TieredEventStore
from tests.kit.clock import ManualClock

LOG = LogFile("a.log")


NOTHING = PrimaryRecord(b"", LOG, 0)


def told(reads: ReadResults) -> list[tuple[str, PrimaryRecord]]:
    """Outcome of each place: found, not there, unavailable."""
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


def block(
    keys: Sequence[bytes],
    starts: Sequence[int],
    *,
    identity: str = "a",
    path: str = "a.log",
    begin: int,
    end: int,
    times: Sequence[int] | None = None,
) -> MappedBlock:
    hashes = hash_keys(keys)
    order = np.argsort(hashes, kind="stable")
    return MappedBlock(
        identity,
        LogFile(path),
        begin,
        end,
        keys,
        np.array(starts, dtype=np.int64),
        hashes[order],
        order,
        times=None if times is None else np.array(times, np.int64),
    )


def open_or_rebuild(directory: Path, settings: MapSettings) -> tuple[FileMap, str]:
    return engine.open_map(directory, settings, log_name, RealDisk(), SystemClock(), None)


def open_map(
    directory: Path,
    kind: MapKind = MapKind.DENSE,
    rule: bytes = b"rule",
    *,
    last: bool = False,
    timed: bool = False,
    **windows: int,
) -> FileMap:
    settings = MapSettings(rule, kind, last=last, timed=timed, **windows)
    opened, rebuilt = open_or_rebuild(directory, settings)
    assert not rebuilt
    return opened


def put_lines(cache: CacheEventStore, adapter: Adapter, identity: str, path: str, offset: int, data: bytes) -> None:
    """Warms the cache with a block as the reader would."""
    found = block_keys(adapter, data, LogFile(path))
    cache.put(identity, LogFile(path), offset, data, found.hashes, found.starts[found.order])


def same_keys(found: BlockKeys, wanted: BlockKeys) -> bool:
    """True if both found the same, apart from the keys themselves."""
    columns = ("starts", "hashes", "order")
    equal = all(np.array_equal(getattr(found, name), getattr(wanted, name)) for name in columns)
    return equal and found.bad == wanted.bad


class Store:
    """All parts over one directory, stepped by hand."""

    def __init__(
        self,
        base: Path,
        *,
        once: bool = False,
        cache_bytes: int = 1 << 20,
        kind: MapKind = MapKind.DENSE,
        max_record: int = 1 << 20,
        adapter: Adapter | None = None,
        rest: RestRule | None = None,
        duplicates: str = "first",
    ) -> None:
        self.logs = base / "logs"
        self.logs.mkdir(exist_ok=True)
        self.clock = ManualClock()
        self.adapter = adapter or LineAdapter({})
        timed = self.adapter.matching.match == "latest"
        self.map = open_map(base / "map", kind, last=duplicates == "last", timed=timed)
        self.told: list[str] = []
        self.shared = SharedKeys(duplicates, self.told.append)
        self.follower = Follower(
            self.logs, has_header=False, max_record=max_record, positions=self.map.positions(), rest=rest
        )
        self.cache = CacheEventStore(self.adapter, cache_bytes)
        self.keyless = KeylessRecords(base / "map", self.clock, RealDisk(), self.told.append)
        self.reader = PrimaryReader(
            self.follower, self.adapter, self.cache, self.map, self.clock, once=once, keyless=self.keyless
        )
        self.reads = LogsEventStore(self.logs, self.adapter, self.resolve)
        self.tiers = TieredEventStore(
            self.cache, self.map, self.reads, log_name, lambda: self.reader.read_past_ns, shared=self.shared
        )

    def resolve(self, identity: str) -> str | None:
        path = self.follower.path_of(identity)
        return None if path is None else str(path.relative_to(self.logs))

    def write(self, name: str, data: bytes) -> None:
        with open(self.logs / name, "ab") as file:
            file.write(data)

    def read_all(self) -> None:
        while self.reader.step():
            pass

    def ask(self, key: bytes, as_of: int = 0) -> tuple[LookUpCode, str, int, bytes]:
        found = self.tiers.look_up([key], [as_of])
        record = found.records[0]
        return (
            found.answers[0],
            *(("", -1, b"") if record is None else (record.file.path, record.offset, record.record)),
        )

    def close(self) -> None:
        self.follower.close()
        self.reads.close()
        self.map.close()


Filled = Callable[..., Store]  # the fixture ``filled``


async def until(what: Callable[[], bool | Awaitable[bool]], seconds: float = 30.0) -> None:
    """Polls with a deadline."""
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        done = what()
        if done if isinstance(done, bool) else await done:
            return
        assert asyncio.get_running_loop().time() < deadline, "it did not come about in time"
        await asyncio.sleep(0.01)
