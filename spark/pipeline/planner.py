"""Plans the input of the next batch. Pure.

The bytes of a log are decided once, in order: a stretch begins where the last one ended. A large log is cut into
stretches; only the last one has an open end, since only there may a record be unfinished. Cuts are so far before the
log's end that the record at a cut is either complete, or longer than the limit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from photon.adapters.logs.slices import StandingLog
from photon.config.clock import NS_PER_S
from photon.spark.pipeline.journal import PARTS_MAX, LogAt, Part, Reached, Rest, Stretch

FORGET_S = 30 * 24 * 3600.0  # a log that was not listed for this long is forgotten
PART_BYTES = 16 << 20
ROW_BYTES = 600  # the assumed size of a waiting event


@dataclass(frozen=True, slots=True)
class PlanLimits:
    part_bytes: int = PART_BYTES  # bytes of foreign records in a part
    packed_bytes: int = 32 << 20  # content of an uncuttable log in a part
    batch_bytes: int = 256 << 20
    reread_bytes: int = 64 << 20  # limit of a rereading batch, for which new events wait
    batch_rows: int = 200_000  # waiting events retried in a batch
    waiting_bytes: int = 10 << 30  # limit of waiting events, beyond which nothing new is read
    max_record: int = 1 << 20
    last_line_after_s: float = 60.0


def begun(log: StandingLog, now_ns: int) -> LogAt:
    """Returns the state of an unread log."""
    return LogAt(
        log.identity, log.path, log.header, log.data_start, log.splittable, log.data_start, -1, 0, False, now_ns
    )


def parts_of(
    logs: Iterable[StandingLog],
    known: Mapping[str, LogAt],
    due: Sequence[Rest],
    limits: PlanLimits,
    now_ns: int,
) -> list[Part]:
    """Returns the parts of the next batch. ``known``: logs by identity; ``due``: waiting events to retry."""
    stretches: list[tuple[Stretch, int]] = []
    left = limits.batch_bytes
    for log in logs:
        at = known.get(log.identity) or begun(log, now_ns)
        if not _has_more(log, at, limits, now_ns):
            continue
        at = msgspec.structs.replace(
            at, path=log.path, splittable=log.splittable, size=log.size, mtime_ns=log.mtime_ns, seen_ns=now_ns
        )
        for stretch, size in cut(at, at.offset, limits):
            if left <= 0:
                break
            stretches.append((stretch, size))
            left -= size
    return packed(stretches, due, limits)


def unread(
    logs: Iterable[StandingLog], known: Mapping[str, LogAt], limits: PlanLimits, now_ns: int
) -> list[StandingLog]:
    """Returns the logs that are not decided up to their listed end."""
    return [log for log in logs if _has_more(log, known.get(log.identity) or begun(log, now_ns), limits, now_ns)]


def left_of(log: StandingLog, known: Mapping[str, LogAt]) -> int:
    """Returns the undecided bytes on disk. For a log that cannot be cut, these are all bytes until it is read to its
    end."""
    at = known.get(log.identity)
    return log.size if at is None or not log.splittable else max(log.size - at.offset, 0)


def _has_more(log: StandingLog, at: LogAt, limits: PlanLimits, now_ns: int) -> bool:
    if not at.ended or (log.size, log.mtime_ns) != (at.size, at.mtime_ns):
        return True
    # Its last line was unfinished when read, but counts as a record by now.
    rests_ns = log.mtime_ns + int(limits.last_line_after_s * NS_PER_S)
    return log.splittable and log.size > at.offset and at.seen_ns <= rests_ns < now_ns


def cut(at: LogAt, begin: int, limits: PlanLimits, stop: int | None = None) -> Iterable[tuple[Stretch, int]]:
    """Yields the log's stretches from ``begin`` to ``stop`` (default: its end), each with its approximate size."""
    if not at.splittable:
        yield Stretch(at, begin, stop, limits.packed_bytes), max(at.size, 1)
        return
    margin, size = limits.max_record + 1, at.size if stop is None else stop
    while begin + limits.part_bytes + margin < size:
        end = begin + limits.part_bytes
        yield Stretch(at, begin, end, limits.part_bytes + margin), limits.part_bytes
        begin = end
    yield Stretch(at, begin, stop, limits.part_bytes + margin), max(size - begin, 1)


def packed(stretches: Sequence[tuple[Stretch, int]], due: Sequence[Rest], limits: PlanLimits) -> list[Part]:
    parts: list[Part] = []
    room = 0
    for stretch, size in stretches:
        if room < size:
            parts.append(Part([], []))
            room = limits.part_bytes
        parts[-1].stretches.append(stretch)
        room -= size
    for rest in due:
        size = len(rest.rows) * ROW_BYTES
        if room < size:
            parts.append(Part([], []))
            room = limits.part_bytes
        parts[-1].waiting.append(rest)
        room -= size
    return parts[:PARTS_MAX]


def advanced(parts: Iterable[Part], reached: Iterable[Sequence[Reached]]) -> list[LogAt]:
    """Returns the logs' positions after these parts were read up to ``reached``."""
    found: dict[str, LogAt] = {}
    short: set[str] = set()  # logs of which a stretch ended before its end: later ones are read again
    for part, each in zip(parts, reached, strict=True):
        for stretch, came in zip(part.stretches, each, strict=True):
            log = stretch.log
            if log.identity in short:
                continue
            if stretch.end is not None and came.offset < stretch.end:
                short.add(log.identity)
            found[log.identity] = msgspec.structs.replace(
                log, offset=came.offset, header=came.header, ended=came.ended, proof=came.proof
            )
    return list(found.values())


def forgotten(known: Mapping[str, LogAt], listed: Collection[str], now_ns: int) -> list[str]:
    """Returns the identities of logs that are permanently gone."""
    oldest = now_ns - int(FORGET_S * NS_PER_S)
    return [name for name, log in known.items() if name not in listed and log.seen_ns < oldest]
