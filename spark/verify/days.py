"""Which days need no new look: verified before without a problem, and nothing of theirs has changed.

What is known of days and files is kept in one directory for all reports of a join (``days.json``). A day is good as
long as
- it was verified by the same deployment, and had neither problems nor pending events;
- no raw foreign log and no output file that had events of it has changed, but by growing or being renamed or
  compressed, and no output file of it is gone;
- what is new in logs and output has no events of it;
- the registry has the same ids under the same tokens for it;
- no primary log that is new or has changed has a primary event that one of its events lacked.
A raw log that is gone changes nothing: it was compared while it was there.

Of each file the hours of its events are kept, so that nobody opens it for other hours. Some hours of one good day are
verified each time all the same, in turn, so that rot is noticed.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from photon.adapters.logs.forward import COMPRESSED_SUFFIXES
from photon.config.disk import Disk
from photon.config.versioned_file import decoded
from photon.spark.classes import Class
from photon.spark.verify.advice import PROBLEMS
from photon.spark.verify.figures import HOURS_A_DAY, ClassCount
from photon.spark.verify.verdict import InputFile

DAYS_NAME = "days.json"
EVENT_SIDES = ("foreign", "output")
LOGS = ("foreign", "primary")
PIECES_MAX = 400
"""Days that are remembered."""
GONE_MAX = 4096
"""Logs that are gone and remembered: their records cannot be compared, and are no inventions."""
ABSENT_MAX = 1 << 19
"""Keys without a primary event that are remembered of a run; where there are more, a new primary log is reason enough
to verify its days again."""
SAMPLE_HOURS = 3
NS_PER_S = 1_000_000_000
RAW_GONE = (Class.LOG_GONE, Class.INVENTED, Class.SHOULD_BE_UNMATCHED)
"""Findings that are no surprise where raw logs were deleted."""
Hours = tuple[int, int]
"""Since 1970, the second one excluded."""
Name = tuple[str, str, str]
Count = tuple[int | None, str | None, str, int]
"""Hour, datacentre, class, number."""


class Span(NamedTuple):
    """First and last hour of a file's events; None: it has none. ``whole``: it may be left unread for other hours.
    That a line of a log cannot be read is compared when the line is new; output that lacks event times is always
    read, since what is read of the logs must find its records."""

    first: int | None
    last: int | None
    whole: bool

    def touches(self, hours: Hours) -> bool:
        """Whether it has events of these hours."""
        return self.first is not None and self.last is not None and self.first < hours[1] and self.last >= hours[0]


class FileSeen(InputFile, frozen=True, kw_only=True):
    """A file as it was, with the hours of its events."""

    whole: bool = False
    gone: bool = False  # a log that an earlier run has missed already

    def span(self) -> Span:
        return Span(self.first, self.last, self.whole)


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A day, or the part of it that was asked for."""

    begin: int
    end: int
    absent: bytes | None
    """Keys that have no primary event: their hashes (``key_filter``) as uint64. None: too many."""
    registry: tuple[int, int]
    """Number and hash of its ids in the registry."""
    counts: list[Count]
    looked_ns: int = 0
    """When it was last verified as a whole, be it by samples."""
    sampled: int = 0
    """So many hours of it were looked at since."""
    raw_gone: bool = False
    """A raw log was deleted since that may have been of it."""

    @property
    def hours(self) -> Hours:
        return self.begin, self.end

    def clean(self) -> bool:
        """Whether nothing in it calls for another verification."""
        again = {*map(str, PROBLEMS), str(Class.PENDING)}
        return not any(kind in again for _, _, kind, _ in self.counts)

    def sample(self) -> Hours:
        """The hours that are next to be looked at."""
        begin = self.begin + self.sampled
        return begin, min(begin + SAMPLE_HOURS, self.end)

    def after_sample(self, found: Sequence[ClassCount], now_ns: int) -> Piece | None:
        """The piece after its sample gave these counts; None where they say that it must be verified again."""
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
    """What earlier runs knew, and what this one will say."""

    deployment: str
    files: Sequence[InputFile]
    pieces: dict[Hours, Piece] = field(default_factory=dict)
    seen: dict[Name, FileSeen] = field(default_factory=dict)
    kept: list[Piece] = field(default_factory=list)
    spans: dict[Name, Span] = field(default_factory=dict)
    """Of the files as they are now, as far as they are known."""
    grown: dict[Name, int] = field(default_factory=dict)
    """Files that are as they were up to this length, and longer now."""
    fresh: dict[Name, Span] = field(default_factory=dict)
    """Of what is new in them."""
    met: set[Hours] = field(default_factory=set)
    """Pieces of which an event that lacked its primary event has it now."""
    asked: set[Name] = field(default_factory=set)
    """Files that were to be read."""
    read: set[Name] = field(default_factory=set)
    """Logs that were read to their end."""

    def __post_init__(self) -> None:
        self.spans |= {
            name_of(each): Span(each.first, each.last, True) for each in self.files if each.first is not None
        }

    @classmethod
    def known(cls, directory: Path, deployment: str, files: Sequence[InputFile]) -> Days:
        """What is kept in this directory, if it is usable."""
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
        """``tail_at``: the digest of the bytes before a place in a file."""
        for each in self.changed(*EVENT_SIDES):
            seen = self.seen.get(name_of(each))
            if seen is not None and seen.tail and each.bytes > seen.bytes and tail_at(each, seen.bytes) == seen.tail:
                self.grown[name_of(each)] = seen.bytes

    def changed(self, *sides: str) -> list[InputFile]:
        """Files of these sides that are new, or are not as they were."""
        return [each for each in self.files if each.what in sides and not self._is_same(each)]

    def unknown(self) -> list[InputFile]:
        """Changed files of which nobody knows yet of which hours their events are."""
        return [each for each in self.changed(*EVENT_SIDES) if not self._is_known(name_of(each))]

    def _is_known(self, name: Name) -> bool:
        return name in self.spans and (name not in self.grown or name in self.fresh)

    def since(self, what: str) -> dict[tuple[str, str], int]:
        """(datacentre, path) -> from where on a file of this side is new."""
        return {
            (each.datacentre, each.path): self.grown[name_of(each)]
            for each in self.files
            if each.what == what and name_of(each) in self.grown
        }

    def reads(self, file: InputFile, hours: Iterable[Hours]) -> bool:
        """Whether it may have something of these hours, or without any."""
        name = name_of(file)
        if not self._is_known(name):
            return True
        span = self.spans[name]
        return not span.whole or any(map(span.touches, hours))

    def absent(self) -> dict[Hours, bytes]:
        """Pieces with keys whose primary event may come."""
        return {at: piece.absent for at, piece in self.pieces.items() if piece.absent and piece.clean()}

    def good(self, wanted: Iterable[Hours], registry: Mapping[Hours, tuple[int, int]]) -> list[Piece]:
        """Of the pieces that are wanted those that need no look. ``registry``: number and hash of the ids of each."""
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
        """Files of these sides that an earlier run has seen."""
        now = {name_of(each) for each in self.files}
        return [each for name, each in self.seen.items() if each.what in sides and name not in now]

    def keep(self, pieces: Iterable[Piece]) -> None:
        """These are good from now on."""
        self.kept += pieces

    def write(self, disk: Disk, directory: Path, verified: Collection[Hours]) -> None:
        """Saves the state for the next run. ``verified``: what this one looked at; other days stay as they are."""
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
        """A log that was moved away before it was read, or could not be, is as new the next time as it is now."""
        name = name_of(file)
        if file.what in LOGS and name in self.asked - self.read and not self._is_same(file):
            return self.seen.get(name)
        first, last, whole = self.spans.get(name, Span(None, None, False))
        return FileSeen(**(msgspec.structs.asdict(file) | {"first": first, "last": last}), whole=whole)


def name_of(file: InputFile) -> Name:
    """What identifies the file: of a log its identity, which it keeps when it is renamed."""
    return file.what, file.datacentre, file.identity or file.path


def _compressed(seen: InputFile, now: InputFile) -> bool:
    """The same log in another form: whoever compresses one keeps its time of change."""
    packed = [each.path.endswith(COMPRESSED_SUFFIXES) for each in (seen, now)]
    before, after = (each.mtime_ns or 0 for each in (seen, now))
    if after % NS_PER_S == 0:  # some tools keep whole seconds
        before -= before % NS_PER_S
    return bool(now.identity) and packed == [False, True] and before == after


def overlap(one: Hours, other: Hours) -> bool:
    """Whether they have an hour in common."""
    return one[0] < other[1] and other[0] < one[1]


def merged(pieces: Iterable[Hours]) -> list[Hours]:
    """With those that touch as one."""
    found: list[Hours] = []
    for begin, end in sorted(pieces):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return found


def pieces_of(from_hour: int, to_hour: int) -> list[Hours]:
    """Cuts a range at the days' ends, UTC."""
    cuts = [from_hour, *range((from_hour // HOURS_A_DAY + 1) * HOURS_A_DAY, to_hour, HOURS_A_DAY), to_hour]
    return list(itertools.pairwise(cuts)) if to_hour > from_hour else []


def counts_by_piece(pieces: Sequence[Hours], counts: Iterable[ClassCount]) -> dict[Hours, list[Count]]:
    """Counts of each piece; those without an hour belong to none."""
    starts = {hour: piece for piece in pieces for hour in range(*piece)}
    found: dict[Hours, list[Count]] = {piece: [] for piece in pieces}
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
