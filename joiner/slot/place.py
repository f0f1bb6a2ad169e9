"""A place in the output: a file number and a length for each kind of output log. Redo frames note it (rule 1)."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from photon.idregistry.api import Kind
from photon.outputs.log.format import number_of

KINDS = (Kind.JOINED, Kind.FILTERED, Kind.UNMATCHED, Kind.REJECTED)
DIRECTORY_OF = {
    Kind.JOINED: "joined",
    Kind.FILTERED: "filtered",
    Kind.UNMATCHED: "unmatched",
    Kind.REJECTED: "rejected",
}

DIRECTORIES = [DIRECTORY_OF[kind] for kind in KINDS]

Place = tuple[tuple[int, int], ...]  # (file number, length) for each of KINDS, in their order

START: Place = ((0, 0),) * len(KINDS)

_VERSION = 1
_NOTE = struct.Struct("<B" + "IQ" * len(KINDS))


def encode_place(place: Place) -> bytes:
    """Encodes a place as the note of a redo frame."""
    return _NOTE.pack(_VERSION, *(number for pair in place for number in pair))


def decode_place(note: bytes) -> Place:
    """Decodes a frame's note. Raises ValueError for a note of another version."""
    if len(note) != _NOTE.size or note[0] != _VERSION:
        raise ValueError("the redo log's notes are of a version this joiner cannot read")
    flat = _NOTE.unpack(note)[1:]
    return tuple(zip(flat[::2], flat[1::2], strict=True))


def oldest(places: Iterable[Place]) -> Place:
    """Returns the earliest of these places, for each kind."""
    return tuple(min(pairs) for pairs in zip(*places, strict=True))


def place_of(name: str) -> tuple[int, int]:
    """Returns a plain file's index in KINDS and its number."""
    return DIRECTORIES.index(name.partition("/")[0]), number_of(name)
