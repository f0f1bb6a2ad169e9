"""Declares the version of each file format once, and checks it in one place: other versions are refused.

A format of JSON or MessagePack is a struct whose tag is its version, so that it is written and checked automatically:
``class Mark(msgspec.Struct, tag_field="version", tag=1)``.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from photon.config.decoding import DECODE_ERRORS
from photon.config.disk import Disk

V = TypeVar("V", bound=msgspec.Struct)


def other_version(found: object, known: object) -> str:
    """Returns the error text for a file of another version than this release reads."""
    return f"version {found}, this release reads version {known}"


@cache
def _version_in(kind: type[msgspec.Struct]) -> type[Any]:
    told = kind.__struct_config__
    field = ("version", int, msgspec.field(name=told.tag_field))
    return msgspec.defstruct("Version", [field], array_like=told.array_like)


def decoded(data: bytes, kind: type[V], decode: Callable[..., Any] = msgspec.json.decode) -> V:
    """Decodes a versioned struct. Raises DECODE_ERRORS, each one line, also if the version is not ``kind``'s tag."""
    told = kind.__struct_config__
    if told.array_like:  # its tag cannot be missing: a second pass only finds the reason
        with suppress(msgspec.ValidationError):
            return cast("V", decode(data, type=kind))
    found = decode(data, type=_version_in(kind)).version
    if found != told.tag:
        raise msgspec.ValidationError(other_version(found, told.tag))
    return cast("V", decode(data, type=kind))


def sealed(magic: bytes, body: bytes) -> bytes:
    """Returns a file's content: ``magic`` (which ends with version and blank), the body's CRC-32, and the body."""
    return magic + b"%08x\n" % zlib.crc32(body) + body


def unsealed(magic: bytes, data: bytes) -> bytes | None:
    """Returns the body of ``sealed``; ``None`` if it is damaged, or of another version."""
    head, _, body = data.partition(b"\n")
    return body if head == magic + b"%08x" % zlib.crc32(body) else None


def read_present(disk: Disk, path: Path, kind: type[V], damaged: Callable[[Path, str], Exception]) -> V:
    """Reads a file. Raises OSError, also if it is missing; if it is damaged, ``damaged`` makes the exception."""
    data = disk.read(path)
    try:
        return decoded(data, kind)
    except DECODE_ERRORS as bad:
        raise damaged(path, str(bad)) from None


def read_versioned(disk: Disk, path: Path, kind: type[V], damaged: Callable[[Path, str], Exception]) -> V | None:
    """Like ``read_present``, but returns ``None`` if the file does not exist."""
    return read_present(disk, path, kind, damaged) if disk.exists(path) else None
