"""Chooses the hours that dispatchers must read again for unregistered events. Pure.

Rereading too much is safe, as the registry ignores ids that it knows; it only costs time. So a long list is shortened
by merging neighbouring ranges.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from photon.spark.recover.journal import Replayed, WantedReplay

WANTED_MAX = 10_000  # ranges kept while findings are read
REQUESTS_MAX = 20  # requests to one datacentre
HOUR_NS = 3_600_000_000_000
_GLOB = frozenset("*?[")


class ReplayHours:
    """Collects the hours to read again."""

    def __init__(self, before: Iterable[WantedReplay] = ()) -> None:
        self._found: dict[tuple[str, int, int], WantedReplay] = {}
        for each in before:
            self._put(each)

    def add(self, datacentre: str, log: str | None, event_time_ns: int) -> None:
        """Adds the hour of an event in this log of the datacentre."""
        hour = event_time_ns // HOUR_NS
        self._put(WantedReplay(datacentre, hour, hour + 1, log or "", 1))

    def _put(self, one: WantedReplay) -> None:
        place = (one.datacentre, one.from_hour, one.to_hour)
        before = self._found.get(place)
        self._found[place] = one if before is None else _joined(before, one)
        if len(self._found) > WANTED_MAX:
            self._found = {(each.datacentre, each.from_hour, each.to_hour): each for each in self._few()}

    def _few(self) -> Iterable[WantedReplay]:
        datacentres = {each.datacentre for each in self._found.values()}
        for name in datacentres:
            own = [each for each in self._found.values() if each.datacentre == name]
            yield from at_most(own, max(1, WANTED_MAX // 2 // len(datacentres)))

    def wanted(self) -> list[WantedReplay]:
        return [self._found[place] for place in sorted(self._found)]


def at_most(ranges: Sequence[WantedReplay], number: int) -> list[WantedReplay]:
    """Reduces one datacentre's ranges to at most ``number``, by merging the closest ones."""
    found: list[WantedReplay] = []
    for each in sorted(ranges, key=lambda each: each.from_hour):
        if found and each.from_hour <= found[-1].to_hour:
            found[-1] = _joined(found[-1], each)
        else:
            found.append(each)
    gaps = sorted(right.from_hour - left.to_hour for left, right in pairwise(found))
    if len(found) > number:
        bound, rest = gaps[len(found) - number - 1], len(found) - number
        closer: list[WantedReplay] = []
        for each in found:
            if closer and rest and each.from_hour - closer[-1].to_hour <= bound:
                closer[-1] = _joined(closer[-1], each)
                rest -= 1
            else:
                closer.append(each)
        return closer
    return found


def _joined(one: WantedReplay, other: WantedReplay) -> WantedReplay:
    first, last = min(one.from_hour, other.from_hour), max(one.to_hour, other.to_hour)
    log = one.log if one.log == other.log else ""
    return WantedReplay(one.datacentre, first, last, log, one.events + other.events)


def requests(wanted: Iterable[WantedReplay]) -> list[Replayed]:
    """Converts hours to a few ranges for each datacentre, in the form that ``photon dispatcher replay`` takes."""
    by_datacentre: dict[str, list[WantedReplay]] = {}
    for each in wanted:
        by_datacentre.setdefault(each.datacentre, []).append(each)
    return [
        Replayed(name, each.from_hour * HOUR_NS, each.to_hour * HOUR_NS, _pattern(each.log), each.events)
        for name, own in sorted(by_datacentre.items())
        for each in at_most(own, REQUESTS_MAX)
    ]


def _pattern(log: str) -> str:
    """Returns the log's name, or a pattern for all logs if the name would not match itself as a glob."""
    return "" if _GLOB & set(log) else log
