"""The data that enters and leaves an engine: input with its position, messages between owners of intervals, and
acknowledgements.

It is encoded as msgpack arrays; a message has a version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from photon.computing.errors import ComputingError
from photon.computing.model import Record
from photon.config.versioned_file import decoded

NEVER_NS = -(1 << 63)  # unknown watermark
ENDED_NS = (1 << 63) - 1  # watermark of a sender that has ended
PUBLISH = "publish:"  # prefix of the target of a published stream, before the stream's name


class Watermark(NamedTuple):
    """A stream's watermark. ``waiting``: the number of records before ``percentile_ns`` that may still come."""

    exact_ns: int = NEVER_NS
    percentile_ns: int = NEVER_NS
    waiting: int = 0


class Input(NamedTuple):
    """Records of a source, in order. ``begin``: the position at which the engine must be (``None``: it has none yet);
    at any other, the batch is a repetition and dropped. ``end``: the position after the records. Positions are
    opaque. ``watermark``: the source's watermark, sampled *before* the records were read up to ``end``."""

    source: str
    begin: bytes | None
    end: bytes
    records: Sequence[Record]
    watermark: Watermark | None = None


class Item(msgspec.Struct, array_like=True, frozen=True):
    """A production in flight to one consumer. ``value``: msgpack. The numbers of one sender grow."""

    number: int
    consumer: str  # a computation; empty for published items
    key: str
    time_ns: int
    value: bytes
    stream: str
    id: int = 0  # of a weak production, unique to its sender: it may have arrived before, without a number

    def decoded(self) -> Any:
        return msgspec.msgpack.decode(self.value)


class Message(msgspec.Struct, array_like=True, frozen=True, tag_field="version", tag=1):
    """All unacknowledged items that ``sender`` has for ``target`` up to the number ``upto``. A message is complete in
    itself, so it may be lost, duplicated or delayed."""

    sender: str
    target: str  # an interval's id, or PUBLISH and a stream
    upto: int
    items: tuple[Item, ...]
    watermarks: Mapping[str, Watermark] = {}  # of the sender's streams; valid for a receiver with all items
    # Ids of the items of a message that left before the commit; ``upto`` is the sender's last committed number then,
    # and not acknowledged.
    weak: tuple[int, ...] = ()
    successors: tuple[str, ...] = ()  # the sender has ended under this name; these have its keys
    # This message waits until these senders have ended, as their messages come first.
    parents: tuple[str, ...] = ()
    topology: int = 0  # the version of the sender's topology
    # The interval whose owner sends it, if the sender's was split or merged; empty: the sender itself.
    owner: str = ""

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self)


class Ack(msgspec.Struct, array_like=True, frozen=True):
    """Says that ``target`` has committed everything from ``sender`` up to ``upto``, and the weak productions with
    these ids."""

    sender: str
    target: str
    upto: int
    weak: tuple[int, ...] = ()
    owner: str = ""  # as in the message

    @property
    def to(self) -> str:
        """The interval whose owner waits for this acknowledgement."""
        return self.owner or self.sender

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self)


def decode_message(data: bytes) -> Message:
    """Decodes a message. Raises ComputingError."""
    try:
        return decoded(data, Message, msgspec.msgpack.decode)
    except msgspec.MsgspecError as error:
        raise ComputingError(f"not a valid message: {error}") from None


def decode_ack(data: bytes) -> Ack:
    """Decodes an acknowledgement. Raises ComputingError."""
    try:
        return msgspec.msgpack.decode(data, type=Ack)
    except msgspec.MsgspecError as error:
        raise ComputingError(f"not a valid acknowledgement message: {error}") from None
