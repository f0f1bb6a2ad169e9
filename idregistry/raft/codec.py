"""Messages between replicas as bytes, and the replacement for pickle inside pysyncobj.

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
    """Entries prev_index + 1 … as (term, command with its type byte)."""

    term: Count
    commit: Count
    prev_index: Count
    prev_term: Count
    entries: Annotated[list[tuple[Count, bytes]], msgspec.Meta(max_length=ENTRIES_MAX)]


class AppendAck(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=4):
    """Accepted: the follower's log equals the leader's below next_index, durably. Otherwise: send from next_index on.

    ``term`` is that of the acknowledged message.
    """

    term: Count
    next_index: Count
    accepted: bool


class Chunk(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=5):
    """Bytes from ``offset`` on of a snapshot file of ``total`` bytes, with the state after entry ``index``."""

    term: Count
    index: Count
    index_term: Count
    offset: Count
    total: Count
    data: Annotated[bytes, msgspec.Meta(max_length=TRANSFER_BYTES)]


class ChunkAck(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=6):
    """The follower wants the bytes from ``offset`` on next. ``damaged``: all have arrived, but cannot be read."""

    term: Count
    index: Count
    offset: Count
    damaged: bool


class AskVotes(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=7):
    """Asks for a vote in ``term`` before standing; the answer is not binding (Raft's pre-vote)."""

    term: Count
    last_index: Count
    last_term: Count


class WouldVote(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=8):
    """Answers AskVotes for an election in ``asked``; ``term`` is the answering replica's."""

    asked: Count
    term: Count
    yes: bool


class Stand(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=9):
    """From the leader of ``term``: stand for election now, without asking (Raft's TimeoutNow)."""

    term: Count


class Sleep(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=10):
    """From the leader of ``term``: everything is committed up to ``last``, the last entry; expect no heartbeats."""

    term: Count
    last: Count


class Asleep(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=11):
    term: Count
    last: Count


class KeepsStill(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=12):
    """From the leader of ``term``, whose disk is full: do not wait for it, since sleeping followers would wait
    forever.
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
    """A peer sent a message that no replica of this version sends; it is dropped and counted."""


def encode(message: Message) -> bytes:
    return _VERSION + _encoder.encode(message)


def decode(data: bytes) -> Message:
    """Decodes a message. Raises BadMessage."""
    if not 1 < len(data) <= MESSAGE_BYTES_MAX:
        raise BadMessage(f"raft message of {len(data)} bytes, must be 2 to {MESSAGE_BYTES_MAX}")
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
    """True for entries that a replica of this version writes."""
    return (command[:1] == REGULAR and len(command) <= 1 + COMMAND_BYTES_MAX) or command == NO_OP


class SafePickle:
    """Replaces the module ``pysyncobj.pickle``: the library reads only our own commands here."""

    @staticmethod
    def loads(data: bytes) -> tuple[int, tuple[bytes]]:
        """A REGULAR command, without its type byte, as the library's (method number, arguments)."""
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
