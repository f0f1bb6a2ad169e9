"""Writes what is published as rolled Parquet files. Memory: one row group of each kind.

The order of writes is the promise: the files, synced and renamed; then the manifest's line, with the cursor after
their last record. See DESIGN.md.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from photon.config.disk import AppendFile, Disk
from photon.config.errors import PhotonError, UsageError
from photon.config.file_lock import lock_file
from photon.library import Batch
from photon.outputs.arrow_columns import schema, table_of
from photon.outputs.records import OutputRecords, decode
from photon.sinks import manifest
from photon.sinks.manifest import Header, Roll, SinkFile

FORMAT = "parquet"
MANIFEST = "manifest.jsonl"
LOCK = "lock"
SUFFIX = ".parquet"
TEMPORARY = ".tmp"
COMPRESSION = "zstd"
GROUP_BYTES = 16 << 20
"""Of lines: so much goes into one row group."""


@dataclass(frozen=True, slots=True)
class RollLimits:
    """Files are closed at whichever limit comes first."""

    bytes: int = 128 << 20
    """Of JSON Lines that went into it."""
    age_s: float = 600.0
    """Since its first record."""


@dataclass(slots=True)
class Rolling:
    """Of the files that are being written, all kinds together. Times are monotonic seconds."""

    limits: RollLimits
    filled: int = 0
    since_s: float | None = None
    """None: nothing was written since the last roll."""

    def add(self, size: int, now_s: float) -> None:
        """Counts written bytes."""
        self.filled += size
        if self.since_s is None:
            self.since_s = now_s

    def due(self, now_s: float) -> bool:
        """Whether to close the files now."""
        if self.since_s is None:
            return False
        return self.filled >= self.limits.bytes or now_s - self.since_s >= self.limits.age_s

    def rolled(self) -> None:
        """Starts counting for the next files."""
        self.filled, self.since_s = 0, None


class ParquetMissing(PhotonError):
    """pyarrow is not installed."""


class _File:
    """One Parquet file under construction: what pyarrow writes passes through here to the disk."""

    def __init__(self, disk: Disk, path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._append: AppendFile = disk.append(path)
        self._crc32, self._written, self.records = 0, 0, 0
        self._times: list[int] = []
        self._lines: list[bytes] = []
        self._filled = 0
        self._open = True
        self.closed = False
        self._writer: Any = pq.ParquetWriter(pa.PythonFile(self, mode="w"), schema(), compression=COMPRESSION)

    # -- what pyarrow asks of a file -----------------------------------------------------------------------------
    def write(self, data: Any) -> int:
        chunk = bytes(data)
        self._append.write(chunk)
        self._crc32 = zlib.crc32(chunk, self._crc32)
        self._written += len(chunk)
        return len(chunk)

    def tell(self) -> int:
        return self._written

    def flush(self) -> None:
        """Does nothing: durability comes from the sync at the end."""

    def close(self) -> None:
        self.closed = True

    # -- records -------------------------------------------------------------------------------------------------
    def add(self, data: bytes) -> None:
        """Adds whole lines."""
        self._lines.append(data)
        self._filled += len(data)
        if self._filled >= GROUP_BYTES:
            self._write_group()

    def _write_group(self) -> None:
        if not self._lines:
            return
        records: OutputRecords = decode(b"".join(self._lines))
        self._writer.write_table(table_of(records))
        times = [time for time in records.event_time_ns if time is not None]
        if times:
            self._times = [min([*self._times, *times]), max([*self._times, *times])]
        self.records += len(records.offset)
        self._lines, self._filled = [], 0

    def end(self) -> None:
        """Writes what is left, and makes it durable. Raises LineUnreadable, OSError."""
        self._write_group()
        self._writer.close()
        self._append.sync()
        self._append.close()
        self._open = False

    def told(self, name: str, kind: str) -> SinkFile:
        first, last = self._times or (None, None)
        return SinkFile(name=name, kind=kind, records=self.records, bytes=self._written, crc32=self._crc32,
                        first_ns=first, last_ns=last)  # fmt: skip

    def abandon(self) -> None:
        """The file is of no use, unless it was ended."""
        if not self._open:
            return
        with contextlib.suppress(Exception):  # pyarrow's, of a writer that was not ended
            self._writer.close()
        self._append.close()


@dataclass(frozen=True, slots=True)
class Written:
    """What a sink has made visible since it began."""

    files: int
    records: int


class ParquetSink:
    """A directory of Parquet files, one sink at a time. A context manager: leaving it gives up what no ``roll`` has
    made visible; that is written again next time."""

    def __init__(
        self, disk: Disk, directory: Path, kinds: Sequence[str], limits: RollLimits, monotonic: Callable[[], float]
    ) -> None:
        """Takes the directory up where it was left. Raises UsageError, ManifestDamaged, ParquetMissing, OSError."""
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError:
            raise ParquetMissing("pyarrow is not installed; pip install 'photon-join[parquet]'") from None
        self._disk, self._directory, self._monotonic = disk, directory, monotonic
        self._rolling = Rolling(limits)
        self._files: dict[str, _File] = {}
        self._cursor: bytes | None = None
        self.written = Written(0, 0)
        disk.make_dir(directory)
        self._lock = self._locked()
        try:
            self._header = Header(format=FORMAT, kinds=list(kinds))
            rolls = self._take_up()
        except BaseException:
            os.close(self._lock)
            raise
        self._number = len(rolls) + 1
        self.cursor: bytes | None = bytes(rolls[-1].cursor) if rolls else None
        """Behind all that counts. None: the beginning."""

    def _locked(self) -> int:
        lock = lock_file(self._directory / LOCK)
        if lock is None:
            raise UsageError(f"{self._directory}: another sink writes here; stop it, or name another")
        return lock

    def _take_up(self) -> list[Roll]:
        path = self._directory / MANIFEST
        data = self._disk.read(path) if self._disk.exists(path) else b""
        rolls, whole = manifest.read(data, self._header, path)
        if whole < len(data):
            self._disk.truncate(path, whole)
        self._manifest = self._disk.append(path)
        if whole == 0:
            self._manifest.write(manifest.header_line(self._header))
            self._manifest.sync()
            self._disk.sync_dir(self._directory)
        known = manifest.known(rolls)
        for kind in self._header.kinds:
            self._disk.make_dir(self._directory / kind)
            for name in self._disk.names(self._directory / kind):
                if f"{kind}/{name}" not in known and name.endswith((SUFFIX, TEMPORARY)):
                    self._disk.remove(self._directory / kind / name)
        return rolls

    # -- writing -------------------------------------------------------------------------------------------------
    def add(self, batch: Batch) -> None:
        """Rolls when it is time. Raises LineUnreadable, OSError."""
        if batch.kind not in self._files:
            path = self._path(batch.kind)
            self._files[batch.kind] = _File(self._disk, path.with_name(path.name + TEMPORARY))
        self._files[batch.kind].add(batch.data)
        self._cursor = batch.cursor
        self._rolling.add(len(batch.data), self._monotonic())
        self.tick()

    def tick(self) -> None:
        """To be called now and then while nothing comes."""
        if self._rolling.due(self._monotonic()):
            self.roll()

    def roll(self) -> None:
        """Makes visible what was added, if anything was. Raises LineUnreadable, OSError."""
        if self._cursor is None:
            return
        told = []
        for kind, file in self._files.items():
            file.end()
            path = self._path(kind)
            self._disk.rename(path.with_name(path.name + TEMPORARY), path)
            self._disk.sync_dir(path.parent)
            told.append(file.told(f"{kind}/{path.name}", kind))
        self._files = {}
        line = Roll(number=self._number, files=told, cursor=msgspec.Raw(self._cursor))
        self._manifest.write(manifest.roll_line(line))
        self._manifest.sync()
        self.cursor, self._cursor = self._cursor, None
        self._number += 1
        self._rolling.rolled()
        self.written = Written(
            self.written.files + len(told), self.written.records + sum(each.records for each in told)
        )

    def _path(self, kind: str) -> Path:
        return self._directory / kind / f"{self._number:06d}{SUFFIX}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files.values():
            file.abandon()
        self._manifest.close()
        os.close(self._lock)


def pour(batches: Iterable[Batch], sink: ParquetSink) -> Written:
    """All batches into the sink, the last roll included."""
    for batch in batches:
        sink.add(batch)
    sink.roll()
    return sink.written
