"""Finds the days that need no new verification: verified before without a problem, and unchanged since.

The state of days and files is kept in one directory for all reports of a join (``days.json``). A day stays good while

- it was verified by the same deployment, and had neither problems nor pending events;
- no raw foreign log or output file with its events has changed, except by growing or being renamed or
  compressed, and no such output file is gone;
- everything added to logs and output belongs to other days;
- the registry has the same ids under the same tokens for the day;
- no new or changed primary log has a primary event that one of its events lacked.

A missing raw log changes nothing, as it was compared while it existed.

The hours of each file's events are kept, so that a file is not opened for other hours. Each run still verifies a few
hours of a good day, in turn, to notice decay.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from photon.adapters.logs.identity import COMPRESSED_SUFFIXES
from photon.config.disk import Disk
from photon.config.versioned_file import decoded
from photon.spark.classes import Class
from photon.spark.verify.advice import PROBLEMS
from photon.spark.verify.figures import HOURS_A_DAY, ClassCount
from photon.spark.verify.verdict import InputFile

DAYS_NAME = "days.json"
EVENT_SIDES = ("foreign", "output")
LOGS = ("foreign", "primary")
PIECES_MAX = 400  # days that are remembered
GONE_MAX = 4096  # missing logs that are remembered: their records cannot be compared, but are not inventions
# Keys without a primary event that are remembered of a run; if there are more, a new primary log causes its days to
# be verified again.
ABSENT_MAX = 1 << 19
SAMPLE_HOURS = 3
NS_PER_S = 1_000_000_000
# Findings that are expected if raw logs were deleted
RAW_GONE = (Class.LOG_GONE, Class.INVENTED, Class.SHOULD_BE_UNMATCHED)
Hours = tuple[int, int]  # since 1970, the second one excluded
Name = tuple[str, str, str]
Count = tuple[int | None, str | None, str, int]  # hour, datacentre, class, number


class Span(NamedTuple):
    """The first and last hour of a file's events; ``None`` if it has none. ``whole``: the file can be skipped when
    only other hours are verified. Unreadable lines of a log are compared only when they are new; output without event
    times is always read, since records in the logs must find their counterparts."""

    first: int | None
    last: int | None
    whole: bool

    def touches(self, hours: Hours) -> bool:
        """True if the file may have events in these hours."""
        return self.first is not None and self.last is not None and self.first < hours[1] and self.last >= hours[0]


class FileSeen(InputFile, frozen=True, kw_only=True):
    """A file as the last run saw it, with the hours of its events."""

    whole: bool = False
    gone: bool = False  # a log that an earlier run already missed

    def span(self) -> Span:
        return Span(self.first, self.last, self.whole)


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A day, or the part of it in the requested range."""

    begin: int
    end: int
    absent: bytes | None  # Keys without a primary event: their hashes (``key_filter``) as uint64. None if too many.
    registry: tuple[int, int]  # number and hash of its ids in the registry
    counts: list[Count]
    looked_ns: int = 0  # when it was last verified as a whole, possibly by samples
    sampled: int = 0  # number of its hours sampled since
    raw_gone: bool = False  # a raw log that may have had events of it was deleted since

    @property
    def hours(self) -> Hours:
        return self.begin, self.end

    def clean(self) -> bool:
        """True if none of its findings requires another verification."""
        again = {*map(str, PROBLEMS), str(Class.PENDING)}
        return not any(kind in again for _, _, kind, _ in self.counts)

    def sample(self) -> Hours:
        """Returns the hours to verify next as a sample."""
        begin = self.begin + self.sampled
        return begin, min(begin + SAMPLE_HOURS, self.end)

    def after_sample(self, found: Sequence[ClassCount], now_ns: int) -> Piece | None:
        """Returns the piece after a sample was verified; ``None`` if the sample's counts require another
        verification."""
        begin, end = self.sample()
        before = {each[:3]: each[3] for each in self.counts if each[0] is not None and begin <= each[0] < end}
        now = {(each.hour, each.datacentre, str(each.kind)): each.count for each in found}
        explained = self.raw_gone and all(each.kind in RAW_GONE for each in found if each.kind in PROBLEMS)
        if before != now and not explained:
            return None
        if end == self.end:
            return msgspec.structs.replace(self, sampled=0, looked_ns=now_ns)
        return msgspec.structs.replace(self, sampled=end - self.begin)


class _File(msgspec.Struct, frozen=True, tag_field="version", tag=2):
    deployment: str
    pieces: list[Piece]
    files: list[FileSeen]


@dataclass(slots=True)
class Days:
    """The state of days and files from earlier runs, and the changes by this run."""

    deployment: str
    files: Sequence[InputFile]
    pieces: dict[Hours, Piece] = field(default_factory=dict)
    seen: dict[Name, FileSeen] = field(default_factory=dict)
    kept: list[Piece] = field(default_factory=list)
    spans: dict[Name, Span] = field(default_factory=dict)  # spans of the files in their current state, if known
    grown: dict[Name, int] = field(default_factory=dict)  # files that are unchanged up to this length, and longer now
    fresh: dict[Name, Span] = field(default_factory=dict)  # spans of the files' new parts
    met: set[Hours] = field(default_factory=set)  # pieces with an event that lacked its primary event and has it now
    asked: set[Name] = field(default_factory=set)  # files that had to be read
    read: set[Name] = field(default_factory=set)  # logs that were read to their end

    def __post_init__(self) -> None:
        self.spans |= {
            name_of(each): Span(each.first, each.last, True) for each in self.files if each.first is not None
        }

    @classmethod
    def known(cls, directory: Path, deployment: str, files: Sequence[InputFile]) -> Days:
        """Loads the state in this directory, if it is usable."""
        days = cls(deployment, files)
        try:
            found = decoded((directory / DAYS_NAME).read_bytes(), _File)
        except (OSError, msgspec.MsgspecError):
            return days
        if found.deployment == deployment:
            days.pieces = {piece.hours: piece for piece in found.pieces}
            days.seen = {name_of(each): each for each in found.files}
            known = {name_of(each): days.seen[name_of(each)].span() for each in files if days._is_same(each)}
            days.spans = known | days.spans
        return days

    def _is_same(self, now: InputFile) -> bool:
        seen = self.seen.get(name_of(now))
        if seen is None or (seen.bytes, seen.mtime_ns) == (now.bytes, now.mtime_ns):
            return seen is not None
        return _compressed(seen, now)

    def note_growth(self, tail_at: Callable[[InputFile, int], str]) -> None:
        """Notes which changed files have only grown. ``tail_at`` returns the digest of the bytes before an offset in
        a file."""
        for each in self.changed(*EVENT_SIDES):
            seen = self.seen.get(name_of(each))
            if seen is not None and seen.tail and each.bytes > seen.bytes and tail_at(each, seen.bytes) == seen.tail:
                self.grown[name_of(each)] = seen.bytes

    def changed(self, *sides: str) -> list[InputFile]:
        """Returns the files of these sides that are new or have changed."""
        return [each for each in self.files if each.what in sides and not self._is_same(each)]

    def unknown(self) -> list[InputFile]:
        """Returns the changed files whose hours are not known yet."""
        return [each for each in self.changed(*EVENT_SIDES) if not self._is_known(name_of(each))]

    def _is_known(self, name: Name) -> bool:
        return name in self.spans and (name not in self.grown or name in self.fresh)

    def since(self, what: str) -> dict[tuple[str, str], int]:
        """Returns the offset at which each grown file's new part begins, by (datacentre, path), for one side."""
        return {
            (each.datacentre, each.path): self.grown[name_of(each)]
            for each in self.files
            if each.what == what and name_of(each) in self.grown
        }

    def reads(self, file: InputFile, hours: Iterable[Hours]) -> bool:
        """True if the file may have events of these hours, or events without an hour."""
        name = name_of(file)
        if not self._is_known(name):
            return True
        span = self.spans[name]
        return not span.whole or any(map(span.touches, hours))

    def absent(self) -> dict[Hours, bytes]:
        """Returns, for each piece, the keys whose primary event may still come."""
        return {at: piece.absent for at, piece in self.pieces.items() if piece.absent and piece.clean()}

    def good(self, wanted: Iterable[Hours], registry: Mapping[Hours, tuple[int, int]]) -> list[Piece]:
        """Returns the wanted pieces that need no verification. ``registry``: number and hash of each piece's ids."""
        untouched = self._untouched()
        return [piece for at in wanted if (piece := untouched.get(at)) and registry.get(at) == piece.registry]

    def _untouched(self) -> dict[Hours, Piece]:
        changed = [name for each in self.changed(*EVENT_SIDES) if (name := name_of(each)) not in self.grown]
        spans = [*self.fresh.values(), *(each.span() for each in self.gone("output"))]
        spans += [self.seen[name].span() for name in changed if name in self.seen]
        spans += [self.spans[name] for name in changed if name in self.spans]
        primary = bool(self.changed("primary"))
        return {
            at: piece
            for at, piece in self.pieces.items()
            if piece.clean()
            and at not in self.met
            and not (piece.absent is None and primary)
            and not any(span.touches(at) for span in spans)
        }

    def gone(self, *sides: str) -> list[FileSeen]:
        """Returns the files of these sides that an earlier run saw and that are gone now."""
        now = {name_of(each) for each in self.files}
        return [each for name, each in self.seen.items() if each.what in sides and name not in now]

    def keep(self, pieces: Iterable[Piece]) -> None:
        """Marks these pieces as good for later runs."""
        self.kept += pieces

    def write(self, disk: Disk, directory: Path, verified: Collection[Hours]) -> None:
        """Saves the state for the next run. ``verified``: the hours verified in this run; other days stay
        unchanged."""
        taken = [*verified, *(piece.hours for piece in self.kept)]
        others = [piece for at, piece in self._untouched().items() if not any(overlap(at, each) for each in taken)]
        gone = [each.span() for each in self.gone("foreign") if not each.gone]
        lost = any(not each.gone for each in self.gone("primary"))
        pieces = [
            msgspec.structs.replace(piece, raw_gone=True)
            if lost or any(span.touches(piece.hours) for span in gone)
            else piece
            for piece in sorted([*self.kept, *others], key=lambda piece: piece.begin)[-PIECES_MAX:]
        ]
        files = [each for file in self.files if (each := self._seen_now(file)) is not None]
        missed = sorted(self.gone(*LOGS), key=lambda each: each.mtime_ns or 0)[-GONE_MAX:]
        files += [msgspec.structs.replace(each, gone=True) for each in missed]
        found = _File(self.deployment, pieces, files)
        disk.make_dir(directory)
        disk.replace(directory / DAYS_NAME, msgspec.json.encode(found) + b"\n")

    def _seen_now(self, file: InputFile) -> FileSeen | None:
        """Returns what to remember of a file.

        Logs that were moved away before they were read, or could not be read, count as new in the next run.
        """
        name = name_of(file)
        if file.what in LOGS and name in self.asked - self.read and not self._is_same(file):
            return self.seen.get(name)
        first, last, whole = self.spans.get(name, Span(None, None, False))
        return FileSeen(**(msgspec.structs.asdict(file) | {"first": first, "last": last}), whole=whole)


def name_of(file: InputFile) -> Name:
    """Returns the file's identity; for a log, an identity that survives a rename."""
    return file.what, file.datacentre, file.identity or file.path


def _compressed(seen: InputFile, now: InputFile) -> bool:
    """True if ``now`` is the log ``seen`` in compressed form; compressors keep the modification time."""
    packed = [each.path.endswith(COMPRESSED_SUFFIXES) for each in (seen, now)]
    before, after = (each.mtime_ns or 0 for each in (seen, now))
    if after % NS_PER_S == 0:  # some tools keep only whole seconds
        before -= before % NS_PER_S
    return bool(now.identity) and packed == [False, True] and before == after


def overlap(one: Hours, other: Hours) -> bool:
    """True if both ranges have an hour in common."""
    return one[0] < other[1] and other[0] < one[1]


def merged(pieces: Iterable[Hours]) -> list[Hours]:
    """Merges adjacent pieces."""
    found: list[Hours] = []
    for begin, end in sorted(pieces):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return found


def pieces_of(from_hour: int, to_hour: int) -> list[Hours]:
    """Cuts a range into days at midnight UTC."""
    cuts = [from_hour, *range((from_hour // HOURS_A_DAY + 1) * HOURS_A_DAY, to_hour, HOURS_A_DAY), to_hour]
    return list(itertools.pairwise(cuts)) if to_hour > from_hour else []


def counts_by_piece(pieces: Sequence[Hours], counts: Iterable[ClassCount]) -> dict[Hours, list[Count]]:
    """Groups counts by piece; counts without an hour belong to no piece."""
    starts = {hour: piece for piece in pieces for hour in range(*piece)}
    found: dict[Hours, list[Count]] = {piece: [] for piece in pieces}
    for each in counts:
        if each.hour is not None and each.hour in starts:
            found[starts[each.hour]].append((each.hour, each.datacentre, str(each.kind), each.count))
    return found


def as_counts(piece: Piece) -> list[ClassCount]:
    """Returns the counts of a piece that was verified earlier."""
    totals: Counter[tuple[Any, Any, str]] = Counter()
    for hour, datacentre, kind, count in piece.counts:
        totals[hour, datacentre, kind] += count
    return [ClassCount(hour, datacentre, Class(kind), count) for (hour, datacentre, kind), count in totals.items()]
