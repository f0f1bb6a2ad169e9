"""A key's row, with its state, timers, and records set aside, as msgpack: [version, state, timers, wall timers,
…]."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from photon.computing.errors import ComputingError
from photon.computing.model import Record
from photon.config.versioned_file import decoded

Moment = tuple[int, str]
# A record for one consumer, and its original value as msgpack: user code may change the record's value.
Taken = tuple[Record, bytes]


class Kept(msgspec.Struct, array_like=True, frozen=True):
    """A record that was set aside. ``value``: msgpack."""

    stream: str
    time_ns: int
    value: bytes


class Body(msgspec.Struct, array_like=True, tag_field="version", tag=1):
    state: dict[Any, Any]
    events: list[Moment]  # timers on the watermark: (time, tag)
    walls: list[Moment]  # timers on the wall clock
    blocked: str = ""  # why the key is blocked; empty if it is not
    kept: list[Kept] = []  # records that arrived while it was blocked, in order
    chunks: int = 0  # number of further rows with kept records: see ``chunk``
    held_ns: int = 0  # the key's watermark when it was blocked: kept records run under it


EMPTY = msgspec.msgpack.encode(Body({}, [], []))
encode = msgspec.msgpack.Encoder().encode
value_of = msgspec.msgpack.Decoder().decode


def decode(data: bytes, where: str) -> Body:
    """Decodes a row. ``where``: names it in errors. Raises ComputingError."""
    try:
        return decoded(data, Body, msgspec.msgpack.decode)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ComputingError(f"the row of {where} cannot be read: {error}") from None


def chunk(computation: str, number: int) -> str:
    """Returns the name of a row that holds one chunk of a key's set-aside records. Setting more aside writes a new
    chunk and leaves the others as they are."""
    return f"{computation}/{number}"


def computation_of(name: str) -> str:
    """Returns the computation to which a row or chunk belongs."""
    return name.partition("/")[0]


def empty() -> Body:
    return Body({}, [], [])


def taken_of(records: Iterable[Record]) -> list[Taken]:
    return [(record, encode(record.value)) for record in records]


def fresh(taken: Iterable[Taken]) -> list[Taken]:
    """Returns records with fresh copies of their original values."""
    return [(Record(value_of(value), record.time_ns, record.stream), value) for record, value in taken]
