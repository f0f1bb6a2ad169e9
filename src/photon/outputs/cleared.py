"""Reads how far a slot's output is cleared: no event before that is ever written again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from photon.config.disk import Disk
from photon.config.versioned_file import read_versioned
from photon.outputs.log.format import Cleared
from photon.outputs.published import OutputFile, PublishedDamaged

CLEARED_NAME = "verifier/cleared.json"


@dataclass(frozen=True, slots=True)
class Clearing:
    # Plain name -> bytes of lines processed by the verifier. Final files are cleared, and not listed.
    files: Mapping[str, int] = field(default_factory=dict)
    # Plain name -> lines to which the verifier objects, so that not everything before the length in ``files`` is
    # cleared.
    trouble: Mapping[str, int] = field(default_factory=dict)

    def bounds(self, files: Sequence[OutputFile]) -> dict[str, int]:
        """Returns, for each file not fully cleared, the length that readers of cleared lines may read."""
        return {
            file.name: 0 if file.name in self.trouble else self.files.get(file.name, 0)
            for file in files
            if not file.final
        }

    def trouble_in(self, files: Sequence[OutputFile]) -> dict[str, int]:
        return {file.name: self.trouble[file.name] for file in files if not file.final and file.name in self.trouble}


def read_clearing(disk: Disk, state: Path) -> Clearing:
    """Reads the cleared lengths of the slot in this state directory. Raises PublishedDamaged, OSError."""
    cleared = read_versioned(disk, state / CLEARED_NAME, Cleared, PublishedDamaged)
    return Clearing() if cleared is None else Clearing(cleared.files, cleared.trouble)
