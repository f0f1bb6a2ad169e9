"""Problems of a log directory: one error at start, and counted problems while following."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from photon.config.errors import UsageError

# Limit of (kind, place) pairs remembered as reported; beyond it they are reported again, except KEPT ones.
REPORTED_MAX = 10_000


@dataclass(slots=True)
class LogDirectoryError(UsageError):
    """A log directory cannot be followed at all. ``str()`` is one line: what failed, where, what to do."""

    what: str
    where: str
    todo: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}; {self.todo}"


class ProblemKind(enum.StrEnum):
    """A problem that the operator should know about. The log directory is followed all the same."""

    # A file is a copy of a log that is read, so it is left out until they differ.
    COPY = "copy"
    VANISHED = "vanished"  # a file disappeared before all of it was read
    TRUNCATED = "truncated"  # a file became shorter than the bytes already read, and is read again from its start
    REWRITTEN = "rewritten"  # bytes that had been read have changed; the log is read again
    ALIKE = "alike"  # a log begins like another one; both are read
    UNREADABLE = "unreadable"
    DAMAGED = "damaged"  # a compressed file is cut short or damaged; it is read up to that place
    UNENDED = "unended"  # ``--once``: a last line has no line end and may be incomplete; it waits for the next run
    UNSUPPORTED = "unsupported"  # a name or a compression that cannot be read
    LINK = "link"  # a link leads out of the log directory, or to a file that cannot be examined; it is not read


# Each means that an existing (VANISHED: former) file, or a part of it, is not read.
UNREAD = (ProblemKind.UNREADABLE, ProblemKind.DAMAGED, ProblemKind.UNSUPPORTED, ProblemKind.LINK)
# Lines of two logs, or of a file's old and new contents, may be equal at equal offsets. Such lines count once if they
# have no ids of their own (``place_ids``).
AMBIGUOUS = (ProblemKind.ALIKE, ProblemKind.TRUNCATED, ProblemKind.REWRITTEN)
KEPT = (*UNREAD, ProblemKind.UNENDED, ProblemKind.COPY)  # kinds of problems bounded by the number of files


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of one file, with a line for the operator."""

    kind: ProblemKind
    path: str
    message: str

    def __str__(self) -> str:
        path = self.path if self.path.isprintable() else ascii(self.path)
        return f"{path}: {self.message}"


class ProblemReporter:
    """Counts every problem and reports each (kind, path) once until ``solved``."""

    def __init__(self, report: Callable[[Problem], None] | None) -> None:
        self.counts: Counter[ProblemKind] = Counter()
        self._report = report
        self._told: dict[tuple[ProblemKind, str], Problem] = {}
        self._quiet: dict[tuple[ProblemKind, str], Problem] | None = {}

    def tell(self, kind: ProblemKind, path: str, message: str, *, again: bool = False, aloud: bool = True) -> None:
        """Counts a problem and reports it. ``again``: reports it even if the path had one of this kind before.
        Unless ``aloud``, it is reported only after ``speak``.
        """
        if (kind, path) in self._told and not again:
            return
        if len(self._told) >= REPORTED_MAX and kind not in KEPT:
            self._told = {place: problem for place, problem in self._told.items() if problem.kind in KEPT}
        problem = self._told[kind, path] = Problem(kind, path, message)
        self.counts[kind] += 1
        if not aloud and self._quiet is not None:
            if len(self._quiet) < REPORTED_MAX:
                self._quiet[kind, path] = problem
        elif self._report is not None:
            self._report(problem)

    def speak(self) -> None:
        """Reports the problems noted so far, and from now on at once."""
        if self._quiet is None:
            return
        quiet, self._quiet = self._quiet, None
        for problem in quiet.values():
            if self._report is not None:
                self._report(problem)

    def solved(self, kind: ProblemKind, path: str) -> None:
        """Marks a problem as solved: the next one of this kind at this path is reported again."""
        self._told.pop((kind, path), None)

    def only(self, kind: ProblemKind, now: Mapping[str, str]) -> None:
        """Replaces all problems of this kind by those in ``now`` (path -> message)."""
        for problem in self.unsolved((kind,)):
            if now.get(problem.path) != problem.message:
                self.solved(kind, problem.path)
        for path, message in now.items():
            self.tell(kind, path, message)

    def gone(self, path: str) -> None:
        """Forgets problems of a file that no longer exists."""
        for kind in (ProblemKind.UNREADABLE, ProblemKind.DAMAGED, ProblemKind.COPY):
            self.solved(kind, path)

    def unsolved(self, kinds: Sequence[ProblemKind]) -> list[Problem]:
        """Returns the problems of these kinds that are not solved."""
        return [problem for problem in self._told.values() if problem.kind in kinds]
