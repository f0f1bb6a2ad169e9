"""Reads ``manifest.jsonl``: a sink's valid files and its cursor. Append-only; one line for each roll."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from photon.config.decoding import DECODE_ERRORS
from photon.config.errors import PhotonError, UsageError
from photon.config.versioned_file import decoded


class SinkFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that the manifest lists."""

    name: str  # relative to the sink's directory
    kind: str
    records: int
    bytes: int
    crc32: int
    first_ns: int | None = None  # earliest event time; None if no record has one
    last_ns: int | None = None
    rest: int  # number of records with values that did not fit their columns


class Roll(msgspec.Struct, frozen=True, kw_only=True):
    """A line: the files that became visible together, and the cursor after them (JSON of
    ``photon.outputs.Cursor``)."""

    number: int
    files: list[SinkFile]
    cursor: msgspec.Raw
    # Kind -> types of the payloads' columns from the next file on; only if changed (``outputs.json_types``).
    types: dict[str, dict[str, Any]] | UnsetType = UNSET


class Header(msgspec.Struct, frozen=True, kw_only=True, tag_field="photon_sink", tag=2):
    """The first line of a manifest."""

    format: str
    kinds: list[str]
    columns: str  # struct or flat
    partition: str | UnsetType = UNSET  # hour: DIR/KIND/date=YYYY-MM-DD/hour=HH of the event time, UTC
    schema: dict[str, Any] | UnsetType = UNSET  # payload types given by the user; unset: they are inferred


_T = TypeVar("_T")


class ManifestDamaged(PhotonError):
    """The manifest has been changed or corrupted. The message is one line."""


def header_line(header: Header) -> bytes:
    return msgspec.json.encode(header) + b"\n"


def roll_line(roll: Roll) -> bytes:
    return msgspec.json.encode(roll) + b"\n"


def header_of(data: bytes, where: Path) -> Header | None:
    """Reads the header; ``None`` means that there is none yet. Raises ManifestDamaged."""
    first, newline, _ = data.partition(b"\n")
    if not newline:
        return None
    try:
        return decoded(first, Header)
    except DECODE_ERRORS as bad:
        raise _damaged(where, bad) from None


def _damaged(where: Path, why: Exception) -> ManifestDamaged:
    return ManifestDamaged(f"{where}: cannot be read ({why}); restore it, or use a new directory")


def types_after(rolls: Sequence[Roll]) -> dict[str, dict[str, Any]]:
    """Returns kind -> types of the payloads' columns after the newest roll."""
    found: dict[str, dict[str, Any]] = {}
    for roll in rolls:
        found |= {} if isinstance(roll.types, UnsetType) else roll.types
    return found


def _decoded(line: bytes, kind: type[_T], where: Path) -> _T:
    try:
        return msgspec.json.decode(line, type=kind)
    except DECODE_ERRORS as bad:
        raise _damaged(where, bad) from None


def read(data: bytes, wanted: Header, where: Path) -> tuple[list[Roll], int]:
    """Returns the rolls, and the length of the complete lines: a last line without newline was torn by a crash.

    Raises ManifestDamaged; UsageError if the manifest's form differs from ``wanted``.
    """
    whole = data[: data.rfind(b"\n") + 1]
    header = header_of(whole, where)
    if header is None:
        return [], 0
    if differing := [each for each in zip(_said(header), _said(wanted), strict=True) if each[0] != each[1]]:
        was, wants = zip(*differing, strict=True)
        raise UsageError(
            f"{where}: was begun with {', '.join(was)}, but this run has {', '.join(wants)}; name another directory"
        )
    rolls = [_decoded(line, Roll, where) for line in whole.splitlines()[1:]]
    if [roll.number for roll in rolls] != list(range(1, len(rolls) + 1)):
        raise ManifestDamaged(f"{where}: a line is missing or doubled; restore it, or begin in a new directory")
    return rolls, len(whole)


def _said(header: Header) -> tuple[str, ...]:
    """Describes the form of the files, for messages."""
    return (
        f"format {header.format}",
        f"kinds {' and '.join(header.kinds)}",
        f"columns {header.columns}",
        "no partition" if header.partition is UNSET else f"partition {header.partition}",
        "inferred types"
        if header.schema is UNSET
        else f"types {msgspec.json.encode(header.schema, order='sorted').decode()}",
    )
