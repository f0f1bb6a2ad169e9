"""What can still be read of a damaged redo log, once an operator has accepted the damage (rule 13).

Good frames around a bad one are kept: they are redone as ever. What a lost frame held was either never registered,
then its dispatcher asks again; or registered and written, then the verifier clears it; or registered and not written,
then recovery by token gives it up once this start has redone the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from photon.config.disk import Disk
from photon.joiner.slot.redo_log import (
    FRAME_MARK,
    REPLACES,
    SEGMENT_HEAD_BYTES,
    RedoFrame,
    SegmentHead,
    decode_frame,
    segment_head,
    segments_in,
)

DAMAGED_PREFIX = "damaged-"


@dataclass(frozen=True, slots=True)
class Lost:
    """Bytes of a segment that cannot be read."""

    path: Path
    offset: int
    size: int

    def __str__(self) -> str:
        return f"{self.path}: {self.size} bytes from byte {self.offset} on"


def salvage(disk: Disk, directory: Path) -> tuple[list[RedoFrame], list[Lost]]:
    """All good frames that count, oldest first, and what lies between them.

    Where a header cannot be read, older segments count as well: of frames that had left, the registry or the output
    says so once more. Raises RedoLogDamaged for a segment of another version: that is no damage.
    """
    found = segments_in(disk, directory)
    heads = {number: segment_head(disk.read(path, 0, SEGMENT_HEAD_BYTES), path, number) for number, path in found}
    first = max((number for number, head in heads.items() if head is not None and head.flags & REPLACES), default=0)
    frames: list[RedoFrame] = []
    lost: list[Lost] = []
    for number, path in found:
        if number >= first:
            good, missing = _of_segment(disk, path, heads[number], newest=number == found[-1][0])
            frames += good
            lost += missing
    return frames, lost


def set_aside(disk: Disk, path: Path) -> Path:
    """Keeps a damaged segment for whoever wants to look at it, durably, under a name that no start reads."""
    data = disk.read(path)
    number = 0
    while True:
        kept = path.with_name(f"{DAMAGED_PREFIX}{path.stem}-{number}.bin")
        if not disk.exists(kept):
            disk.replace(kept, data)
            return kept
        if disk.read(kept) == data:
            return kept
        number += 1


def _of_segment(
    disk: Disk, path: Path, head: SegmentHead | None, *, newest: bool
) -> tuple[list[RedoFrame], list[Lost]]:
    data = disk.read(path)
    if head is None and newest and len(data) <= SEGMENT_HEAD_BYTES:
        return [], []  # torn while it was created
    sealed = head.sealed if head is not None else SEGMENT_HEAD_BYTES
    frames: list[RedoFrame] = []
    lost = [] if head is not None else [Lost(path, 0, SEGMENT_HEAD_BYTES)]
    at = min(SEGMENT_HEAD_BYTES, len(data))
    while at < len(data):
        decoded = decode_frame(data, at)
        if decoded is not None:
            frame, at, _ = decoded
            frames.append(frame)
            continue
        later, synced = _good_after(data, at)
        if newest and at >= sealed and synced <= at:
            break  # a torn tail: never synced, so nothing of it was registered
        end = later if later >= 0 else len(data)
        lost.append(Lost(path, at, end - at))
        at = end
    if at < sealed:
        lost.append(Lost(path, at, sealed - at))
    return frames, lost


def _good_after(data: bytes, bad: int) -> tuple[int, int]:
    """Where the next good frame stands (-1: nowhere), and the most that any good one behind knew as synced."""
    first, synced = -1, 0
    at = data.find(FRAME_MARK, bad + 1)
    while at >= 0:
        decoded = decode_frame(data, at)
        if decoded is not None and decoded[2] <= at:
            first = at if first < 0 else first
            synced = max(synced, decoded[2])
            at = data.find(FRAME_MARK, decoded[1])
        else:
            at = data.find(FRAME_MARK, at + 1)
    return first, synced
