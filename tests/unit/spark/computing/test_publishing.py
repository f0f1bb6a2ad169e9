"""Published output equals Spark's commits, once each, whenever the process is killed."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row

from photon.computing.errors import ComputingError
from photon.computing.topology import EXACT, PERCENTILE, Topology
from photon.computing.windows import Each
from photon.computing.wire import ENDED_NS, NEVER_NS
from photon.config.clock import SystemClock
from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.outputs.output_places import OutputPlace
from photon.outputs.reader import Reader
from photon.outputs.watermarks import pairs_of, read_journal
from photon.spark.computing.plan import ASIDE, FAULT, PUBLISHED, Item, pack
from photon.spark.computing.publishing import BEHIND_MAX, SHOWN_NAME, Publishing, stage
from photon.spark.stream_watermarks import Mark

DISK = RealDisk()
STREAMS = ("sums", "more")


class Frame:
    """A batch's rows, with the used parts of a DataFrame. Each list is a task's."""

    def __init__(self, *tasks: Sequence[tuple[int, bytes]]) -> None:
        self._tasks = tasks

    def where(self, _: str) -> Frame:
        return self

    def select(self, *_: str) -> Frame:
        return self

    def mapInArrow(self, run: Callable[..., Iterator[pa.RecordBatch]], _: str) -> Frame:  # noqa: N802 Spark's name
        self._run = run
        return self

    def collect(self) -> list[Row]:
        found = []
        for task in self._tasks:
            batch = pa.RecordBatch.from_pydict(
                {"to": pa.array([to for to, _ in task], pa.int32()), "items": [items for _, items in task]}
            )
            for out in self._run(iter([batch])):
                found += [Row(**each) for each in out.to_pylist()]
        return found


def productions(stream: str, *values: int) -> tuple[int, bytes]:
    return PUBLISHED, pack([Item(value, stream, pack({"n": value})) for value in values])


class Site:
    def __init__(self, base: Path, *, exact: bool = True) -> None:
        self.state, self.base = base / "state", base
        self.checkpoint = self.state / "checkpoint"
        self.topology = Topology("test")
        watermark = EXACT if exact else PERCENTILE
        self.topology.add(Each("sums", iter), {self.topology.source("raw"): "k"}, (), watermark)
        self.topology.add(Each("more", iter), {"sums": "k"}, (), watermark)
        for name in ("commits", "offsets"):
            (self.checkpoint / name).mkdir(parents=True)

    def opened(self, state_id: str = "me") -> Publishing:
        places = {stream: self.base / stream for stream in STREAMS}
        return Publishing(DISK, SystemClock(), self.state, self.checkpoint, places, state_id, self.topology)

    def batch(
        self, publishing: Publishing, number: int, frame: Frame, before_ns: int | None, behind_ns: int = 0
    ) -> list[str]:
        """Spark's work up to the commit. Returns the reported faults. ``behind_ns``: how far the exact watermark is
        behind the percentile."""
        before = Mark(before_ns, waiting=int(behind_ns > 0), exact_ns=before_ns and before_ns - behind_ns)
        offset = {"version": 1, "cursors": {}, "watermark": {}, "before": asdict(before)}
        (self.checkpoint / "offsets" / str(number)).write_text(f"v1\n{{}}\n{json.dumps(offset)}")
        told: list[str] = []
        stage(frame, number, publishing.staged, DISK, told.append, "0m")  # type: ignore[arg-type]
        return told

    def commit(self, number: int) -> None:
        (self.checkpoint / "commits" / str(number)).write_text("v1\n{}")

    def read(self, stream: str = "sums") -> list[Any]:
        reader = Reader(DISK, OutputPlace.of_join(self.base / stream), ["joined"])
        lines = [line for block in reader.read() for line in block.data.splitlines()]
        return [json.loads(line)["foreign"]["n"] for line in lines]


def test_only_what_was_committed_is_published(tmp_path: Path) -> None:
    site = Site(tmp_path)
    publishing = site.opened()
    frame = Frame([productions("sums", 1, 2), (FAULT, b"computation x: bad")], [productions("more", 7)])
    assert site.batch(publishing, 0, frame, None) == ["computation x: bad"]
    assert not publishing.publish()
    site.commit(0)
    assert publishing.publish()
    assert (site.read(), site.read("more"), publishing.records) == ([1, 2], [7], 3)
    assert not publishing.publish()
    assert not list((publishing.staged / "parts").iterdir())
    publishing.close()


def test_a_batch_that_is_done_again_is_published_as_it_was_committed(tmp_path: Path) -> None:
    site = Site(tmp_path)
    first = site.opened()
    site.batch(first, 0, Frame([productions("sums", 1)]), None)
    first.close()  # killed before the commit
    second = site.opened()
    second.publish()
    second.clear()
    site.batch(second, 0, Frame([productions("sums", 3, 4)]), None)  # its code throws dice
    site.commit(0)
    second.publish()
    assert site.read() == [3, 4]
    second.close()


@pytest.mark.parametrize("published", [STREAMS, STREAMS[:1], ()])
def test_a_kill_between_commit_and_publishing(tmp_path: Path, published: Sequence[str]) -> None:
    site = Site(tmp_path)
    publishing = site.opened()
    site.batch(publishing, 0, Frame([productions("sums", 1, 2), productions("more", 7)]), None)
    site.commit(0)
    kept = tmp_path / "kept"
    shutil.copytree(site.state / "staged", kept)
    for stream in set(STREAMS) - set(published):
        shutil.copytree(tmp_path / stream, tmp_path / f"{stream}.before")
    publishing.publish()
    publishing.close()
    for stream in set(STREAMS) - set(published):  # the kill came before it
        shutil.rmtree(tmp_path / stream)
        (tmp_path / f"{stream}.before").rename(tmp_path / stream)
    shutil.rmtree(site.state / "staged")
    kept.rename(site.state / "staged")
    (site.state / SHOWN_NAME).unlink()
    again = site.opened()
    again.publish()
    assert (site.read(), site.read("more")) == ([1, 2], [7])
    again.close()


def test_a_published_stream_has_the_watermark_of_its_batches(tmp_path: Path) -> None:
    site, second = Site(tmp_path), 1_000_000_000
    publishing = site.opened()
    for number, before_ns in enumerate((None, 5 * second, 9 * second)):
        site.batch(publishing, number, Frame([productions("sums", 6 * second)]), before_ns)
        site.commit(number)
        publishing.publish()
    pairs = pairs_of(read_journal(DISK, tmp_path / "sums" / ".photon"))
    assert [each.exact_ns for each in pairs] == [5 * second, 9 * second]
    publishing.close()
    reopened = site.opened()
    assert reopened.mark.exact_ns == 9 * second
    site.batch(reopened, 3, Frame([productions("sums", 6 * second)]), ENDED_NS)
    site.commit(3)
    reopened.publish()  # records before the previous watermark are late, and counted
    assert json.loads((tmp_path / "sums/.photon/slots/spark/late.json").read_bytes())["records"] == 1
    assert reopened.mark.exact_ns == ENDED_NS
    reopened.close()
    assert NEVER_NS < 0


def test_a_stream_after_the_percentile_has_the_exact_watermark_too(tmp_path: Path) -> None:
    """As the engine's has: a bill may read it."""
    site, second = Site(tmp_path), 1_000_000_000
    publishing = site.opened()
    for number, before_ns in enumerate((None, 5 * second, 9 * second)):
        site.batch(publishing, number, Frame([productions("sums", 6 * second)]), before_ns, behind_ns=second)
        site.commit(number)
        publishing.publish()
    pairs = pairs_of(read_journal(DISK, tmp_path / "sums" / ".photon"))
    assert [(each.exact_ns, each.percentile_ns, each.waiting) for each in pairs] == [
        (4 * second, 5 * second, 1), (8 * second, 9 * second, 1)
    ]  # fmt: skip
    publishing.close()


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("killed", [True, False])
def test_records_put_aside_hold_the_watermarks_of_what_they_lead_to(
    tmp_path: Path, killed: bool, exact: bool
) -> None:
    """The process is killed after a batch is published, or before ``shown.json``."""
    site, second = Site(tmp_path, exact=exact), 1_000_000_000
    publishing = site.opened()
    changes: list[list[tuple[int, int]]] = [[], [(0, 2), (1, 1)], [(0, 1)], [(0, -3)], [(1, -1)]]
    for number, some in enumerate(changes):
        frame = Frame([(ASIDE, pack(each)) for each in some], [productions("sums", 9 * second)])
        site.batch(publishing, number, frame, (number + 1) * second)
        site.commit(number)
        if killed:
            staged = (publishing.staged / f"{number}.json").read_bytes()
            shown = (site.state / SHOWN_NAME).read_bytes() if number else None
            parts = tmp_path / "parts"
            shutil.copytree(publishing.staged / "parts", parts)
            publishing.publish()
            publishing.close()
            shutil.copytree(parts, publishing.staged / "parts", dirs_exist_ok=True)
            shutil.rmtree(parts)
            (publishing.staged / f"{number}.json").write_bytes(staged)
            if number % 2:
                (site.state / SHOWN_NAME).write_bytes(shown or b"")
            publishing = site.opened()
        publishing.publish()
    found = {
        stream: [
            (
                each.exact_ns and each.exact_ns // second,
                each.percentile_ns and each.percentile_ns // second,
                each.waiting,
            )
            for each in pairs_of(read_journal(DISK, tmp_path / stream / ".photon"))
        ]
        for stream in STREAMS
    }
    sums = [(1, 1, 0), (1, 2, 2), (1, 3, 3), (4, 4, 0), (5, 5, 0)]
    more = [(1, 1, 0), (1, 4, 1), (5, 5, 0)] if exact else [(1, 1, 0), (1, 2, 3), (1, 3, 4), (1, 4, 1), (5, 5, 0)]
    assert found == {"sums": sums, "more": more}
    assert site.read() == [9 * second] * len(changes)
    publishing.close()


def test_what_is_published_is_of_one_state(tmp_path: Path) -> None:
    site = Site(tmp_path)
    publishing = site.opened()
    with pytest.raises(UsageError, match="another process publishes there"):
        site.opened()
    site.batch(publishing, 0, Frame([productions("sums", 1)]), None)
    site.commit(0)
    publishing.publish()
    publishing.close()
    with pytest.raises(UsageError, match="from another state"):
        site.opened("other")
    (tmp_path / "sums").rename(tmp_path / "away")  # nothing of it, or an older copy
    with pytest.raises(UsageError, match="state has published it up to record 0"):
        site.opened()
    shutil.rmtree(tmp_path / "sums")
    (tmp_path / "away").rename(tmp_path / "sums")
    site.opened().close()
    (site.checkpoint / "commits" / "0").unlink()  # an older checkpoint was put back
    with pytest.raises(UsageError, match="from a newer one than"):
        site.opened()


def test_batches_wait_for_publishing(tmp_path: Path) -> None:
    """Otherwise Spark would forget the offsets of unpublished batches, and nothing could be published."""
    site, over, done = Site(tmp_path), threading.Event(), threading.Event()
    publishing = site.opened()
    for number in range(BEHIND_MAX):
        publishing.await_room(over)
        site.batch(publishing, number, Frame([productions("sums", number)]), None)
        site.commit(number)

    def next_batch() -> None:
        publishing.await_room(over)
        done.set()

    waiting = threading.Thread(target=next_batch, daemon=True)
    waiting.start()
    assert not done.wait(0.2)
    publishing.publish()
    waiting.join(20)
    assert done.is_set()
    assert site.read() == list(range(BEHIND_MAX))
    for number in range(BEHIND_MAX, 2 * BEHIND_MAX):
        site.batch(publishing, number, Frame([productions("sums", number)]), None)
    over.set()
    with pytest.raises(ComputingError, match="the run ends"):
        publishing.await_room(over)
    publishing.close()


def test_a_batch_may_call_the_timers_of_very_many_keys(tmp_path: Path) -> None:
    """It would be the same whenever it is redone."""
    site = Site(tmp_path)
    publishing = site.opened()
    frame = Frame()
    frame.collect = lambda: [Row(part="x", items=(1 << 24) + 1, fault=None, aside=None)]  # type: ignore[method-assign]
    site.batch(publishing, 0, frame, None)
    assert (publishing.staged / "0.json").exists()
    publishing.close()
