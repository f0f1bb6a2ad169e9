"""One key's row: state, timers, and what was put aside, as msgpack: [version, state, timers, wall timers, …]."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from photon.computing.errors import ComputingError
from photon.computing.model import Record
from photon.config.versioned_file import decoded

Moment = tuple[int, str]
Taken = tuple[Record, bytes]
"""A record for one consumer, and its value as it came, as msgpack: user code may change the record's."""


class Kept(msgspec.Struct, array_like=True, frozen=True):
    """A record that was put aside. ``value``: msgpack."""

    stream: str
    time_ns: int
    value: bytes


class Body(msgspec.Struct, array_like=True, tag_field="version", tag=1):
    state: dict[Any, Any]
    events: list[Moment]  # timers on the watermark: (time, tag)
    walls: list[Moment]  # timers on the wall clock
    blocked: str = ""  # why nothing is done for this key; empty: it is not blocked
    kept: list[Kept] = []  # records that came while it was blocked, in order
    chunks: int = 0  # this many rows more have what was kept after it: see ``chunk``
    held_ns: int = 0  # watermark of the key when it was blocked: what is kept runs under it


EMPTY = msgspec.msgpack.encode(Body({}, [], []))
encode = msgspec.msgpack.Encoder().encode
value_of = msgspec.msgpack.Decoder().decode


def decode(data: bytes, where: str) -> Body:
    """Raises ComputingError."""
    try:
        return decoded(data, Body, msgspec.msgpack.decode)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ComputingError(f"the row of {where} cannot be read: {error}") from None


def chunk(computation: str, number: int) -> str:
    """Under this name a row has what was put aside of a key at once: to add to it costs what is added."""
    return f"{computation}/{number}"


def computation_of(name: str) -> str:
    """Of a row, also of a chunk."""
    return name.partition("/")[0]


def empty() -> Body:
    return Body({}, [], [])


def taken_of(records: Iterable[Record]) -> list[Taken]:
    return [(record, encode(record.value)) for record in records]


def fresh(taken: Iterable[Taken]) -> list[Taken]:
    """With values of their own, as they came."""
    return [(Record(value_of(value), record.time_ns, record.stream), value) for record, value in taken]
