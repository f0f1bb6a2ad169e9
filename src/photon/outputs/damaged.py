"""Marks damaged ranges of a slot's published files, so that every reader passes over them (docs/output.md).

A range is marked once its events were given back: from then on its lines must not be read, even if a copy of the file
is put back, because the same events are joined again. ``published`` has the format, and knows which bytes are left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from photon.config.disk import Disk
from photon.config.structured import get_logger
from photon.outputs.content import FileContent, OutputMissing
from photon.outputs.published import (
    DAMAGED_NAME,
    DamagedRange,
    OutputFile,
    SlotListing,
    damaged_bytes,
    read_damaged,
    readable,
)

READ_BYTES = 64 << 10
FILL_BYTES = 1 << 20
TOLD_MAX = 10_000
NoRecord = Callable[[bytes, str], str | None]
"""Why a line without its newline is no output record of a kind; ``None`` if it is one."""

log = get_logger(__name__)


def mark_damaged(
    disk: Disk, state: Path, output: Path, places: Iterable[tuple[str, int]], at: str, no_record: NoRecord
) -> list[DamagedRange | str]:
    """Marks what cannot be read at these places, (plain name, offset), durably. Again: no change.

    Returns for each place the range that covers it, or one line that says why nothing is marked there. Where a line
    ends that is no record, that line is the range; else all that was published from the offset on. ``state``: the
    slot's state directory; ``output``: the directory of its files. Raises PublishedDamaged, OSError.
    """
    listing = SlotListing(disk, state).look()
    files = {file.name: file for file in listing.files}
    known = read_damaged(disk, state)
    ranges, found = list(known), list[DamagedRange | str]()
    for name, offset in places:
        range_ = next((each for each in ranges if each.file == name and each.start <= offset < each.end), None)
        if range_ is None and name in files:
            made = _damage(disk, listing.output or output, files[name], offset, at, no_record)
            if isinstance(made, DamagedRange):
                range_, ranges = _joined(made, ranges)
            found.append(range_ or str(made))
        else:
            found.append(range_ or f"{name}: is not published, nothing of it can be read anyway")
    if tuple(ranges) != known:
        ranges.sort(key=lambda each: (each.file, each.start))
        disk.replace(state / DAMAGED_NAME, damaged_bytes(listing.slot, ranges))
    return found


def _damage(
    disk: Disk, output: Path, file: OutputFile, offset: int, at: str, no_record: NoRecord
) -> DamagedRange | str:
    if not 0 <= offset < file.length:
        return f"{file.name}: byte {offset} is not published, only {file.length} bytes are"
    content = FileContent(disk, output / file.path, offset)
    line, why = b"", ""
    try:
        while b"\n" not in line and (part := content.read(min(READ_BYTES, file.length - content.at))):
            line += part
    except OutputMissing as missing:
        why = missing.why
    line, newline, _ = line.partition(b"\n")
    if newline:
        why = no_record(line, file.kind) or ""
        if not why:
            return f"{file.name}: the record at byte {offset} can be read, verify again"
        return DamagedRange(file.name, offset, offset + len(line) + 1, why, at)
    why = why or f"has {content.at} bytes, but {file.length} were published"
    return DamagedRange(file.name, offset, file.length, why, at)


def _joined(new: DamagedRange, ranges: Sequence[DamagedRange]) -> tuple[DamagedRange, list[DamagedRange]]:
    """Ranges of a file never overlap: what meets the new one becomes part of it."""
    met = [each for each in ranges if each.file == new.file and each.start < new.end and new.start < each.end]
    start, end = min([new.start, *(each.start for each in met)]), max([new.end, *(each.end for each in met)])
    new = DamagedRange(new.file, start, end, new.why, new.at)
    return new, [*(each for each in ranges if each not in met), new]


@lru_cache(maxsize=TOLD_MAX)
def tell_skipped(slot: str, damaged: DamagedRange) -> None:
    """Says that this process passes over a range, once."""
    log.warning(
        "a damaged range of the output is skipped: its events were given back and are joined again",
        slot=slot, file=damaged.file, begin=damaged.start, end=damaged.end, why=damaged.why, marked=damaged.at,
    )  # fmt: skip


def filler(size: int) -> Iterator[bytes]:
    """Yields ``size`` newlines, which keep the place of a damaged range where a file is copied by its offsets."""
    while size:
        part = min(size, FILL_BYTES)
        yield b"\n" * part
        size -= part


class FilledContent:
    """As FileContent, with newlines in place of damaged ranges: offsets stay where a file is copied."""

    def __init__(self, disk: Disk, path: Path, at: int, damaged: Sequence[DamagedRange]) -> None:
        """``path``: of the plain file; ``at``: uncompressed bytes; ``damaged``: the ranges of this file, in order."""
        self._disk, self._path, self._damaged = disk, path, damaged
        self._content = FileContent(disk, path, at)
        self.at = at

    def read(self, length: int) -> bytes:
        """Returns the next ``length`` bytes; fewer where the file ends. Raises OutputMissing, OSError."""
        parts, end = list[bytes](), self.at + length
        while self.at < end:
            begin, stop = readable(self._damaged, self.at, end)
            if begin > self.at:
                part = b"".join(filler(begin - self.at))
            else:
                if self._content.at != begin:
                    self._content = FileContent(self._disk, self._path, begin)
                part = self._content.read(stop - begin)
            if not part:
                break
            parts.append(part)
            self.at += len(part)
        return b"".join(parts)
