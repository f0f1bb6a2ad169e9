"""The published part of a stream equals a sender's commits, once each, whichever process is killed where."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from photon.computing.journal import PublishedWatermark
from photon.computing.publisher import Publisher
from photon.computing.wire import ENDED_NS, Item, Watermark
from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.library import Output
from photon.outputs import OutputPlace, Reader, decode
from photon.outputs.log.writer import NotOfThisState
from photon.outputs.published import PublishedDamaged
from photon.outputs.replayed import Replayed, retire
from photon.outputs.watermarks import Late, late_in, pairs_of, read_journal

DISK = RealDisk()


def _items(*numbers: int, value: Any = None) -> list[Item]:
    return [
        Item(n, "", "acme", 10 * n, msgspec.msgpack.encode({"n": n} if value is None else value), "spend")
        for n in numbers
    ]


def _read(directory: Path, cursor: bytes | None = None) -> list[int]:
    batches = Output.of_join(directory).batches(cursor=cursor)
    return [each["foreign"]["n"] for batch in batches for each in batch.records()]


def test_what_comes_again_is_dropped(tmp_path: Path) -> None:
    publisher = Publisher(DISK, tmp_path, "i0")
    assert publisher.publish(_items(3, 5)) == 2
    assert publisher.publish(_items(3, 5, 6)) == 1
    assert publisher.publish([]) == 0
    with pytest.raises(UsageError, match="another process"):
        Publisher(DISK, tmp_path, "i0")
    publisher.close()
    again = Publisher(DISK, tmp_path, "i0")
    assert again.publish(_items(5, 6, 8)) == 1
    other = Publisher(DISK, tmp_path, "i1")
    assert other.publish(_items(1)) == 1
    assert _read(tmp_path) == [3, 5, 6, 8, 1]


def test_what_was_not_published_is_cut_off_and_comes_again(tmp_path: Path) -> None:
    publisher = Publisher(DISK, tmp_path, "i0", roll_bytes=1)
    publisher.publish(_items(1))
    publisher.publish(_items(2))
    publisher.close()
    with open(tmp_path / "joined" / "i0-000002.jsonl", "ab") as file:
        file.write(b'{"torn":')
    (tmp_path / "joined" / "i0-000003.jsonl").write_bytes(b"x" * 10)
    again = Publisher(DISK, tmp_path, "i0", roll_bytes=1)
    again.publish(_items(2, 3))
    again.publish(_items(4))
    assert _read(tmp_path) == [1, 2, 3, 4]
    again.close()
    (tmp_path / "joined" / "i0-000004.jsonl").write_bytes(b"")
    with pytest.raises(PublishedDamaged, match="has 0 bytes"):
        Publisher(DISK, tmp_path, "i0")


def test_lines_are_output_records(tmp_path: Path) -> None:
    publisher = Publisher(DISK, tmp_path, "i0")
    publisher.publish(_items(1, value={"raw": b"\xff\x00", "text": b"abc", 7: None}))
    publisher.close()
    assert Publisher(DISK, tmp_path, "i0").taken == 1
    (batch,) = Output.of_join(tmp_path).batches()
    found = decode(batch.data)
    assert (found.event_id, found.key, found.event_time_ns, found.torn) == ([b"i0:1"], [b"acme"], [10], [None])
    assert batch.records()[0]["foreign"] == {"raw": "/wA=", "text": "abc", "7": None}
    with pytest.raises(UsageError, match="cannot be used in file names"):
        Publisher(DISK, tmp_path, "a/b")


def test_another_state_and_an_older_copy_are_refused(tmp_path: Path) -> None:
    first = Publisher(DISK, tmp_path, "i0", state="one", committed=0)
    first.publish(_items(1, 2))
    first.close()
    Publisher(DISK, tmp_path, "i0", state="one", committed=2).close()
    for state, committed in (("two", 9), ("one", 1)):
        with pytest.raises(UsageError, match="another state, or from a newer one"):
            Publisher(DISK, tmp_path, "i0", state=state, committed=committed)


def _bytes(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize("lost", ["durable.json", "the slot", "the directory", "the newest records"])
def test_nothing_is_cut_that_the_state_knows_to_be_published(tmp_path: Path, lost: str) -> None:
    out = tmp_path / "out"
    publisher = Publisher(DISK, out, "i0", state="one", committed=0)
    publisher.publish(_items(1, 2))
    if lost == "the newest records":
        shutil.copytree(out, tmp_path / "old")
    publisher.publish(_items(3))
    publisher.close()
    slot = out / ".photon" / "slots" / "i0"
    if lost == "durable.json":
        (slot / "durable.json").unlink()
    elif lost == "the slot":
        shutil.rmtree(slot)
    else:
        shutil.rmtree(out)
        if lost == "the newest records":
            (tmp_path / "old").rename(out)
    before = _bytes(out)
    with pytest.raises(NotOfThisState) as refused:
        Publisher(DISK, out, "i0", state="one", where="the/state", committed=5, shown=3)
    assert refused.value.exit_code == 3
    assert str(out) in str(refused.value)
    assert "the/state has published it up to record 3" in str(refused.value)
    after = _bytes(out)
    assert {name: after[name] for name in before} == before
    assert "joined/i0-000001.jsonl" not in after.keys() - before.keys()
    Publisher(DISK, tmp_path / "elsewhere", "i0", state="one", committed=5).close()


def test_what_another_state_published_is_not_cut_either(tmp_path: Path) -> None:
    publisher = Publisher(DISK, tmp_path, "i0", state="one", committed=0)
    publisher.publish(_items(1, 2))
    publisher.close()
    with open(tmp_path / "joined" / "i0-000001.jsonl", "ab") as file:
        file.write(b"its own, to be published by its next start")
    before = _bytes(tmp_path)
    with pytest.raises(NotOfThisState):
        Publisher(DISK, tmp_path, "i0", state="two", committed=9)
    assert _bytes(tmp_path) == before


def test_what_comes_after_the_watermark_is_counted_once(tmp_path: Path) -> None:
    publisher = Publisher(DISK, tmp_path, "i0")
    publisher.publish(_items(1, 2, 3), 0)
    watermark = PublishedWatermark(DISK, tmp_path)
    watermark.say([Watermark(25, 30, 1)], 7)
    publisher.publish(_items(1, 2, 3), 35)
    broken = RealDisk()
    broken.replace = lambda path, data: None if path.name == "durable.json" else DISK.replace(path, data)  # type: ignore[method-assign]
    publisher._log.disk = broken
    publisher.publish([*_items(4), *(msgspec.structs.replace(item, time_ns=9) for item in _items(5, 6))], 35)
    publisher.close()
    again = Publisher(DISK, tmp_path, "i0")
    assert again.taken == 3
    again.publish([*_items(4), *(msgspec.structs.replace(item, time_ns=9) for item in _items(5, 6))], 35)
    watermark.say([Watermark(25, 30, 1)], 8)
    watermark.close()
    after = PublishedWatermark(DISK, tmp_path)
    again.publish([msgspec.structs.replace(item, time_ns=8) for item in _items(7)], 35)
    after.say([Watermark(25, 40, 1)], 9)
    entries = read_journal(DISK, tmp_path / ".photon")
    assert late_in(entries) == 3
    assert min(each.oldest_ns for each in entries if isinstance(each, Late)) == 8
    assert [(each.exact_ns, each.percentile_ns) for each in pairs_of(entries)] == [(25, 30), (25, 40)]


def test_who_is_at_the_end_of_time_has_read_no_further_than_it_said(tmp_path: Path) -> None:
    """A run with --once ends for each owner where it finds the end; later records belong to a later run."""
    Publisher(DISK, tmp_path, "i0").close()
    watermark, end = PublishedWatermark(DISK, tmp_path), Watermark(ENDED_NS, ENDED_NS, 0)
    for n, marks in enumerate([(Watermark(20, 25), Watermark(30, 35)), (end, Watermark(60, 65)), (end, end)]):
        watermark.say(marks, n)
    watermark.close()
    pairs = pairs_of(read_journal(DISK, tmp_path / ".photon"))
    assert [(each.exact_ns, each.percentile_ns) for each in pairs] == [(20, 25)]


def test_items_before_a_replays_time_are_taken_and_not_published(tmp_path: Path) -> None:
    publisher = Publisher(DISK, tmp_path, "i0", since_ns=30)
    assert publisher.publish(_items(1, 2)) == 0
    publisher.close()
    again = Publisher(DISK, tmp_path, "i0", since_ns=30, shown=2)
    assert again.publish(_items(1, 2, 3, 4)) == 2
    assert again.taken == 4
    assert _read(tmp_path) == [3, 4]


def test_readers_of_a_retired_stream_are_told_at_its_end(tmp_path: Path) -> None:
    Publisher(DISK, tmp_path / "spend", "i0").publish(_items(1, 2))
    retire(DISK, tmp_path / "spend" / ".photon", 20, "spend.fix1")
    retire(DISK, tmp_path / "spend" / ".photon", 99, "spend.other")
    reader = Reader(DISK, OutputPlace.of_join(tmp_path / "spend"))
    assert sum(block.data.count(b"\n") for block in reader.read()) == 2
    with pytest.raises(Replayed, match=r"event_time_ns >= 20, and read .*spend\.fix1 from its beginning"):
        list(reader.read())
    upto = OutputPlace.of_join(tmp_path / "spend").end(DISK)
    assert list(reader.read(upto)) == []  # a run up to a place comes to its end
