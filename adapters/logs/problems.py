"""What can be wrong with a log directory: one error at start, and counted problems while following."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from photon.config.errors import UsageError

REPORTED_MAX = 10_000
"""So many (kind, place) pairs are remembered as reported; beyond it they are reported again, but for KEPT ones."""


@dataclass(slots=True)
class LogDirectoryError(UsageError):
    """A log directory cannot be followed at all. ``str()`` is one line: what, where, what to do."""

    what: str
    where: str
    todo: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}; {self.todo}"


class ProblemKind(enum.StrEnum):
    """Something that the operator should know of; following goes on."""

    COPY = "copy"
    """A file holds the same bytes as a log that is read, and no more: it is left out until either of them differs."""
    VANISHED = "vanished"
    """A file went away before all of it was read."""
    TRUNCATED = "truncated"
    """A file became shorter than what was read of it, and is read again from its start."""
    REWRITTEN = "rewritten"
    """Bytes that were read before have changed; the log is read again."""
    ALIKE = "alike"
    """A log begins like another one; both are read."""
    UNREADABLE = "unreadable"
    DAMAGED = "damaged"
    """A compressed file is cut short or its bytes are wrong; it is read up to that place."""
    UNENDED = "unended"
    """``--once``: a last line has no line end, and its writer may be in its middle; it waits for the next run."""
    UNSUPPORTED = "unsupported"
    """A name or a compression that cannot be read."""
    LINK = "link"
    """A link leads out of the log directory, or to a file that cannot be looked at; it is not read."""


UNREAD = (ProblemKind.UNREADABLE, ProblemKind.DAMAGED, ProblemKind.UNSUPPORTED, ProblemKind.LINK)
"""Each says that a file, or a part of it, is there and not read. (VANISHED: was there.)"""
AMBIGUOUS = (ProblemKind.ALIKE, ProblemKind.TRUNCATED, ProblemKind.REWRITTEN)
"""Lines of two logs, or of what a file held before and holds now, may be equal at equal places. Such lines count
once where they have no ids of their own (``place_ids``)."""
KEPT = (*UNREAD, ProblemKind.UNENDED, ProblemKind.COPY)
"""Kinds of problems that are bounded by the number of files."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One line for the operator."""

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
        """``again``: an occurrence of its own even if this path had one of this kind before. ``aloud`` false: it is
        reported only if, and once, ``speak`` was called.
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
        """Reports what was told quietly, and from now on at once."""
        if self._quiet is None:
            return
        quiet, self._quiet = self._quiet, None
        for problem in quiet.values():
            if self._report is not None:
                self._report(problem)

    def solved(self, kind: ProblemKind, path: str) -> None:
        """The next one of this kind at this path is news again."""
        self._told.pop((kind, path), None)

    def only(self, kind: ProblemKind, now: Mapping[str, str]) -> None:
        """Replaces all problems of this kind by these (path -> message)."""
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
        """The problems of these kinds that still hold."""
        return [problem for problem in self._told.values() if problem.kind in kinds]
