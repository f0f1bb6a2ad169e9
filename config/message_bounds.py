"""Limits the number of a protobuf message's fields before it is parsed.

A message is bounded in bytes before it is received (grpc.max_receive_message_length). But two bytes on the wire can
be an empty inner message of fifty bytes in memory: without this limit, a message of 64 MiB would take more than a
gigabyte before its handler could refuse it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

FREE_BYTES = 1 << 20  # a smaller message is not checked: in the worst case it briefly costs a few tens of megabytes

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

T = TypeVar("T")


class MessageRefused(ValueError):
    """The message has more fields than its sender would ever use, or is not protobuf. gRPC answers UNKNOWN; nothing
    was parsed."""


def bounded(parse: Callable[[bytes], T], fields_max: int, free_bytes: int = FREE_BYTES) -> Callable[[bytes], T]:
    """Wraps ``parse``, so that it refuses messages with more than ``fields_max`` fields at the top level."""

    def parsed(message: bytes) -> T:
        if len(message) > free_bytes:
            check_fields(message, fields_max)
        return parse(message)

    return parsed


def check_fields(message: bytes, fields_max: int) -> None:
    """Raises MessageRefused if the message has more top-level fields, or is not protobuf."""
    at, end, fields = 0, len(message), 0
    while at < end:
        fields += 1
        if fields > fields_max:
            raise MessageRefused(f"more than {fields_max} fields in a message of {end} bytes")
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == _BYTES:
            size, at = _varint(message, at)
            at += size
        elif kind == _VARINT:
            _, at = _varint(message, at)
        elif kind == _FIXED64:
            at += 8
        elif kind == _FIXED32:
            at += 4
        else:  # groups, which our messages do not use
            raise MessageRefused(f"a field of unknown wire type {kind} at byte {at}")
    if at > end:
        raise MessageRefused(f"a field ends beyond the message of {end} bytes")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Returns the number, and the offset after it."""
    value = shift = 0
    while True:
        if at >= len(message) or shift > 63:
            raise MessageRefused(f"an unterminated number at byte {at}")
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
