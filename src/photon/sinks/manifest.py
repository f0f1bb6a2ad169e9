"""``manifest.jsonl``: which files of a sink count, and where it goes on. Append-only; one line for each roll."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from photon.config.errors import DECODE_ERRORS, PhotonError, UsageError

VERSION = 1


class SinkFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that the manifest lists."""

    name: str
    """Relative to the sink's directory."""
    kind: str
    records: int
    bytes: int
    crc32: int
    first_ns: int | None = None
    """Smallest event time; None: no record has one."""
    last_ns: int | None = None


class Roll(msgspec.Struct, frozen=True, kw_only=True):
    """A line: what became visible at once, and the cursor after it (``photon.outputs.Cursor``, its JSON)."""

    number: int
    files: list[SinkFile]
    cursor: msgspec.Raw


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a manifest."""

    photon_sink: int = VERSION
    format: str
    kinds: list[str]


class ManifestDamaged(PhotonError):
    """The manifest is not as it was written; one line."""


def header_line(header: Header) -> bytes:
    return msgspec.json.encode(header) + b"\n"


def roll_line(roll: Roll) -> bytes:
    return msgspec.json.encode(roll) + b"\n"


def read(data: bytes, wanted: Header, where: Path) -> tuple[list[Roll], int]:
    """The rolls, and the length of what is whole: a last line without newline was torn by a crash.

    Raises ManifestDamaged; UsageError for the manifest of a sink of another sort.
    """
    whole = data[: data.rfind(b"\n") + 1]
    lines = whole.splitlines()
    if not lines:
        return [], 0
    try:
        header = msgspec.json.decode(lines[0], type=Header)
        rolls = [msgspec.json.decode(line, type=Roll) for line in lines[1:]]
    except DECODE_ERRORS as bad:
        raise ManifestDamaged(f"{where}: is damaged ({bad}); restore it, or begin in a new directory") from None
    if header != wanted:
        said, meant = _said(header), _said(wanted)
        raise UsageError(f"{where}: is of a sink of {said}, not of {meant}; name another directory")
    if [roll.number for roll in rolls] != list(range(1, len(rolls) + 1)):
        raise ManifestDamaged(f"{where}: a line is missing or doubled; restore it, or begin in a new directory")
    return rolls, len(whole)


def _said(header: Header) -> str:
    return f"{header.format} version {header.photon_sink} with {', '.join(header.kinds)}"


def known(rolls: Sequence[Roll]) -> set[str]:
    """Names of all files that the manifest lists."""
    return {file.name for roll in rolls for file in roll.files}
