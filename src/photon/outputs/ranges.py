"""Divides output into ranges of bytes, for parallel readers (Spark's executors, the verifier).

A range begins and ends at any byte, and has the lines that begin in it. So ranges can be planned without reading the
files, and each line is in exactly one range.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from photon.config.disk import Disk
from photon.outputs.content import FileContent, OutputMissing
from photon.outputs.cursor import Cursor, OutputLog, Position
from photon.outputs.damaged import tell_skipped
from photon.outputs.next_read import CursorLost, behind_all
from photon.outputs.published import OutputFile, SlotOutput

SPLIT_BYTES = 64 << 20
BLOCK_BYTES = 1 << 20
NOWHERE = Position(0, 0)  # before the first file


@dataclass(frozen=True, slots=True)
class FileRange:
    slot: str
    file: OutputFile
    path: Path  # path of the plain file; a compressed one has ``.gz`` appended
    start: int
    end: int  # uncompressed bytes; never beyond ``file.length``


@dataclass(frozen=True, slots=True)
class Lines:
    """Whole lines, and the offset of the first one."""

    offset: int
    data: bytes


def plan(
    published: Iterable[SlotOutput],
    output: Path,
    *,
    kinds: Collection[str] | None = None,
    since: Cursor | None = None,
    until: Cursor | None = None,
    split_bytes: int = SPLIT_BYTES,
) -> list[FileRange]:
    """Divides everything published into ranges of about ``split_bytes``. Compressed files are not split: unpacking
    begins at 0. Damaged ranges are omitted; each is logged once.

    ``since`` and ``until``: cursors at which to start and end (see ``end_of``); the same cursors give the same lines.
    Raises CursorLost for a cursor at which nothing is published.
    """
    found: list[FileRange] = []
    slots = list(published)
    for cursor in (since, until):
        _check_known(slots, cursor, kinds)
    for slot in slots:
        for kind in sorted({file.kind for file in slot.files}):
            if kinds is not None and kind not in kinds:
                continue
            place, files = OutputLog(slot.slot, kind), slot.of(kind)
            begin = None if since is None else since.positions.get(place)
            end = None if until is None else until.positions.get(place, NOWHERE)
            for at in (begin, end):
                if not (slot.retired and behind_all(files, at)):
                    _check(place, files, at)
            for file in files:
                start, stop = _part(file, begin, end)
                for first, last in _readable(slot.slot, file, start, stop):
                    found += _split(slot.slot, file, slot.output or output, first, last, split_bytes)
    return found


def read_range(disk: Disk, part: FileRange, *, block_bytes: int = BLOCK_BYTES) -> Iterator[Lines]:
    """Yields the lines that begin in a range, in blocks. Raises OutputMissing, OSError.

    Bytes below ``part.file.length`` must exist, unless damaged, so an unfinished line raises OutputMissing.
    """
    after_damage = any(each.end == part.start for each in part.file.damaged)
    content = FileContent(disk, part.path, part.start if after_damage else max(part.start - 1, 0))
    at, rest, skipping = content.at, b"", part.start > 0 and not after_damage
    limit = part.file.readable(part.start)[1]
    while at < part.end:
        read = content.read(min(block_bytes, limit - content.at))
        if content.at == part.file.length and not part.file.damaged:
            content.check()
        data = rest + read
        if skipping:  # the end of a line that begins in an earlier range
            cut = data.find(b"\n") + 1
            if cut:
                at, data, skipping = at + cut, data[cut:], False
            elif read:
                at, data = at + len(data), b""
            if at >= part.end:
                return
        end = 0 if skipping else _line_end(data, part.end - at)
        if end:
            yield Lines(at, data[:end])
            at += end
        rest = data[end:]
        if not read and at < part.end:
            raise OutputMissing(part.path, _lacking(part, at, content.at, limit))


def _lacking(part: FileRange, at: int, end: int, limit: int) -> str:
    if end < limit:
        return f"has {end} bytes, but {part.file.length} were published"
    return f"no line end between byte {at} and byte {end}"


def _line_end(data: bytes, wanted: int) -> int:
    """Returns the size of the whole lines in ``data`` that begin before ``wanted``."""
    end = data.rfind(b"\n") + 1
    if end <= wanted:
        return end
    return data.find(b"\n", wanted - 1) + 1


def _part(file: OutputFile, begin: Position | None, end: Position | None) -> tuple[int, int]:
    start, stop = 0, file.length
    if begin is not None and file.number <= begin.number:
        start = begin.offset if file.number == begin.number else file.length
    if end is not None and file.number >= end.number:
        stop = min(end.offset, file.length) if file.number == end.number else 0
    return start, stop


def _readable(slot: str, file: OutputFile, start: int, stop: int) -> Iterator[tuple[int, int]]:
    for each in file.damaged:
        if max(start, each.start) < min(stop, each.end):
            tell_skipped(slot, each)
    while start < stop:
        start, end = file.readable(start)
        if start < min(end, stop):
            yield start, min(end, stop)
        start = end


def _check_known(slots: Iterable[SlotOutput], cursor: Cursor | None, kinds: Collection[str] | None) -> None:
    there = {OutputLog(slot.slot, file.kind) for slot in slots for file in slot.files}
    retired = {slot.slot for slot in slots if slot.retired}
    for place, at in (cursor or Cursor()).positions.items():
        if place not in there and place.slot not in retired and (kinds is None or place.kind in kinds):
            raise CursorLost(place, at, f"{place.slot} has published no {place.kind} file")


def _check(place: OutputLog, files: Iterable[OutputFile], at: Position | None) -> None:
    if at is None or at == NOWHERE:
        return
    length = next((file.length for file in files if file.number == at.number), None)
    if length is None:
        raise CursorLost(place, at, "no such file is published")
    if at.offset > length:
        raise CursorLost(place, at, f"only {length} bytes are published")


def _split(slot: str, file: OutputFile, root: Path, start: int, stop: int, size: int) -> Iterator[FileRange]:
    step = max(stop - start, 1) if file.compressed else size
    for at in range(start, stop, step):
        yield FileRange(slot, file, root / file.path, at, min(at + step, stop))
