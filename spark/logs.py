"""Reads raw logs as DataFrames (FOREIGN and PRIMARY of ``schemas``), with the join's adapter and the follower's code,
so that records have the same id, key and time as in the live system."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.containment import Guard, primary_keys_of
from photon.adapters.contract import Adapter
from photon.adapters.logs.api import Block
from photon.adapters.logs.identity import COMPRESSED_SUFFIXES, log_name
from photon.adapters.logs.links import log_path
from photon.adapters.logs.problems import Problem, ProblemKind
from photon.adapters.logs.slices import (
    READ_BYTES,
    LogUnreadable,
    Reading,
    Slice,
    StandingLog,
    cut,
    read_slice,
    rests,
    standing_logs,
)
from photon.batch.columns import I64, RowIndexes
from photon.batch.events import Events
from photon.batch.records import Records
from photon.config.errors import PhotonError
from photon.eventstore.block_keys import located_keys_of_block, may_skip, record_at
from photon.idregistry.api import Digester
from photon.joiner.foreign_columns import Unreadable, events_of, records_of
from photon.objects.paths import placed
from photon.spark import schemas
from photon.spark.key_filter import U64, KeyFilter, hashes_of, met_by
from photon.spark.key_index import SLICE_BYTES, index_path, read_index, write_index
from photon.spark.read_notes import Hours, ReadNote, note_down
from photon.spark.shipped_adapter import made
from photon.spark.sources import JoinSource, LogSource, TimeRange, reading_of
from photon.spark.tasks import frame, packed, partition_bytes, task_directory

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from photon.spark.notes_accumulator import ReadNotes

PACKED_RATIO = 5  # assumed ratio of a compressed log's content to its bytes on disk
NS_PER_S = 1_000_000_000

Report = Callable[[str], None]
LogPath = tuple[str, str]  # datacentre, and path relative to the log directory


class _Shared(msgspec.Struct, frozen=True, kw_only=True):
    join: JoinSource
    sources: list[LogSource]
    columns: list[str]
    foreign: bool
    wanted: KeyFilter | None = None
    absent: list[tuple[Hours, bytes]] = []
    new: set[LogPath] = set()
    index: str | None = None
    since: list[tuple[LogPath, int]] = []

    @property
    def what(self) -> str:
        return "foreign" if self.foreign else "primary"


class _Work(msgspec.Struct, frozen=True):
    source: int
    part: Slice
    slices: int


def foreign(
    spark: SparkSession,
    join: JoinSource,
    sources: Sequence[LogSource],
    *,
    with_records: bool = True,
    partition_size: int | None = None,
    report: Report = lambda line: None,
    only: Collection[LogPath] | None = None,
    notes: ReadNotes | None = None,
    since: Mapping[LogPath, int] | None = None,
) -> DataFrame:
    """Returns FOREIGN: each record of the raw foreign logs whose event time is in its source's window, and every
    unreadable record. Without ``with_records`` the columns ``record`` and ``header`` are left out.

    ``report`` receives files that exist but are not read; ``only`` restricts the files; ``notes`` receives a note of
    each slice, and ``since`` gives the offset at which a log's new part begins. Raises LogDirectoryError,
    AdapterError, OSError.
    """
    shared = _Shared(join=join, sources=list(sources), columns=_columns(schemas.FOREIGN, with_records), foreign=True,
                     since=list((since or {}).items()))  # fmt: skip
    return _logs(spark, shared, schemas.FOREIGN, partition_size, report, only, notes)


def primary(
    spark: SparkSession,
    join: JoinSource,
    sources: Sequence[LogSource],
    wanted: KeyFilter | None = None,
    *,
    with_records: bool = True,
    partition_size: int | None = None,
    report: Report = lambda line: None,
    only: Collection[LogPath] | None = None,
    notes: ReadNotes | None = None,
    absent: Mapping[Hours, bytes] | None = None,
    new: Collection[LogPath] = (),
    index: Path | None = None,
) -> DataFrame:
    """Returns PRIMARY: each record of the raw primary logs that has a key. If several records in one datacentre share
    a key, the first in (file, offset) order is the primary event. ``wanted``: records with other keys are dropped on
    reading. ``absent``: hashes of missing keys; if ``new`` logs contain one, that is noted. ``index``: a directory of
    key indexes (``key_index``), with which only the wanted records of known logs are read. Otherwise as
    ``foreign``."""
    shared = _Shared(
        join=join, sources=list(sources), columns=_columns(schemas.PRIMARY, with_records), foreign=False,
        wanted=wanted, absent=list((absent or {}).items()), new=set(new), index=None if index is None else str(index),
    )  # fmt: skip
    return _logs(spark, shared, schemas.PRIMARY, partition_size, report, only, notes)


def _columns(schema: str, with_records: bool) -> list[str]:
    return names_of(schema if with_records else without(schema, "record", "header"))


def without(schema: str, *names: str) -> str:
    """Returns a schema of ``schemas`` without the columns ``names``."""
    return ", ".join(each for each in schema.split(", ") if each.split(" ")[0] not in names)


def names_of(schema: str) -> list[str]:
    """Returns the schema's column names."""
    return [each.split(" ")[0] for each in schema.split(", ")]


def _logs(
    spark: SparkSession,
    shared: _Shared,
    schema: str,
    partition_size: int | None,
    report: Report,
    only: Collection[LogPath] | None,
    notes: ReadNotes | None,
) -> DataFrame:
    adapter = made(shared.join.adapter, task_directory())
    logs = [
        (number, log)
        for number, log in list_logs(adapter, shared.sources, report, is_foreign=shared.foreign)
        if only is None or (shared.sources[number].datacentre, log.path) in only
    ]
    size = partition_bytes(spark, sum(_weight(log) for _, log in logs), partition_size)
    slices = [(number, cut(log, size if shared.index is None else SLICE_BYTES)) for number, log in logs]
    work = [(_Work(number, part, len(parts)), _slice_weight(part)) for number, parts in slices for part in parts]
    groups = [msgspec.json.encode(group) for group in packed(work, size)]
    run = partial(_read, accumulator=None if notes is None else notes.accumulator)
    columns = [each for each in schema.split(", ") if each.split(" ")[0] in shared.columns]
    return frame(spark, run, msgspec.msgpack.encode(shared), groups, ", ".join(columns))


class LogNotRead(PhotonError):
    """A log, or a directory of logs, cannot be read at all. The message is one line."""


def list_logs(
    adapter: Adapter, sources: Sequence[LogSource], report: Report, *, is_foreign: bool
) -> list[tuple[int, StandingLog]]:
    """Returns (number of the source, log) of all logs to read. Raises LogNotRead, as a day with an inaccessible log
    cannot be judged."""
    found: list[tuple[int, StandingLog]] = []
    for number, source in enumerate(sources):
        directory = placed(Path(), source.directory)
        reading = reading_of(source, adapter, foreign=is_foreign)

        def tell(problem: Problem, source: LogSource = source) -> None:
            if problem.kind in (ProblemKind.UNREADABLE, ProblemKind.DAMAGED):
                raise LogNotRead(
                    f"{source.datacentre}: {source.directory}/{problem}; make it readable, or move it away"
                )
            report(f"{source.datacentre}: {problem}")

        oldest = _oldest_write(source.window)
        logs = standing_logs(directory, reading, tell)
        found += [(number, log) for log in logs if oldest is None or log.mtime_ns >= oldest]
    return found


def _oldest_write(window: TimeRange) -> int | None:
    return None if window.begin_ns is None else window.begin_ns - int(window.slack_s * NS_PER_S)


def _weight(log: StandingLog) -> int:
    return log.size * PACKED_RATIO if log.path.endswith(COMPRESSED_SUFFIXES) else log.size


def _slice_weight(part: Slice) -> int:
    return _weight(part.log) if part.end is None else part.end - part.begin


# -- on the executors ----------------------------------------------------------------------------------------------
def _read(shared: bytes, group: bytes, accumulator: Any = None) -> Iterator[pa.RecordBatch]:
    common = msgspec.msgpack.decode(shared, type=_Shared)
    adapter = made(common.join.adapter, task_directory())
    digester = Digester(common.join.key, common.join.join)
    for work in msgspec.json.decode(group, type=list[_Work]):
        source, part = common.sources[work.source], work.part
        reading = reading_of(source, adapter, foreign=common.foreign)
        log = _log_name(part.log.path)
        note = ReadNote(
            what=common.what, datacentre=source.datacentre, identity=part.log.identity, begin=part.begin,
            slices=work.slices, bytes=part.log.size if part.end is None else part.end - part.begin,
            log=part.log.path,
        )  # fmt: skip
        try:
            if not common.foreign:
                yield from _read_primary(common, source, part, reading, adapter, note)
                note_down(accumulator, note)
                continue
            since = dict(common.since).get((source.datacentre, part.log.path), 0)
            for block in read_slice(placed(Path(), source.directory), part, reading):
                yield from foreign_rows(source, log, block, adapter, digester, common.columns, note, since)
        except LogUnreadable as error:
            if not common.foreign and not error.is_whole:  # its keys would seem to be absent
                raise
            note.damaged, note.why, note.at = True, error.why, error.offset
            if not error.is_whole:
                bad = [Unreadable(error.offset, b"", f"the log is damaged: {error.why}")]
                yield _unreadable_rows(source, log, part.log.identity, bad, common.columns)
        note_down(accumulator, note)


def _read_primary(
    common: _Shared, source: LogSource, part: Slice, reading: Reading, adapter: Adapter, note: ReadNote
) -> Iterator[pa.RecordBatch]:
    directory, log = placed(Path(), source.directory), _log_name(part.log.path)
    kept = common.index if common.wanted is not None else None  # unused without a filter, as all records are read
    path = None if kept is None else index_path(Path(kept), source.datacentre, part)
    known = None if path is None else read_index(path, log_path(directory, part.log.path, reading.links), part)
    keys, parts = KeysSeen(common.wanted), [part]
    at_rest = rests(directory, part.log.path, reading)
    if known is not None and common.wanted is not None:
        parts = known.parts(part, common.wanted)
        read = sum(note.bytes if each.end is None else each.end - each.begin + READ_BYTES for each in parts)
        note.bytes = known.bytes + min(read, note.bytes)
    reached = part.begin
    for each in parts:
        for block in read_slice(directory, each, reading):
            # The last record may lack its line end
            reached = block.end - (block.end < block.offset + len(block.data))
            yield from primary_rows(source, log, block, adapter, common.columns, keys)
    if path is not None and known is None and (at_rest or (part.end is not None and reached >= part.end)):
        write_index(path, log_path(directory, part.log.path, reading.links), part, keys.found, reached)
    if (source.datacentre, part.log.path) in common.new:
        hashes = known.hashes if known is not None else keys.hashes()
        note.met.update(met_by(hashes, dict(common.absent)))


class KeysSeen:
    """The keys seen so far in a slice."""

    def __init__(self, wanted: KeyFilter | None) -> None:
        self._wanted = wanted
        self.found: list[tuple[U64, I64]] = []

    def hashes(self) -> U64:
        return np.concatenate([np.empty(0, np.uint64), *(each for each, _ in self.found)])

    def wanted(self, keys: Sequence[bytes], offsets: I64) -> RowIndexes | None:
        """Notes the keys, and returns the rows of wanted ones; ``None`` means all."""
        if self._wanted is None:
            return None
        hashes = hashes_of(keys)
        self.found.append((hashes, offsets))
        return np.flatnonzero(self._wanted.holds(hashes))


def _log_name(path: str) -> str:
    for suffix in COMPRESSED_SUFFIXES:
        path = path.removesuffix(suffix)
    return path


def foreign_rows(
    source: LogSource,
    log: str,
    block: Block,
    adapter: Adapter,
    digester: Digester,
    names: Sequence[str],
    note: ReadNote,
    since: int,
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of FOREIGN in one block."""
    from photon.spark.arrow_columns import batch, bigints, binary, digests_column, hours, same

    records, offsets = records_of(block)
    events, unreadable, _ = events_of(block, records, offsets, adapter, digester)
    ends = events.offsets + np.fromiter(map(len, events.records), np.int64, len(events)) if since else events.offsets
    note.add(events.times, ends, since)
    if kept := _in_window(events, source.window):
        times = kept.times
        count = len(kept)
        rows = {
            "datacentre": same(source.datacentre, count),
            "log": same(log, count),
            "name": same(log_name(log), count),
            "identity": same(block.identity, count),
            "offset": bigints(kept.offsets),
            "event_id": binary(kept.ids),
            "digest": digests_column(kept.digests),
            "key": binary(kept.keys),
            "event_time_ns": bigints(times),
            "hour": bigints(hours(times)),
            "unreadable": same(None, count),
        }
        if "record" in names:
            rows["record"] = binary(kept.records)
            rows["header"] = _header_column(block.file.header, count)
        yield batch(rows, names)
    for long in block.oversized:
        reason = f"the record is {long.length} bytes long, more than the limit; it begins as shown"
        unreadable.append(Unreadable(long.offset, long.head, reason))
    if unreadable:
        yield _unreadable_rows(source, log, block.identity, unreadable, names, block.file.header)


def _header_column(header: bytes, count: int) -> pa.Array:
    import pyarrow as pa

    return pa.repeat(pa.scalar(header, pa.binary()), count) if header else pa.nulls(count, pa.binary())


def _in_window(events: Events, window: TimeRange) -> Events:
    if not len(events) or (window.begin_ns is None and window.end_ns is None):
        return events
    inside = window.holds(events.times)
    return events if inside.all() else events.take(np.flatnonzero(inside))


def _unreadable_rows(
    source: LogSource,
    log: str,
    identity: str,
    unreadable: Sequence[Unreadable],
    names: Sequence[str],
    header: bytes = b"",
) -> pa.RecordBatch:
    import pyarrow as pa

    from photon.spark.arrow_columns import batch, bigints, binary, same, strings

    count = len(unreadable)
    nothing, no_number = pa.nulls(count, pa.binary()), pa.nulls(count, pa.int64())
    rows = {
        "datacentre": same(source.datacentre, count),
        "log": same(log, count),
        "name": same(log_name(log), count),
        "identity": same(identity, count),
        "offset": bigints([bad.offset for bad in unreadable]),
        "event_id": nothing,
        "digest": nothing,
        "key": nothing,
        "event_time_ns": no_number,
        "hour": no_number,
        "record": binary([bad.record for bad in unreadable]),
        "header": _header_column(header, count),
        "unreadable": strings([bad.reason for bad in unreadable]),
    }
    return batch(rows, names)


def primary_rows(
    source: LogSource,
    log: str,
    block: Block,
    adapter: Adapter,
    names: Sequence[str],
    seen: KeysSeen,
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of PRIMARY in one block."""
    from photon.spark.arrow_columns import batch, bigints, binary, same

    keys, starts = located_keys_of_block(adapter, block.data, block.file)
    if set(map(type, keys)) != {bytes} or (may_skip(adapter) and b"" in keys):
        named = np.array([row for row, key in enumerate(keys) if isinstance(key, bytes) and key], np.intp)
        keys, starts = [keys[row] for row in named.tolist()], starts[named]
    good = seen.wanted(cast(list[bytes], keys), starts + block.offset)
    if good is not None:
        keys, starts = [keys[row] for row in good.tolist()], starts[good]
    records = [record_at(block.data, start) for start in starts.tolist()]
    # The block's keys are only candidates; each must be correct here
    if isinstance(adapter, ConfiguredAdapter) and keys:
        one_file = Records([block.file], np.zeros(len(records), np.uint32), starts, records)
        keys = [key if isinstance(key, bytes) else None for key in primary_keys_of(Guard(adapter), one_file)]
        if not all(keys):
            named = np.array([row for row, key in enumerate(keys) if key], np.intp)
            keys, starts = [keys[row] for row in named.tolist()], starts[named]
            records = [records[row] for row in named.tolist()]
    if not keys:
        return
    rows = {
        "datacentre": same(source.datacentre, len(keys)),
        "log": same(log, len(keys)),
        "name": same(log_name(log), len(keys)),
        "identity": same(block.identity, len(keys)),
        "offset": bigints(starts + block.offset),
        "key": binary(cast(list[bytes], keys)),
    }
    if "record" in names:
        rows["record"] = binary(records)
        rows["header"] = _header_column(block.file.header, len(keys))
    yield batch(rows, names)


__all__ = [
    "foreign",
    "foreign_rows",
    "list_logs",
    "names_of",
    "primary",
    "primary_rows",
    "without",
]
