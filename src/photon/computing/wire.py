"""What goes in and out of an engine: input with its position, messages between owners of intervals, acknowledgements.

Formats: msgpack of arrays; a message names its version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from photon.computing.errors import ComputingError
from photon.computing.model import Record
from photon.config.versioned_file import decoded

NEVER_NS = -(1 << 63)  # a watermark that is not known yet
ENDED_NS = (1 << 63) - 1  # a watermark of who sends no more
PUBLISH = "publish:"  # the target of a published stream is called so, and the stream's name


class Watermark(NamedTuple):
    """Of a stream. ``waiting``: so many records before ``percentile_ns`` may still come."""

    exact_ns: int = NEVER_NS
    percentile_ns: int = NEVER_NS
    waiting: int = 0


class Input(NamedTuple):
    """Records of a source, in order. ``begin``: the position that the engine must stand at (None: it has none yet),
    or it is a repetition and dropped; ``end``: the one behind them. Positions are opaque. ``watermark``: of the
    source, sampled *before* the records were read up to ``end``."""

    source: str
    begin: bytes | None
    end: bytes
    records: Sequence[Record]
    watermark: Watermark | None = None


class Item(msgspec.Struct, array_like=True, frozen=True):
    """A production on its way to one consumer. ``value``: msgpack. Numbers of one sender grow."""

    number: int
    consumer: str  # a computation; of what is published the empty string
    key: str
    time_ns: int
    value: bytes
    stream: str
    id: int = 0  # of a weak production, unlike all others of its sender: it may have come before, without a number

    def decoded(self) -> Any:
        return msgspec.msgpack.decode(self.value)


class Message(msgspec.Struct, array_like=True, frozen=True, tag_field="version", tag=1):
    """All that ``sender`` has for ``target`` up to the number ``upto`` and that was not acknowledged: it is whole by
    itself, so it may be lost, doubled and delayed."""

    sender: str
    target: str  # an interval's id, or PUBLISH and a stream
    upto: int
    items: tuple[Item, ...]
    watermarks: Mapping[str, Watermark] = {}  # of the sender's streams; true for who has all items
    weak: tuple[int, ...] = ()
    """Ids of the items of a message that left before the commit of what it tells; ``upto`` is the sender's last
    committed number then, and not acknowledged."""
    successors: tuple[str, ...] = ()  # the sender sends no more under this name: these have its keys
    parents: tuple[str, ...] = ()
    """Nothing of this message is taken before these senders have ended: what they sent comes first."""
    topology: int = 0  # the version of the sender's
    owner: str = ""  # the interval whose owner sends it, where the sender's was split or merged; empty: the sender's

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self)


class Ack(msgspec.Struct, array_like=True, frozen=True):
    """``target`` has committed all that ``sender`` had for it up to ``upto``, and weak productions with these ids."""

    sender: str
    target: str
    upto: int
    weak: tuple[int, ...] = ()
    owner: str = ""  # as in the message

    @property
    def to(self) -> str:
        """The interval whose owner waits for it."""
        return self.owner or self.sender

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self)


def decode_message(data: bytes) -> Message:
    """Raises ComputingError."""
    try:
        return decoded(data, Message, msgspec.msgpack.decode)
    except msgspec.MsgspecError as error:
        raise ComputingError(f"what came is no message of an engine: {error}") from None


def decode_ack(data: bytes) -> Ack:
    """Raises ComputingError."""
    try:
        return msgspec.msgpack.decode(data, type=Ack)
    except msgspec.MsgspecError as error:
        raise ComputingError(f"what came is no acknowledgement of an engine: {error}") from None
