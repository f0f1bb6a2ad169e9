"""Reads a registry export (a directory from ``photon registry backup``) as a DataFrame: REGISTRY of ``schemas``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from photon.config.disk import RealDisk
from photon.idregistry.api import BATCH_BITS, Kind
from photon.idregistry.core.id_bucket import CLEARED, OWNED, REOPENED
from photon.idregistry.core.state_machine import MAX_SLOTS
from photon.idregistry.operate.backup import config_of, read_manifest
from photon.idregistry.operate.backup_ids import IdColumns, IdsPart, plan_ids, read_part
from photon.spark import schemas
from photon.spark.sources import RegistrySource, TimeRange
from photon.spark.tasks import fair_bytes, frame, packed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

STATES = {OWNED: "owned", CLEARED: "cleared", REOPENED: "reopened"}
KINDS = {int(kind): kind.name.lower() for kind in Kind}


class Owners(msgspec.Struct, frozen=True):
    """The slots that own tokens, by incarnation. Columns, with a row for each slot that the deployment ever had."""

    slots: list[str]
    datacentres: list[str]
    retired: list[bool]
    incarnations: dict[int, int]  # -> row of the slot


class ExportShared(msgspec.Struct, frozen=True):
    """The data that all readers of an export share."""

    directory: str
    owners: Owners
    window: TimeRange | None = None


def registry(
    spark: SparkSession,
    source: RegistrySource,
    *,
    window: TimeRange | None = None,
    partition_size: int | None = None,
    planned: Callable[[int], object] = lambda size: None,
) -> DataFrame:
    """Returns REGISTRY, with a row for each id of all shards. Raises BackupDamaged, OSError.

    ``window``: ids with other event times are left out, except given-back ids, whose new line may have another time.
    ``planned`` receives the number of bytes that will be read.
    """
    cores = spark.sparkContext.defaultParallelism
    shared, parts = plan_export(source, cores, partition_size)
    shared = msgspec.structs.replace(shared, window=window)
    read = [(part, part.size) for part in parts if window is None or part.generations or _meets(part, window)]
    total = sum(size for _, size in read)
    planned(total)
    size = partition_size or fair_bytes(total, cores)
    groups = [msgspec.json.encode(group) for group in packed(read, size)]
    return frame(spark, _read, msgspec.json.encode(shared), groups, schemas.REGISTRY)


def plan_export(
    source: RegistrySource, cores: int, partition_size: int | None = None
) -> tuple[ExportShared, list[IdsPart]]:
    """Returns the data that all readers of an export share, and the parts to read. Raises BackupDamaged, OSError."""
    disk, directory = RealDisk(), Path(source.directory)
    manifest = read_manifest(disk, directory)
    config = config_of(disk, directory, manifest)
    slots, _ = config.slots_after("", MAX_SLOTS)
    held = config.incarnations()
    owners = Owners(
        [slot.name for slot in slots],
        [slot.datacentre for slot in slots],
        [slot.retired for slot in slots],
        {number: row for row, slot in enumerate(slots) for number in held[slot.name]},
    )
    total = sum(entry.bytes for entry in manifest.groups)
    size = partition_size or fair_bytes(total, cores)
    return ExportShared(str(directory), owners), list(plan_ids(disk, directory, manifest, size))


def _read(shared: bytes, group: bytes) -> Iterator[pa.RecordBatch]:
    common = msgspec.json.decode(shared, type=ExportShared)
    for part in msgspec.json.decode(group, type=list[IdsPart]):
        yield from export_rows(common, part)


def export_rows(shared: ExportShared, part: IdsPart) -> Iterator[pa.RecordBatch]:
    """Yields the rows of REGISTRY in one part."""
    # Of other times, only given-back ids are needed.
    given_back = shared.window is not None and not _meets(part, shared.window)
    for columns in read_part(RealDisk(), Path(shared.directory), part, given_back=given_back):
        yield _rows(shared.owners, part.shard, _within(columns, shared.window))


def _meets(part: IdsPart, window: TimeRange) -> bool:
    begin = part.chunks[0].bucket << part.bucket_bits
    return window.meets(begin, begin + (1 << part.bucket_bits) - 1)


def _within(ids: IdColumns, window: TimeRange | None) -> IdColumns:
    if window is None:
        return ids
    kept = window.holds(ids.times) | (ids.generations > 0)
    return ids if kept.all() else ids.take(np.flatnonzero(kept))


def _rows(owners: Owners, shard: int, ids: IdColumns) -> pa.RecordBatch:
    import pyarrow as pa

    from photon.spark.arrow_columns import batch, bigints, digests_column, hours, strings

    count = len(ids)
    incarnations = (ids.tokens >> np.uint64(BATCH_BITS)).astype(np.int64)
    slots = [owners.incarnations.get(number) for number in incarnations.tolist()]
    rows = {
        "shard": pa.array(np.full(count, shard, np.int32)),
        "digest": digests_column(ids.digests),
        "event_time_ns": bigints(ids.times),
        "hour": bigints(hours(ids.times)),
        "token": strings([f"{token:016x}" for token in ids.tokens.tolist()]),
        "state": strings([STATES.get(state) for state in ids.states.tolist()]),
        "kind": strings([KINDS.get(kind) for kind in ids.kinds.tolist()]),
        "tag": bigints(ids.tags.astype(np.int64)),
        "generation": bigints(ids.generations.astype(np.int64)),
        "incarnation": bigints(incarnations),
        "datacentre": strings([None if row is None else owners.datacentres[row] for row in slots]),
        "slot": strings([None if row is None else owners.slots[row] for row in slots]),
        "slot_retired": pa.array([None if row is None else owners.retired[row] for row in slots], pa.bool_()),
    }
    return batch(rows)
