"""Offsets of a stream: a cursor of ``photon.outputs`` for each datacentre. Pure but for the lengths passed in.

Offsets never move back: what a slot's directory does not tell for a moment is not read again when it is back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from photon.config.errors import PhotonError
from photon.outputs.cursor import Cursor, OutputLog, Position
from photon.spark.outputs import RangeWork

VERSION = 1
Offsets = Mapping[str, Cursor]
"""Datacentre -> how far it was read."""


class OffsetUnreadable(PhotonError):
    """A checkpoint holds an offset that is none of ours. One line."""


def encoded(offsets: Offsets) -> dict[str, Any]:
    """What Spark keeps in the checkpoint."""
    return {"version": VERSION, "cursors": {name: each.encode().decode() for name, each in sorted(offsets.items())}}


def decoded(offset: Mapping[str, Any]) -> dict[str, Cursor]:
    """The inverse. Raises OffsetUnreadable, CursorUnreadable."""
    if offset.get("version") != VERSION or not isinstance(offset.get("cursors"), dict):
        raise OffsetUnreadable(f"checkpoint: {offset!r:.100} is no offset of version {VERSION}; begin with a new one")
    return {name: Cursor.decode(text.encode(), f"checkpoint, {name}") for name, text in offset["cursors"].items()}


def furthest(one: Cursor, other: Cursor) -> Cursor:
    """Of each log the later position."""
    positions = dict(one.positions)
    for place, at in other.positions.items():
        positions[place] = max(at, positions.get(place, at))
    return Cursor(positions)


def bounded(start: Cursor, works: Iterable[RangeWork], bytes_max: int) -> Cursor:
    """Behind about ``bytes_max`` of the ranges that follow ``start``, the same share of each log."""
    by_log: dict[OutputLog, list[RangeWork]] = {}
    for work in works:
        kind, _, _ = work.name.partition("/")
        by_log.setdefault(OutputLog(work.slot, kind), []).append(work)
    share = max(bytes_max // max(len(by_log), 1), 1)
    positions = dict(start.positions)
    for place, parts in by_log.items():
        left = share
        for work in parts:
            taken = min(left, work.end - work.start)
            if taken:
                positions[place] = Position(number_of(work), work.start + taken)
            left -= taken
    return Cursor(positions)


def number_of(work: RangeWork) -> int:
    """Of the file."""
    return work.part().file.number
