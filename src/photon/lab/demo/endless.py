"""Generated streams: an endless one, as the containers' log generator writes it, and a whole day in the past.

Next to the logs is ``streams.json`` with the parameters that generate the same stream, and its truth, again.
Disk is bounded: the oldest files are deleted beyond ``keep`` bytes, and nothing more is written after ``stop_at``.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path

import msgspec

from photon.config.decoding import DECODE_ERRORS
from photon.config.errors import PhotonError, UsageError
from photon.config.stopping import until
from photon.config.versioned_file import decoded
from photon.lab.demo.feed import Logs, append
from photon.lab.demo.generator import Arriving, Generator, Line, Truth

ROLL_US = 15_000_000  # interval between new files
HOUR_US = 3_600_000_000
# The last clicks of a generated day come this long before midnight, so that all their lines belong to that day.
DAY_S, DAY_END_S = 86_400, 30
STEP_S = 0.1
CLICKS = 1 << 40  # of a stream, never reached; it is a parameter of the stream, so it must not change
STREAMS = "streams.json"
STREAMS_MAX = 1000  # largest number of streams in one directory: each start of the generator begins one


class CannotTell(PhotonError):
    """The directory does not tell which streams were written into it."""


class StreamMade(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parameters of a stream. ``rounds`` is ``None`` while it is being written, or if it was interrupted."""

    seed: int
    rate: float  # clicks a second
    epoch_us: int
    rounds: int | None = None

    def generator(self, *, keep_truth: bool) -> Generator:
        return Generator(
            self.seed, clicks=CLICKS, seconds=CLICKS / self.rate, epoch_us=self.epoch_us, keep_truth=keep_truth
        )


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="version", tag=1):
    streams: list[StreamMade]


@dataclass(slots=True)
class LogWriter:
    directories: Sequence[Path]  # each gets ``queries/`` and ``clicks/``
    stream: str  # prefix of the files' names
    keep: int  # bytes of one directory, beyond which its oldest files are deleted
    written: int = 0  # bytes, in each directory
    _roll: int = field(default=-1, init=False)

    def write(self, lines: Sequence[Line]) -> None:
        """Writes lines, which are in order of arrival. Raises OSError."""
        for roll, group in itertools.groupby(lines, lambda line: line.at_us // ROLL_US):
            each = list(group)
            self.written += sum(len(line.data) for line in each)
            for directory in self.directories:
                append(Logs(directory / "queries", directory / "clicks"), each, f"{self.stream}-{roll:06d}")
            if roll != self._roll:
                self._roll = roll
                self._forget()

    def _forget(self) -> None:
        for directory in self.directories:
            files = [path for name in ("queries", "clicks") for path in (directory / name).glob("*.log")]
            files.sort(key=lambda path: path.name.partition("-")[2])
            size = sum(path.stat().st_size for path in files)
            for path in files[: len(files) - 4]:  # except the current files and their predecessors
                if size <= self.keep:
                    break
                size -= path.stat().st_size
                path.unlink()


@dataclass(frozen=True, slots=True)
class FeedOptions:
    directories: Sequence[Path]
    rate: int
    seed: int
    keep: int
    stop_at: int


@dataclass(frozen=True, slots=True)
class DayOptions:
    directories: Sequence[Path]
    day: date
    clicks: int
    seed: int


def write_day(options: DayOptions) -> int:
    """Writes the logs of one day, a file for each hour, as a new stream; returns the number of lines in each
    directory. Raises UsageError, CannotTell, OSError."""
    before = _begin(options.directories)
    epoch_us = int(datetime.combine(options.day, datetime.min.time(), UTC).timestamp()) * 1_000_000
    made = StreamMade(
        seed=options.seed + len(before),
        rate=options.clicks / (DAY_S - DAY_END_S),
        epoch_us=epoch_us,
        rounds=options.clicks,
    )
    for directory in options.directories:
        for left in directory.glob(f"*/*-{len(before):04d}-*.log"):
            raise UsageError(f"{left}: is left over from an interrupted run; use an empty directory")
    lines = 0
    arriving = Arriving(itertools.islice(made.generator(keep_truth=False).rounds(), options.clicks))
    for hour in range(24):
        due = arriving.due((hour + 1) * HOUR_US - 1)
        lines += len(due)
        for directory in options.directories:
            append(Logs(directory / "queries", directory / "clicks"), due,
                   f"{len(before):04d}-{options.day}T{hour:02d}")  # fmt: skip
    # Written last, as an interrupted day has no truth.
    _write_streams(options.directories, [*before, made])
    return lines


def _begin(directories: Sequence[Path]) -> list[StreamMade]:
    """Creates the directories; returns their existing streams. Raises UsageError, CannotTell, OSError."""
    for directory in directories:
        for name in ("queries", "clicks"):
            (directory / name).mkdir(parents=True, exist_ok=True)
    before = read_streams(directories[0], missing_ok=True)
    if len(before) >= STREAMS_MAX:
        raise UsageError(f"{directories[0]}: {len(before)} streams were written there; use an empty directory")
    return before


async def feed(options: FeedOptions, stop: asyncio.Event, say: Callable[[str], None]) -> None:
    """Writes a new stream until ``stop`` or until ``stop_at`` bytes are written; started rounds are then completed at
    once. Raises UsageError, CannotTell, OSError."""
    before = _begin(options.directories)
    began_us = time.time_ns() // 1000
    made = StreamMade(seed=options.seed + len(before), rate=options.rate, epoch_us=began_us)
    _write_streams(options.directories, [*before, made])
    arriving = Arriving(made.generator(keep_truth=False).rounds())
    writer = LogWriter(options.directories, f"{len(before):04d}", options.keep)
    say(f"stream {len(before)}, seed {made.seed}: {made.rate} clicks/s into {len(options.directories)} directories")
    began = time.monotonic()
    while not stop.is_set() and writer.written < options.stop_at:
        writer.write(arriving.due(int((time.monotonic() - began) * 1e6)))
        await until(stop, STEP_S)
    writer.write(arriving.rest())
    _write_streams(options.directories, [*before, msgspec.structs.replace(made, rounds=arriving.taken)])
    say(f"{arriving.taken} clicks written, {writer.written} bytes in each directory")
    await stop.wait()


def truth_of(directory: Path) -> Truth:
    """The truth of all streams that were written into a directory. Raises CannotTell."""
    truth = Truth()
    for number, made in enumerate(read_streams(directory)):
        if made.rounds is None:
            raise CannotTell(
                f"{directory / STREAMS}: stream {number} is being written or was interrupted by a kill; stop the "
                "generator cleanly first"
            )
        generator = made.generator(keep_truth=True)
        for _ in itertools.islice(generator.rounds(), made.rounds):
            pass
        truth.joined |= generator.truth.joined
        truth.unmatched |= generator.truth.unmatched
        truth.clicks |= generator.truth.clicks
        truth.malformed += generator.truth.malformed
        truth.duplicates += generator.truth.duplicates
    return truth


def read_streams(directory: Path, *, missing_ok: bool = False) -> list[StreamMade]:
    """The streams written into a directory. Raises CannotTell."""
    path = directory / STREAMS
    try:
        return decoded(path.read_bytes(), _File).streams
    except FileNotFoundError:
        if missing_ok:
            return []
        raise CannotTell(f"{path}: no such file; create it with photon feed serve") from None
    except (OSError, *DECODE_ERRORS) as error:
        raise CannotTell(f"{path}: cannot be read ({error})") from None


def _write_streams(directories: Sequence[Path], streams: list[StreamMade]) -> None:
    content = msgspec.json.encode(_File(streams))
    for directory in directories:
        new = directory / f"{STREAMS}.new"
        new.write_bytes(content)
        os.replace(new, directory / STREAMS)
