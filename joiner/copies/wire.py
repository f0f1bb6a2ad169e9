"""Converts the messages about copies to values and back, and checks data from the network."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from photon.config.rpc import Service, WireError
from photon.config.settings import NAME
from photon.idregistry.api import INCARNATION_BITS
from photon.idregistry.witness import HASH_BYTES_MAX, Witness, WitnessLog
from photon.joiner.copies import copies_pb2 as pb
from photon.joiner.copies.api import CopyAnswer, CopyBytes, CopyOf, Extension, Part, Status
from photon.joiner.slot.place import KINDS

COPIES = Service(pb.DESCRIPTOR, "Copies", bytes_max=64 << 20, fields_max=4096)
NUMBER_MAX = 10**12
LENGTH_MAX = 1 << 48
_NAME = re.compile(NAME)


def copy_of(datacentre: str, slot: str) -> CopyOf:
    """Checks the names, as they become parts of paths. Raises WireError."""
    for name in (datacentre, slot):
        if not _NAME.fullmatch(name) or Path(name).name != name:
            raise WireError(f"{name[:60]!r} is not a valid name")
    return CopyOf(datacentre, slot)


def ends_in(ends: Iterable[pb.CopyEnd]) -> Witness:
    """Decodes a copy's ends. Raises WireError."""
    found = tuple(WitnessLog(end.number, end.length, end.hash) for end in ends)
    if len(found) != len(KINDS):
        raise WireError(f"{len(found)} logs, not {len(KINDS)}")
    for end in found:
        if end.number > NUMBER_MAX or end.length > LENGTH_MAX or len(end.hash) > HASH_BYTES_MAX:
            raise WireError("an impossible length or number of a file")
    return found


def ends_out(ends: Witness) -> list[pb.CopyEnd]:
    return [pb.CopyEnd(number=end.number, length=end.length, hash=end.hash) for end in ends]


def incarnation_in(number: int) -> int:
    """Checks an incarnation. Raises WireError."""
    if not 0 < number < 1 << INCARNATION_BITS:
        raise WireError(f"incarnation {number}")
    return number


def extension_in(message: pb.ExtendCopy) -> Extension:
    """Decodes an extension. Raises WireError."""
    ends = ends_in(message.ends)
    last = [end.number for end in ends]
    parts = []
    for part in message.parts:
        if part.log >= len(KINDS) or not part.data or not last[part.log] <= part.number <= NUMBER_MAX:
            raise WireError("a part that does not continue at the copy's end")
        if not part.number or not part.data.endswith(b"\n"):
            raise WireError("a part that does not end with a line")
        last[part.log] = part.number
        parts.append(Part(part.log, part.number, part.data))
    return Extension(incarnation_in(message.incarnation), ends, tuple(parts), ends_in(message.shown))


def extension_out(of: CopyOf, extension: Extension) -> pb.ExtendCopy:
    """Encodes an extension. A slot that has shown nothing yet sends empty logs."""
    shown = (*extension.shown, *(WitnessLog(0, 0) for _ in KINDS[len(extension.shown) :]))[: len(KINDS)]
    return pb.ExtendCopy(
        datacentre=of.datacentre,
        slot=of.slot,
        incarnation=extension.incarnation,
        ends=ends_out(extension.ends),
        parts=[pb.CopyPart(log=part.log, number=part.number, data=part.data) for part in extension.parts],
        shown=ends_out(shown),
    )


def answer_in(message: pb.CopyState) -> CopyAnswer:
    """Decodes a keeper's answer. Raises WireError."""
    try:
        status = Status(message.status)
    except ValueError:
        raise WireError(f"status {message.status}") from None
    return CopyAnswer(status, message.newest, ends_in(message.ends), message.reason)


def answer_out(answer: CopyAnswer) -> pb.CopyState:
    return pb.CopyState(
        status=int(answer.status), newest=answer.newest, ends=ends_out(answer.ends), reason=answer.reason
    )


def piece_in(message: pb.CopyPiece) -> CopyBytes:
    return CopyBytes(message.size if message.there else -1, message.data)


def piece_out(piece: CopyBytes) -> pb.CopyPiece:
    return pb.CopyPiece(there=piece.size >= 0, size=max(piece.size, 0), data=piece.data)
