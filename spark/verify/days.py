"""Which days of a range need no new look: verified before without a problem, and nothing of theirs has changed.

A day is good as long as
- it was verified by the same deployment, and had neither problems nor pending events;
- no raw foreign log and no output file that had events of it has changed, and no output file of it is gone;
- none that is new or has changed since has events of it (those files alone are read for that);
- the registry has the same ids under the same tokens for it;
- no primary log is new or has changed, or each of its events has had its primary event.
A raw log that is gone changes nothing: it was compared while it was there.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from photon.config.disk import Disk
from photon.spark.classes import Class
from photon.spark.verify.advice import PROBLEMS
from photon.spark.verify.figures import HOURS_A_DAY, ClassCount
from photon.spark.verify.verdict import InputFile

DAYS_NAME = "days.json"
VERSION = 1
EVENT_SIDES = ("foreign", "output")


class FileSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A file as it was. ``first``, ``last``: hours of its events, as far as they were read."""

    what: str
    datacentre: str
    path: str
    bytes: int
    mtime_ns: int | None = None
    first: int | None = None
    last: int | None = None

    def name(self) -> tuple[str, str, str]:
        """What identifies the file."""
        return self.what, self.datacentre, self.path

    def touches(self, begin: int, end: int) -> bool:
        """Whether it had events of these hours."""
        return self.first is not None and self.last is not None and self.first < end and self.last >= begin


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A day, or the part of it that was asked for."""

    begin: int
    end: int
    absent: bool
    """It has events without a primary event."""
    registry: tuple[int, int]
    """Number and hash of its ids in the registry."""
    counts: list[tuple[int | None, str | None, str, int]]

    def clean(self) -> bool:
        """Whether nothing in it calls for another verification."""
        again = {*map(str, PROBLEMS), str(Class.PENDING)}
        return not any(kind in again for _, _, kind, _ in self.counts)


class _File(msgspec.Struct, frozen=True):
    version: int
    deployment: str
    pieces: list[Piece]
    files: list[FileSeen]


@dataclass(slots=True)
class Days:
    """What the last report knew, and what this one will say."""

    deployment: str
    files: Sequence[InputFile]
    pieces: dict[tuple[int, int], Piece] = field(default_factory=dict)
    seen: dict[tuple[str, str, str], FileSeen] = field(default_factory=dict)
    kept: list[Piece] = field(default_factory=list)
    ranges: dict[tuple[str, str, str], tuple[int, int]] = field(default_factory=dict)
    """Hours of the events of files, as this run has read them."""

    @classmethod
    def since(cls, before: Path, deployment: str, files: Sequence[InputFile]) -> Days:
        """The days of the report in this directory, if there is a usable one."""
        days = cls(deployment, files)
        try:
            found = msgspec.json.decode((before / DAYS_NAME).read_bytes(), type=_File)
        except (OSError, msgspec.MsgspecError):
            return days
        if found.version == VERSION and found.deployment == deployment:
            days.pieces = {(piece.begin, piece.end): piece for piece in found.pieces}
            days.seen = {each.name(): each for each in found.files}
        return days

    def changed(self) -> list[InputFile]:
        """Files that are new, or are not as they were."""
        return [each for each in self.files if not _same(self.seen.get(_name(each)), each)]

    def gone(self) -> list[FileSeen]:
        """Files that no longer exist."""
        now = {_name(each) for each in self.files}
        return [each for name, each in self.seen.items() if name not in now]

    def good(self, wanted: Iterable[tuple[int, int]], registry: Mapping[tuple[int, int], tuple[int, int]],
             fresh: Mapping[tuple[str, str, str], tuple[int, int]]) -> list[Piece]:  # fmt: skip
        """Of the pieces that are wanted those that need no look. ``fresh``: hours of events of changed files, as they
        are now; ``registry``: number and hash of the ids of each piece now."""
        changed = self.changed()
        before = [self.seen[_name(each)] for each in changed if _name(each) in self.seen]
        before += [each for each in self.gone() if each.what == "output"]
        primary = any(each.what == "primary" for each in changed)
        good = []
        for at in wanted:
            piece = self.pieces.get(at)
            if piece is None or not piece.clean() or (piece.absent and primary) or registry.get(at) != piece.registry:
                continue
            touched = any(each.touches(*at) for each in before)
            if not touched and not any(first < at[1] and last >= at[0] for first, last in fresh.values()):
                good.append(piece)
        return good

    def keep(self, pieces: Iterable[Piece]) -> None:
        """Copies the days' rows into the new report."""
        self.kept += pieces

    def write(self, disk: Disk, directory: Path) -> None:
        """Saves the state for the next run."""
        files = [self._seen_now(each) for each in self.files]
        found = _File(VERSION, self.deployment, sorted(self.kept, key=lambda piece: piece.begin), files)
        disk.replace(directory / DAYS_NAME, msgspec.json.encode(found) + b"\n")

    def _seen_now(self, file: InputFile) -> FileSeen:
        name = _name(file)
        spans = [span for span in (self.ranges.get(name), _span(self.seen.get(name))) if span is not None]
        first, last = (min(s[0] for s in spans), max(s[1] for s in spans)) if spans else (None, None)
        return FileSeen(what=file.what, datacentre=file.datacentre, path=file.path, bytes=file.bytes,
                        mtime_ns=file.mtime_ns, first=first, last=last)  # fmt: skip


def _name(file: InputFile) -> tuple[str, str, str]:
    return file.what, file.datacentre, file.path


def _same(seen: FileSeen | None, now: InputFile) -> bool:
    if now.what == "registry":  # its content is compared
        return True
    return seen is not None and (seen.bytes, seen.mtime_ns) == (now.bytes, now.mtime_ns)


def _span(seen: FileSeen | None) -> tuple[int, int] | None:
    if seen is None or seen.first is None or seen.last is None:
        return None
    return seen.first, seen.last


def pieces_of(from_hour: int, to_hour: int) -> list[tuple[int, int]]:
    """Cuts a range at the days' ends, UTC."""
    cuts = [from_hour, *range((from_hour // HOURS_A_DAY + 1) * HOURS_A_DAY, to_hour, HOURS_A_DAY), to_hour]
    return list(itertools.pairwise(cuts)) if to_hour > from_hour else []


def span_of(pieces: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """The span from the begin of the first to the end of the last."""
    return (pieces[0][0], pieces[-1][1]) if pieces else None


def counts_by_piece(
    pieces: Sequence[tuple[int, int]], counts: Iterable[ClassCount]
) -> dict[tuple[int, int], list[tuple[int | None, str | None, str, int]]]:
    """Counts of each piece; those without an hour belong to none."""
    starts = {hour: piece for piece in pieces for hour in range(*piece)}
    found: dict[tuple[int, int], list[tuple[int | None, str | None, str, int]]] = {piece: [] for piece in pieces}
    for each in counts:
        if each.hour is not None and each.hour in starts:
            found[starts[each.hour]].append((each.hour, each.datacentre, str(each.kind), each.count))
    return found


def as_counts(piece: Piece) -> list[ClassCount]:
    """The counts of a piece that was verified earlier."""
    totals: Counter[tuple[Any, Any, str]] = Counter()
    for hour, datacentre, kind, count in piece.counts:
        totals[hour, datacentre, kind] += count
    return [ClassCount(hour, datacentre, Class(kind), count) for (hour, datacentre, kind), count in totals.items()]
