"""A topic's partitions as logs: a line for each message, in files that begin at fixed offsets of the partition.

``DIRECTORY/TOPIC-PARTITION-BEGIN.log`` holds the messages of one partition from offset BEGIN on, up to the next
multiple of ``FILE_OFFSETS``, which begins the next file. So a line's file and byte are a function of partition and
offset alone, and the same bytes come again whatever is killed. All that follows logs, looks events up, verifies,
explains or replays reads these files, and never the broker.

How far each partition was copied is kept here, in ``DIRECTORY/.TOPIC.offsets``; Kafka's consumer groups, and with
them rebalances, have no part in it. What a file holds beyond that is compared with what comes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from photon.config.decoding import DECODE_ERRORS
from photon.config.disk import Disk
from photon.config.errors import PhotonError
from photon.config.versioned_file import decoded
from photon.outputs.relay import SAID_NS, CopiedLogs, say_whole

FILE_OFFSETS = 1 << 20  # offsets of a partition in one file: a million messages, or fewer
WAIT_S = 0.05


class OffsetsGone(PhotonError):
    """Messages that were not copied are in the topic no more, or never will be."""


class TopicUnreachable(PhotonError):
    """No broker answers just now."""


class Ends(NamedTuple):
    """Of a partition, as the broker says."""

    first: int  # offset of the oldest message that is still there
    end: int  # offset behind the newest one that is committed


class Message(NamedTuple):
    """One message, or (``value`` None) none: nothing is there up to ``next``, or a tombstone."""

    partition: int
    offset: int
    next: int
    value: bytes | None


class Topic(Protocol):
    """What is asked of a broker's client. All raise TopicUnreachable."""

    name: str
    cluster: str  # its id: offsets of another cluster are others

    def ends(self) -> dict[int, Ends]:
        """Of all partitions, now."""
        ...

    def seek(self, positions: Mapping[int, int]) -> None:
        """These partitions are read, from these offsets on."""
        ...

    def read(self, wait_s: float) -> Sequence[Message]:
        """What has come, committed messages only, each partition's in order; waits for the first one."""
        ...

    def close(self) -> None: ...


class _Place(msgspec.Struct):
    begin: int  # offset with which the file begins
    bytes: int  # of the file
    next: int  # offset of the first message that was not copied


class _Kept(msgspec.Struct, tag_field="photon_topic", tag=1):
    topic: str
    cluster: str
    partitions: dict[int, _Place]


def line_of(value: bytes) -> bytes:
    """A message as a line. Line ends within it are blanks: to JSON they are the same."""
    return value.rstrip(b"\r\n").replace(b"\n", b" ") + b"\n"


class TopicRelay:
    """Of one topic into one directory, which nothing else fills. One thread at a time; one process, which its caller
    sees to."""

    def __init__(self, disk: Disk, topic: Topic, directory: Path, *, accept_lost: bool = False) -> None:
        """``accept_lost``: goes on behind messages that are gone. Raises OffsetsGone, PhotonError, OSError."""
        self._disk = disk
        self.name = topic.name
        self._topic = topic
        self._directory = directory
        self._accept_lost = accept_lost
        self._path = directory / f".{topic.name}.offsets"
        disk.make_dir(directory)
        self._places = self._load()
        self._saved = self._encoded()
        self._logs = CopiedLogs(disk, directory)
        self._ends: dict[int, Ends] = {}
        self._reading: set[int] = set()
        self.complete = False
        """All that was there when the last ``step`` began has been copied, if it came to its end."""
        self._said_ns = 0
        self.bytes = self.events = 0  # copied since the start

    def _load(self) -> dict[int, _Place]:
        if not self._disk.exists(self._path):
            return {}
        try:
            kept = decoded(self._disk.read(self._path), _Kept)
        except DECODE_ERRORS as bad:
            raise PhotonError(f"{self._path}: is damaged ({bad}); restore it") from None
        if kept.cluster != self._topic.cluster:
            raise PhotonError(
                f"{self._path}: is of cluster {kept.cluster}, and topic {self._topic.name} is read from "
                f"{self._topic.cluster}, where offsets are others; name the cluster that it was, or another state"
            )
        return kept.partitions

    def _encoded(self) -> bytes:
        return msgspec.json.encode(_Kept(self._topic.name, self._topic.cluster, self._places))

    # -- copying -------------------------------------------------------------------------------------------------
    def step(self) -> Iterator[int]:
        """Copies what is there now; yields the bytes of each block after it was copied. Raises OffsetsGone,
        TopicUnreachable, RelayedLogLost, OSError."""
        self.complete = False
        ends = self._look()
        while True:
            try:
                messages = self._topic.read(WAIT_S)
            except TopicUnreachable:
                self._reading.clear()  # what it had taken and not given is read again
                raise
            if messages:
                yield self._append(messages)
            if all(self._places[each].next >= end.end for each, end in ends.items()):
                self.complete = True
                return
            if not messages and self._topic.ends() != ends:  # what is not there any more is not waited for
                ends = self._look()

    def _look(self) -> dict[int, Ends]:
        """Where all partitions end now; new ones are read, too."""
        ends, begun = self._topic.ends(), bool(self._places)
        for partition, there in ends.items():
            place = self._places.get(partition)
            if place is None:  # one that was added since began at 0, whatever is gone of it by now
                begin = 0 if begun else there.first
                place = self._places[partition] = _Place(begin, 0, begin)
            self._check(partition, place, there)
        if new := ends.keys() - self._reading:
            self._reading |= new
            self._topic.seek({each: self._places[each].next for each in self._reading})
        self._ends = ends
        return ends

    def _check(self, partition: int, place: _Place, there: Ends) -> None:
        what = f"topic {self._topic.name}, partition {partition}"
        if place.next > there.end:
            raise OffsetsGone(
                f"{what}: was read up to offset {place.next} and ends at {there.end}: it was made once more, or its "
                "broker has lost messages; read it under another name, or with another state"
            )
        if place.next >= there.first:
            return
        if not self._accept_lost:
            raise OffsetsGone(
                f"{what}: offsets {place.next} to {there.first - 1} are gone (the topic's retention) and were not "
                "read: their events are lost; to go on behind them start once with --accept-lost-offsets"
            )
        self._places[partition] = _Place(there.first, 0, there.first)
        self._reading.clear()

    def _append(self, messages: Sequence[Message]) -> int:
        """The bytes that it made of them."""
        runs: dict[int, list[bytes]] = {}
        size = 0
        for message in messages:
            place = self._places[message.partition]
            if message.offset < place.next and message.value is not None:
                continue  # read before a seek
            if message.value:
                begin = message.offset - message.offset % FILE_OFFSETS
                if begin > place.begin:
                    size += self._flush(message.partition, runs.pop(message.partition, []))
                    place.begin, place.bytes = begin, 0
                runs.setdefault(message.partition, []).append(line_of(message.value))
            place.next = max(place.next, message.next)
        return size + sum(self._flush(partition, lines) for partition, lines in runs.items())

    def _flush(self, partition: int, lines: Sequence[bytes]) -> int:
        if not lines:
            return 0
        data, place = b"".join(lines), self._places[partition]
        self._logs.append(str(partition), self.file_name(partition, place.begin), place.bytes, data)
        place.bytes += len(data)
        self.bytes += len(data)
        self.events += len(lines)
        return len(data)

    def file_name(self, partition: int, begin: int) -> str:
        return f"{self._topic.name}-{partition}-{begin:020d}.log"

    # -- as Relay ------------------------------------------------------------------------------------------------
    def pass_on(self) -> None:
        """Copies all that is there now, durably. Raises as ``step``."""
        for _ in self.step():
            pass
        self.save()

    def pass_on_whole(self, now_ns: int) -> None:
        """The same, and says in the directory up to when all stands there. Raises as ``step``."""
        self.pass_on()
        if now_ns >= self._said_ns + SAID_NS:
            say_whole(self._disk, self._directory, now_ns)
            self._said_ns = now_ns

    def slots(self) -> set[str]:
        return set()

    def behind(self) -> int:
        """Bytes that are there and not copied, by the size of those that were."""
        left = sum(max(end.end - self._places[each].next, 0) for each, end in self._ends.items())
        return left * self.bytes // self.events if self.events else left

    def save(self) -> None:
        """Makes durable what was copied, and then how far that is. Raises RelayedLogLost, OSError."""
        encoded = self._encoded()
        if encoded == self._saved:
            return
        self._logs.sync()
        self._disk.replace(self._path, encoded + b"\n")
        self._saved = encoded

    def close(self) -> None:
        self._logs.close()
        self._topic.close()
