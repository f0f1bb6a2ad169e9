"""Guesses where in a span an id stands, so that a sparse look-up reads some tens of KiB in place of half a span.

Ids of a log are times of day, so their offsets can be interpolated: from the span's anchor, at the speed at which the
log grew, and once more from whatever record stands at the first guess. A guess is only where to look first; what is
not found so is searched for from the anchor on.

Only for keys without an exact place in the same log (``PlaceToRead.alone``): of two records with one id the second
has an exact place, and a guess might meet it before the first.
"""

from __future__ import annotations

from collections.abc import Sequence

from photon.batch.records import PrimaryRecord
from photon.eventstore.log_pass import LogPass
from photon.eventstore.places_to_read import PlaceToRead
from photon.eventstore.row_keys import parse_event_id

PROBE_BYTES = 1 << 15
"""Read around a guess."""
PROBES_MAX = 3
KEPT_BYTES = 1 << 17
"""Of what was read stay here so many before the last guess."""


def bytes_per_micro(wanted: Sequence[PlaceToRead]) -> float | None:
    """How fast a log grew between the first and the last anchor of these places; None where that says nothing."""
    anchors = [(each.offset, each.anchor) for each in wanted if each.span and each.anchor >= 0]
    if not anchors:
        return None
    first, last = min(anchors), max(anchors)
    if last[0] <= first[0] or last[1] <= first[1]:
        return None
    return (last[0] - first[0]) / (last[1] - first[1])


def guess(want: PlaceToRead, speed: float) -> int:
    """The offset at which the id may stand: within its span."""
    asked = parse_event_id(want.key)
    ahead = 0.0 if asked is None else (asked[1] - want.anchor) * speed
    return want.offset + round(min(max(ahead, 0.0), want.span))


class SpanProbes:
    """Probes of one log. Ask in the order of guesses, so that neighbours share reads."""

    def __init__(self, looked: LogPass) -> None:
        """``looked``: a pass with a window of its own."""
        self._pass = looked
        self._window = looked.window

    def find(self, want: PlaceToRead, speed: float) -> PrimaryRecord | None:
        """The record, where a guess met it. Raises OSError."""
        asked = parse_event_id(want.key)
        if asked is None:
            return None
        at = guess(want, speed)
        for _ in range(PROBES_MAX):
            begin = max(want.offset, at - PROBE_BYTES // 2)
            end = min(begin + PROBE_BYTES, want.offset + want.span)
            self._cover(begin, end)
            found = self._in(want, begin, end)
            if found is not None:
                return found
            there = self._first_id(begin)
            if there is None or there[1] <= want.anchor or there[0] <= want.offset:
                return None
            local = (there[0] - want.offset) / (there[1] - want.anchor)
            again = there[0] + round((asked[1] - there[1]) * local)
            if begin <= again < end:  # it should have been here
                return None
            at = min(max(again, want.offset), want.offset + want.span)
        return None

    def _cover(self, begin: int, end: int) -> None:
        """Reads what is not here; what lies shortly before stays, for a second guess may go back."""
        window = self._window
        keep = max(window.begin, begin - KEPT_BYTES)
        if window.begin <= begin <= window.end + PROBE_BYTES and keep <= window.end:
            window.cover(keep, end)
        else:
            window.cover(begin, end)

    def _in(self, want: PlaceToRead, begin: int, end: int) -> PrimaryRecord | None:
        window = self._window
        at = window.data.find(want.key, begin - window.begin, end - window.begin)
        if at < 0:
            return None
        start = window.data.rfind(b"\n", 0, at) + 1
        if start == 0 and window.begin > want.offset:
            return None  # the record begins before the bytes at hand
        start += window.begin
        record = self._pass.whole_record(window.begin, start)
        if record is None or start >= want.offset + want.span or self._pass.key(record) != want.key:
            return None
        return PrimaryRecord(record, self._pass.file, start)

    def _first_id(self, begin: int) -> tuple[int, int] | None:
        """(offset, microseconds) of the first whole record from ``begin`` on."""
        window = self._window
        line_end = window.data.find(b"\n", begin - window.begin)
        if line_end < 0:
            return None
        start = window.begin + line_end + 1
        record = self._pass.whole_record(window.begin, start)
        key = None if record is None else self._pass.key(record)
        parsed = None if key is None else parse_event_id(key)
        return None if parsed is None else (start, parsed[1])
