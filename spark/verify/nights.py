"""The list of verified days, with their numbers of events and whether they are closed. The next night starts from it.

It is kept in ``nights.json`` next to ``days.json``, for all reports of a join. ``days.json`` is only valid for one
fingerprint of the deployment, and only saves work; ``nights.json`` outlives changed settings, so that no day is
forgotten.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec

from photon.config.decoding import DECODE_ERRORS
from photon.config.disk import Disk
from photon.config.errors import UsageError
from photon.config.versioned_file import decoded
from photon.spark.verify.days import Hours
from photon.spark.verify.figures import HOURS_A_DAY, hour_text

NIGHTS_NAME = "nights.json"
NIGHTS_MAX = 400
USUAL_OF = 14  # the usual number is computed from at most this many earlier days
# A first run goes back no further: old logs may be deleted, and a wrong event time may be of any year.
FIRST_DAYS_MAX = 30


class Night(msgspec.Struct, frozen=True, kw_only=True):
    """A day, or a part of one, as it was last verified."""

    begin: int  # hours since 1970
    end: int  # excluded
    events: dict[str, int]  # lines of the raw foreign logs, by datacentre
    files: dict[str, dict[str, int]]  # counts of files by datacentre and log side
    closed: bool  # all of it was judged


class _File(msgspec.Struct, frozen=True, tag_field="version", tag=1):
    nights: list[Night]


@dataclass(slots=True)
class Nights:
    """The nights, ordered by their first hour."""

    nights: list[Night]

    @classmethod
    def known(cls, directory: Path) -> Nights:
        """Reads the nights kept in this directory. Raises UsageError for an unreadable file, OSError."""
        path = directory / NIGHTS_NAME
        try:
            return cls(decoded(path.read_bytes(), _File).nights)
        except FileNotFoundError:
            return cls([])
        except DECODE_ERRORS as error:
            raise UsageError(
                f"{path}: the list of closed days cannot be read ({error}); remove it and give --from"
            ) from None

    def at(self, hours: Hours) -> Night | None:
        """Returns the night of exactly these hours."""
        return next((each for each in self.nights if (each.begin, each.end) == hours), None)

    def usual(self, hours: Hours, datacentre: str) -> int | None:
        """Returns the datacentre's median number of events in earlier closed nights of this length, if any."""
        earlier = [
            each.events[datacentre]
            for each in self.nights
            if each.closed and each.end <= hours[0] and each.end - each.begin == hours[1] - hours[0]
            and datacentre in each.events
        ]  # fmt: skip
        return int(median(earlier[-USUAL_OF:])) if earlier else None

    def had_files(self, datacentre: str, side: str) -> bool:
        """True if any night found files of this log side in the datacentre."""
        return any(each.files.get(datacentre, {}).get(side) for each in self.nights)

    def first_open(self) -> int | None:
        """Returns where the closed nights end: the first hour, from the oldest night, that none of them covers;
        ``None`` if no night is known."""
        hour = self.nights[0].begin if self.nights else None
        for each in self.nights:
            assert hour is not None
            if each.begin > hour or not each.closed:
                return min(hour, each.begin)
            hour = max(hour, each.end)
        return hour

    def add(self, nights: Sequence[Night]) -> None:
        """Adds nights, replacing those within the same hours. ``nights``: in order, without common hours."""
        begins = [each.begin for each in nights]

        def replaced(old: Night) -> bool:
            at = bisect_right(begins, old.begin) - 1
            return at >= 0 and old.end <= nights[at].end

        kept = [each for each in self.nights if not replaced(each)]
        self.nights = sorted([*kept, *nights], key=lambda each: (each.begin, each.end))

    def write(self, disk: Disk, directory: Path) -> None:
        disk.make_dir(directory)
        found = _File(self.nights[-NIGHTS_MAX:])
        disk.replace(directory / NIGHTS_NAME, msgspec.json.encode(found) + b"\n")


class Chosen(NamedTuple):
    """The hours to verify, and a line that says why; empty if the hours were given."""

    begin: int
    end: int
    why: str = ""


def latest_hour(now_ns: int, patience_s: float) -> int:
    """Returns the hour before which every event that was read in time has a verdict: ``patience_s`` plus an hour
    ago."""
    return int(now_ns / 1e9 - patience_s - 3600) // 3600


def chosen(begin: int | None, end: int | None, latest: int, nights: Nights, first_read: Sequence[int]) -> Chosen:
    """Returns the range to verify: ``begin`` and ``end`` if given, otherwise from the oldest day that is not closed
    to the last whole day (UTC) before the hour ``latest``. ``first_read``: the first hour of each dispatcher's
    ledger. Raises UsageError for a range that is empty or cannot be judged yet."""
    if end is not None and end > latest:
        raise UsageError(
            f"--to {hour_text(end)}: events before that time may still wait for their primary event (unmatched_after "
            f"plus an hour); name {hour_text(latest).replace(' ', 'T')} or earlier"
        )
    if end is None:
        end = latest if begin is not None else latest - latest % HOURS_A_DAY
    if begin is not None:
        if begin >= end:
            raise UsageError(f"--from {hour_text(begin)}: must be before {hour_text(end)}, the end of the range")
        return Chosen(begin, end)
    last = (end - 1) // HOURS_A_DAY * HOURS_A_DAY
    begin = nights.first_open()
    if begin is not None and begin < end:
        begin -= begin % HOURS_A_DAY
        return Chosen(begin, end, f"from {hour_text(begin)}: the oldest day that is not closed")
    if begin is not None:
        return Chosen(last, end, f"from {hour_text(last)}: all days are closed, so the last day is verified again")
    if not first_read:
        return Chosen(
            last, end, f"from {hour_text(last)}: the first run, without a dispatcher's ledger on this machine"
        )
    first, oldest = min(first_read), last - (FIRST_DAYS_MAX - 1) * HOURS_A_DAY
    if first < oldest:
        return Chosen(oldest, end, f"from {hour_text(oldest)}: the first run goes back {FIRST_DAYS_MAX} days; the "
                      f"dispatchers' ledgers begin at {hour_text(first)}: name --from for earlier days")  # fmt: skip
    begin = min(first - first % HOURS_A_DAY, last)
    return Chosen(begin, end, f"from {hour_text(begin)}: the first run, and the dispatchers' ledgers begin there")


def files_by_side(files: Iterable[tuple[str, str]], datacentres: Iterable[str]) -> dict[str, dict[str, int]]:
    """Counts ``files``, each a (side, datacentre), by datacentre and side."""
    found = {name: dict.fromkeys(("foreign", "primary", "output"), 0) for name in datacentres}
    for side, datacentre in files:
        if datacentre in found and side in found[datacentre]:
            found[datacentre][side] += 1
    return found


Events = Mapping[Hours, Mapping[str, int]]  # piece -> datacentre -> lines of its raw foreign logs
