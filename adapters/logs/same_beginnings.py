"""Logs that begin alike: files of one log name and one first record, told apart by what stands behind it.

A log's name and first record are its identity, and two logs may have both in common: where a writer begins each file
with the same line, say. Whether a file is the log that was read is proved by the bytes before its position. Of two
files that are there, their first bytes tell, as far as both go, whether one may be a copy of the other; where they
differ one of them is another log, and gets an identity of its own: the first one's with a number.

Numbers are given in the order in which logs are met, at a first start the oldest file first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from photon.adapters.logs.assignment import GRACE_SCANS, Logs
from photon.adapters.logs.files import Files
from photon.adapters.logs.identity import ALIKE_MARK, HEAD_BYTES, PROOF_BYTES, may_be_copies, numbered, proof_of
from photon.adapters.logs.open_files import OpenFiles
from photon.adapters.logs.problems import ProblemKind, ProblemReporter
from photon.adapters.logs.tracked_logs import TrackedFile, TrackedLog

COPIES_MAX = 1024
"""How many pairs of files are remembered to be copies as far as they are compared."""


class Alike:
    """Gives files to the logs whose bytes they hold."""

    def __init__(self, files: Files, logs: Logs, sources: OpenFiles, problems: ProblemReporter) -> None:
        self._files = files
        self._logs = logs
        self._sources = sources
        self._problems = problems
        self._copies: set[tuple[tuple[int, int], tuple[int, int]]] = set()
        self.unsure: dict[str, int] = {}
        """Logs one file of which is cut short and may be a copy in the making of a known one -> scans that saw it so
        without a change."""

    def tell_apart(self, touched: Collection[str], *, final: bool = False) -> None:
        """Before these logs are given their files: a file that holds another log than it seems to claims that one.

        ``final``: no more will come of files that are being compressed.
        """
        self.unsure.update({first: scans + 1 for first, scans in self.unsure.items() if first not in touched})
        settled = {first for first, scans in self.unsure.items() if final or scans >= GRACE_SCANS}
        for identity in sorted(settled.union(touched)):
            first = identity.partition(ALIKE_MARK)[0]
            files = self._files.claims(first)
            if identity != first and not self._files.claims(identity):  # perhaps it was compressed meanwhile
                log = self._logs.all.get(identity)
                for file in files if log is not None else ():
                    if file.packed and self._holds(log, file):
                        self._files.hold(file, identity)
            elif identity == first and len(files) > 1:
                self._sort_out(first, files, final or first in settled)
        for identity in list(touched):  # with those that were claimed just now
            self._measure(self._files.claims(identity))

    def known_as(self, log: TrackedLog, file: TrackedFile) -> str | None:
        """Of a file that does not hold its log: another known log that begins alike, and that it does hold."""
        first = log.identity.partition(ALIKE_MARK)[0]
        names = (name for name in (first, *self._names(first)) if not self._files.claims(name))
        return next((name for name in names if self._holds(self._logs.all.get(name), file)), None)

    def _sort_out(self, first: str, files: Sequence[TrackedFile], final: bool) -> None:
        self.unsure.pop(first, None)
        by_age = sorted(files, key=lambda file: (file.packed, file.mtime_ns, file.path))
        keeper = self._keeper(self._logs.all.get(first), by_age)
        others = [file for file in by_age if file is not keeper and self._differ(keeper, file)]
        if others:
            for file in by_age:  # one that grew may be another file on the same inode, and not begin alike at all
                self._files.identify(file)
            if len(still := self._files.claims(first)) < len(files):
                others = []
                if len(still) > 1:
                    self._sort_out(first, still, final)
        for file in others:
            self._name(first, file, keeper, final)

    def _measure(self, files: Sequence[TrackedFile]) -> None:
        """Of files of one log: whether a compressed one goes beyond all plain ones, as far as their heads tell."""
        plain = [file for file in files if not file.packed]
        heads = [len(self._read(file, 0, HEAD_BYTES)) for file in plain if len(plain) < len(files)]
        for file in files:
            file.longer = file.packed and bool(heads) and len(self._read(file, 0, HEAD_BYTES)) > max(heads)

    def _keeper(self, log: TrackedLog | None, files: Sequence[TrackedFile]) -> TrackedFile:
        """The one of them that is the log; plain ones come before compressed ones, which are dear to look into."""
        undecided = []
        for file in files:
            holds = self._holds(log, file)
            if holds:
                return file
            if holds is None:
                undecided.append(file)
        followed = log.file if log is not None else None
        return followed if followed in undecided else (undecided or files)[0]

    def _name(self, first: str, file: TrackedFile, keeper: TrackedFile, final: bool) -> None:
        known = list(self._names(first))
        undecided = []
        for name in known:
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
        # A log of which more was read than the file has is another one, unless the file is still being compressed.
        if not final and file.packed and any(log.proof and self._is_cut_short(file, log) for log in undecided):
            self.unsure[first] = 0
            return
        if unproved := [log for log in undecided if not log.proof]:
            self._files.hold(file, unproved[0].identity)
            return
        what = f"begins like {keeper.path} and goes on otherwise: it is another log, and read as well"
        self._problems.tell(ProblemKind.ALIKE, file.path, what, again=True)
        self._files.hold(file, numbered(first, len(known) + 1))

    def _names(self, first: str) -> Iterator[str]:
        """Of the known logs that begin like this one, in the order in which they were met."""
        number = 1
        while (name := numbered(first, number)) in self._logs.all or self._files.claims(name):
            yield name
            number += 1

    def _holds(self, log: TrackedLog | None, file: TrackedFile) -> bool | None:
        """Whether the file holds what was read of the log; None: that cannot be told, or not yet."""
        if log is None or not log.proof:
            return None
        front = min(PROOF_BYTES, log.next)
        data = self._read(file, log.next - front, front)
        return None if len(data) < front else proof_of(data) == log.proof

    def _is_cut_short(self, file: TrackedFile, log: TrackedLog) -> bool:
        """Whether a compressed file that has less than was read of the log ends in the middle of its stream."""
        source = self._sources.open(file)
        if source is None:
            return False
        try:
            return not source.read(log.next - 1, 1) and source.cut_short() and not source.damage()
        except OSError:  # told when it was compared
            return False
        finally:
            source.close()

    def _differ(self, one: TrackedFile, other: TrackedFile) -> bool:
        """Whether neither can be a copy of the other, whole or in the making."""
        pair = (one.key, other.key)
        if pair in self._copies:
            return False
        heads = self._read(one, 0, HEAD_BYTES), self._read(other, 0, HEAD_BYTES)
        if not may_be_copies(*heads):
            return True
        # A file that is being compressed is not to be looked into again and again.
        if len(heads[0]) == len(heads[1]) == HEAD_BYTES:
            if len(self._copies) >= COPIES_MAX:
                self._copies.clear()
            self._copies.add(pair)
        return False

    def _read(self, file: TrackedFile, offset: int, length: int) -> bytes:
        source = self._sources.open(file)
        if source is None:
            return b""
        try:
            return source.read(offset, length)
        except OSError as err:
            self._problems.tell(ProblemKind.UNREADABLE, file.path, f"cannot be read ({err.strerror})")
            return b""
        finally:
            source.close()
