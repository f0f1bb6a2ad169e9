"""Output as objects: lines named by the manifest stay named until there are more."""

from __future__ import annotations

import gzip
import itertools
import shutil
from dataclasses import replace
from pathlib import Path
from typing import cast

import orjson
import pytest

from photon.computing.publisher import Publisher
from photon.computing.wire import Item
from photon.config.clock import Clock, SystemClock
from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.library import Output
from photon.objects import directory as module
from photon.objects import retrying, transfer
from photon.objects.api import Meta
from photon.objects.paths import ObjectPath
from photon.objects.transfer import ObjectsUnavailable
from photon.operations.slots import sealing
from photon.outputs import OutputPlace, PublishedDamaged, retired_bytes
from photon.outputs.content import OutputMissing
from photon.outputs.damaged import add_damaged
from photon.outputs.log.format import RETIRED_NAME, DamagedRange
from photon.outputs.mirrored import MANIFEST, MirroredFile, MirroredPlace, slots_of
from photon.outputs.next_read import CursorLost
from photon.outputs.output_places import EMBEDDED_STATE, NotBegun
from photon.sinks.objects import KEPT_NS, ObjectSink, PrefixTaken, follow
from tests.unit.objects.fakes import MemoryBucket, unavailable
from tests.unit.outputs.helpers import WrittenSlot, lines

DISK = RealDisk()
INTO = ObjectPath("s3://lake/x")


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> MemoryBucket:
    made = MemoryBucket()
    monkeypatch.setattr(module, "opener", lambda url: made)
    monkeypatch.setattr(module, "_buckets", {})
    return made


def lost(bucket: MemoryBucket, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The answers to the given number of swaps are lost."""
    swap, answers = bucket.swap, list[int]()

    def unanswered(key: str, data: bytes, over: Meta | None) -> Meta:
        found = swap(key, data, over)
        if answers:
            answers.pop()
            raise unavailable()
        return found

    monkeypatch.setattr(bucket, "swap", unanswered)
    return answers


def publish(output: Path, *numbers: int, slot: str = "s") -> None:
    publisher = Publisher(DISK, output, slot)
    publisher.publish([Item(number, "", "", number, b"\x01", "x") for number in numbers])
    publisher.close()


class Now(SystemClock):
    later_ns = 0

    def now_ns(self) -> int:
        return super().now_ns() + self.later_ns


def sink(output: Path, clock: Clock | None = None) -> ObjectSink:
    return ObjectSink(DISK, OutputPlace.of_join(output), INTO, ["joined"], clock)


def of(slot: WrittenSlot) -> ObjectSink:
    return ObjectSink(DISK, slot.place, INTO, ["joined"])


def removed(slot: WrittenSlot) -> list[str]:
    """Files removed by an operator."""
    found = of(slot).removable()
    for path in found:
        path.unlink()
    return [path.name for path in found]


def there() -> Output:
    return Output(MirroredPlace.at(INTO))


def lines_of(output: Output) -> list[bytes]:
    return [line for batch in output.batches() for line in batch.lines()]


@pytest.fixture
def slot(tmp_path: Path) -> WrittenSlot:
    """With a final file."""
    slot = WrittenSlot(tmp_path)
    slot.final(0)
    return slot


def offsets(lines: bytes) -> list[int]:
    return [orjson.loads(line)["source"]["offset"] for line in lines.splitlines()]


def shown(bucket: MemoryBucket) -> list[int]:
    """Data for a reader of the manifest."""
    found = []
    for each in map(orjson.loads, bucket.data[f"x/{MANIFEST}"].splitlines()):
        data = gzip.decompress(bucket.data[f"x/{each['file']}"])
        assert len(data) == each["uncompressed_bytes"]
        found += offsets(data)
    return found


def test_another_run_shows_what_was_shown_and_deletes_an_hour_later_what_counts_no_more(
    bucket: MemoryBucket, tmp_path: Path
) -> None:
    clock = Now()
    publish(tmp_path, 1, 2)
    sink(tmp_path).pass_(all_of_it=True)
    publish(tmp_path, 3)
    follower = sink(tmp_path, clock)
    follower.pass_()
    assert shown(bucket) == [1, 2]
    follower.pass_(all_of_it=True)
    assert len(bucket.data) == 3  # earlier data is there for readers of the earlier manifest
    clock.later_ns = KEPT_NS
    follower.pass_()
    assert len(bucket.data) == 2
    assert shown(bucket) == [1, 2, 3]


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
    lost(bucket, monkeypatch).append(1)
    sink(tmp_path).pass_(all_of_it=True)
    assert shown(bucket) == [1]


def test_so_it_is_when_there_is_more_to_be_named_once_the_store_answers(
    bucket: MemoryBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrying, "ATTEMPTS", 1)
    publish(tmp_path, 1)
    own, answers = sink(tmp_path), lost(bucket, monkeypatch)
    for number in (2, 3):
        answers.append(1)
        with pytest.raises(ObjectsUnavailable):
            own.pass_(all_of_it=True)
        publish(tmp_path, number)
    own.pass_(all_of_it=True)
    assert shown(bucket) == [1, 2, 3]


def test_who_cannot_read_what_another_one_has_written_writes_nothing_over_it(
    bucket: MemoryBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrying, "ATTEMPTS", 1)
    publish(tmp_path, 1)
    first, second = sink(tmp_path), sink(tmp_path)
    second.pass_(all_of_it=True)
    with monkeypatch.context() as away:
        away.setattr(bucket, "_fails", lambda request: unavailable() if request.startswith("read ") else None)
        with pytest.raises(ObjectsUnavailable):
            first.pass_()
    with pytest.raises(PrefixTaken):
        first.pass_()
    assert shown(bucket) == [1]


def test_a_manifest_that_is_written_while_it_is_read_is_read_again(
    bucket: MemoryBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(tmp_path, 1)
    own = sink(tmp_path)
    own.pass_(all_of_it=True)
    publish(tmp_path, 2)
    head = bucket.head

    def late(key: str) -> Meta:
        found = head(key)
        monkeypatch.setattr(bucket, "head", head)
        own.pass_(all_of_it=True)
        return found

    monkeypatch.setattr(bucket, "head", late)
    assert [offsets(each.data) for each in there().batches()] == [[1, 2]]


def test_a_part_that_another_sink_is_about_to_name_stays(
    bucket: MemoryBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long ago the last manifest was written."""
    publish(tmp_path, 1)
    sink(tmp_path).pass_(all_of_it=True)
    publish(tmp_path, 2)
    own, swap, meta = sink(tmp_path), bucket.swap, bucket._meta
    before = set(bucket.data)
    monkeypatch.setattr(
        bucket, "_meta",
        lambda key: meta(key)._replace(modified_ns=0 if key in before else SystemClock().now_ns()),
    )  # fmt: skip

    def late(key: str, data: bytes, over: Meta | None) -> Meta:
        monkeypatch.setattr(bucket, "swap", swap)
        sink(tmp_path).pass_()
        return swap(key, data, over)

    monkeypatch.setattr(bucket, "swap", late)
    own.pass_(all_of_it=True)
    assert shown(bucket) == [1, 2]


def test_what_was_shown_stays_while_nothing_is_published(bucket: MemoryBucket, tmp_path: Path) -> None:
    """For example because a disk is not mounted."""
    publish(tmp_path, 1)
    own = sink(tmp_path)
    own.pass_(all_of_it=True)
    (tmp_path / EMBEDDED_STATE).rename(tmp_path / "away")
    own.pass_()
    assert shown(bucket) == [1]


def test_what_was_shown_stays_when_less_is_published_after_a_power_cut(
    bucket: MemoryBucket, slot: WrittenSlot
) -> None:
    slot.append(1, b"{}\n{}\n")
    own = of(slot)
    own.pass_(all_of_it=True)
    slot.files[slot.name(1)] = 3
    slot.publish()
    own.pass_()
    own.pass_(all_of_it=True)
    assert b"".join(each.data for each in there().batches()) == b"{}\n" * 3
    with pytest.raises(UsageError, match="is a different file"):
        of(slot).pass_()


def test_it_goes_on_only_once_all_there_is_was_written(bucket: MemoryBucket, slot: WrittenSlot) -> None:
    """Otherwise an alarm about a failing object would end, and begin, with each attempt."""
    told: list[str] = []

    def followed() -> None:
        follow(of(slot), lambda seconds: True, told.append)

    slot.append(1, b"{}\n")
    slot.path(1).unlink()
    slot.final(2)
    with pytest.raises(OutputMissing):
        followed()
    assert not told
    slot.path(1).write_bytes(b"{}\n")
    followed()
    assert told == [""]


@pytest.mark.parametrize("again", [False, True])
def test_readers_are_told_of_a_retired_slot_of_which_nothing_is_left(
    bucket: MemoryBucket, tmp_path: Path, *, again: bool
) -> None:
    slot = WrittenSlot(tmp_path)
    slot.append(0, b"{}\n")
    own = of(slot)
    own.pass_(all_of_it=True)
    end = there().end()
    (slot.state / RETIRED_NAME).write_bytes(retired_bytes(slot.slot))
    if again:
        own = of(slot)
    own.pass_()
    assert list(there().batches(cursor=end)) == []
    assert list(there().batches()) == []
    other = WrittenSlot(tmp_path, "s1")
    other.append(0, b"{}\n")
    ObjectSink(DISK, other.place, INTO, ["joined"]).pass_(all_of_it=True)
    assert [each.slot for each in there().batches(cursor=end)] == ["s1"]


def test_a_file_that_is_gone_before_it_was_written_is_not_passed_over(
    bucket: MemoryBucket, tmp_path: Path, slot: WrittenSlot
) -> None:
    for number in (1, 2):
        slot.final(number)
    final = slot.path(1).with_name(slot.path(1).name + ".gz")
    final.rename(tmp_path / "moved")
    with pytest.raises(OutputMissing, match="was moved away before it was copied to s3://lake/x"):
        of(slot).pass_()
    assert not any(MANIFEST in key for key in bucket.data)


def test_kinds_that_are_there_are_written_on(bucket: MemoryBucket, slot: WrittenSlot) -> None:
    slot.append(0, b"{}\n", "unmatched")
    ObjectSink(DISK, slot.place, INTO, ["joined", "unmatched"]).pass_(all_of_it=True)
    with pytest.raises(UsageError, match="also holds unmatched"):
        of(slot).pass_()


def test_the_prefix_of_another_output_is_refused(bucket: MemoryBucket, tmp_path: Path) -> None:
    publish(tmp_path / "one", 1)
    sink(tmp_path / "one").pass_(all_of_it=True)
    publish(tmp_path / "other", 1, slot="t")
    with pytest.raises(UsageError, match="holds another output"):
        sink(tmp_path / "other").pass_(all_of_it=True)
    assert shown(bucket) == [1]


def test_it_is_read_as_the_output_itself(bucket: MemoryBucket, tmp_path: Path) -> None:
    """Lines, slots, files and offsets: a cursor of one is one of the other."""
    publish(tmp_path, 1, 2)
    sink(tmp_path).pass_(all_of_it=True)
    (batch,) = there().batches()
    (own,) = Output.of_join(tmp_path).batches()
    assert batch == own
    follower = sink(tmp_path)
    publish(tmp_path, 3)
    follower.pass_(all_of_it=True)
    again = there()
    assert [offsets(each.data) for each in again.batches(cursor=batch.cursor)] == [[3]]
    assert again.end() == Output.of_join(tmp_path).end()
    with pytest.raises(UsageError, match="has no cleared lengths"):
        list(again.batches(cleared_only=True))


def test_what_is_not_there_is_told(bucket: MemoryBucket) -> None:
    with pytest.raises(NotBegun, match=r"s3://lake/x: has no manifest\.jsonl"):
        MirroredPlace.at(INTO)


def test_who_follows_waits_for_a_manifest_that_has_not_begun_and_not_for_one_that_is_gone(
    bucket: MemoryBucket, tmp_path: Path
) -> None:
    with pytest.raises(NotBegun) as told:
        MirroredPlace.at(INTO)
    now = itertools.count(0, 100)
    place = replace(cast(MirroredPlace, told.value.place), monotonic=lambda: float(next(now)))
    output = Output(place)
    assert lines_of(output) == []
    publish(tmp_path, 1, 2)
    sink(tmp_path).pass_(all_of_it=True)
    assert [offsets(batch.data) for batch in output.batches()] == [[1, 2]]
    bucket.data.clear()
    with pytest.raises(FileNotFoundError):
        lines_of(output)


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
    told = {"bytes": 1, "uncompressed_bytes": 9, "first_ns": None, "last_ns": None}
    east, west = slots_of([MirroredFile(file=name, **told, **more) for name, more in lines])  # type: ignore[arg-type]
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


def test_final_files_may_go_that_the_manifest_names(bucket: MemoryBucket, slot: WrittenSlot) -> None:
    """Except the newest, which a start needs, and files that the bucket lacks or has in another size."""
    for number in range(1, 5):
        slot.final(number, b'{"n":%d}\n' % number)
    assert of(slot).removable() == []
    own = of(slot)
    own.pass_()
    slot.final(5)
    assert bucket.data.pop("x/joined/s0-000001.jsonl.gz")
    bucket.data["x/joined/s0-000002.jsonl.gz"] += b"."
    assert removed(slot) == ["s0-000000.jsonl.gz", "s0-000003.jsonl.gz", "s0-000004.jsonl.gz"]
    of(slot).pass_()
    assert removed(slot) == ["s0-000001.jsonl.gz", "s0-000002.jsonl.gz"]
    of(slot).pass_()
    assert removed(slot) == []
    assert lines_of(there()) == [b"{}", *(b'{"n":%d}' % number for number in range(1, 5)), b"{}"]


def test_plain_final_files_are_compressed_on_the_way_and_may_go(bucket: MemoryBucket, tmp_path: Path) -> None:
    """Files that the manifest names in their current form are not written twice."""
    slot, whole = WrittenSlot(tmp_path), [lines(n, 3) for n in range(1, 5)]
    for number, data in enumerate(whole, 1):
        slot.final(number, data, compressed=number == 3)
    own = of(slot)
    own.pass_()
    assert own.files == 4
    assert [gzip.decompress(bucket.data[f"x/joined/s0-00000{n}.jsonl.gz"]) for n in range(1, 5)] == whole
    for again in (own, of(slot)):
        again.pass_()
    assert (own.files, again.files) == (4, 0)
    bucket.data["x/joined/s0-000002.jsonl.gz"] += b"."
    assert removed(slot) == ["s0-000001.jsonl", "s0-000003.jsonl.gz"]
    last = of(slot)
    last.pass_()
    assert last.files == 1
    assert gzip.decompress(bucket.data["x/joined/s0-000002.jsonl.gz"]) == whole[1]
    assert removed(slot) == ["s0-000002.jsonl"]
    of(slot).pass_()
    assert lines_of(there()) == b"".join(whole).splitlines()


def test_plain_final_files_that_no_manifest_named_are_written_once_more(bucket: MemoryBucket, tmp_path: Path) -> None:
    """By another process: the existing objects may belong to another output, whose files have the same names."""
    other, slot = WrittenSlot(tmp_path / "other"), WrittenSlot(tmp_path)
    for each, data in ((other, b'{"n":1}\n'), (slot, b'{"n":2}\n')):
        each.final(1, data, compressed=False)
    of(other).pass_()
    del bucket.data[f"x/{MANIFEST}"]
    of(slot).pass_()
    assert lines_of(there()) == [b'{"n":2}']


def test_nothing_may_go_by_the_manifest_of_another_output(
    bucket: MemoryBucket, slot: WrittenSlot, tmp_path: Path
) -> None:
    other = WrittenSlot(tmp_path / "other")
    other.final(7)
    of(other).pass_()
    slot.final(1)
    with pytest.raises(UsageError, match="holds another output"):
        of(slot).removable()


def test_what_has_not_changed_is_not_asked_for_again(bucket: MemoryBucket, slot: WrittenSlot) -> None:
    """A reader asks twice for a file, and once per look for the manifest; a sink with nothing to write does not."""
    slot.final(1)
    own = of(slot)
    own.pass_()
    bucket.asked.clear()
    own.pass_()
    assert not bucket.asked
    assert len(list(Output.of_join(str(INTO)).batches())) == 2
    manifest = [f"head x/{MANIFEST}", f"read x/{MANIFEST} 0 {len(bucket.data[f'x/{MANIFEST}'])}"]
    files = [key for key in bucket.data if key.startswith("x/joined/")]
    asked = [each for key in files for each in (f"head {key}", f"read {key} 0 {len(bucket.data[key])}")]
    assert bucket.asked == manifest + asked
    bucket.asked.clear()
    assert MirroredPlace.at(INTO).look_up()
    assert bucket.asked == manifest[:1]
    slot.final(2)
    own.pass_()
    assert len(list(Output.of_join(str(INTO)).batches())) == 3


@pytest.mark.parametrize("again", [False, True])
def test_what_is_final_there_counts_after_its_slot_is_retired(
    bucket: MemoryBucket, slot: WrittenSlot, *, again: bool
) -> None:
    """Retiring gives up none of its ids, and the slot's disk is gone; parts go, and their readers continue."""
    for number in (1, 2):
        slot.final(number, b'{"n":%d}\n' % number)
    slot.append(3, b'{"n":3}\n')
    own = of(slot)
    own.pass_(all_of_it=True)
    assert removed(slot)
    end = there().end()
    (slot.state / RETIRED_NAME).write_bytes(retired_bytes(slot.slot))
    if again:
        own = of(slot)
    own.pass_()
    own.pass_()
    lines = [b"{}", b'{"n":1}', b'{"n":2}']
    assert lines_of(there()) == lines
    assert not list(there().batches(cursor=end))


def test_a_copy_at_a_new_keeper_has_only_what_was_not_moved(
    bucket: MemoryBucket, slot: WrittenSlot, tmp_path: Path
) -> None:
    """Retired against it, the slot keeps its earlier data in the bucket; a reader that had not read so far
    is told."""
    for number in (1, 2):
        slot.append(number, b'{"n":%d}\n' % number)
        slot.finish(number)
    own = of(slot)
    own.pass_()
    begun = next(iter(Output(slot.place).batches())).cursor
    assert removed(slot)
    kept = tmp_path / "kept"
    shutil.copytree(slot.place.output / "joined", kept / "output" / "joined")
    copy = sealing.find_kept(DISK, kept, slot.slot)
    sealing.measure(DISK, copy, ())
    sealing.publish(DISK, slot.state, slot.slot, copy, slot.place.output)
    with pytest.raises(CursorLost, match="no such file is published"):
        list(Output(slot.place).batches(cursor=begun))
    own.pass_()
    lines = [b"{}", b'{"n":1}', b'{"n":2}']
    assert [line for batch in there().batches() for line in batch.lines()] == lines


def test_a_prefix_may_have_more_files_than_a_directory(
    bucket: MemoryBucket, monkeypatch: pytest.MonkeyPatch, slot: WrittenSlot
) -> None:
    monkeypatch.setattr(transfer, "FILES_MAX", 1)
    for number in (1, 2):
        slot.final(number)
    for _ in range(2):
        of(slot).pass_()
    assert len(list(there().batches())) == 3


def test_damaged_ranges_are_skipped_below_the_url_too(bucket: MemoryBucket, slot: WrittenSlot) -> None:
    """A final file that is gone, one that is truncated, and one that grows: readers continue at the same offsets."""
    data = lines(0, 9)
    half = data.find(b"\n", 40) + 1
    for number in (1, 2):
        slot.final(number, data)
    slot.append(3, data)
    finals = [slot.path(number).with_name(slot.path(number).name + ".gz") for number in (1, 2)]
    finals[0].unlink()
    finals[1].write_bytes(gzip.compress(data[: half + 5]))
    slot.path(3).write_bytes(data[:half])
    marks = [(1, 0), (2, half), (3, half)]
    ranges = [DamagedRange(slot.name(number), start, len(data), "", "") for number, start in marks]
    add_damaged(DISK, slot.state, slot.slot, ranges)
    of(slot).pass_(all_of_it=True)
    assert b"".join(batch.data for batch in there().batches()) == b"{}\n" + 2 * data[:half]
    assert there().end() == Output(slot.place).end()
    [mirrored] = there().place.published(DISK)
    assert [each for file in mirrored.files for each in file.damaged] == ranges
    of(slot).pass_(all_of_it=True)
    assert [mirrored] == list(there().place.published(DISK))


def test_what_was_there_before_its_file_was_lost_is_not_read_once_it_is_marked(
    bucket: MemoryBucket, slot: WrittenSlot
) -> None:
    for number in (1, 2):
        slot.final(number, lines(number, 1))
    of(slot).pass_()
    slot.path(1).with_name(slot.path(1).name + ".gz").unlink()
    add_damaged(DISK, slot.state, slot.slot, [DamagedRange(slot.name(1), 0, len(lines(1, 1)), "", "")])
    of(slot).pass_()
    assert b"".join(batch.data for batch in there().batches()) == b"{}\n" + lines(2, 1)
