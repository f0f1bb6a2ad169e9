"""The identity of an output: its writer assigns it once, and its readers' cursors contain it.

Slots and files have the same names in every output of ``photon join``. Without an identity, a cursor of one output
would be accepted in another, and records would be skipped. An output below a URL has the identity of the output it
was copied from. A deployment's output has none: its slots have unique names.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from photon.config.disk import Disk
from photon.config.errors import PhotonError
from photon.config.versioned_file import read_versioned

IDENTITY_NAME = "output.json"
ID_BYTES = 8  # as hexadecimal digits in the file


class IdentityDamaged(PhotonError):
    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path}: unreadable ({why}); restore it from a copy")


class _Identity(msgspec.Struct, frozen=True, tag_field="version", tag=1):
    id: str


def identity_of(disk: Disk, state: Path) -> str:
    """Reads the identity of this state directory's output; empty if it has none. Raises IdentityDamaged, OSError."""
    found = read_versioned(disk, state / IDENTITY_NAME, _Identity, IdentityDamaged)
    return "" if found is None else found.id


def identify(disk: Disk, state: Path, id: str, by: str) -> None:
    """Assigns ``id`` to the output with this state directory, unless it has an identity. ``by`` names the process, as
    several with the same ``id`` may start at once. Raises OSError.
    """
    path = state / IDENTITY_NAME
    if not disk.exists(path):
        own = state / f"{IDENTITY_NAME}.{by}"
        disk.replace(own, msgspec.json.encode(_Identity(id)) + b"\n")
        disk.rename(own, path)
        disk.sync_dir(state)
