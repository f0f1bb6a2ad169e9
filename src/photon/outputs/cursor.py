"""A reader's position: a file number and an offset for each slot and kind.

As a line of JSON::

    {"photon_cursor":1,"slots":{"east-1":{"joined":[3,73400320]}},"output":"5d0a3c91f2b7e846"}

``photon_cursor`` is the version of the form, ``output`` the identity of the output, where it has one. Offsets count
uncompressed bytes and are at line ends. Logs that it does not name are read from the beginning.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec

from photon.config.decoding import DECODE_ERRORS
from photon.config.disk import Disk
from photon.config.errors import UsageError
from photon.config.file_lock import lock_file
from photon.config.versioned_file import decoded

LOCK_SUFFIX = ".lock"


class Position(NamedTuple):
    """A position in a log: everything before it was read."""

    number: int  # the file's number, as in its name
    offset: int  # uncompressed bytes; it is the end of a line


class OutputLog(NamedTuple):
    """A log that is read in order: all files of one kind of one slot."""

    slot: str
    kind: str


class _Encoded(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="photon_cursor", tag=1):
    slots: dict[str, dict[str, tuple[int, int]]]
    output: str = ""


class CursorUnreadable(UsageError):
    pass


class OtherOutput(UsageError):
    """A cursor belongs to another output: records would be skipped or read twice."""

    exit_code = 3

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}: {remedy}")
        self.what = what


@dataclass(frozen=True, slots=True)
class Cursor:
    """A reader's position in all logs of an output. An empty cursor is the beginning."""

    positions: Mapping[OutputLog, Position] = field(default_factory=dict)
    output: str = field(default="", compare=False)  # the output's identity; empty if it has none, or nothing was read

    def moved(self, place: OutputLog, to: Position, output: str = "") -> Cursor:
        """Returns the cursor after reading one log up to ``to``. ``output``: the identity of that log's output."""
        return Cursor({**self.positions, place: to}, output or self.output)

    def within(self, output: str, where: object) -> Cursor:
        """Binds this cursor to the output with this identity; ``where`` names it in errors. Raises OtherOutput."""
        if self.output and output and self.output != output:
            raise OtherOutput(
                f"{where} is the output {output}, but the cursor belongs to the output {self.output}",
                "name that output again, or use another cursor",
            )
        return Cursor(self.positions, output or self.output)

    def encode(self) -> bytes:
        """Returns one line of JSON without newline."""
        slots: dict[str, dict[str, tuple[int, int]]] = {}
        for place, position in sorted(self.positions.items()):
            slots.setdefault(place.slot, {})[place.kind] = (position.number, position.offset)
        return msgspec.json.encode(_Encoded(slots, self.output))

    @classmethod
    def decode(cls, data: bytes, where: str) -> Cursor:
        """Decodes the result of ``encode``. ``where`` names it in errors. Raises CursorUnreadable."""
        try:
            encoded = decoded(data, _Encoded)
        except DECODE_ERRORS as bad:
            raise CursorUnreadable(f"{where}: not a cursor ({bad}); copy it from photon read") from None
        positions = {
            OutputLog(slot, kind): Position(*place)
            for slot, kinds in encoded.slots.items()
            for kind, place in kinds.items()
        }
        bad_place = next((place for place, at in positions.items() if min(at) < 0), None)
        if bad_place is not None:
            raise CursorUnreadable(
                f"{where}: not a cursor (a negative position in {bad_place.slot}, {bad_place.kind})"
            )
        return cls(positions, encoded.output)


class CursorFile:
    """A cursor in a file: one line of JSON, replaced durably. ``FILE.lock`` next to it is locked during use."""

    def __init__(self, disk: Disk, path: Path) -> None:
        """Locks the file. Raises UsageError if another process holds the lock, or its directory is not writable."""
        self._disk = disk
        self.path = path
        if path.is_dir():
            raise UsageError(f"{path}: is a directory; name a file for the cursor")
        try:
            held = lock_file(path.with_name(path.name + LOCK_SUFFIX))
        except OSError as error:
            raise UsageError(f"{path}: cannot keep a cursor there ({error.strerror})") from None
        if held is None:
            raise UsageError(f"{path}: another process reads with this cursor; stop it, or name another file")
        self._lock = held

    def load(self) -> Cursor | None:
        """Loads the cursor; ``None`` means that none was saved yet. Raises CursorUnreadable, OSError."""
        if not self._disk.exists(self.path):
            return None
        return Cursor.decode(self._disk.read(self.path), str(self.path))

    def save(self, cursor: Cursor) -> None:
        self._disk.replace(self.path, cursor.encode() + b"\n")

    def close(self) -> None:
        os.close(self._lock)
