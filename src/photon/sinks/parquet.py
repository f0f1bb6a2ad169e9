"""Writes published records as rolled Parquet files. It needs memory for one row group's lines and columns.

Exactly-once depends on the order of writes: first the files, synced and renamed; then the manifest's line, with the
cursor after their last record. See docs/embedding.md (As Parquet).
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import msgspec
from msgspec import UNSET, UnsetType

from photon.config.disk import AppendFile, Disk
from photon.config.errors import UsageError
from photon.config.extras import needed
from photon.config.file_lock import lock_file
from photon.library import Batch
from photon.outputs.arrow_columns import LineUnreadable
from photon.outputs.json_types import given_fields, shown
from photon.outputs.typed_columns import SAMPLE_BYTES, UNREADABLE, LineTypes
from photon.sinks import manifest
from photon.sinks.manifest import Header, Roll, SinkFile
from photon.sinks.rolling import Rolling, RollLimits

FORMAT = "parquet"
MANIFEST = "manifest.jsonl"
LOCK = "lock"
SUFFIX = ".parquet"
TEMPORARY = ".tmp"
COMPRESSION = "zstd"
GROUP_BYTES = 16 << 20  # bytes of pending lines over all files: above this the largest row group is written
BATCH_LINES = 8192
FILES_MAX = 128  # Most open files, and most partitions with pending lines, over all kinds; above this, all roll.
HOUR_NS = 3_600_000_000_000
NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class Form:
    """The format of a sink's files. ``None`` keeps the existing directory's format."""

    # Payloads as structs, or one column for each leaf. None, in a new directory: structs.
    columns: Literal["struct", "flat"] | None = None
    partition: Literal["hour"] | None = None  # None, in a new directory: unpartitioned
    # Types of the payloads, as for ``photon.read``. None, in a new directory: inferred.
    schema: Mapping[str, Any] | None = None

    def header(self, kinds: Sequence[str], there: Header | None = None) -> Header:
        """Returns the header. ``there``: the directory's; ``None`` for a new one. Raises UsageError."""
        default = there or Header(format=FORMAT, kinds=list(kinds), columns="struct")
        return Header(
            format=FORMAT,
            kinds=list(kinds),
            columns=self.columns or default.columns,
            partition=self.partition or default.partition,
            schema=default.schema if self.schema is None else given_fields(self.schema),
        )


class _Timed(msgspec.Struct, frozen=True):
    event_time_ns: int | None = None


_TIMED = msgspec.json.Decoder(_Timed)


def by_hour(data: bytes) -> dict[str, bytes]:
    """Splits lines by the hour of their event time: returns directory -> lines, as in ``date=2026-11-25/hour=18``
    (UTC). Lines without an event time get Hive's name for a missing value. Raises LineUnreadable."""
    found: dict[int | None, list[bytes]] = {}
    for line in data.splitlines(keepends=True):
        try:
            ns = _TIMED.decode(line).event_time_ns
        except UNREADABLE as bad:
            raise LineUnreadable(f"a line is not an output record ({bad}); see photon status verifier") from None
        found.setdefault(None if ns is None else ns // HOUR_NS, []).append(line)
    return {_directory(hour): b"".join(lines) for hour, lines in found.items()}


def _directory(hour: int | None) -> str:
    if hour is None:
        return f"date={NO_PARTITION}/hour={NO_PARTITION}"
    return f"{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(hours=hour):date=%Y-%m-%d/hour=%H}"


class _File:
    """One Parquet file under construction, through which pyarrow writes to the disk. The file is created with
    its first row group."""

    def __init__(self, disk: Disk, path: Path, kind: str, types: LineTypes) -> None:
        self._disk, self._path = disk, path
        self._append: AppendFile | None = None  # ``None`` before the first row group, and after the end
        self._kind, self._types = kind, types
        self._crc32, self._written, self.records, self._rest = 0, 0, 0, 0
        self._times: list[int] = []
        self._lines: list[bytes] = []
        self.filled = 0  # bytes of pending lines for the next row group
        self.closed = False
        self._writer: Any = None  # ``None`` before the first row group

    # -- file interface for pyarrow ------------------------------------------------------------------------------
    def write(self, data: Any) -> int:
        assert self._append is not None
        chunk = bytes(data)
        self._append.write(chunk)
        self._crc32 = zlib.crc32(chunk, self._crc32)
        self._written += len(chunk)
        return len(chunk)

    def tell(self) -> int:
        return self._written

    def flush(self) -> None:
        """Does nothing: ``end`` syncs the file."""

    def close(self) -> None:
        self.closed = True

    # -- records -------------------------------------------------------------------------------------------------
    @property
    def open(self) -> bool:
        """True if it holds a file descriptor."""
        return self._append is not None

    def add(self, data: bytes) -> None:
        """Adds complete lines to the next row group."""
        self._lines.append(data)
        self.filled += len(data)

    def write_group(self) -> None:
        """Writes the pending lines as a row group. Raises LineUnreadable, OSError."""
        if not self._lines:
            return
        data = b"".join(self._lines)
        self._lines, self.filled = [], 0
        table, times = self._table(data)
        if self._writer is None:
            import pyarrow as pa
            import pyarrow.parquet as pq

            self._append = self._disk.append(self._path)
            sink = pa.PythonFile(self, mode="w")
            self._writer = pq.ParquetWriter(sink, table.schema, compression=COMPRESSION)
        self._writer.write_table(table)
        if times:
            self._times = [min([*self._times, *times]), max([*self._times, *times])]
        self.records += table.num_rows

    def _table(self, data: bytes) -> tuple[Any, list[int]]:
        import pyarrow as pa
        import pyarrow.compute as pc

        types, before = self._types, self._types.rest
        batches = [types.batch(self._kind, lines) for lines in _portions(data.splitlines())]
        self._rest += types.rest - before
        table = pa.Table.from_batches(batches)
        ends = pc.min_max(table["event_time_ns"]).as_py()
        return table, [each for each in ends.values() if each is not None]

    def end(self) -> None:
        """Completes the file and makes it durable. Raises LineUnreadable, OSError."""
        self.write_group()
        assert self._append is not None
        self._writer.close()
        self._append.sync()
        self._append.close()
        self._append = self._writer = None

    def told(self, name: str) -> SinkFile:
        first, last = self._times or (None, None)
        return SinkFile(name=name, kind=self._kind, records=self.records, bytes=self._written, crc32=self._crc32,
                        first_ns=first, last_ns=last, rest=self._rest)  # fmt: skip

    def held(self) -> list[bytes]:
        """Returns the pending lines of the next row group."""
        return b"".join(self._lines).splitlines()

    def abandon(self) -> None:
        """Drops the file unless it is complete."""
        if self._append is None:
            return
        if self._writer is not None:
            with contextlib.suppress(Exception):  # errors of pyarrow about an unfinished writer
                self._writer.close()
        self._append.close()


def _first(lines: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Yields the first lines, up to ``size`` bytes or a little more."""
    for line in lines:
        if size <= 0:
            return
        size -= len(line)
        yield line


def _portions(lines: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Yields the lines a few at a time, as their Python objects are many times larger than their columns."""
    for at in range(0, len(lines), BATCH_LINES):
        yield lines[at : at + BATCH_LINES]


@dataclass(frozen=True, slots=True)
class Written:
    """Totals of the records that a sink has made visible since it began."""

    files: int
    records: int


class ParquetSink:
    """Writes a directory of Parquet files; only one sink at a time can use it. A context manager: leaving it drops
    records that no ``roll`` has made visible; they are written again next time."""

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        kinds: Sequence[str],
        limits: RollLimits,
        monotonic: Callable[[], float],
        form: Form = Form(),
        say: Callable[[str], object] = lambda line: None,
    ) -> None:
        """Opens or creates the directory. ``say`` receives lines about new columns and values that do not fit. Raises
        UsageError, ManifestDamaged, ExtraMissing, OSError."""
        needed("pyarrow.parquet", "parquet")
        self._disk, self._directory, self._monotonic, self._say = disk, directory, monotonic, say
        self._rolling = Rolling(limits)
        self._files: dict[tuple[str, str], _File] = {}  # (kind, partition's directory) -> file
        self._cursor: bytes | None = None
        self.written = Written(0, 0)
        disk.make_dir(directory)
        self._lock = self._locked()
        try:
            self._header = self._wanted(form, kinds)
            rolls = self._take_up()
        except BaseException:
            os.close(self._lock)
            raise
        self._number = len(rolls) + 1
        self._types = self._typed(manifest.types_after(rolls))
        self._told: set[str] = set()
        # The cursor after all valid records; ``None`` means the beginning.
        self.cursor: bytes | None = bytes(rolls[-1].cursor) if rolls else None

    def _locked(self) -> int:
        lock = lock_file(self._directory / LOCK)
        if lock is None:
            raise UsageError(f"{self._directory}: another sink writes here; stop it, or name another directory")
        return lock

    def _wanted(self, form: Form, kinds: Sequence[str]) -> Header:
        path = self._directory / MANIFEST
        there = manifest.header_of(self._disk.read(path), path) if self._disk.exists(path) else None
        return form.header(kinds, there)

    def _typed(self, known: Mapping[str, Any]) -> dict[str, LineTypes]:
        """Returns each kind's column types; a new kind has none before its first row group."""
        flat, schema = self._header.columns == "flat", self._header.schema
        if not isinstance(schema, UnsetType):
            return {kind: LineTypes.of_schema(schema, flat=flat) for kind in self._header.kinds}
        return {kind: LineTypes(known[kind], flat=flat) for kind in self._header.kinds if kind in known}

    def _take_up(self) -> list[Roll]:
        path = self._directory / MANIFEST
        data = self._disk.read(path) if self._disk.exists(path) else b""
        rolls, whole = manifest.read(data, self._header, path)
        unfinished = f"{len(rolls) + 1:06d}{SUFFIX}"  # of a sink that ended before its manifest had the line
        for kind in self._header.kinds:
            self._disk.make_dir(self._directory / kind)
            for name in self._names(kind):
                if whole == 0 and name.endswith((SUFFIX, SUFFIX + TEMPORARY)):
                    raise UsageError(
                        f"{self._directory}: there is {name}, but no {MANIFEST} that names it; name a new directory"
                    )
                if name.rpartition("/")[2] in {unfinished, unfinished + TEMPORARY}:
                    self._disk.remove(self._directory / name)
        if whole < len(data):
            self._disk.truncate(path, whole)
        self._manifest = self._disk.append(path)
        if whole == 0:
            self._manifest.write(manifest.header_line(self._header))
            self._manifest.sync()
            self._disk.sync_dir(self._directory)
        return rolls

    def _names(self, directory: str) -> Iterator[str]:
        """Yields the names of files in ``directory`` and its partitions, relative to the sink's directory."""
        for name in self._disk.names(self._directory / directory):
            if "=" in name:
                yield from self._names(f"{directory}/{name}")
            else:
                yield f"{directory}/{name}"

    # -- writing -------------------------------------------------------------------------------------------------
    def add(self, batch: Batch) -> None:
        """Adds a batch, and rolls if a limit is reached. Raises LineUnreadable, OSError."""
        parts = {"": batch.data} if self._header.partition is UNSET else by_hour(batch.data)
        for partition, data in parts.items():
            file = self._files.get((batch.kind, partition)) or self._open(batch.kind, partition)
            file.add(data)
        self._cursor = batch.cursor
        self._rolling.add(len(batch.data), self._monotonic())
        while sum(file.filled for file in self._files.values()) >= GROUP_BYTES:
            fullest = max(self._files, key=lambda each: self._files[each].filled)
            if not self._files[fullest].open and self._opened() + 1 >= FILES_MAX:
                self.roll()  # which then allows another one
                break
            self._write_group(fullest)
        if len(self._files) >= FILES_MAX:
            self.roll()
        self.tick()

    def _open(self, kind: str, partition: str) -> _File:
        path = self._directory / self._name(kind, partition)
        self._disk.make_dir(path.parent)
        types = self._types.setdefault(kind, LineTypes(flat=self._header.columns == "flat"))
        file = _File(self._disk, path.with_name(path.name + TEMPORARY), kind, types)
        self._files[kind, partition] = file
        return file

    def _opened(self) -> int:
        return sum(file.open for file in self._files.values())

    def _write_group(self, at: tuple[str, str]) -> None:
        """Writes a row group; a kind's first row group is the sample from which its types are inferred."""
        kind, _ = at
        types = self._types.get(kind)
        if types is not None and not types.known:
            held = (line for (other, _), file in self._files.items() if other == kind for line in file.held())
            types.learn(_first(held, SAMPLE_BYTES))
        self._files[at].write_group()

    def tick(self) -> None:
        """Rolls if a roll is due. Call it regularly while no records arrive."""
        if self._rolling.due(self._monotonic()):
            self.roll()

    def roll(self) -> None:
        """Makes added records visible, if there are any. Raises LineUnreadable, OSError."""
        if self._cursor is None:
            return
        told = []
        for (kind, partition), file in self._files.items():
            self._write_group((kind, partition))
            file.end()
            name = self._name(kind, partition)
            path = self._directory / name
            self._disk.rename(path.with_name(path.name + TEMPORARY), path)
            self._disk.sync_dir(path.parent)
            told.append(file.told(name))
        types = self._grown({kind for kind, _ in self._files})
        self._files = {}
        line = Roll(number=self._number, files=told, cursor=msgspec.Raw(self._cursor), types=types or UNSET)
        self._manifest.write(manifest.roll_line(line))
        self._manifest.sync()
        self.cursor, self._cursor = self._cursor, None
        self._number += 1
        self._rolling.rolled()
        self.written = Written(
            self.written.files + len(told), self.written.records + sum(each.records for each in told)
        )

    def _grown(self, kinds: set[str]) -> dict[str, dict[str, Any]]:
        """Returns kind -> types from the next file on, for kinds whose types the manifest lacks."""
        found = {}
        for kind in sorted(kinds):
            types = self._types[kind]
            for unfit in types.unfit():
                self._say(f"{kind}: {unfit}")
            if types.given:
                continue
            for path, is_of, came in types.misfits():
                if f"{kind} {path}" not in self._told:
                    self._told.add(f"{kind} {path}")
                    self._say(f"{kind}: {path} is {shown(is_of)} here but arrived as {shown(came)}; values that "
                              "do not fit are kept in _rest; for another type give --schema, and another "
                              "directory")  # fmt: skip
            new = types.grow()
            if new:
                columns = ", ".join(f"{path} ({shown(each)})" for path, each in new)
                self._say(f"{kind}: new columns {columns}, from the next file on; until then they are kept in _rest")
            if new or not types.kept:
                types.kept = True
                found[kind] = types.payloads
        return found

    def _name(self, kind: str, partition: str) -> str:
        return "/".join(part for part in (kind, partition, f"{self._number:06d}{SUFFIX}") if part)

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
    """Writes all batches into the sink, and rolls at the end."""
    for batch in batches:
        sink.add(batch)
    sink.roll()
    return sink.written
