"""Reads published output, of all datacentres of a deployment or of one directory, as a source of an engine.

Each event is published in one datacentre, so the stream is the union of all, and its watermark is the lowest of their
watermarks. A silent datacentre holds the watermark back, and is reported. A position is the cursor of each place, one
line of JSON, which the engine commits with the results of the records::

    {"photon_input":1,"sources":{"east":{"photon_cursor":1,"slots":{…}},"west":{…}}}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol, TypeAlias

import msgspec

from photon.adapters.formats.json_values import parse_line
from photon.computing.model import Record
from photon.computing.wire import ENDED_NS, NEVER_NS, Input, Watermark
from photon.config.decoding import DECODE_ERRORS
from photon.config.disk import Disk
from photon.config.errors import PhotonError, UsageError
from photon.config.versioned_file import decoded
from photon.outputs.cursor import Cursor, OtherOutput, OutputLog, Position
from photon.outputs.output_places import OutputPlace
from photon.outputs.reader import OutputBlock, Reader
from photon.outputs.watermarks import Pair, WatermarkTail

Said: TypeAlias = Callable[[Cursor], "Pair | None"]  # as ``WatermarkTail.moved``
BLOCK_BYTES = 256 << 10
OF_DIRECTORY = "output"  # name of the only place of a directory, whose path may change


class Reading(Protocol):
    """A source as read by an owner. See ``Injector``."""

    stream: str

    @property
    def place(self) -> object:
        """A value that is equal for readers of the same data."""
        ...

    def read(self, upto: bytes | None = None) -> Iterator[Input]: ...

    def complete(self) -> Input: ...

    def mark(self) -> Watermark: ...

    def held_by(self, *, exact: bool) -> list[str]: ...

    def close(self) -> None: ...


class RecordUnreadable(PhotonError):
    """A published line is not an output record."""


class _Position(msgspec.Struct, frozen=True, tag_field="photon_input", tag=1):
    sources: dict[str, msgspec.Raw]


class _Feed:
    """One place of a source, with its reader and watermark."""

    def __init__(
        self, disk: Disk, name: str, place: OutputPlace, kinds: Sequence[str], cursor: Cursor, said: Said | None
    ) -> None:
        self.name, self.cursor = name, cursor
        self.called = str(place.output) if name == OF_DIRECTORY else name  # for people
        self.mark = Watermark()
        self.held_by: tuple[str, ...] = ("says no watermark",)
        self.reader = Reader(disk, place, kinds, cursor=cursor, block_bytes=BLOCK_BYTES)
        self._said = said or WatermarkTail(disk, place.state, kinds).moved

    def look(self) -> None:
        """Updates the watermark of the records read so far. Raises OSError."""
        if (pair := self._said(self.cursor)) is None:
            return
        exact_ns, percentile_ns = (NEVER_NS if each is None else each for each in (pair.exact_ns, pair.percentile_ns))
        self.mark = Watermark(
            max(self.mark.exact_ns, exact_ns), max(self.mark.percentile_ns, percentile_ns), pair.waiting
        )
        self.held_by = pair.held_by


class Injector:
    """Reads all places of a source. Use it from one thread at a time."""

    def __init__(
        self,
        disk: Disk,
        stream: str,
        places: Mapping[str, OutputPlace],
        kinds: Sequence[str],
        position: bytes | None,
        said: Mapping[str, Said] = MappingProxyType({}),
    ) -> None:
        """``places``: all expected places, by name; ``position``: where to begin, ``None`` for the beginning;
        ``said``: watermarks of places that journal none. Raises UsageError if the position belongs to other places,
        OtherOutput if a place now has another output."""
        known = _decoded(position)
        if gone := known.keys() - places.keys():
            raise UsageError(
                f"the position of {stream} is in {', '.join(sorted(gone))} too, which is no longer configured: "
                "its unread records would be lost. Keep it until it is retired, or begin with another state"
            )
        self.stream = stream
        self.place: object = (dict(places), tuple(kinds))
        self._begin = position
        self._complete = False
        self._feeds = [
            _Feed(disk, name, places[name], kinds, known.get(name, Cursor()), said.get(name))
            for name in sorted(places)
        ]
        self._said = Watermark()
        for feed in self._feeds:
            try:
                feed.reader.check()
            except OtherOutput as other:
                raise OtherOutput(
                    f"{stream}: {other.what}, up to which it was computed",
                    "configure the former one again, read the new one as another stream, or begin with another "
                    "--state",
                ) from None

    def read(self, upto: bytes | None = None) -> Iterator[Input]:
        """Yields all records published by now and not yet read, then the watermark, if it has moved. Reads the place
        furthest behind first, so that few records of other places must be kept. ``upto``: the position at which to
        stop.

        Raises RecordUnreadable, CursorLost, OutputMissing, PublishedDamaged, OSError; unusable after that.
        """
        last = None if upto is None else _decoded(upto)
        rounds = {
            feed.name: feed.reader.read(None if last is None else last.get(feed.name, Cursor()))
            for feed in self._feeds
        }
        while rounds:
            left = [feed for feed in self._feeds if feed.name in rounds]
            feed = min(left, key=lambda each: each.mark.percentile_ns)
            block = next(rounds[feed.name], None)
            if block is None:
                del rounds[feed.name]
                feed.look()
            else:
                records = self._records(block)
                feed.cursor = feed.cursor.moved(block.place, block.end(), block.output)
                feed.look()
                yield self._input(records)
        if self.mark() != self._said or (last is not None and self._begin != self.position()):
            yield self._input([])

    def complete(self) -> Input:
        """Declares that no more records will come."""
        self._complete = True
        return self._input([])

    def at(self, cursors: Mapping[str, Cursor]) -> None:
        """Updates the watermark for a reader elsewhere that has read up to these cursors. Raises OSError."""
        for feed in self._feeds:
            feed.cursor = cursors.get(feed.name, feed.cursor)
            feed.look()

    def mark(self) -> Watermark:
        """Returns the watermark of the records read so far."""
        if self._complete:
            return Watermark(ENDED_NS, ENDED_NS)
        marks = [feed.mark for feed in self._feeds]
        exact_ns, percentile_ns = (min(each) for each in zip(*(mark[:2] for mark in marks), strict=True))
        return Watermark(exact_ns, percentile_ns, max(mark.waiting for mark in marks))  # each mark covers every event

    def held_by(self, *, exact: bool) -> list[str]:
        """Returns the places that hold the watermark back, for display."""
        if self._complete:
            return []
        times = {feed.name: feed.mark.exact_ns if exact else feed.mark.percentile_ns for feed in self._feeds}
        last = [feed for feed in self._feeds if times[feed.name] == min(times.values())]
        return [": ".join((feed.called, "; ".join(feed.held_by))) if feed.held_by else feed.called for feed in last]

    def close(self) -> None: ...

    def _records(self, block: OutputBlock) -> list[Record]:
        found = []
        at = block.start
        for line in block.data.splitlines(keepends=True):
            try:
                value = parse_line(line)
                found.append(Record(value, value["event_time_ns"], self.stream))
            except (ValueError, TypeError, KeyError):
                raise RecordUnreadable(
                    f"{block.name}: the line at byte {at} is not an output record with an event time; see photon "
                    "status verifier"
                ) from None
            at += len(line)
        return found

    def _input(self, records: list[Record]) -> Input:
        begin, self._begin = self._begin, self.position()
        self._said = self.mark()
        return Input(self.stream, begin, self._begin, records, self._said)

    def position(self) -> bytes:
        """Returns the position as one line of JSON."""
        return position_of({feed.name: feed.cursor for feed in self._feeds})


def furthest(positions: Iterable[bytes | None]) -> bytes:
    """Returns the position of each log that is furthest along among ``positions``."""
    found: dict[str, dict[OutputLog, Position]] = {}
    outputs: dict[str, str] = {}
    for position in positions:
        for name, cursor in _decoded(position).items():
            known = found.setdefault(name, {})
            outputs[name] = outputs.get(name) or cursor.output
            for log, at in cursor.positions.items():
                known[log] = max(at, known.get(log, at))
    return position_of({name: Cursor(known, outputs[name]) for name, known in found.items()})


def position_of(cursors: Mapping[str, Cursor]) -> bytes:
    """Encodes the cursors of all places, by name."""
    return msgspec.json.encode(_Position({name: msgspec.Raw(cursors[name].encode()) for name in sorted(cursors)}))


def _decoded(position: bytes | None) -> dict[str, Cursor]:
    if position is None:
        return {}
    try:
        found = decoded(position, _Position)
    except DECODE_ERRORS as bad:
        raise UsageError(f"not a valid input position ({bad})") from None
    return {name: Cursor.decode(bytes(cursor), f"position in {name}") for name, cursor in found.sources.items()}
