"""Output as objects: what the manifest has named it names until there is more of it."""

from __future__ import annotations

import gzip
from pathlib import Path

import orjson
import pytest

from photon.computing.publisher import Publisher
from photon.computing.wire import Item
from photon.config.disk import RealDisk
from photon.objects import directory as module
from photon.objects.paths import ObjectPath
from photon.outputs.content import OutputMissing
from photon.outputs.output_places import OutputPlace
from photon.sinks.objects import MANIFEST, ObjectSink
from tests.unit.objects.fakes import MemoryBucket

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


def sink(output: Path) -> ObjectSink:
    return ObjectSink(DISK, OutputPlace.of_join(output), INTO, ["joined"])


def shown(bucket: MemoryBucket) -> list[int]:
    """What a reader of the manifest gets."""
    found = []
    for each in map(orjson.loads, bucket.data[f"x/{MANIFEST}"].splitlines()):
        data = gzip.decompress(bucket.data[f"x/{each['file']}"])
        assert len(data) == each["uncompressed_bytes"]
        found += [orjson.loads(line)["source"]["offset"] for line in data.splitlines()]
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
    assert len(bucket.data) == 2


def test_a_file_that_lacks_what_was_published_is_told(bucket: MemoryBucket, tmp_path: Path) -> None:
    publish(tmp_path, 1, 2)
    (path,) = (tmp_path / "joined").iterdir()
    DISK.truncate(path, 10)
    with pytest.raises(OutputMissing, match="has 10 bytes, but"):
        sink(tmp_path).pass_(all_of_it=True)
    assert not bucket.data
