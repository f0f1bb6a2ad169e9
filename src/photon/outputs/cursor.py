"""How far a reader has come: for each slot and kind, the number of a file and an offset in it.

As a line of JSON::

    {"photon_cursor":1,"slots":{"east-1":{"joined":[3,73400320]}}}

``photon_cursor`` is the version of the form. Offsets are uncompressed bytes, and stand at the end of a line. What is
not named is read from its beginning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from photon.config.errors import UsageError

CURSOR_VERSION = 1
CURSOR_BEGINNING = b'{"photon_cursor":'
"""No output record begins so."""


class Position(NamedTuple):
    """All before this place was read."""

    number: int
    """Of the file, as in its name."""
    offset: int
    """Uncompressed bytes; it is the end of a line."""


class Place(NamedTuple):
    """A log that is read in order: all files of one kind of one slot."""

    slot: str
    kind: str


class _Encoded(msgspec.Struct, frozen=True):
    photon_cursor: int
    slots: dict[str, dict[str, tuple[int, int]]]


class CursorUnreadable(UsageError):
    """What was given as a cursor is none."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """A reader's position in all logs of an output. Empty: the beginning."""

    positions: Mapping[Place, Position] = field(default_factory=dict)

    def moved(self, place: Place, to: Position) -> Cursor:
        """With one log read further."""
        return Cursor({**self.positions, place: to})

    def encode(self) -> bytes:
        """One line of JSON, without its newline."""
        slots: dict[str, dict[str, tuple[int, int]]] = {}
        for place, position in sorted(self.positions.items()):
            slots.setdefault(place.slot, {})[place.kind] = (position.number, position.offset)
        return msgspec.json.encode(_Encoded(CURSOR_VERSION, slots))

    @classmethod
    def decode(cls, data: bytes, where: str) -> Cursor:
        """The inverse. ``where`` names it for people. Raises CursorUnreadable."""
        try:
            encoded = msgspec.json.decode(data, type=_Encoded)
        except msgspec.MsgspecError as bad:
            raise CursorUnreadable(f"{where}: no cursor ({bad}); give it as photon read wrote it") from None
        if encoded.photon_cursor != CURSOR_VERSION:
            version = encoded.photon_cursor
            raise CursorUnreadable(
                f"{where}: a cursor of version {version}; this release reads version {CURSOR_VERSION}"
            )
        positions = {
            Place(slot, kind): Position(*place)
            for slot, kinds in encoded.slots.items()
            for kind, place in kinds.items()
        }
        bad_place = next((place for place, at in positions.items() if min(at) < 0), None)
        if bad_place is not None:
            raise CursorUnreadable(f"{where}: no cursor (a negative place in {bad_place.slot}, {bad_place.kind})")
        return cls(positions)
