"""The input of computations: all expected records, in one stream, with the least watermark."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from photon.computing.injector import Injector, RecordUnreadable
from photon.computing.publisher import Publisher
from photon.computing.row import taken_of
from photon.computing.wire import ENDED_NS, NEVER_NS, Item, Watermark
from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.outputs import end_of
from photon.outputs.damaged import add_damaged, tell_skipped
from photon.outputs.output_places import SLOTS_DIRECTORY, OutputPlace
from photon.outputs.published import DamagedRange
from photon.outputs.watermarks import JOURNAL, Pair
from tests.unit.outputs.helpers import WrittenSlot

DISK = RealDisk()


class Site:
    """One datacentre's output, and its journal of watermarks."""

    def __init__(self, directory: Path) -> None:
        self.place = OutputPlace(directory, directory / ".photon")
        self._publisher = Publisher(DISK, directory, "slot")

    def write(self, *numbers: int) -> None:
        self._publisher.publish(Item(n, "", "k", n, msgspec.msgpack.encode(n), "log") for n in numbers)

    def say(self, exact_ns: int | None, percentile_ns: int | None = None, waiting: int = 0) -> None:
        path = self.place.state / JOURNAL
        path.parent.mkdir(exist_ok=True)
        cursor = end_of(self.place.published(DISK))
        with open(path, "ab") as file:
            file.write(Pair(1, exact_ns, percentile_ns, waiting, cursor, ("dispatcher",)).encode() + b"\n")


@pytest.fixture
def sites(tmp_path: Path) -> dict[str, Site]:
    return {name: Site(tmp_path / name) for name in ("east", "west")}


def _injector(sites: dict[str, Site], position: bytes | None = None) -> Injector:
    return Injector(DISK, "joined", {name: site.place for name, site in sites.items()}, ["joined"], position)


def _times(injector: Injector) -> list[int]:
    return sorted(record.time_ns for each in injector.read() for record in each.records)


def test_the_least_of_all_that_are_expected(sites: dict[str, Site]) -> None:
    injector = _injector(sites)
    sites["east"].write(1, 2)
    sites["east"].say(10, 20, 3)
    assert _times(injector) == [1, 2]
    assert injector.mark() == Watermark(NEVER_NS, NEVER_NS, 3)
    assert injector.held_by(exact=True) == ["west: says no watermark"]
    sites["west"].write(3)
    sites["west"].say(7, 30, 5)
    (each,) = injector.read()
    assert (each.source, [record.time_ns for record in each.records]) == ("joined", [3])
    assert each.watermark == Watermark(7, 20, 5)
    assert injector.held_by(exact=True) == ["west: dispatcher"]
    assert injector.held_by(exact=False) == ["east: dispatcher"]
    assert injector.complete().watermark == Watermark(ENDED_NS, ENDED_NS)
    assert injector.held_by(exact=True) == []


def test_a_damaged_range_is_skipped_with_one_warning(
    sites: dict[str, Site], capsys: pytest.CaptureFixture[str]
) -> None:
    for number in (1, 2, 3):
        sites["east"].write(number)
        sites["west"].write(10 + number)
    tell_skipped.cache_clear()
    place = sites["east"].place
    (slot,) = place.published(DISK)
    (file,) = slot.files
    path = place.output / file.name
    data = path.read_bytes()
    begin, end = (data.index(b"\n", at) + 1 for at in (0, len(data) // 2))
    path.write_bytes(data[:begin] + b"#" * (end - begin - 1) + b"\n" + data[end:])
    marked = DamagedRange(file.name, begin, end, "is no record", "today")
    add_damaged(DISK, place.state / SLOTS_DIRECTORY / slot.slot, slot.slot, [marked])
    injector = _injector(sites)
    assert _times(injector) == [1, 3, 11, 12, 13]
    assert "".join(capsys.readouterr()).count("a damaged range of the output is skipped") == 1
    assert _times(_injector(sites, injector.position())) == []


def test_a_watermark_holds_only_for_what_was_read(sites: dict[str, Site]) -> None:
    for site in sites.values():
        site.write(1)
        site.say(5)
        site.write(6)
        site.say(9)
    seen = 0
    for each in _injector(sites).read():
        seen += len(each.records)
        assert (each.watermark == Watermark(9, NEVER_NS)) == (seen == 4)
    assert seen == 4


def test_a_watermark_that_moves_alone_is_said_once(sites: dict[str, Site]) -> None:
    injector = _injector(sites)
    for site in sites.values():
        site.say(5)
    (each,) = injector.read()
    assert (each.records, each.begin, each.watermark) == ([], None, Watermark(5))
    assert list(injector.read()) == []
    sites["east"].say(6)
    sites["west"].say(6)
    (after,) = injector.read()
    assert (after.begin, after.watermark) == (each.end, Watermark(6))


def test_it_goes_on_where_its_position_was_stored(sites: dict[str, Site]) -> None:
    injector = _injector(sites)
    for site in sites.values():
        site.write(1)
        site.say(5)
    inputs = list(injector.read())
    assert [each.begin for each in inputs] == [None, *(each.end for each in inputs[:-1])]
    again = _injector(sites, inputs[-1].end)
    (moved,) = again.read()
    assert (moved.records, moved.begin, moved.watermark) == ([], inputs[-1].end, Watermark(5))
    sites["west"].write(8)
    assert _times(again) == [8]
    with pytest.raises(UsageError, match="west"):
        _injector({"east": sites["east"]}, again.position())
    with pytest.raises(UsageError, match="not a valid input position"):
        _injector(sites, b"{}")


@pytest.mark.parametrize("foreign", [b"1e999", b"[" * 1024 + b"]" * 1024])
def test_a_record_with_any_number_and_depth_is_read(tmp_path: Path, foreign: bytes) -> None:
    slot = WrittenSlot(tmp_path)
    slot.append(1, b'{"event_time_ns":1,"foreign":{"n":%b}}\n' % foreign)
    (batch,) = Injector(DISK, "joined", {"east": slot.place}, ["joined"], None).read()
    ((record, _),) = taken_of(batch.records)
    assert record.time_ns == 1


def test_a_line_that_is_no_record_is_named(sites: dict[str, Site], tmp_path: Path) -> None:
    sites["east"].write(1)
    path = tmp_path / "east" / "joined" / "slot-000001.jsonl"
    path.write_bytes(b"x" * (path.stat().st_size - 1) + b"\n")
    with pytest.raises(RecordUnreadable, match=r"slot-000001\.jsonl: the line at byte 0"):
        list(_injector(sites).read())
