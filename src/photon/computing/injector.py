"""Published output as a stream with its low watermark: of all datacentres of a deployment, or of a directory.

Each event is published in one datacentre, so the stream is all of them, and its watermark the least of those that are
expected: one that is silent holds it back, and is named. A position is what was read of each, and the watermark that
it had: one line of JSON, which the reader stores with what was made of the records::

    {"photon_input":1,"sources":{"east":{"cursor":{…},"exact_ns":…,"percentile_ns":…,"waiting":12}}}

Whoever begins there gets what follows, and a watermark that is never lower.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from photon.config.clock import NEVER_NS
from photon.config.disk import Disk
from photon.config.errors import DECODE_ERRORS, UsageError
from photon.outputs.cursor import Cursor
from photon.outputs.output_places import OutputPlace
from photon.outputs.reader import OutputBlock, Reader
from photon.outputs.watermarks import WatermarkTail

VERSION = 1
BLOCK_BYTES = 256 << 10
Which = Literal["exact", "percentile"]


@dataclass(frozen=True, slots=True)
class Mark:
    """A watermark. Times are event times in nanoseconds."""

    time_ns: int | None = None
    """The one that was asked for; None: nothing is known."""
    exact_ns: int | None = None
    """No record before it comes any more."""
    waiting: int = 0
    """Events before ``time_ns`` that were read and have no verdict."""

    def waiting_before(self, time_ns: int) -> int:
        """Not more events than these before ``time_ns`` come; 0: none. Only for times up to ``time_ns`` of it."""
        return 0 if self.exact_ns is not None and time_ns <= self.exact_ns else self.waiting


class _Source(msgspec.Struct, frozen=True):
    cursor: msgspec.Raw
    exact_ns: int | None = None
    percentile_ns: int | None = None
    waiting: int = 0


class _Position(msgspec.Struct, frozen=True):
    photon_input: int
    sources: dict[str, _Source]


class _Feed:
    """One source."""

    def __init__(self, disk: Disk, name: str, place: OutputPlace, kinds: Sequence[str], at: _Source | None) -> None:
        self.name = name
        self.cursor = Cursor() if at is None else Cursor.decode(bytes(at.cursor), f"position in {name}")
        self.exact_ns, self.percentile_ns, self.waiting = (
            (None, None, 0) if at is None else (at.exact_ns, at.percentile_ns, at.waiting)
        )
        self.held_by: tuple[str, ...] = ()
        self.reader = Reader(disk, place, kinds, cursor=self.cursor, block_bytes=BLOCK_BYTES)
        self._tail = WatermarkTail(disk, place.state, kinds)

    def look(self) -> None:
        """Takes up what the watermark of all that was read has become. Raises OSError."""
        if (pair := self._tail.moved(self.cursor)) is None:
            return
        self.exact_ns = _later(self.exact_ns, pair.exact_ns)
        self.percentile_ns = _later(self.percentile_ns, pair.percentile_ns)
        self.waiting, self.held_by = pair.waiting, pair.held_by

    def said(self) -> _Source:
        return _Source(msgspec.Raw(self.cursor.encode()), self.exact_ns, self.percentile_ns, self.waiting)


class Injector:
    """Reads all sources. One thread at a time."""

    def __init__(
        self,
        disk: Disk,
        sources: Mapping[str, OutputPlace],
        kinds: Sequence[str] = ("joined",),
        *,
        which: Which = "exact",
        position: bytes | None = None,
    ) -> None:
        """``sources``: all that are expected, by name; ``position``: None for the beginning. Raises UsageError where
        that is of other sources."""
        known = _decoded(position)
        if gone := known.keys() - sources.keys():
            raise UsageError(
                f"the position is of {', '.join(sorted(gone))} too, which the input does not name any more; what "
                "was not read there would be lost: name it again until it is retired, or begin with another state"
            )
        self._which = which
        self._complete = False
        self._feeds = [_Feed(disk, name, sources[name], kinds, known.get(name)) for name in sorted(sources)]

    def read(self) -> Iterator[OutputBlock]:
        """All that is published now and was not read yet; after each block position and watermark hold for all up to
        its end. The source that is furthest behind comes first, so that little has to be kept of the others.

        Raises CursorLost, OutputMissing, PublishedDamaged, OSError; then it has come to its end.
        """
        rounds = {feed.name: feed.reader.read() for feed in self._feeds}
        while rounds:
            feed = min((each for each in self._feeds if each.name in rounds), key=lambda each: self._time(each) or 0)
            block = next(rounds[feed.name], None)
            if block is None:
                del rounds[feed.name]
            else:
                feed.cursor = feed.cursor.moved(block.place, block.end())
            feed.look()
            if block is not None:
                yield block

    def complete(self) -> None:
        """Nothing comes any more: the watermark is the end of time."""
        self._complete = True

    def mark(self) -> Mark:
        """The watermark at this position."""
        if self._complete:
            return Mark(NEVER_NS, NEVER_NS)
        waiting = max((feed.waiting for feed in self._feeds), default=0)
        exact_ns = _least([feed.exact_ns for feed in self._feeds])
        return Mark(_least([self._time(feed) for feed in self._feeds]), exact_ns, waiting)

    def held_by(self) -> list[str]:
        """Who keeps the watermark from moving on, for people."""
        if self._complete or not self._feeds:
            return []
        silent = [f"{feed.name}: says no watermark" for feed in self._feeds if self._time(feed) is None]
        least = _least([self._time(feed) for feed in self._feeds])
        last = [feed for feed in self._feeds if self._time(feed) == least]
        return silent or ["; ".join((feed.name, *feed.held_by)) for feed in last]

    def position(self) -> bytes:
        """One line of JSON."""
        return msgspec.json.encode(_Position(VERSION, {feed.name: feed.said() for feed in self._feeds}))

    def _time(self, feed: _Feed) -> int | None:
        return feed.exact_ns if self._which == "exact" else feed.percentile_ns


def _decoded(position: bytes | None) -> dict[str, _Source]:
    if position is None:
        return {}
    try:
        found = msgspec.json.decode(position, type=_Position)
    except DECODE_ERRORS as bad:
        raise UsageError(f"no position of an input ({bad})") from None
    if found.photon_input != VERSION:
        raise UsageError(f"a position of version {found.photon_input}; this release reads version {VERSION}")
    return found.sources


def _later(known_ns: int | None, said_ns: int | None) -> int | None:
    if known_ns is None or said_ns is None:
        return known_ns if said_ns is None else said_ns
    return max(known_ns, said_ns)


def _least(times: Sequence[int | None]) -> int | None:
    known = [each for each in times if each is not None]
    return min(known) if known and len(known) == len(times) else None
