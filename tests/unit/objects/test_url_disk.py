"""Objects written like files: complete, and never replacing objects that the writer has not seen."""

from __future__ import annotations

import pytest

from photon.objects.api import ObjectChanged
from photon.objects.disk import UrlDisk
from photon.objects.paths import ObjectPath
from tests.unit.objects.fakes import MemoryBucket, unavailable


def test_a_file_appears_when_it_is_synced(bucket: MemoryBucket, logs: ObjectPath) -> None:
    disk, path = UrlDisk(), logs / "kind" / "a"
    disk.make_dir(path.parent)
    file = disk.append(path)
    file.write(b"one", b"two")
    assert (file.size, disk.exists(path), disk.names(logs)) == (6, False, [])
    file.sync()
    file.close()
    disk.sync_dir(path.parent)
    assert (disk.read(path), disk.size(path)) == (b"onetwo", 6)
    assert (disk.names(logs), disk.names(path.parent)) == (["kind"], ["a"])
    disk.remove(path)
    assert (disk.exists(path), disk.names(logs)) == (False, [])


def test_what_was_listed_is_read_without_a_look(bucket: MemoryBucket, logs: ObjectPath) -> None:
    disk = UrlDisk()
    bucket.data.update({f"logs/{name}": name.encode() for name in "abc"})
    assert disk.names(logs) == ["a", "b", "c"]
    bucket.asked.clear()
    assert [disk.read(logs / name) for name in "abc"] == [b"a", b"b", b"c"]
    assert not any(each.startswith("head") for each in bucket.asked)
    bucket.data["logs/a"] = b"another"
    assert not disk.exists(logs / "d")
    assert UrlDisk().read(logs / "a") == b"another"


def test_of_two_writers_one_hears_of_the_other(bucket: MemoryBucket, logs: ObjectPath) -> None:
    one, other, path = UrlDisk(), UrlDisk(), logs / "state"
    one.replace(path, b"1")
    one.replace(path, b"2")
    with pytest.raises(ObjectChanged):
        other.replace(path, b"3")
    assert other.read(path) == b"2"
    other.replace(path, b"3")
    with pytest.raises(ObjectChanged):
        one.replace(path, b"4")
    assert bucket.data["logs/state"] == b"3"


def test_an_attempt_that_was_not_answered_has_written(
    bucket: MemoryBucket, logs: ObjectPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    swap, left = bucket.swap, [unavailable()]

    def unanswered(key: str, data: bytes, over: object) -> object:
        found = swap(key, data, over)  # type: ignore[arg-type]
        if left:
            raise left.pop()
        return found

    monkeypatch.setattr(bucket, "swap", unanswered)
    disk = UrlDisk()
    disk.replace(logs / "state", b"1")
    disk.replace(logs / "state", b"2")
    assert bucket.data["logs/state"] == b"2"
