"""Finds the log a file holds by its bytes: logs that begin alike, copies, and logs that reappear under another name.

A log's name and first record are its identity, and two logs may share both: if a writer begins each file with the
same line, say. And one log may have many names: rotated, moved, linked, copied. The bytes before a position prove
that a file is the log that was read. For two existing files, the first bytes, and the last ones that both have, show
whether one may be a copy of the other; if they differ, one of them is another log.

So a file is read unless it is known to hold only bytes that another one holds. A mistake costs time but no record:
event ids are made from the bytes (``place_ids``), so bytes that are read twice are recognised.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from itertools import islice

from xxhash import xxh3_128_digest

from photon.adapters.logs.assignment import GRACE_SCANS, Logs
from photon.adapters.logs.files import Files
from photon.adapters.logs.identity import (
    ALIKE_MARK,
    HEAD_BYTES,
    IDENTITY_BYTES,
    PROOF_BYTES,
    RELATIVES_MAX,
    Head,
    are_copies,
    may_be_copies,
    numbered,
    proof_of,
    record_of,
    takes,
)
from photon.adapters.logs.open_files import OpenFiles
from photon.adapters.logs.problems import ProblemKind, ProblemReporter
from photon.adapters.logs.reader import Source
from photon.adapters.logs.tracked_logs import TrackedFile, TrackedLog

MET_MAX = 1 << 16  # final logs whose beginnings are remembered
LOOKS_MAX = 8  # most of these logs for which a new file is opened
AT_HAND_MAX = 2


class Alike:
    """Assigns files to the logs whose bytes they hold."""

    def __init__(self, files: Files, logs: Logs, sources: OpenFiles, problems: ProblemReporter) -> None:
        self._files = files
        self._logs = logs
        self._sources = sources
        self._problems = problems
        self._at_hand: dict[tuple[int, int], Source] = {}  # files that are being compared
        self._met: dict[bytes, str] = {}  # digest of a final log's first record -> its path
        # Logs -> scans that saw them unchanged. One of their files is cut short and may be an incomplete copy of a
        # known one, or was compared only at its ends.
        self.unsure: dict[str, int] = {}

    def tell_apart(self, touched: Collection[str], *, final: bool = False) -> None:
        """Compares files that seem to hold the same log, and assigns each to the log that it really holds. Call it
        before these logs are assigned files.

        ``final``: files that are being compressed will not grow any more.
        """
        try:
            self._tell_apart(touched, final)
        finally:
            self._close()

    def _tell_apart(self, touched: Collection[str], final: bool) -> None:
        self.unsure.update({first: scans + 1 for first, scans in self.unsure.items() if first not in touched})
        settled = {first for first, scans in self.unsure.items() if final or scans >= GRACE_SCANS}
        for identity in sorted(settled.union(touched)):
            first = identity.partition(ALIKE_MARK)[0]
            files = self._files.claims(first)
            if identity != first and not self._files.claims(identity):  # perhaps it was compressed in the meantime
                log = self._logs.all.get(identity)
                for file in files if log is not None else ():
                    if file.packed and self._holds(log, file):
                        self._files.hold(file, identity)
            elif identity == first and len(files) > 1:
                self._sort_out(first, files, final or first in settled)
        for identity in list(touched):  # including those claimed just now
            self._measure(self._files.claims(identity))

    def recognise(self, file: TrackedFile, head: Head) -> str:
        """Returns the identity of the log that a file holds: a known log with its bytes, or a log of its name."""
        if head.identity in self._logs.all or self._files.another(head.identity, file) is not None:
            return head.identity
        before, file.head = file.head, head  # for the comparison
        glanced = file.glanced
        looks, other_log = 0, ""
        try:
            for identity in self._relatives(record_of(head.identity)):
                log, there = self._logs.all.get(identity), self._files.another(identity, file)
                begin = head.begin if there is None or there.head is None else there.head.begin
                alike = may_be_copies(head.begin, begin)
                if alike and (looks := looks + 1) > LOOKS_MAX:
                    break
                holds = self._holds(log, file) if alike else False
                if holds is None and there is not None:
                    holds = not self._differ(there, file)
                if holds:
                    return identity
                other_log = there.path if there is not None else log.path if log is not None else ""
        finally:
            file.head, file.glanced = before, glanced
            self._close()
        if other_log:
            what = f"begins with the same record as {other_log} but then differs: both are read"
            self._problems.tell(ProblemKind.ALIKE, file.path, what, aloud=False)
        return head.identity

    def met(self, log: TrackedLog, data: bytes) -> None:
        """Reports a final log that begins like another one read before; the two are not compared further.

        ``data``: its first bytes.
        """
        record = data.lstrip(b"\r\n").split(b"\n", 1)[0]
        if record and len(self._met) < MET_MAX:
            other = self._met.setdefault(xxh3_128_digest(record[:IDENTITY_BYTES]), log.path)
            if other != log.path:
                what = f"begins with the same record as {other}: both are read"
                self._problems.tell(ProblemKind.ALIKE, log.path, what, aloud=False)

    def known_as(self, log: TrackedLog, file: TrackedFile) -> str | None:
        """Returns another known log that begins like ``log`` and whose bytes ``file`` holds, if there is one."""
        names = (name for name in self._relatives(record_of(log.identity)) if not self._files.claims(name))
        return next((name for name in names if self._holds(self._logs.all.get(name), file)), None)

    def _relatives(self, record: str) -> list[str]:
        """Returns identities of logs that begin with this record, first those that files hold now."""
        in_sight = islice(self._files.claimed(record), RELATIVES_MAX // 2)
        return list(dict.fromkeys((*in_sight, *islice(self._logs.of_record(record), RELATIVES_MAX))))

    def _sort_out(self, first: str, files: Sequence[TrackedFile], final: bool) -> None:
        self.unsure.pop(first, None)
        by_age = sorted(files, key=lambda file: (file.packed, file.mtime_ns, file.path))
        log = self._logs.all.get(first)
        keeper = self._keeper(log, by_age)
        # If another file is proved to hold the bytes that were read from this one, this one was overwritten by
        # another log.
        cut = log.file if log is not None and log.file is not keeper and self._is_cut(log, keeper) else None
        self._measure(files)
        by_reach = sorted((file for file in files if file is not cut), key=lambda file: (*file.reach(), file.path))
        best = next(file for file in by_reach if file is keeper or not self._differ(keeper, file, at_rest=final))
        others = [
            file
            for file in by_age
            if file is cut or (file is not best and file is not keeper and self._differ(best, file, at_rest=final))
        ]
        if not final and any(file.glanced for file in files if file is not keeper):
            self.unsure[first] = 0
        if others:
            for file in by_age:  # one that grew may be another file on the same inode, with a different start
                self._files.identify(file)
            if len(still := self._files.claims(first)) < len(files):
                others = []
                if len(still) > 1:
                    self._sort_out(first, still, final)
        for file in others:
            self._name(first, file, keeper, final)

    def _is_cut(self, log: TrackedLog, keeper: TrackedFile) -> bool:
        file = log.file
        if file is None or file.packed or self._holds(log, file):
            return False
        return bool(self._holds(log, keeper))

    def _measure(self, files: Sequence[TrackedFile]) -> None:
        """Notes how many bytes each compressed file holds, counting up to HEAD_BYTES."""
        for file in files if len(files) > 1 else ():
            if file.packed and file.measured != (file.size, file.mtime_ns):
                file.head_length = len(self._read(file, 0, HEAD_BYTES))
                file.measured = file.size, file.mtime_ns

    def _keeper(self, log: TrackedLog | None, files: Sequence[TrackedFile]) -> TrackedFile:
        """Returns the file that keeps the log's identity; prefers plain files, which are cheap to open."""
        undecided = []
        followed = log.file if log is not None else None
        for file in sorted(files, key=lambda file: (file.packed, file is not followed)):
            holds = self._holds(log, file)
            if holds:
                return file
            if holds is None:
                undecided.append(file)
        return followed if followed in undecided else (undecided or files)[0]

    def _name(self, first: str, file: TrackedFile, keeper: TrackedFile, final: bool) -> None:
        undecided = []
        for name in self._relatives(record_of(first)):
            if name == first:
                continue
            claims = self._files.claims(name)
            if claims and self._differ(claims[0], file):
                continue
            log = self._logs.all.get(name)
            holds = True if claims else self._holds(log, file)
            if holds:
                self._files.hold(file, name)
                return
            if holds is None and log is not None:
                undecided.append(log)
        # If more of a log was read than the file has, it is another log, unless the file is still being compressed.
        if not final and file.packed and any(log.proof and self._is_cut_short(file, log) for log in undecided):
            self.unsure[first] = 0
            return
        if unproved := [log for log in undecided if not log.proof]:
            self._files.hold(file, unproved[0].identity)
            return
        what = f"begins like {keeper.path} but then differs: it is another log, and is also read"
        self._problems.tell(ProblemKind.ALIKE, file.path, what, again=True)
        number = 1
        while (name := numbered(first, number)) in self._logs.all or self._files.claims(name):
            number += 1
        self._files.hold(file, name)

    def _holds(self, log: TrackedLog | None, file: TrackedFile) -> bool | None:
        """True if the file holds the bytes that were read of the log; ``None`` if that is not known (yet)."""
        if log is None or not log.proof:
            return None
        front = min(PROOF_BYTES, log.next)
        data = self._read(file, log.next - front, front)
        return None if len(data) < front else proof_of(data) == log.proof

    def _is_cut_short(self, file: TrackedFile, log: TrackedLog) -> bool:
        """True if a compressed file with fewer bytes than were read of the log ends in the middle of its stream."""
        source = self._sources.open(file)
        if source is None:
            return False
        try:
            return not source.read(log.next - 1, 1) and source.cut_short() and not source.damage()
        except OSError:  # reported when it was compared
            return False
        finally:
            source.close()

    def _differ(self, one: TrackedFile, other: TrackedFile, *, at_rest: bool = False) -> bool:
        """True if neither can be a complete or partial copy of the other, by their first and last common bytes.

        All bytes are compared once ``other`` is at rest, or unchanged since the last comparison: reading a growing
        copy at each of its changes would cost too much.
        """
        now = (one.key, other.size, other.mtime_ns)
        if other.compared == now:
            return False
        at_rest = at_rest or other.glanced == now
        heads = one.all_of_it(other.size), other.all_of_it(one.size)
        if not (heads[0] and heads[1]):
            heads = self._read(one, 0, HEAD_BYTES), self._read(other, 0, HEAD_BYTES)
        if not may_be_copies(*heads):
            return True
        if not (one.compressed or other.compressed) and min(map(len, heads)) == HEAD_BYTES:
            common = min(one.size, other.size)
            front = min(PROOF_BYTES, common)
            if self._read(one, common - front, front) != self._read(other, common - front, front):
                return True
        if min(map(len, heads)) == HEAD_BYTES:
            if not at_rest:
                other.glanced = now
                return False
            if self._differ_behind_heads(one, other):
                return True
            other.glanced = None
        # A copy that goes no further than the log is compared again only after it has changed.
        if len(heads[1]) <= len(heads[0]) and (other.compressed or other.size <= one.size):
            other.compared = now
        return False

    def _differ_behind_heads(self, one: TrackedFile, other: TrackedFile) -> bool:
        taken = takes((one.path, one.size), (other.path, other.size))
        return not are_copies(partial(self._read, one), partial(self._read, other), taken, HEAD_BYTES)

    def _read(self, file: TrackedFile, offset: int, length: int) -> bytes:
        source = self._at_hand.pop(file.key, None) or self._sources.open(file)
        if source is None:
            return b""
        self._at_hand[file.key] = source
        if len(self._at_hand) > AT_HAND_MAX:
            self._at_hand.pop(next(iter(self._at_hand))).close()
        try:
            return source.read(offset, length)
        except OSError as err:
            self._problems.tell(ProblemKind.UNREADABLE, file.path, f"cannot be read ({err.strerror})")
            return b""

    def _close(self) -> None:
        while self._at_hand:
            self._at_hand.popitem()[1].close()
