"""What a slot has published: its output files, and how far each of them may be read.

It shares no code with the joiner. The slot's state directory holds ``durable.json`` (growing and rolled files: length
that is durable and witnessed) and ``manifest.jsonl`` (final files, compressed). Bytes below a published length stay,
whatever happens but a retirement (docs/output.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from photon.config.disk import Disk
from photon.config.errors import PhotonError

DURABLE_NAME = "durable.json"
MANIFEST_NAME = "manifest.jsonl"
DURABLE_VERSION = 1
MANIFEST_VERSION = 1
PLAIN_SUFFIX = ".jsonl"
FINAL_SUFFIX = ".jsonl.gz"


@dataclass(frozen=True, slots=True)
class OutputFile:
    """One output file of a slot."""

    name: str
    """Plain name relative to the output root, ``joined/SLOT-000003.jsonl``; a final one keeps it here."""
    length: int
    """Uncompressed bytes that may be read: whole lines."""
    closed: bool
    """It never grows beyond ``length``."""
    final: bool
    """It is there as ``.jsonl.gz``; where the plain one is still beside it, the plain one counts."""

    @property
    def kind(self) -> str:
        """Its directory: joined, filtered, unmatched or rejected."""
        return self.name.partition("/")[0]

    @property
    def number(self) -> int:
        """Files of a kind are written one after the other."""
        return int(self.name.removesuffix(PLAIN_SUFFIX).rpartition("-")[2])


@dataclass(frozen=True, slots=True)
class SlotOutput:
    """Of one slot, in the order of (kind, number)."""

    slot: str
    files: tuple[OutputFile, ...]


@dataclass(slots=True, eq=False)
class PublishedDamaged(PhotonError):
    """What a slot published cannot be read."""

    path: Path
    why: str

    def __str__(self) -> str:
        return f"{self.path}: unreadable ({self.why}); restore it, or let the slot's joiner start once"


class _Durable(msgspec.Struct, frozen=True):
    version: int
    slot: str
    files: dict[str, int]
    rolled: list[str] = []


class _ManifestEntry(msgspec.Struct, frozen=True):
    version: int
    file: str
    uncompressed_bytes: int


def read_slot(disk: Disk, state: Path) -> SlotOutput:
    """What the slot in this state directory has published; no files where it has published nothing yet.

    Raises PublishedDamaged, OSError.
    """
    # The lengths first: what leaves them is in the manifest by then. The other order would miss it.
    durable = _durable(disk, state / DURABLE_NAME)
    final = {name: OutputFile(name, length, True, True) for name, length in _final(disk, state / MANIFEST_NAME)}
    if durable is None:
        return SlotOutput(state.name, _ordered(final))
    rolled = set(durable.rolled)
    growing = {name: OutputFile(name, size, name in rolled, False) for name, size in durable.files.items()}
    return SlotOutput(durable.slot, _ordered(growing | final))


def slot_states(disk: Disk, slots: Path) -> list[Path]:
    """State directories of all slots below a pipeline's ``slots`` directory, in order of their names."""
    if not disk.exists(slots):
        return []
    return [slots / name for name in disk.names(slots) if disk.exists(slots / name / DURABLE_NAME)]


def _ordered(files: dict[str, OutputFile]) -> tuple[OutputFile, ...]:
    return tuple(sorted(files.values(), key=lambda file: (file.kind, file.number)))


def _durable(disk: Disk, path: Path) -> _Durable | None:
    if not disk.exists(path):
        return None
    try:
        durable = msgspec.json.decode(disk.read(path), type=_Durable)
    except msgspec.MsgspecError as bad:
        raise PublishedDamaged(path, str(bad)) from None
    if durable.version != DURABLE_VERSION:
        raise PublishedDamaged(path, f"version {durable.version}, this release reads version {DURABLE_VERSION}")
    return durable


def _final(disk: Disk, path: Path) -> Iterator[tuple[str, int]]:
    """Plain name and uncompressed length of each file listed; a last line that is torn was never relied on."""
    data = disk.read(path) if disk.exists(path) else b""
    for number, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), 1):
        try:
            entry = msgspec.json.decode(line, type=_ManifestEntry)
        except msgspec.MsgspecError as bad:
            raise PublishedDamaged(path, f"line {number}: {bad}") from None
        if entry.version != MANIFEST_VERSION:
            raise PublishedDamaged(path, f"line {number}: version {entry.version}")
        yield entry.file.removesuffix(FINAL_SUFFIX) + PLAIN_SUFFIX, entry.uncompressed_bytes
