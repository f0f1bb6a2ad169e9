"""The output files of a batch: its winners by kind and hour of their event time, under hidden names until published.

joined/hour=2026-11-20T09/part-<batch>.jsonl    once published
joined/hour=2026-11-20T09/.part-<batch>.<writer>.jsonl    before; Spark and most tools leave such names alone

Below a URL nothing is renamed and readers go by the manifest, so a part has one name from the start:
joined/backfill-<hour>-<incarnation>.<writer>-<batch>.jsonl.gz
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from photon.batch.columns import RowIndexes
from photon.config.disk import Disk
from photon.idregistry.api import Kind
from photon.joiner.rows import Rows
from photon.outputs.arrow_columns import table_of
from photon.outputs.records import decode
from photon.spark.backfill.batch_names import (
    DIRECTORY_OF_KIND,
    HOUR_NS,
    BackfillPaths,
    BatchName,
    hour_directory,
    object_name,
)
from photon.spark.backfill.staging import Part

KINDS_MAX = 8
HIDDEN = ".part-"  # prefix of the names of unpublished parts
UNREGISTERED = "below-"  # follows ``part-`` in the names of parts without registrations

Encode = Callable[[Sequence[bytes]], bytes]  # lines, each with its newline -> the file
JSONL = "jsonl"
PARQUET = "parquet"
FORMATS = (JSONL, PARQUET)
ROW_GROUP_ROWS = 64_000
COMPRESSION = "zstd"


class PartWriter:
    """Writes the parts of one run. ``encode`` and ``suffix`` define the format."""

    def __init__(self, disk: Disk, places: BackfillPaths, writer: str, encode: Encode, suffix: str) -> None:
        self._disk = disk
        self._places = places
        self._writer = writer
        self._encode = encode
        self._suffix = suffix
        self._made: set[Path] = set()

    def write(self, name: str, rows: Rows, winners: RowIndexes) -> list[Part]:
        """All parts are durable when this returns. ``name``: the batch's. Raises OSError, which ends the attempt."""
        parts = []
        for kind, hour, index in _groups(rows, winners):
            lines = [rows.lines[i] for i in index.tolist()]
            parts.append(self._part(name, kind, hour, lines))
        for directory in {(self._places.output / part.written).parent for part in parts}:
            self._disk.sync_dir(directory)
        return parts

    def _part(self, name: str, kind: Kind, hour: int, lines: Sequence[bytes]) -> Part:
        kind_name = directory = DIRECTORY_OF_KIND[kind]
        data, uncompressed = self._encode(lines), 0
        if self._places.url:
            written = final = object_name(directory, hour, BatchName.parse(name), self._writer)
            data, uncompressed = gzip.compress(data, mtime=0), len(data)
        else:
            directory = f"{kind_name}/{hour_directory(hour)}"
            written = f"{directory}/{HIDDEN}{name}.{self._writer}.{self._suffix}"
            final = f"{directory}/part-{name}.{self._suffix}"
        self._make(self._places.output / directory)
        path = self._places.output / written
        if self._disk.exists(path):  # left by this writer, incomplete
            self._disk.remove(path)
        file = self._disk.append(path)
        try:
            file.write(data)
            file.sync()
        finally:
            file.close()
        records = sum(line.count(b"\n") for line in lines)  # an event with several primaries has several records
        return Part(final, written, kind_name, hour, records, len(data), zlib.crc32(data), uncompressed)

    def _make(self, directory: Path) -> None:
        if directory in self._made:
            return
        self._disk.make_dir(directory)
        # Another attempt may have made it and stopped before this point.
        self._disk.sync_dir(directory.parent)
        self._disk.sync_dir(self._places.output)
        self._made.add(directory)


def join_lines(lines: Sequence[bytes]) -> bytes:
    """Lines as JSON Lines."""
    return b"".join(lines)


def _groups(rows: Rows, winners: RowIndexes) -> Iterator[tuple[Kind, int, RowIndexes]]:
    if not len(winners):
        return
    groups = rows.times[winners] // HOUR_NS * KINDS_MAX + rows.logs(winners)
    order = np.argsort(groups, kind="stable")
    for index in np.split(order, np.flatnonzero(np.diff(groups[order])) + 1):
        hour, kind = divmod(int(groups[index[0]]), KINDS_MAX)
        yield Kind(kind), hour, winners[index]


def encoder(name: str) -> Encode:
    """``name``: one of FORMATS."""
    return {JSONL: join_lines, PARQUET: to_parquet}[name]


def to_parquet(lines: Sequence[bytes]) -> bytes:
    """A Parquet file: a row per line, columns as in ``outputs/arrow_columns.py``. Raises LineUnreadable."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    table = table_of(decode(b"".join(lines)))
    pq.write_table(table, sink, compression=COMPRESSION, row_group_size=ROW_GROUP_ROWS)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]
