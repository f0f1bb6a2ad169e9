"""A slot's published output: its files and their readable lengths. Shares no code with the joiner. The slot's state
directory holds ``durable.json`` (growing and rolled files: durable and witnessed length) and ``manifest.jsonl``
(final files, plain or compressed). Bytes below a published length stay unless the slot is retired (docs/output.md).
In a retired slot only ``retired.json`` lists the files still to be read, and their places (protocol rule 14).
``damaged.json`` names the ranges of published bytes that are lost and whose events were given back: readers skip
them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from photon.config.decoding import DECODE_ERRORS
from photon.config.disk import Disk
from photon.config.errors import PhotonError
from photon.config.versioned_file import decoded, read_versioned
from photon.outputs.log.format import (
    COPY_NAME,
    DAMAGED_NAME,
    DURABLE_NAME,
    MANIFEST_NAME,
    OUTPUT_NAME,
    RETIRED_NAME,
    Damaged,
    DamagedRange,
    Durable,
    ManifestEntry,
    Retired,
    number_of,
)

GONE = "is gone"  # the reason for a missing published file
_NAME = re.compile(r"[a-z]+/[^/]+-[0-9]{1,18}\.jsonl")


@dataclass(frozen=True, slots=True)
class OutputFile:
    name: str  # plain name relative to the output root, ``joined/SLOT-000003.jsonl``, even of a compressed file
    length: int  # uncompressed bytes that may be read: whole lines
    closed: bool  # it never grows beyond ``length``
    final: bool  # it is listed in the manifest: for a slot, once all its ids are cleared
    first_ns: int | None = None
    last_ns: int | None = None  # first and last event time of its records, if the manifest has them
    stored: str = ""  # the name of the stored file, if different
    damaged: tuple[DamagedRange, ...] = ()  # in order, none within another; the file may be missing
    compressed: bool = False  # stored as ``.jsonl.gz``; if a plain one exists too, the plain one counts
    crc32: int = 0  # of its uncompressed bytes; 0 means unknown

    @property
    def path(self) -> str:
        """The path of the file's plain form, relative to the output."""
        return self.stored or self.name

    @property
    def kind(self) -> str:
        """The file's directory: joined, filtered, unmatched or rejected."""
        return self.name.partition("/")[0]

    @property
    def number(self) -> int:
        """The file's number: files of a kind are written in the order of numbers."""
        return number_of(self.name)

    def readable(self, at: int) -> tuple[int, int]:
        """Returns (begin, end) of the first undamaged bytes from ``at`` on; both are ``length`` if there are none."""
        return readable(self.damaged, at, self.length)


@dataclass(frozen=True, slots=True)
class SlotOutput:
    """Files of one slot, in the order of (kind, number)."""

    slot: str
    files: tuple[OutputFile, ...]
    retired: bool = False  # True if only ``files`` may still be read, from any position
    output: Path | None = None  # the directory of its files, if not the pipeline's output: a copy

    @property
    def removable(self) -> set[str]:
        """Files that may be moved or deleted: all final ones except the newest of each kind."""
        newest = {file.kind: file.name for file in self.files}
        return {file.name for file in self.files if file.final} - set(newest.values())

    def of(self, kind: str) -> tuple[OutputFile, ...]:
        """Returns the files of a kind, in the order in which they were written."""
        return tuple(file for file in self.files if file.kind == kind)


@dataclass(slots=True, eq=False)
class PublishedDamaged(PhotonError):
    """A slot's published output is unreadable."""

    path: Path
    why: str

    def __str__(self) -> str:
        return f"{self.path}: unreadable ({self.why}); restore it, or start the slot's joiner once"


def readable(damaged: Iterable[DamagedRange], at: int, end: int) -> tuple[int, int]:
    """Returns (begin, end) of the first bytes in [``at``, ``end``) that are outside all damaged ranges of their file;
    both are ``end`` if there are none.
    """
    stop = end
    for each in damaged:
        if each.start > at:
            stop = min(end, each.start)
            break
        at = max(at, each.end)
    return (at, stop) if at < stop else (end, end)


def covering(damaged: Iterable[DamagedRange], name: str, offset: int) -> DamagedRange | None:
    """Returns the range that contains this byte of a file, or ``None``."""
    return next((each for each in damaged if each.file == name and each.start <= offset < each.end), None)


def read_slot(disk: Disk, state: Path) -> SlotOutput:
    """Reads the published files of the slot in this state directory; none if it has published nothing yet.

    Raises PublishedDamaged, OSError.
    """
    return SlotListing(disk, state).look()


def slot_states(disk: Disk, slots: Path) -> list[Path]:
    """Returns the state directories of all slots in a pipeline's ``slots`` directory, by name."""
    marks = (DURABLE_NAME, RETIRED_NAME)
    states = (slots / name for name in disk.names(slots))
    return [state for state in states if any(disk.exists(state / mark) for mark in marks)]


def read_damaged(disk: Disk, state: Path) -> tuple[DamagedRange, ...]:
    """Returns the damaged ranges of the slot in this state directory, by file and in order.

    Raises PublishedDamaged, OSError.
    """
    found = read_versioned(disk, state / DAMAGED_NAME, Damaged, PublishedDamaged)
    return () if found is None else found.ranges


class Listing(Protocol):
    """The published files of one slot, for repeated queries."""

    def look(self) -> SlotOutput:
        """Returns the slot's files. If a file is reported, so are all earlier ones of its kind. Raises
        PublishedDamaged, OSError."""
        ...

    def forget(self, kind: str, below: int) -> None:
        """Stops reporting final files of a kind with lower numbers."""
        ...


class SlotListing:
    """Lists the published files of one slot repeatedly, reading only the new part of the manifest."""

    def __init__(self, disk: Disk, state: Path, kinds: Collection[str] | None = None) -> None:
        """``kinds``: the kinds of files to list; ``None`` means all."""
        self._disk = disk
        self._state = state
        self._manifest = state / MANIFEST_NAME
        self._growing = state / DURABLE_NAME
        self._taken_away = state / RETIRED_NAME
        self._kinds = kinds
        self._output = state / OUTPUT_NAME if disk.exists(state / COPY_NAME) else None
        self._final: dict[str, OutputFile] = {}
        self._read_to = 0  # position in the manifest: bytes, and lines
        self._lines = 0

    def look(self) -> SlotOutput:
        """Raises PublishedDamaged, OSError.

        If a file is reported, so are all earlier ones of its kind.
        """
        found = self._look()
        damaged: dict[str, tuple[DamagedRange, ...]] = {}
        for each in read_damaged(self._disk, self._state):  # read after the lengths, which it never exceeds
            damaged[each.file] = (*damaged.get(each.file, ()), each)
        if not damaged:
            return found
        files = [replace(file, damaged=damaged.get(file.name, ())) for file in found.files]
        return replace(found, files=tuple(files))

    def _look(self) -> SlotOutput:
        retired = self._retired()
        if retired is not None:
            return retired
        self._read_manifest()
        while True:
            durable = self._durable()
            # A file leaves durable.json after it is listed, and others may follow at once. No file was missed only if
            # nothing was listed while durable.json was read.
            if not self._read_manifest():
                break
        if durable is None:
            return SlotOutput(self._state.name, ordered(self._final), output=self._output)
        rolled = set(durable.rolled)
        files = dict(self._final)
        for name, length in durable.files.items():
            if name not in files and self._wanted(name, self._growing):
                files[name] = OutputFile(name, length, name in rolled, False)
        return SlotOutput(durable.slot, ordered(files), output=self._output)

    def forget(self, kind: str, below: int) -> None:
        """Stops reporting final files of a kind with lower numbers."""
        for name in [file.name for file in self._final.values() if file.kind == kind and file.number < below]:
            del self._final[name]

    def _wanted(self, name: str, told_by: Path) -> bool:
        if _NAME.fullmatch(name) is None:
            raise PublishedDamaged(told_by, f"{name!r} is not the name of an output file")
        return self._kinds is None or name.partition("/")[0] in self._kinds

    def _durable(self) -> Durable | None:
        return read_versioned(self._disk, self._growing, Durable, PublishedDamaged)

    def _read_manifest(self) -> bool:
        """Reads new entries. Returns False if there are none. Ignores a torn last line, on which nothing relies."""
        path = self._manifest
        size = self._disk.size(path) if self._disk.exists(path) else 0
        if size < self._read_to:  # its end was lost in a power failure, so its files are growing ones again
            self._final.clear()
            self._read_to = self._lines = 0
        if size <= self._read_to:
            return False
        data = self._disk.read(path, self._read_to)
        whole = data.rfind(b"\n") + 1
        for line in data[:whole].split(b"\n")[:-1]:
            self._lines += 1
            self._list(line, path)
        self._read_to += whole
        return whole > 0

    def _list(self, line: bytes, path: Path) -> None:
        try:
            entry = decoded(line, ManifestEntry)
        except DECODE_ERRORS as bad:
            raise PublishedDamaged(path, f"line {self._lines}: {bad}") from None
        if self._wanted(entry.name, path):
            self._final[entry.name] = OutputFile(
                entry.name, entry.uncompressed_bytes, True, True, entry.first_ns, entry.last_ns,
                compressed=entry.compressed, crc32=entry.crc32,
            )  # fmt: skip

    def _retired(self) -> SlotOutput | None:
        retired = read_versioned(self._disk, self._taken_away, Retired, PublishedDamaged)
        if retired is None:
            return None
        sealed = {
            name: OutputFile(name, length, True, False)
            for name, length in (retired.files or {}).items()
            if self._wanted(name, self._taken_away)
        }
        output = None if retired.output is None else Path(retired.output)
        return SlotOutput(retired.slot, ordered(sealed), True, output)


def ordered(files: dict[str, OutputFile]) -> tuple[OutputFile, ...]:
    """Orders files by kind and number."""
    return tuple(sorted(files.values(), key=lambda file: (file.kind, file.number)))
