"""Encodes messages between replicas, and replaces pickle inside pysyncobj.

A message is one version byte and a msgpack array; decoding builds only the types below, with their field types
checked. Commands are opaque bytes behind a type byte; only REGULAR and NO_OP exist here: membership is static, and
the library's code versions are unused, so entries of those types are refused when they arrive.
"""

from __future__ import annotations

from typing import Annotated, Any, NoReturn

import msgspec

from photon.config.versioned_file import other_version
from photon.idregistry.raft.options import COMMAND_BYTES_MAX, ENTRIES_MAX, MESSAGE_BYTES_MAX, TRANSFER_BYTES

CODEC_VERSION = 2
REGULAR = b"\x00"
NO_OP = b"\x01"
APPLY_METHOD = 0  # the library's number for the only replicated method

Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class RequestVote(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=1):
    term: Count
    last_index: Count
    last_term: Count


class Vote(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=2):
    term: Count


class Append(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=3):
    """Appends entries from prev_index + 1 on, as (term, command with its type byte)."""

    term: Count
    commit: Count
    prev_index: Count
    prev_term: Count
    entries: Annotated[list[tuple[Count, bytes]], msgspec.Meta(max_length=ENTRIES_MAX)]


class AppendAck(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=4):
    """If ``accepted``, the follower's durable log equals the leader's below next_index; else resend from there on.

    ``term``: the acknowledged message's term.
    """

    term: Count
    next_index: Count
    accepted: bool


class Chunk(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=5):
    """A piece, from byte ``offset`` on, of a ``total``-byte snapshot file with the state after entry ``index``."""

    term: Count
    index: Count
    index_term: Count
    offset: Count
    total: Count
    data: Annotated[bytes, msgspec.Meta(max_length=TRANSFER_BYTES)]


class ChunkAck(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=6):
    """Requests the next piece, from ``offset`` on. ``damaged``: all bytes have arrived, but cannot be read."""

    term: Count
    index: Count
    offset: Count
    damaged: bool


class AskVotes(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=7):
    """Asks, before standing for election, for a vote in ``term``. The answer does not bind (Raft's pre-vote)."""

    term: Count
    last_index: Count
    last_term: Count


class WouldVote(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=8):
    """Answers AskVotes for an election in ``asked``; ``term`` is the answering replica's."""

    asked: Count
    term: Count
    yes: bool


class Stand(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=9):
    """Tells a follower to stand for election now, without a pre-vote (TimeoutNow). Sent by ``term``'s leader."""

    term: Count


class Sleep(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=10):
    """Tells followers in ``term`` to expect no heartbeats: all entries, up to ``last``, are committed."""

    term: Count
    last: Count


class Asleep(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=11):
    term: Count
    last: Count


class KeepsStill(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=12):
    """Tells followers that the leader's disk is full: do not wait for it. Otherwise, sleeping followers would
    wait forever.
    """

    term: Count


Message = (
    RequestVote
    | Vote
    | Append
    | AppendAck
    | Chunk
    | ChunkAck
    | AskVotes
    | WouldVote
    | Stand
    | Sleep
    | Asleep
    | KeepsStill
)

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)
_VERSION = bytes([CODEC_VERSION])


class BadMessage(Exception):
    """A message that no replica of this version sends; it is dropped and counted."""


def encode(message: Message) -> bytes:
    return _VERSION + _encoder.encode(message)


def decode(data: bytes) -> Message:
    """Decodes a message. Raises BadMessage."""
    if not 1 < len(data) <= MESSAGE_BYTES_MAX:
        raise BadMessage(f"raft message of {len(data)} bytes; it must have 2 to {MESSAGE_BYTES_MAX}")
    if data[0] != CODEC_VERSION:
        raise BadMessage(f"raft message: {other_version(data[0], CODEC_VERSION)}")
    try:
        message = _decoder.decode(memoryview(data)[1:])
    except msgspec.MsgspecError as e:
        raise BadMessage(f"raft message: {e}") from None
    if isinstance(message, Append):
        for _, command in message.entries:
            if not is_command(command):
                raise BadMessage("raft message with an entry that is neither REGULAR nor NO_OP, or too long")
    return message


def is_command(command: bytes) -> bool:
    """True if a replica of this version writes such commands: REGULAR or NO_OP, and not too long."""
    return (command[:1] == REGULAR and len(command) <= 1 + COMMAND_BYTES_MAX) or command == NO_OP


class SafePickle:
    """Replaces the module ``pysyncobj.pickle``, so that the library decodes only our own commands."""

    @staticmethod
    def loads(data: bytes) -> tuple[int, tuple[bytes]]:
        """Converts a REGULAR command, given without its type byte, to the library's (method number, arguments)."""
        return APPLY_METHOD, (data,)

    @staticmethod
    def to_bytes(data: bytes) -> bytes:
        return data

    @staticmethod
    def dumps(obj: Any, protocol: int | None = None) -> NoReturn:
        raise TypeError("raft: the library may not serialise objects: versions and membership are fixed")

    @staticmethod
    def load(file: Any) -> NoReturn:
        raise TypeError("raft: the library may not read dumps")

    @staticmethod
    def dump(obj: Any, file: Any, protocol: int | None = None) -> NoReturn:
        raise TypeError("raft: the library may not write dumps")
