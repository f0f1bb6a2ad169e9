"""The input of computations: all that is expected, in one stream, with the least watermark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from photon.computing.injector import Injector, Mark, Which
from photon.computing.publisher import Line, Place, Publisher
from photon.config.clock import NEVER_NS
from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.outputs import end_of
from photon.outputs.output_places import OutputPlace
from photon.outputs.watermarks import JOURNAL, Pair

DISK = RealDisk()


class Site:
    """One datacentre's output, and its journal of watermarks."""

    def __init__(self, directory: Path) -> None:
        self.place = OutputPlace(directory, directory / ".photon")
        self._publisher = Publisher(DISK, directory, "slot", 1, Place())

    def write(self, *numbers: int) -> None:
        self._publisher.append([Line(f"{n}", "k", n, n, "log", n).encode() for n in numbers])
        self._publisher.publish()

    def say(self, exact_ns: int | None, percentile_ns: int | None = None, waiting: int = 0) -> None:
        path = self.place.state / JOURNAL
        path.parent.mkdir(exist_ok=True)
        cursor = end_of(self.place.published(DISK))
        with open(path, "ab") as file:
            file.write(Pair(1, exact_ns, percentile_ns, waiting, cursor, ("dispatcher",)).encode() + b"\n")


@pytest.fixture
def sites(tmp_path: Path) -> dict[str, Site]:
    return {name: Site(tmp_path / name) for name in ("east", "west")}


def _injector(sites: dict[str, Site], which: Which = "exact", position: bytes | None = None) -> Injector:
    return Injector(DISK, {name: site.place for name, site in sites.items()}, which=which, position=position)


def _read(injector: Injector) -> list[int]:
    return sorted(json.loads(line)["event_time_ns"] for block in injector.read() for line in block.data.splitlines())


def test_the_least_of_all_that_are_expected(sites: dict[str, Site]) -> None:
    injector = _injector(sites)
    sites["east"].write(1, 2)
    sites["east"].say(10, 20, 3)
    assert _read(injector) == [1, 2]
    assert injector.mark().time_ns is None
    assert injector.held_by() == ["west: says no watermark"]
    sites["west"].write(3)
    sites["west"].say(7, 30, 5)
    assert _read(injector) == [3]
    assert injector.mark() == Mark(7, 7, 5)
    assert injector.held_by() == ["west; dispatcher"]
    percentile = _injector(sites, "percentile")
    assert _read(percentile) == [1, 2, 3]
    assert percentile.mark() == Mark(20, 7, 5)
    assert [percentile.mark().waiting_before(time_ns) for time_ns in (7, 8)] == [0, 5]
    percentile.complete()
    assert percentile.mark() == Mark(NEVER_NS, NEVER_NS, 0)


def test_a_watermark_holds_only_for_what_was_read(sites: dict[str, Site]) -> None:
    for site in sites.values():
        site.write(1)
        site.say(5)
        site.write(6)
        site.say(9)
    injector = _injector(sites)
    seen = 0
    for block in injector.read():
        seen += block.data.count(b"\n")
        assert (injector.mark().time_ns == 9) == (seen == 4)


def test_it_goes_on_where_its_position_was_stored(sites: dict[str, Site]) -> None:
    injector = _injector(sites)
    for site in sites.values():
        site.write(1)
        site.say(5)
    _read(injector)
    again = _injector(sites, position=injector.position())
    assert (again.mark().time_ns, again.position()) == (5, injector.position())
    assert _read(again) == []
    sites["west"].write(8)
    assert _read(again) == [8]
    one = {"east": sites["east"]}
    with pytest.raises(UsageError, match="west"):
        _injector(one, position=again.position())
    with pytest.raises(UsageError, match="no position"):
        _injector(one, position=b"{}")
