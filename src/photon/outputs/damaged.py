"""Marks damaged ranges of a slot's published files, so that every reader skips them (docs/output.md).

A range is marked once its events were given back: from then on its lines must not be read, even if a copy of the file
is restored, because the same events are joined again. ``published`` has the format, and finds the bytes that remain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import msgspec

from photon.config.disk import Disk
from photon.config.structured import get_logger
from photon.outputs.content import FileContent, OutputMissing
from photon.outputs.log.format import DAMAGED_NAME, DamagedRange, damaged_bytes, gzip_name
from photon.outputs.published import GONE, OutputFile, SlotListing, SlotOutput, covering, read_damaged, readable

READ_BYTES = 64 << 10
FILL_BYTES = 1 << 20
TOLD_MAX = 10_000
# Returns why a line without its newline is not an output record of a kind; ``None`` if it is.
NoRecord = Callable[[bytes, str], str | None]

log = get_logger(__name__)


def mark_damaged(
    disk: Disk, state: Path, output: Path, places: Sequence[tuple[str, int]], at: str, no_record: NoRecord
) -> list[DamagedRange | str]:
    """Durably marks the unreadable ranges at these places, (plain name, offset). Idempotent.

    Returns for each place the range that covers it, or one line that says why nothing is marked. If the line at the
    offset is not a record, that line is the range; otherwise everything published from the offset on. ``state``: the
    slot's state directory; ``output``: the directory of its files. Raises PublishedDamaged, OSError.
    """
    slot = SlotListing(disk, state).look()
    files = {file.name: file for file in slot.files}
    ranges = list(read_damaged(disk, state))
    looked: dict[tuple[str, int], DamagedRange | str] = {}
    for name, offset in sorted(set(places)):
        there = covering(ranges, name, offset)
        if there is None and name not in files:
            looked[name, offset] = f"{name}: is not published, so it is not read"
        elif there is None:
            found = _damage(disk, (slot.output or output) / files[name].path, files[name], offset, at, no_record)
            looked[name, offset] = found
            if isinstance(found, DamagedRange):
                ranges = _merged([*ranges, found])
    add_damaged(disk, state, slot.slot, ranges)
    return [covering(ranges, *place) or looked[place] for place in places]


def add_damaged(disk: Disk, state: Path, slot: str, ranges: Sequence[DamagedRange]) -> None:
    """Durably marks ranges that are known to be damaged, even in a copy whose own file is undamaged.

    Raises PublishedDamaged, OSError.
    """
    before = read_damaged(disk, state)
    after = tuple(_merged([*before, *ranges]))
    if after != before:
        disk.replace(state / DAMAGED_NAME, damaged_bytes(slot, after))


def _damage(
    disk: Disk, path: Path, file: OutputFile, offset: int, at: str, no_record: NoRecord
) -> DamagedRange | str:
    if not 0 <= offset < file.length:
        return f"{file.name}: no line begins at byte {offset}: only {file.length} bytes are published; see its cause"
    content = FileContent(disk, path, offset)
    line, why = b"", ""
    try:
        while b"\n" not in line and (part := content.read(min(READ_BYTES, file.length - content.at))):
            line += part
    except OutputMissing as missing:
        why = missing.why
    line, newline, _ = line.partition(b"\n")
    if not newline:
        why = why or f"has {content.at} bytes, but {file.length} were published"
        return DamagedRange(file.name, offset, file.length, why, at)
    if (no := no_record(line, file.kind)) is None:
        return f"{file.name}: the record at byte {offset} is readable; verify again"
    return DamagedRange(file.name, offset, offset + len(line) + 1, no, at)


def _merged(ranges: Iterable[DamagedRange]) -> list[DamagedRange]:
    """Sorts ranges by file and place, and merges adjacent and overlapping ones; the first one's reason stays."""
    found: list[DamagedRange] = []
    for each in sorted(ranges, key=lambda each: (each.file, each.start)):
        if found and found[-1].file == each.file and each.start <= found[-1].end:
            found[-1] = msgspec.structs.replace(found[-1], end=max(found[-1].end, each.end))
        else:
            found.append(each)
    return found


@lru_cache(maxsize=TOLD_MAX)
def tell_skipped(slot: str, damaged: DamagedRange) -> None:
    """Logs, once per process, that a range is skipped."""
    log.warning(
        "a damaged range of the output is skipped: its events were given back and are joined again",
        slot=slot, file=damaged.file, begin=damaged.start, end=damaged.end, why=damaged.why, marked=damaged.at,
    )  # fmt: skip


def unreadable(disk: Disk, slot: SlotOutput, output: Path) -> Iterator[DamagedRange]:
    """Yields unmarked published ranges that are missing in their files, so that every reader stops there.

    A compressed file is unpacked only if the length in its trailer differs from the published one. ``output``: the
    directory of the slot's files. Raises OSError.
    """
    for file in slot.files:
        path = (slot.output or output) / file.path
        at, end = file.readable(0)
        while at < end:
            found, why = _readable_to(disk, path, file, at, end)
            if found < end:
                yield DamagedRange(file.name, found, end, why, "")
            at, end = file.readable(end)


def _readable_to(disk: Disk, path: Path, file: OutputFile, at: int, end: int) -> tuple[int, str]:
    """Returns the byte up to which [``at``, ``end``) can be read, and why not further."""
    final = path.with_name(gzip_name(path.name))
    if disk.exists(path):
        size = disk.size(path)
        return (end, "") if size >= end else (max(size, at), f"has {size} bytes, but {file.length} were published")
    if not disk.exists(final):
        return at, GONE
    if not file.damaged and _unpacked_size(disk, final) == file.length % (1 << 32):
        return end, ""
    content, why = FileContent(disk, path, at), ""
    try:
        while content.at < end and content.read(min(FILL_BYTES, end - content.at)):
            pass
    except OutputMissing as missing:
        why = missing.why
    return content.at, why or f"has {content.at} bytes, but {file.length} were published"


def _unpacked_size(disk: Disk, final: Path) -> int:
    """Reads the length modulo 2^32 in the trailer of a gzip file with one member."""
    return int.from_bytes(disk.read(final, max(disk.size(final) - 4, 0), 4), "little")


def filler(size: int) -> Iterator[bytes]:
    """Yields ``size`` newlines, which replace a damaged range in a copy, so that offsets stay."""
    while size:
        part = min(size, FILL_BYTES)
        yield b"\n" * part
        size -= part


class FilledContent:
    """Like FileContent, with newlines in place of damaged ranges, so that copies keep their offsets."""

    def __init__(self, disk: Disk, path: Path, at: int, damaged: Sequence[DamagedRange]) -> None:
        """``path``: path of the plain file; ``at``: offset in uncompressed bytes; ``damaged``: this file's damaged
        ranges, in order.
        """
        self._disk, self._path, self._damaged = disk, path, damaged
        self._content = FileContent(disk, path, at)
        self.at = at

    def read(self, length: int) -> bytes:
        """Returns the next ``length`` bytes; fewer at the end of the file, and before an error that the next call
        raises.

        Raises OutputMissing, OSError.
        """
        parts, end = list[bytes](), self.at + length
        while self.at < end:
            begin, stop = readable(self._damaged, self.at, end)
            if begin > self.at:
                part = b"".join(filler(begin - self.at))
            else:
                if self._content.at != begin:
                    self._content = FileContent(self._disk, self._path, begin)
                try:
                    part = self._content.read(stop - begin)
                except OutputMissing:
                    if not parts:
                        raise
                    break
            if not part:
                break
            parts.append(part)
            self.at += len(part)
        return b"".join(parts)
