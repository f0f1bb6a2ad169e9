"""``redone.json``: which incarnations of a slot have left nothing in its redo log (rule 13, the paper's 3.3.3).

The lock's holder writes it once every batch of its predecessors, ids that were carried over included, has left the
log by rule 4: dropped, or in synced output. ``files`` is the place: what was synced of the output then. Whoever has
read all of it and finds an id still owned by one of these incarnations may give the id up: nobody holds its record
any more. Nothing is written under a token of theirs after that, so a later place would only be read later.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from photon.config.disk import Disk

REDONE_NAME = "redone.json"
REDONE_VERSION = 1


class Redone(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``redone.json``."""

    version: int
    slot: str
    upto: int
    """The newest of these incarnations."""
    files: dict[str, int]
    """Output file that was not final yet, relative to the output root -> its durable length in bytes."""


def write_redone(disk: Disk, state: Path, slot: str, upto: int, lengths: dict[str, int]) -> None:
    """Replaces the file in the slot's state, durably. ``lengths``: durable ones."""
    redone = Redone(REDONE_VERSION, slot, upto, lengths)
    disk.replace(state / REDONE_NAME, msgspec.json.encode(redone))
