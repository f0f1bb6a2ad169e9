"""Copies a topic's partitions as logs: a line for each message, in files that begin at fixed offsets.

``DIRECTORY/TOPIC-PARTITION-BEGIN.log`` holds the messages of one partition from offset BEGIN on, up to the next
multiple of ``FILE_OFFSETS``, which begins the next file. So a line's file and byte depend only on partition and
offset, and the same bytes are written again after any crash. All components read these files, never the broker.

The position in each partition is kept in ``DIRECTORY/.TOPIC.offsets``, without Kafka's consumer groups and their
rebalances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from photon.config.decoding import DECODE_ERRORS
from photon.config.disk import Disk
from photon.config.errors import PhotonError
from photon.config.versioned_file import decoded
from photon.outputs.log.copier import Block, Copier

FILE_OFFSETS = 1 << 20  # offsets of a partition in one file: a million messages, or fewer
WAIT_S = 0.05


class OffsetsGone(PhotonError):
    """Messages that were not copied are no longer in the topic, or never will be."""


class TopicUnreachable(PhotonError):
    """No broker answers now."""


class Ends(NamedTuple):
    """The ends of a partition, according to the broker."""

    first: int  # offset of the oldest existing message
    end: int  # offset after the newest committed one


class Message(NamedTuple):
    """One message. ``value`` is ``None`` for a tombstone, or if there is no message before ``next``."""

    partition: int
    offset: int
    next: int
    value: bytes | None


class Topic(Protocol):
    """The operations of a broker's client that a relay needs. All may raise TopicUnreachable."""

    name: str
    cluster: str  # the cluster's id, as offsets are valid in one cluster only

    def ends(self) -> dict[int, Ends]:
        """The current ends of all partitions."""
        ...

    def seek(self, positions: Mapping[int, int]) -> None:
        """Selects the partitions to read and the offsets at which to start."""
        ...

    def read(self, wait_s: float) -> Sequence[Message]:
        """Returns new committed messages, in order within a partition. Waits up to ``wait_s`` for the first one."""
        ...

    def close(self) -> None: ...


class _Place(msgspec.Struct):
    begin: int  # the file's first offset
    bytes: int  # of the file
    next: int  # offset of the first message not copied


class _Kept(msgspec.Struct, tag_field="photon_topic", tag=1):
    topic: str
    cluster: str
    partitions: dict[int, _Place]


def line_of(value: bytes) -> bytes:
    """Returns a message as a line. Line ends in it become spaces, which JSON treats alike."""
    return value.rstrip(b"\r\n").replace(b"\n", b" ") + b"\n"


class TopicRelay(Copier):
    """Copies one topic into one directory, into which nothing else may write."""

    def __init__(self, disk: Disk, topic: Topic, directory: Path, *, accept_lost: bool = False) -> None:
        """``accept_lost``: continue after messages that are gone. Raises PhotonError, and the errors of Copier."""
        super().__init__(disk, directory, topic.name, "offsets")
        self._topic = topic
        self._accept_lost = accept_lost
        self._places = self._load()
        self._ends: dict[int, Ends] = {}
        self._reading: set[int] = set()

    def _load(self) -> dict[int, _Place]:
        path = self._kept.path
        if not self._disk.exists(path):
            return {}
        try:
            kept = decoded(self._disk.read(path), _Kept)
        except DECODE_ERRORS as bad:
            raise PhotonError(f"{path}: is damaged ({bad}); restore it") from None
        if kept.cluster != self._topic.cluster:
            raise PhotonError(
                f"{path}: belongs to cluster {kept.cluster}, but topic {self.name} is in {self._topic.cluster}, "
                f"whose offsets differ; name the original cluster, or another state"
            )
        return kept.partitions

    def _read_to(self) -> Callable[[], bytes]:
        encoded = msgspec.json.encode(_Kept(self.name, self._topic.cluster, self._places))
        return lambda: encoded

    def _read(self) -> Iterator[list[Block]]:
        """Raises OffsetsGone, TopicUnreachable."""
        ends, behind = self._look(), True
        while behind:
            try:
                messages = self._topic.read(WAIT_S)
            except TopicUnreachable:
                self._reading.clear()  # so that messages taken but not returned are read again
                raise
            yield self._blocks(messages)
            behind = any(self._places[each].next < end.end for each, end in ends.items())
            # Do not wait for messages that no longer exist
            if behind and not messages and self._topic.ends() != ends:
                ends = self._look()

    def _look(self) -> dict[int, Ends]:
        """The current ends of all partitions; new ones are read, too."""
        ends, begun = self._topic.ends(), bool(self._places)
        for partition, there in ends.items():
            place = self._places.get(partition)
            if place is None:  # later partitions began at 0, even if their first messages are gone by now
                begin = 0 if begun else there.first
                place = self._places[partition] = _Place(begin, 0, begin)
            self._check(partition, place, there)
        if new := ends.keys() - self._reading:
            self._reading |= new
            self._place = self._read_to()
            self.save()  # before a file exists: its name may depend on the oldest offset, which moves
            self._topic.seek({each: self._places[each].next for each in self._reading})
        self._ends = ends
        return ends

    def _check(self, partition: int, place: _Place, there: Ends) -> None:
        what = f"topic {self.name}, partition {partition}"
        if place.next > there.end:
            raise OffsetsGone(
                f"{what}: was read up to offset {place.next} and ends at {there.end}: it was recreated, or its "
                "broker lost messages; read it under another name, or with another state"
            )
        if place.next >= there.first:
            return
        if not self._accept_lost:
            raise OffsetsGone(
                f"{what}: offsets {place.next} to {there.first - 1} are gone (the topic's retention) and were not "
                "read, so their events are lost; to continue after them, start once with --accept-lost-offsets"
            )
        self._places[partition] = _Place(there.first, 0, there.first)
        self._reading.clear()

    def _blocks(self, messages: Sequence[Message]) -> list[Block]:
        lines: dict[tuple[int, int], list[bytes]] = {}  # partition, and offset with which its file begins
        for partition, offset, after, value in messages:
            place = self._places[partition]
            if offset < place.next and value is not None:
                continue  # left over from before a seek
            if value:
                begin = max(place.begin, offset - offset % FILE_OFFSETS)
                lines.setdefault((partition, begin), []).append(line_of(value))
            place.next = max(place.next, after)
        blocks = []
        for (partition, begin), of_file in lines.items():
            data, place = b"".join(of_file), self._places[partition]
            start = place.bytes if begin == place.begin else 0
            place.begin, place.bytes = begin, start + len(data)
            name = f"{self.name}-{partition}-{begin:020d}.log"
            blocks.append(Block(str(partition), name, start, place.bytes, data))
        return blocks

    def behind(self) -> int:
        """See Copier. Estimated from the size of copied messages."""
        left = sum(max(end.end - self._places[each].next, 0) for each, end in self._ends.items())
        return left * self.bytes // self.events if self.events else left

    def close(self) -> None:
        super().close()
        self._topic.close()
