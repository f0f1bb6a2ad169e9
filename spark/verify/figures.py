"""The contents of a report as plain data: counts, examples, inputs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from photon.spark.classes import Class
from photon.spark.verify.advice import GOOD, NextCommand, next_commands
from photon.spark.verify.causes import Cause, CommandLine

HOURS_A_DAY = 24
RIGHT, WRONG, UNJUDGED = "right", "problems", "not-judged"
EXITS = {RIGHT: 0, WRONG: 3, UNJUDGED: 4}


@dataclass(frozen=True, slots=True)
class LedgerDifference:
    """A count of the ledger that differs from the verification's. ``explained``: possible explanations, each with the
    most events that it can explain."""

    hour: int | None
    datacentre: str
    name: str
    ledger: int
    counted: int
    explained: Mapping[str, int]
    unexplained: int


@dataclass(frozen=True, slots=True)
class ClassCount:
    """The number of ids in one class. ``hour``: since 1970, ``None`` for lines without a time; ``datacentre``:
    ``None`` if the ids belong to none."""

    hour: int | None
    datacentre: str | None
    kind: Class
    count: int


@dataclass(frozen=True, slots=True)
class ExampleFinding:
    """A finding, for display."""

    kind: Class
    event: str
    hour: int | None
    datacentre: str
    place: str  # raw log and offset
    output: str
    evidence: str


@dataclass(frozen=True, slots=True)
class InputTotal:
    """The amount of one side's data read in one datacentre."""

    what: str
    datacentre: str
    files: int
    bytes: int
    newest_ns: int | None
    read: int  # bytes read of it


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """The dispatchers' own counts of an hour."""

    hour: int | None
    datacentre: str
    counts: dict[str, int]


@dataclass(frozen=True, slots=True)
class CoverageRow:
    """One datacentre's coverage in the range."""

    datacentre: str
    events: int  # lines of its raw foreign logs
    usual: int | None  # the same over earlier days; None means that none is known
    judged: int
    pending: int
    files: Mapping[str, int]  # number of files by log side


@dataclass(slots=True)
class Figures:
    """All figures of the page."""

    join: str
    from_hour: int
    to_hour: int
    datacentres: Sequence[str]
    made_at: str
    exported_at: str | None
    counts: list[ClassCount]
    examples: list[ExampleFinding] = field(default_factory=list)
    inputs: list[InputTotal] = field(default_factory=list)
    ledger: list[LedgerLine] = field(default_factory=list)
    # Differences between ledger and counts, including explained ones
    differences: list[LedgerDifference] = field(default_factory=list)
    # Days that were verified before, and whose inputs have not changed
    reused: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # unread inputs, and the reasons
    # The accepted findings among ``counts``
    acknowledged: Mapping[Class, int] = field(default_factory=dict)
    causes: list[Cause] = field(default_factory=list)
    commands: CommandLine = field(default_factory=CommandLine)
    coverage: list[CoverageRow] = field(default_factory=list)
    unjudged: list[str] = field(default_factory=list)  # why the range counts as not judged
    unlooked: list[str] = field(default_factory=list)  # inputs that were not read

    def totals(self) -> dict[Class, int]:
        """Returns the number of events by class, for the classes that occur, in the order of ``Class``."""
        found: Counter[Class] = Counter()
        for each in self.counts:
            found[each.kind] += each.count
        return {kind: found[kind] for kind in Class if found[kind]}

    def problems(self) -> int:
        """The number of findings that require action, unexplained differences of the ledger, and causes without a
        finding; acknowledged ones are not counted."""
        found = sum(count for kind, count in self.totals().items() if kind not in GOOD)
        alone = sum(1 for each in self.causes if each.alone)
        return found - sum(self.acknowledged.values()) + len(self.unexplained()) + alone

    def unexplained(self) -> list[LedgerDifference]:
        """The differences of the ledger that are findings."""
        return [each for each in self.differences if each.unexplained]

    def next_commands(self) -> list[NextCommand]:
        """Returns the commands to run next; none if the verdict is ``RIGHT``."""
        totals = self.totals()
        left = [kind for kind in totals if kind not in GOOD and totals[kind] > self.acknowledged.get(kind, 0)]
        return next_commands(left, unjudged=self.verdict() == UNJUDGED or (self.verdict() == WRONG and not left),
                             commands=self.commands)  # fmt: skip

    def verdict(self) -> str:
        """Returns ``RIGHT``, ``WRONG`` or ``UNJUDGED``. Problems take precedence."""
        return WRONG if self.problems() else UNJUDGED if self.unjudged else RIGHT

    def headline(self) -> str:
        """Returns the result in one sentence."""
        problems, pending = self.problems(), self.totals().get(Class.PENDING, 0)
        judged = sum(self.totals().values()) - pending
        accepted = sum(self.acknowledged.values())
        word, more = ("new ", f", {accepted:,} acknowledged") if accepted else ("", "")
        if problems:
            return f"{problems:,} {word}{'problem' if problems == 1 else 'problems'}{more}"
        if self.unjudged:
            return f"not judged: {self.unjudged[0]}"
        if accepted:
            return f"no new problem{more}"
        if not judged:
            return "0 events in the logs, nothing to judge"
        return f"{judged:,} events exactly once, {pending:,} pending" if pending else "every event exactly once"


def piece_text(begin: int, end: int) -> str:
    """Formats a range as ``2026-11-21``, or ``2026-11-21 09:00 to 2026-11-21 12:00`` if it is not a whole day;
    UTC."""
    if begin % HOURS_A_DAY == 0 and end - begin == HOURS_A_DAY:
        return hour_text(begin)[:10]
    return f"{hour_text(begin)} to {hour_text(end)}"


def bars(
    counts: Iterable[ClassCount], from_hour: int, to_hour: int, bars_max: int
) -> tuple[int, list[Counter[Class]]]:
    """Returns (hours per bar, counts of each bar). A bar is an hour, or some whole days if hours would give more than
    ``bars_max`` bars."""
    hours = max(to_hour - from_hour, 1)
    width = 1 if hours <= bars_max else HOURS_A_DAY * -(-hours // (bars_max * HOURS_A_DAY))
    made = [Counter[Class]() for _ in range(-(-hours // width))]
    for each in counts:
        if each.hour is not None and from_hour <= each.hour < to_hour:
            made[(each.hour - from_hour) // width][each.kind] += each.count
    return width, made


def hour_text(hour: int | None) -> str:
    """Formats an hour as ``2026-11-21 09:00``, UTC."""
    if hour is None:
        return "no time"
    return datetime.fromtimestamp(hour * 3600, UTC).strftime("%Y-%m-%d %H:%M")
