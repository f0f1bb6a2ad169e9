"""A follower of some logs of a directory, and of parts of huge ones, for one of several workers.

A *part* is a stretch of a plain log between the starts of two records, read separately from the rest of the log,
which is read from the end of its last part. If the log's bytes change, its parts are lost: the worker that reads the
log itself notices that too, and reads it from its start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest
from pathlib import Path
from typing import Any

from photon.adapters.contract import LINES, LogFile
from photon.adapters.logs.api import Block, LogPart, LogPosition
from photon.adapters.logs.follower import TURN_BYTES, Follower
from photon.adapters.logs.framing import LongRecord, frame
from photon.adapters.logs.identity import PROOF_BYTES, proof_of
from photon.adapters.logs.lag import Unread
from photon.adapters.logs.problems import ProblemKind
from photon.adapters.logs.reader import Source
from photon.adapters.logs.reading import BLOCK_BYTES, ReadBytes
from photon.adapters.logs.tracked_logs import TrackedLog

LOOK_BYTES = 1 << 16  # bytes read at a time to find the start of a record


@dataclass(slots=True)
class _Reading:
    """A part that this worker reads."""

    part: LogPart
    next: int
    proof: bytes  # of the bytes before next; empty if unknown
    long: LongRecord | None = None
    source: Source | None = None

    def close(self) -> None:
        if self.source is not None:
            self.source.close()
            self.source = None


class SharedFollower(Follower):
    """Reads the logs and parts it is given (``own``, ``own_part``), in turns."""

    def __init__(
        self, directory: Path, *, max_record: int = 1 << 20, parts: Iterable[LogPart] = (), **options: Any
    ) -> None:
        """Like Follower. ``parts``: read from the start."""
        super().__init__(directory, max_record=max_record, **options)
        self._max_record = max_record
        self._splittable = options.get("framing", LINES).splittable
        self._parts: dict[str, _Reading] = {}
        self._next_parts: deque[str] = deque()
        self._part_turn = 0
        self._logs_first = False
        self._looked: dict[tuple[int, int], tuple[int, int]] = {}  # file -> number of its last look, size then
        self._looks = 0
        self.lost_parts: list[str] = []  # units whose bytes no longer exist; the caller removes them
        for part in parts:
            self.own_part(part)

    # -- what is read here -----------------------------------------------------------------------------------------
    def own_part(self, part: LogPart) -> None:
        """Reads this part from its offset on."""
        self._parts[part.unit] = _Reading(part, part.offset, part.proof)
        self._next_parts.append(part.unit)

    def disown_part(self, unit: str) -> None:
        """Stops reading this part."""
        reading = self._parts.pop(unit, None)
        if reading is not None:
            reading.close()
        if unit in self._next_parts:
            self._next_parts.remove(unit)

    def look_at_held(self, most: int) -> None:
        """Examines the heads of up to ``most`` growing files that others read, those examined longest ago first.

        Readers of a log notice that its file was replaced by a longer one on the same inode. Final files never are.
        """
        if self._final:
            return
        files = [log.file for log in self._logs.all.values() if log.held and log.file is not None]
        held = [file for file in files if not file.gone]
        self._looked = {file.key: self._looked.get(file.key, (0, -1)) for file in held}
        grown = [file for file in held if self._looked[file.key][1] != file.size]
        for file in nsmallest(most, grown, key=lambda file: self._looked[file.key][0]):
            self._looks += 1
            self._looked[file.key] = (self._looks, file.size)
            self._files.identify(file)
        if self._touched:
            self._match()  # at once: no log may be read from a file known to hold another one

    def caught_up(self) -> bool:
        """Like Follower.caught_up, parts included."""
        return not self._next_parts and super().caught_up()

    def unread_now(self) -> Unread:
        """Like Follower.unread_now, parts included."""
        return replace(super().unread_now(), next_part=self._next_part)

    def _next_part(self) -> str:
        logs = (self._logs.all.get(self._parts[unit].part.identity) for unit in self._next_parts)
        return next((log.path for log in logs if log is not None and log.file is not None and not log.file.gone), "")

    def backlog(self) -> tuple[int, int]:
        """Like Follower.backlog, parts included."""
        read, known = super().backlog()
        for reading in self._parts.values():
            known += reading.part.end - reading.part.begin
            read += reading.next - reading.part.begin
        return read, known

    def close(self) -> None:
        for reading in self._parts.values():
            reading.close()
        super().close()

    # -- reading ---------------------------------------------------------------------------------------------------
    def poll(self, max_bytes: int, *, final: bool = False) -> list[Block]:
        """As in Follower. Logs and parts take turns, so that new lines do not wait for a backlog."""
        self._logs_first = not self._logs_first
        blocks = super().poll(max_bytes) if self._logs_first else self._poll_parts(max_bytes)
        if not blocks:
            blocks = self._poll_parts(max_bytes) if self._logs_first else super().poll(max_bytes)
        if not blocks and final:
            blocks = super().poll(max_bytes, final=True)
        return blocks

    def _poll_parts(self, max_bytes: int) -> list[Block]:
        blocks: list[Block] = []
        got = stuck = 0
        while got < max_bytes and stuck < len(self._next_parts):
            unit = self._next_parts[0]
            reading = self._parts[unit]
            before = reading.next
            blocks += self._read_part(reading, min(BLOCK_BYTES, max_bytes))
            if unit not in self._parts:
                continue  # it is lost
            got += reading.next - before
            self._part_turn += reading.next - before
            stuck = 0 if reading.next > before else stuck + 1
            if reading.next >= reading.part.end:
                self._next_parts.popleft()
                reading.close()
                self._part_turn = 0
            elif stuck or self._part_turn >= TURN_BYTES:
                self._next_parts.rotate(-1)
                self._part_turn = 0
            elif got >= max_bytes and not blocks:
                got = 0  # within one record that is longer than the limit
        return blocks

    def _read_part(self, reading: _Reading, want: int) -> list[Block]:
        part = reading.part
        log = self._logs.all.get(part.identity)
        if log is None or log.file is None:
            return []  # not seen yet; or gone, and may reappear
        left = part.end - reading.next
        before = min(PROOF_BYTES, reading.next)
        try:
            source = self._part_source(reading, log)
            if source is None:
                return []
            while True:
                if source.compressed:  # which is read sequentially
                    raw = source.read(reading.next - before, before + min(want, left))
                    prefix, data = raw[:before], raw[before:]
                else:
                    data = source.read(reading.next, min(want, left))
                    prefix = source.read(reading.next - before, before)
                if len(data) >= left or len(data) < want or reading.long or b"\n" in data or want > self._max_record:
                    break
                want = min(want * 2, self._max_record + BLOCK_BYTES)
            read = ReadBytes(reading.next, prefix, data)
            same = reading.proof in (b"", proof_of(prefix))
            whole = len(data) == min(want, left) and same and self._is_same(log, source)
        except OSError as error:
            self._problems.tell(ProblemKind.UNREADABLE, log.path, f"cannot be read ({error.strerror})")
            reading.close()
            return []
        framed = frame(data, reading.next, max_record=self._max_record, long=reading.long)
        if not whole or (reading.next + len(data) == part.end and framed.next != part.end):
            self._doubt(reading, log, source)
            return []
        reading.next, reading.long, reading.proof = framed.next, framed.long, read.proof(framed.next)
        file = LogFile(log.path, log.header)
        return [
            Block(
                part.identity,
                file,
                piece.offset,
                piece.data,
                piece.end,
                piece.oversized,
                part.unit,
                read.proof(piece.end),
                read.ahead_of(piece.offset),
            )
            for piece in framed.pieces
        ]

    def _part_source(self, reading: _Reading, log: TrackedLog) -> Source | None:
        if reading.source is None and log.file is not None and not log.file.gone:
            reading.source = self._sources.open(log.file)
        return reading.source

    def _doubt(self, reading: _Reading, log: TrackedLog, source: Source) -> None:
        """Handles a part whose bytes differ or are incomplete: the file holds another log now, or was cut."""
        unfinished = source.cut_short()
        reading.close()
        file = log.file
        if file is not None and not file.gone:
            self._files.look_again(file)
            self._match()
        if log.file is None or log.file is not file or file.gone or unfinished:
            return  # the log may reappear under another name, or whole
        self._lose_part(reading, log)

    def _is_same(self, log: TrackedLog, source: Source) -> bool:
        """True if the file still begins like the log; call it after its bytes were read."""
        head = log.file.head if log.file is not None else None
        if head is None or head.identity != log.identity:
            return False
        if source.compressed:
            return True
        return source.read(head.fingerprint_at, len(head.fingerprint)) == head.fingerprint

    def _lose_part(self, reading: _Reading, log: TrackedLog) -> None:
        part = reading.part
        self._problems.tell(
            ProblemKind.VANISHED,
            log.path,
            f"bytes {reading.next} to {part.end} were gone or changed before they were read",
            again=True,
        )
        self.lost_parts.append(part.unit)
        self.disown_part(part.unit)

    # -- huge logs -------------------------------------------------------------------------------------------------
    def plain_size(self, identity: str) -> int:
        """Returns the size of a log that can be read at any place; 0 if it is compressed, gone, or not local."""
        log = self._logs.all.get(identity)
        if log is None or log.file is None or log.file.gone or log.file.compressed:
            return 0
        if not self._splittable or self._there is not None:
            return 0
        return max(log.file.size, 0)

    def huge(self, least: int) -> list[str]:
        """Returns plain logs that are read here and have at least ``least`` unread bytes."""
        return [i for i, log in self._behind.items() if self.plain_size(i) - log.next >= least]

    def placed(self, position: LogPosition) -> LogPosition:
        """Returns the position with current path and header, and not before the first record."""
        log = self._logs.all[position.identity]
        offset = max(position.offset, log.data_start)
        proof = position.proof if offset == position.offset else b""
        return LogPosition(log.identity, log.path, offset, log.header, proof)

    def begins(self, identity: str, begin: int, places: Sequence[int]) -> list[LogPosition]:
        """Returns the first start of a record at or after each place, in order, each once, and after ``begin``.

        Places after which no record begins are left out. Raises OSError.
        """
        log = self._logs.all.get(identity)
        if log is None or log.file is None or log.file.compressed or not self._splittable:
            return []
        source = self._sources.open(log.file)
        if source is None:
            return []
        try:
            if not self._is_same(log, source):
                return []
            found: list[LogPosition] = []
            for place in sorted(places):
                at = _begin_behind(source, place)
                if at is not None and at > (found[-1].offset if found else max(begin, log.data_start)):
                    front = min(PROOF_BYTES, at)
                    proof = proof_of(source.read(at - front, front))
                    found.append(LogPosition(identity, log.path, at, log.header, proof))
            return found
        finally:
            source.close()


def _begin_behind(source: Source, place: int) -> int | None:
    at = max(0, place - 1)
    while data := source.read(at, LOOK_BYTES):
        newline = data.find(b"\n")
        if newline >= 0:
            return at + newline + 1
        at += len(data)
    return None
