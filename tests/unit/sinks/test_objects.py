"""Output as objects: what the manifest has named it names until there is more of it."""

from __future__ import annotations

import gzip
from pathlib import Path

import orjson
import pytest

from photon.computing.publisher import Publisher
from photon.computing.wire import Item
from photon.config.clock import Clock, SystemClock
from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.library import Output
from photon.objects import directory as module
from photon.objects.api import Meta
from photon.objects.paths import ObjectPath
from photon.outputs import OutputPlace, PublishedDamaged
from photon.outputs.content import OutputMissing
from photon.outputs.mirrored import MANIFEST, MirroredFile, MirroredPlace, slots_of
from photon.sinks.objects import KEPT_NS, ObjectSink, PrefixTaken
from tests.unit.objects.fakes import MemoryBucket, unavailable

DISK = RealDisk()
INTO = ObjectPath("s3://lake/x")


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> MemoryBucket:
    made = MemoryBucket()
    monkeypatch.setattr(module, "opener", lambda url: made)
    monkeypatch.setattr(module, "_buckets", {})
    return made


def publish(output: Path, *numbers: int) -> None:
    publisher = Publisher(DISK, output, "s")
    publisher.publish([Item(number, "", "", number, b"\x01", "x") for number in numbers])
    publisher.close()


class Now(SystemClock):
    later_ns = 0

    def now_ns(self) -> int:
        return super().now_ns() + self.later_ns


def sink(output: Path, clock: Clock | None = None) -> ObjectSink:
    return ObjectSink(DISK, OutputPlace.of_join(output), INTO, ["joined"], clock)


def offsets(lines: bytes) -> list[int]:
    return [orjson.loads(line)["source"]["offset"] for line in lines.splitlines()]


def shown(bucket: MemoryBucket) -> list[int]:
    """What a reader of the manifest gets."""
    found = []
    for each in map(orjson.loads, bucket.data[f"x/{MANIFEST}"].splitlines()):
        data = gzip.decompress(bucket.data[f"x/{each['file']}"])
        assert len(data) == each["uncompressed_bytes"]
        found += offsets(data)
    return found


def test_what_is_shown_stays_when_another_run_follows(bucket: MemoryBucket, tmp_path: Path) -> None:
    publish(tmp_path, 1, 2)
    sink(tmp_path).pass_(all_of_it=True)
    assert shown(bucket) == [1, 2]
    publish(tmp_path, 3)
    follower = sink(tmp_path)
    follower.pass_()
    assert shown(bucket) == [1, 2]
    follower.pass_(all_of_it=True)
    assert shown(bucket) == [1, 2, 3]
    assert len(bucket.data) == 3  # what was shown before is there for whoever reads by the manifest of before


def test_what_counts_no_more_is_deleted_an_hour_later(bucket: MemoryBucket, tmp_path: Path) -> None:
    clock = Now()
    publish(tmp_path, 1)
    sink(tmp_path).pass_(all_of_it=True)
    publish(tmp_path, 2)
    follower = sink(tmp_path, clock)
    follower.pass_(all_of_it=True)
    assert len(bucket.data) == 3
    clock.later_ns = KEPT_NS
    follower.pass_()
    assert len(bucket.data) == 2
    assert shown(bucket) == [1, 2]


def test_of_two_sinks_one_ends_and_nothing_goes_back(bucket: MemoryBucket, tmp_path: Path) -> None:
    publish(tmp_path, 1)
    first = sink(tmp_path)
    first.pass_(all_of_it=True)
    publish(tmp_path, 2)
    second = sink(tmp_path)
    second.pass_(all_of_it=True)
    publish(tmp_path, 3)
    with pytest.raises(PrefixTaken, match="another sink writes there"):
        first.pass_(all_of_it=True)
    assert shown(bucket) == [1, 2]
    second.pass_(all_of_it=True)
    assert shown(bucket) == [1, 2, 3]


def test_a_manifest_that_was_written_without_an_answer_is_ours(
    bucket: MemoryBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(tmp_path, 1)
    swap, answers = bucket.swap, iter([False, True])

    def unanswered(key: str, data: bytes, over: Meta | None) -> Meta:
        found = swap(key, data, over)
        if not next(answers, True):
            raise unavailable()
        return found

    monkeypatch.setattr(bucket, "swap", unanswered)
    sink(tmp_path).pass_(all_of_it=True)
    assert shown(bucket) == [1]


def test_the_prefix_of_another_output_is_refused(bucket: MemoryBucket, tmp_path: Path) -> None:
    publish(tmp_path / "one", 1)
    sink(tmp_path / "one").pass_(all_of_it=True)
    publisher = Publisher(DISK, tmp_path / "other", "t")
    publisher.publish([Item(1, "", "", 1, b"\x01", "x")])
    publisher.close()
    with pytest.raises(UsageError, match="holds another output"):
        sink(tmp_path / "other").pass_(all_of_it=True)
    assert shown(bucket) == [1]


def test_it_is_read_as_the_output_itself(bucket: MemoryBucket, tmp_path: Path) -> None:
    """Lines, slots, files and offsets: a cursor of one is one of the other."""
    publish(tmp_path, 1, 2)
    sink(tmp_path).pass_(all_of_it=True)
    place = MirroredPlace.at(INTO)
    there = Output(place)
    (batch,) = there.batches()
    (own,) = Output.of_join(tmp_path).batches()
    assert batch == own
    follower = sink(tmp_path)
    publish(tmp_path, 3)
    follower.pass_(all_of_it=True)
    again = Output(MirroredPlace.at(INTO))
    assert [offsets(each.data) for each in again.batches(cursor=batch.cursor)] == [[3]]
    assert again.end() == Output.of_join(tmp_path).end()
    with pytest.raises(UsageError, match="does not say what is cleared"):
        list(again.batches(cleared_only=True))


def test_what_is_not_there_is_told(bucket: MemoryBucket) -> None:
    with pytest.raises(UsageError, match=r"s3://lake/x: has no manifest\.jsonl"):
        MirroredPlace.at(INTO)


@pytest.mark.parametrize(
    "bad", [b"x", b'{"file":"../x","bytes":1,"uncompressed_bytes":1,"first_ns":null,"last_ns":null}']
)
def test_a_manifest_that_is_none_is_told(bucket: MemoryBucket, bad: bytes) -> None:
    bucket.data[f"x/{MANIFEST}"] = bad
    with pytest.raises(PublishedDamaged):
        MirroredPlace.at(INTO)


def test_files_of_a_manifest() -> None:
    lines = [
        ("joined/east-1-000001.jsonl.gz", {}),
        ("joined/east-1-000002.upto-7.jsonl.gz", {"closed": True}),
        ("joined/east-1-000003.upto-5.jsonl.gz", {}),
        ("joined/west-1-000001.upto-9.jsonl.gz", {"retired": True}),
    ]
    manifest = [
        MirroredFile(file=name, bytes=1, uncompressed_bytes=9, first_ns=None, last_ns=None, **more)
        for name, more in lines
    ]
    east, west = slots_of(manifest, INTO / MANIFEST, ["joined"])
    assert [(file.number, file.closed) for file in east.files] == [(1, True), (2, True), (3, False)]
    assert east.files[2].path == "joined/east-1-000003.upto-5.jsonl"
    assert (east.slot, west.slot, west.retired, west.files[0].closed) == ("east-1", "west-1", True, True)


def test_a_file_that_lacks_what_was_published_is_told(bucket: MemoryBucket, tmp_path: Path) -> None:
    publish(tmp_path, 1, 2)
    (path,) = (tmp_path / "joined").iterdir()
    DISK.truncate(path, 10)
    with pytest.raises(OutputMissing, match="has 10 bytes, but"):
        sink(tmp_path).pass_(all_of_it=True)
    assert not bucket.data
