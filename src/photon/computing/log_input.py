"""Reads a directory of logs, or a topic, as a source of an engine, in the same way as dispatchers read logs.

A position has the place in each log, as JSON::

    {"photon_logs":1,"logs":[{"identity":"…","path":"clicks.log","offset":120,"header":"","proof":"…"}]}

When all logs are read to their ends, all lines with event times more than ``within_ns`` ago have been read: that time
is the watermark. Without ``within_ns`` there is none. Unreadable lines are left out, counted, and reported. A topic
is read from the files of its relay (``topic_input``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from photon.adapters.configured import side_reader
from photon.adapters.contract import LogFile, Skipped
from photon.adapters.formats.json_values import parse_line
from photon.adapters.logs.api import Block, LogPosition
from photon.adapters.logs.follower import Follower
from photon.adapters.logs.lag import ReadTo
from photon.adapters.logs.problems import LogDirectoryError
from photon.adapters.logs.tail import Tail
from photon.adapters.logs.unended_lines import RestRule
from photon.adapters.side import SideConfig
from photon.computing.model import Record, as_text
from photon.computing.topic_input import TopicFiles, check_files
from photon.computing.wire import ENDED_NS, NEVER_NS, Input, Watermark
from photon.config.clock import Clock
from photon.config.decoding import DECODE_ERRORS
from photon.config.errors import UsageError
from photon.config.topic_address import TopicAddress
from photon.config.versioned_file import decoded
from photon.outputs.log.copier import Copier

BLOCK_BYTES = 256 << 10
REST_S = 60.0  # with ``--once``: as ``last_line_after`` of a join


class _Position(msgspec.Struct, frozen=True, tag_field="photon_logs", tag=1):
    logs: list[LogPosition]


@dataclass(frozen=True, slots=True)
class LogPlace:
    """The location of logs, and their format.

    ``base``: the directory to which paths in ``side`` are relative; see ``Topology.log`` for the other fields.
    """

    directory: Path  # of a topic: where its relay puts files
    side: SideConfig
    files: tuple[str, ...]
    base: Path
    within_ns: int | None
    idle_after_ns: int | None
    topic: TopicAddress | None = None
    kafka_client: Path | None = None


class LogInjector:
    """Reads all logs of a source. Use it from one thread at a time."""

    def __init__(
        self,
        stream: str,
        place: LogPlace,
        position: bytes | None,
        *,
        clock: Clock,
        once: bool,
        tell: Callable[[str], None],
        opened: Callable[[], Copier] | None = None,
    ) -> None:
        """``position``: where to begin, ``None`` for the beginning; ``once``: read unfinished last lines, too, if
        their files are no longer written; ``opened``: for a topic, see ``TopicFiles``.

        Raises UsageError, AdapterError.
        """
        self.stream, self.place = stream, place
        positions, self._topic = logs_of(position), None
        if place.topic is not None:
            check_files(place.directory, place.topic.topic, positions, copies=opened is not None)
            place.directory.mkdir(parents=True, exist_ok=True)
            self._topic = TopicFiles(place.directory, opened, clock, lambda line: tell(f"the log {stream}: {line}"))
        self._clock, self._once, self._tell = clock, once, tell
        self._reader = side_reader(place.side, f"the log {stream}", place.base)
        self._complete, self._unreadable = False, 0
        try:
            follower = Follower(
                place.directory,
                patterns=place.files,
                has_header=place.side.has_header,
                framing=place.side.files_framing,
                links=place.side.follow_links,
                positions=positions,
                report=lambda problem: tell(f"the log {stream}: {problem}"),
                rest=RestRule(REST_S, clock.now_ns),
                by_path=place.topic is not None,
            )
        except LogDirectoryError as error:
            raise UsageError(f"the log {stream}: {error}") from None
        self._follower, self._tail = follower, Tail(follower, None, clock.monotonic)
        self._read_to = ReadTo(follower)
        self._begin = position
        self._mark = self._said = Watermark()

    def read(self, upto: bytes | None = None) -> Iterator[Input]:
        """Yields all lines written by now and not yet read, then the watermark, if it has moved. Raises OSError, and
        the errors of ``TopicFiles.passed``."""
        topic = self._topic
        while topic is not None and not (passed := topic.passed(wait=self._once)):
            if not self._once:
                if passed is None:
                    return
                break
            yield self._input([])  # so that it can be stopped meanwhile
        if self._tail.due(self._clock.monotonic()):
            begun_ns = self._clock.now_ns()
            begun_ns = begun_ns if topic is None else min(begun_ns, topic.whole_ns)
            self._tail.scan()
            if begun_ns:
                self._read_to.scanned(self._follower.seen_ns(begun_ns))
        for blocks in self._blocks():
            records = [record for block in blocks for record in self._records(block)]
            self._look()
            yield self._input(records)
        if topic is not None and not self._once:
            topic.go_on()
        self._look()
        if self._mark != self._said:
            yield self._input([])

    def complete(self) -> Input:
        """Declares that no more records will come."""
        self._complete = True
        return self._input([])

    def mark(self) -> Watermark:
        """Returns the watermark of the records read so far."""
        return Watermark(ENDED_NS, ENDED_NS) if self._complete else self._mark

    def held_by(self, *, exact: bool) -> list[str]:
        """Describes what holds the watermark back, for display."""
        why = (self._topic.held_by if self._topic is not None else "") or self._read_to.why
        if self._complete or (self.place.within_ns is not None and not why):
            return []
        return [f"{self._called}: {why or 'within_ns is not set, so lines of any time may still be written'}"]

    def position(self) -> bytes:
        """Returns the position as one line of JSON."""
        return msgspec.json.encode(_Position(self._follower.positions()))

    def close(self) -> None:
        if self._topic is not None:
            self._topic.close()
        self._tail.close()
        self._follower.close()

    # -- inside
    @property
    def _called(self) -> str:
        return str(self.place.directory if self.place.topic is None else self.place.topic)

    def _blocks(self) -> Iterator[list[Block]]:
        while True:
            while blocks := self._follower.poll(BLOCK_BYTES):
                yield blocks
            if not self._once:
                return
            self._follower.scan()
            if self._follower.caught_up():
                break
        while blocks := self._follower.poll(BLOCK_BYTES, final=True):
            yield blocks

    def _look(self) -> None:
        self._read_to.look()
        read_ns, place = self._read_to.read_ns, self.place
        if place.idle_after_ns is not None:
            read_ns = max(read_ns or NEVER_NS, self._clock.now_ns() - place.idle_after_ns)
        if read_ns is not None and place.within_ns is not None:
            time_ns = max(read_ns - place.within_ns, self._mark.exact_ns)
            self._mark = Watermark(time_ns, time_ns)

    def _records(self, block: Block) -> list[Record]:
        lines = [line.removesuffix(b"\r") for line in block.data.split(b"\n")[:-1]]
        headers = self._reader.headers(lines, block.file)
        payloads = self._reader.payloads(lines, [block.file] * len(lines))
        bad = {**payloads.bad, **headers.others}
        if wrong := [(row, why) for row, why in sorted(bad.items()) if not isinstance(why, Skipped)]:
            row, why = wrong[0]
            self._tell_unreadable(block.file, len(wrong), f"{why.reason}: {as_text(lines[row][:200])}")
        if block.oversized:
            self._tell_unreadable(block.file, len(block.oversized), "it is too long")
        return [
            Record(_value(line) if payload is None else parse_line(payload), time_ns, self.stream)
            for row, (line, payload, time_ns) in enumerate(zip(lines, payloads.payloads, headers.times, strict=True))
            if row not in bad
        ]

    def _tell_unreadable(self, file: LogFile, count: int, first: str) -> None:
        self._unreadable += count
        self._tell(
            f"the log {self.stream}: {count} lines of {self.place.directory / file.path} cannot be read and are left "
            f"out, {self._unreadable} since the start; the first: {first}"
        )

    def _input(self, records: Sequence[Record]) -> Input:
        begin, self._begin = self._begin, self.position()
        self._said = self.mark()
        return Input(self.stream, begin, self._begin, records, self._said)


def logs_of(position: bytes | None) -> list[LogPosition]:
    """Decodes a position into the place in each log. Raises UsageError."""
    if position is None:
        return []
    try:
        return decoded(position, _Position).logs
    except DECODE_ERRORS as bad:
        raise UsageError(f"not a position in logs ({bad}): this stream read another kind of input before; "
                         "begin with another --state, or rename it") from None  # fmt: skip


def _value(line: bytes) -> Any:
    """The value of a line without a payload: one that is not UTF-8, or JSON that is very deep."""
    try:
        return parse_line(line)
    except ValueError:
        return as_text(line)
