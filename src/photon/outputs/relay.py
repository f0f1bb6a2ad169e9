"""Copies one pipeline's joined records as logs of the next join: a log file for each output file.

Lines are not changed, so two datacentres that copy the same output have the same logs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from photon.config.disk import Disk
from photon.outputs.cursor import Cursor, OutputLog, Position
from photon.outputs.log.copier import Block, Copier
from photon.outputs.output_places import OutputPlace
from photon.outputs.reader import Reader

KIND = "joined"


class Relay(Copier):
    """Copies one output into one directory."""

    def __init__(self, disk: Disk, place: OutputPlace, directory: Path, name: str) -> None:
        """Raises CursorUnreadable, and the errors of Copier."""
        super().__init__(disk, directory, name, "cursor")
        self._output = place
        self._cursor = self._kept.load() or Cursor()
        self._reader = Reader(disk, place, (KIND,), cursor=self._cursor)

    def _read(self) -> Iterator[list[Block]]:
        """Raises CursorLost, OtherOutput, OutputMissing, PublishedDamaged, OSError."""
        for block in self._reader.read():
            at, to = self._cursor.positions.get(block.place), block.end()
            start = at.offset if at is not None and at.number == block.number else 0
            self._cursor = self._cursor.moved(block.place, to, block.output)
            # Skipped: a log with only blank lines would have no identity.
            blank = not block.data and start == 0 and to.offset == block.length
            made = Block(block.place.slot, Path(block.name).name, start, to.offset, block.data)
            yield [] if blank else [made]

    def _read_to(self) -> Callable[[], bytes]:
        return self._cursor.encode

    def behind(self) -> int:
        """See Copier."""
        total = 0
        for slot in self._output.published(self._disk, (KIND,)):
            at = self._cursor.positions.get(OutputLog(slot.slot, KIND), Position(-1, 0))
            for file in slot.of(KIND):
                if file.number >= at.number:
                    total += max(file.length - (at.offset if file.number == at.number else 0), 0)
        return total
