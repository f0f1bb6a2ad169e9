"""Stages a batch's productions for published streams, and publishes them once Spark has committed the batch.

``staged/`` in the state has the productions of unpublished batches::

    parts/ID           items in the format of messages to PUBLISHED, each message preceded by its length (4 bytes)
    17.json            the parts of batch 17, written once all exist

Tasks write parts under unique names, so parts that a repeated or abandoned task has left or still writes belong to no
batch. Repeating a batch replaces its file. Spark commits a batch once it is staged; then it is never repeated, and is
published: appended to the files of one slot for each stream by ``photon.computing.publisher``, which numbers items by
batch and place, and drops those published before. So if a process is killed while publishing, the next one publishes
the rest.

Only one driver can run: it locks the state; its Java process, which briefly outlives a killed driver, holds a second
lock; and each publisher locks its stream. ``shown.json`` has the last number published in each directory (which
reveals published files older than the state), and the streams' watermarks.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from photon.computing.errors import ComputingError
from photon.computing.journal import PublishedWatermark
from photon.computing.publisher import Publisher
from photon.computing.topology import Topology
from photon.computing.wire import ENDED_NS, Item, Watermark
from photon.config.clock import Clock
from photon.config.disk import Disk
from photon.config.errors import PhotonError
from photon.config.versioned_file import read_versioned
from photon.spark.computing.plan import ASIDE, FAULT, PUBLISHED, added, aside_of, before, items_of, watermark_ns
from photon.spark.data_source_options import mark_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

SENDER = "spark"  # the slot of each published stream
# Low bits of an item's number: its place in the batch. A batch that calls the timers of all keys produces for each of
# them; a batch that exceeds this can never succeed, as a repetition is the same.
BATCH_BITS = 32
# Staged, unpublished batches before another one begins. Publishing needs the offsets of its batch, of which Spark
# keeps the last ``minBatchesToRetain``.
BEHIND_MAX = 8
ROOM_S = 0.05
PUBLISH_ITEMS = 20_000
STAGED_SCHEMA = "part string, items bigint, fault string, aside binary"


SHOWN_NAME = "shown.json"


class _Staged(msgspec.Struct, frozen=True):
    photon_staged: int
    parts: list[tuple[str, int]]  # name, items
    aside: list[tuple[int, int]]  # computation, change of the number of its records put aside


class _Shown(msgspec.Struct, frozen=True, tag_field="version", tag=1):
    """``shown.json``: the state after all published batches."""

    batch: int = -1  # the last one
    numbers: dict[str, int] = {}  # directory -> its last item's
    marks: dict[str, Watermark] = {}  # of the streams
    aside: dict[int, int] = {}  # computation -> records and timers put aside


def _damaged(path: Path, why: str) -> ComputingError:
    return ComputingError(f"{path}: unreadable ({why}); restore it")


def stage(frame: DataFrame, batch: int, staged: Path, disk: Disk, tell: Callable[[str], None], marker: str) -> None:
    """Runs the batch: all its productions are staged when this returns. ``tell`` receives faults of user code;
    ``marker``: the key of any marker, as all have the same rows."""
    directory = str(staged / "parts")

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from _written(Path(directory), batches)

    wanted = frame.where(f"to in ({PUBLISHED}, {FAULT}) or to = {ASIDE} and key = '{marker}'").select("to", "items")
    rows = wanted.mapInArrow(write, STAGED_SCHEMA).collect()
    for row in rows:
        if row.fault is not None:
            tell(row.fault)
    parts = [(row.part, row["items"]) for row in rows if row.part is not None]
    if sum(count for _, count in parts) >> BATCH_BITS:
        raise PhotonError(f"batch {batch} produces more than {1 << BATCH_BITS:,} records: lower --records")
    aside = [aside_of(bytes(row.aside)) for row in rows if row.aside is not None]
    disk.replace(staged / f"{batch}.json", msgspec.json.encode(_Staged(1, parts, aside)) + b"\n")


def _written(directory: Path, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs on an executor: writes the items of one task."""
    import pyarrow as pa

    name, count, told = uuid.uuid4().hex, 0, list[tuple[str | None, int, str | None, bytes | None]]()
    file = None
    for batch in batches:
        for to, items in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            if to == FAULT:
                told.append((None, 0, items.decode(), None))
                continue
            if to == ASIDE:
                told.append((None, 0, None, items))
                continue
            file = file or (directory / name).open("wb")
            file.write(len(items).to_bytes(4, "big") + items)
            count += len(items_of(items))
    if file is not None:
        with file:
            file.flush()
            os.fsync(file.fileno())
    rows = [*([(name, count, None, None)] if file is not None else []), *told]
    columns = zip(*rows, strict=True) if rows else ((), (), (), ())
    kinds = (pa.string(), pa.int64(), pa.string(), pa.binary())
    arrays = [pa.array(values, kind) for values, kind in zip(columns, kinds, strict=True)]
    yield pa.RecordBatch.from_arrays(arrays, names=["part", "items", "fault", "aside"])


class Publishing:
    """Publishes all streams of a topology. Use it from one thread at a time."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        state: Path,
        checkpoint: Path,
        published: Mapping[str, Path],
        id: str,
        topology: Topology,
    ) -> None:
        """``published``: stream -> directory; ``id``: the state's id.

        Raises UsageError, PublishedDamaged, OSError.
        """
        self._disk, self._clock = disk, clock
        self.staged, self._checkpoint = state / "staged", checkpoint
        disk.make_dir(self.staged / "parts")
        self.records = 0
        self._publishers: dict[str, Publisher] = {}
        self._journals: dict[str, PublishedWatermark] = {}
        parts = topology.checked()
        self._exact = any(part.exact for part in parts)
        self._makers = {stream: number for number, part in enumerate(parts) for stream in part.outputs}
        self._before = [before(topology, number) for number in range(len(parts))]
        self._published, self._shown_path = dict(published), state / SHOWN_NAME
        self.shown = read_versioned(disk, self._shown_path, _Shown, _damaged) or _Shown()
        most = (self.committed() + 1 << BATCH_BITS) - 1
        try:
            for stream, directory in published.items():
                publisher = Publisher(
                    disk, directory, SENDER, state=id, where=str(state),
                    committed=most, shown=self.shown.numbers.get(str(directory), -1),
                )  # fmt: skip
                self._publishers[stream] = publisher
                self._journals[stream] = PublishedWatermark(disk, directory)
        except BaseException:
            self.close()
            raise
        last = self.shown.batch
        self.mark = self._mark(last) if last >= 0 else Watermark()  # of the query; those of streams may be held back

    def committed(self) -> int:
        """The last batch that Spark has committed; -1 if there is none."""
        return max(_numbers(self._checkpoint / "commits"), default=-1)

    def await_room(self, over: threading.Event) -> None:
        """Thread-safe. Waits until few enough batches are staged. Raises ComputingError if ``over`` is set first."""
        while len(_numbers(self.staged, ".json")) >= BEHIND_MAX:
            if over.wait(ROOM_S):
                raise ComputingError("the run ends")

    def publish(self) -> bool:
        """Publishes the staged items of committed batches. Returns True if there were any. Raises OSError,
        PhotonError, after which the process must end."""
        if not (staged := _numbers(self.staged, ".json")):
            return False
        last = self.committed()
        ready = sorted(batch for batch in staged if batch <= last)
        for batch in ready:
            _sync(self._checkpoint / "commits" / str(batch))
            self._publish(batch)
        return bool(ready)

    def _publish(self, batch: int) -> None:
        path = self.staged / f"{batch}.json"
        staged, shown = msgspec.json.decode(self._disk.read(path), type=_Staged), self.shown
        parts = staged.parts
        number, streams = batch << BATCH_BITS, dict[str, list[Item]]()
        for name, _ in parts:
            for item in _items(self.staged / "parts" / name):
                found = streams.setdefault(item.stream, [])
                found.append(Item(number, "", "", item.time_ns, item.value, item.stream))
                number += 1
                if len(found) >= PUBLISH_ITEMS:
                    self._give(item.stream, streams.pop(item.stream))
        for stream, items in streams.items():
            self._give(stream, items)
        self.mark = self._mark(batch)
        numbers = {str(self._published[each]): at.taken for each, at in self._publishers.items()}
        aside = added(shown.aside, staged.aside if batch > shown.batch else ())
        marks = {stream: self._mark_of(stream, aside) for stream in self._published if stream in self._makers}
        for stream, mark in marks.items():
            self._journals[stream].say([mark], self._clock.now_ns())
        self.shown = _Shown(batch, shown.numbers | numbers, marks, aside)
        self._disk.replace(self._shown_path, msgspec.json.encode(self.shown) + b"\n")
        self._disk.remove(path)
        for name, _ in parts:
            self._disk.remove(self.staged / "parts" / name)

    def _give(self, stream: str, items: list[Item]) -> None:
        mark = self.shown.marks.get(stream, Watermark())
        self.records += self._publishers[stream].publish(items, mark.exact_ns)

    def _mark_of(self, stream: str, aside: Mapping[int, int]) -> Watermark:
        """Returns a stream's watermark. As in the engine, the exact watermark does not move while records are set
        aside, because they may still lead to records of any time."""
        maker, last = self._makers[stream], self.shown.marks.get(stream, Watermark())
        expected = sum(aside.get(each, 0) for each in self._before[maker])
        exact_ns, percentile_ns, waiting = self.mark
        if percentile_ns < ENDED_NS:
            exact_ns = last.exact_ns if expected + aside.get(maker, 0) else exact_ns
            percentile_ns = last.percentile_ns if expected and self._exact else percentile_ns
        return Watermark(exact_ns, percentile_ns, waiting + aside.get(maker, 0) + (0 if self._exact else expected))

    def _mark(self, batch: int) -> Watermark:
        """Returns the watermark of a batch: all earlier records have been produced by this batch or earlier ones."""
        found = mark_of(_offset(self._checkpoint, batch), "before")
        at_ns = watermark_ns(found.time_ns)
        return Watermark(min(watermark_ns(found.exact_ns), at_ns), at_ns, found.waiting)

    def clear(self) -> None:
        """Drops what is staged for an uncommitted batch, which Spark repeats. Call it before a query starts."""
        for batch in _numbers(self.staged, ".json"):
            self._disk.remove(self.staged / f"{batch}.json")
        shutil.rmtree(self.staged / "parts", ignore_errors=True)  # a task of the previous run may still write there
        self._disk.make_dir(self.staged / "parts")

    def close(self) -> None:
        for publisher in self._publishers.values():
            publisher.close()
        for journal in self._journals.values():
            journal.close()


def last_offset(checkpoint: Path) -> dict[str, Any]:
    """Returns the source's offset in the last batch that was begun; empty if there is none."""
    numbers = _numbers(checkpoint / "offsets")
    return _offset(checkpoint, max(numbers)) if numbers else {}


def _offset(checkpoint: Path, batch: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((checkpoint / "offsets" / str(batch)).read_text().splitlines()[2])
    return found


def _items(part: Path) -> Iterator[Any]:
    with part.open("rb") as file:
        while size := file.read(4):
            yield from items_of(file.read(int.from_bytes(size, "big")))


def _numbers(directory: Path, suffix: str = "") -> list[int]:
    if not directory.is_dir():
        return []
    names = [each.name for each in directory.iterdir() if each.name.endswith(suffix)]
    return [int(stem) for name in names if (stem := name.removesuffix(suffix)).isdecimal()]


def _sync(path: Path) -> None:
    """Syncs a file that Spark wrote without syncing it, because items must not be published before it is durable."""
    for each in (path, path.parent):
        descriptor = os.open(each, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
