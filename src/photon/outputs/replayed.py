"""Tells readers of a replayed stream where to continue.

``replayed.json`` is in the state of an output whose writer has ended. Its records with an event time of at least
``from_ns`` are void: the output ``by`` has them again, and all later ones.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec

from photon.config.clock import NS_PER_S
from photon.config.disk import Disk
from photon.config.errors import PhotonError
from photon.config.versioned_file import read_versioned
from photon.objects.paths import ObjectPath
from photon.outputs.cursor import OtherOutput

REPLAYED_NAME = "replayed.json"


class ReplayedDamaged(PhotonError):
    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path}: unreadable ({why}); restore it from a copy")


class _Replayed(msgspec.Struct, frozen=True, tag_field="photon_replayed", tag=1):
    from_ns: int
    by: str  # relative to the output


class Replayed(OtherOutput):
    """A retired output was read to its end."""


def replayed(disk: Disk, output: Path, state: Path) -> Replayed | None:
    """Returns the notice for readers at the end of this output; ``None`` if it is not retired.

    Raises ReplayedDamaged.
    """
    if isinstance(output, ObjectPath):  # a copy, whose source has the notice
        return None
    found = read_versioned(disk, state / REPLAYED_NAME, _Replayed, ReplayedDamaged)
    if found is None:
        return None
    since = datetime.fromtimestamp(found.from_ns / NS_PER_S, UTC).isoformat()
    return Replayed(
        f"{output} ends here: records from {since} on were replayed",
        f"drop its records with event_time_ns >= {found.from_ns}, and read {output.parent / found.by} from "
        "its beginning",
    )


def retire(disk: Disk, state: Path, from_ns: int, by: str) -> None:
    """Durably retires the output. Idempotent. Raises OSError."""
    if not disk.exists(state / REPLAYED_NAME):
        disk.replace(state / REPLAYED_NAME, msgspec.json.encode(_Replayed(from_ns, by)) + b"\n")
