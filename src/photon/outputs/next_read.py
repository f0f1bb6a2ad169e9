"""Decides which bytes to read next, from the published lengths and a reader's position. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from photon.config.errors import PhotonError
from photon.outputs.cursor import Cursor, OutputLog, Position
from photon.outputs.log.format import DamagedRange
from photon.outputs.published import OutputFile, SlotOutput


@dataclass(slots=True, eq=False)
class CursorLost(PhotonError):
    """Nothing is published at a cursor's position."""

    place: OutputLog
    at: Position
    why: str

    def __str__(self) -> str:
        return (
            f"the cursor is in {self.place.kind} file {self.at.number} of {self.place.slot} at byte "
            f"{self.at.offset}, but {self.why}; it belongs to another output, or an older copy was restored; "
            "restore the missing files, or start with another cursor"
        )


@dataclass(frozen=True, slots=True)
class NextRead:
    file: OutputFile
    start: int
    end: int
    damaged: DamagedRange | None = None  # the range is unreadable, so it is skipped


def next_read(
    place: OutputLog, files: Sequence[OutputFile], at: Position | None, bounds: Mapping[str, int] | None = None
) -> NextRead | None:
    """Returns the next read of one log; ``None`` if there is nothing new.

    ``files``: the log's files in order, at least from the file of ``at`` on. ``at``: ``None`` means the beginning.
    ``bounds``: file -> byte beyond which not to read; other files are not bounded. Raises CursorLost.
    """
    index = 0
    if at is not None:
        index = bisect_left(files, at.number, key=lambda file: file.number)
        _check(place, files, index, at)
    for position in range(index, len(files)):
        file = files[position]
        start = at.offset if at is not None and file.number == at.number else 0
        end = file.length if bounds is None else min(file.length, bounds.get(file.name, file.length))
        if start < end:
            begin, stop = file.readable(start)
            if begin == start:
                return NextRead(file, start, min(stop, end))
            damaged = next(each for each in file.damaged if each.start <= start < each.end)
            return NextRead(file, start, min(damaged.end, end), damaged)
        # Its successor is read once this file cannot grow; the length of an open file may be outdated.
        if not file.closed or start < file.length:
            return None
    return None


def _check(place: OutputLog, files: Sequence[OutputFile], index: int, at: Position) -> None:
    if index == len(files) or files[index].number != at.number:
        raise CursorLost(place, at, "no such file is published")
    if at.offset > files[index].length:
        raise CursorLost(place, at, f"only {files[index].length} bytes are published")


def behind_all(files: Sequence[OutputFile], at: Position | None) -> bool:
    """True if a reader has read all of these files: in a retired slot it may have read beyond the sealed part."""
    return not files or (at is not None and at >= (files[-1].number, files[-1].length))


def end_of(published: Iterable[SlotOutput]) -> Cursor:
    """Returns the cursor after everything published."""
    ends: dict[OutputLog, Position] = {}
    for slot in published:
        for file in slot.files:
            if file.length:  # in order of numbers, so the last file wins
                ends[OutputLog(slot.slot, file.kind)] = Position(file.number, file.length)
    return Cursor(ends)
