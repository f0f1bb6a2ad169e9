"""Catch-up: events that another datacentre has been through, settled by the thousand. Pure (paper, 3.2, step 1).

What is done for an event on its way to a joiner costs several times as much as finding out that it has a verdict. So
while there is a backlog the records of a block stay columns until the registry was asked about all of them. Those
with a verdict are counted from the columns; items are made of the others only, which then go the usual way (and are
asked about once more just before a joiner gets them).

Invariant: a stretch is not whole, so its log's offset does not pass it, before each of its events is counted or an
item.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from photon.adapters.logs.api import Block, LogPosition
from photon.dispatcher.columns import Columns
from photon.dispatcher.core import Core
from photon.dispatcher.events import Retimed, Stretch
from photon.dispatcher.homes import Evidence, Homes
from photon.dispatcher.ledger import Verdict
from photon.idregistry.api import I64, U8, Answer, Kind, LookUps, split_digests
from photon.joiner.api import TakenBy
from photon.joiner.verdicts import line_tag

COLUMN_BYTES = 320
"""Counted for each event in columns beside its record. Measured, with ids and keys of 31 bytes: 296."""
WORTH = 0.5
"""Below this share of events that had a verdict, asking about all of them first costs more than it saves."""
PROBE_EVERY = 16
"""It is then tried again with one of so many readings."""
UNDECIDED = 0
Lines = Set[tuple[bytes, int]]
"""Digests and ``line_tag``s."""
_KINDS = np.array(list(Kind), np.uint8)


@dataclass(frozen=True, slots=True)
class Portion:
    """Events of one stretch."""

    stretch: Stretch
    columns: Columns
    times: I64


@dataclass(slots=True)
class Question:
    """The stretches read at one time; all their events are looked up at once."""

    stretches: list[Stretch] = field(default_factory=list)
    portions: list[Portion] = field(default_factory=list)

    @property
    def back(self) -> bool:
        """Its stretches are: what they hold may be counted, or wait in the retry store."""
        return bool(self.stretches) and self.stretches[0].back

    @property
    def keys(self) -> list[bytes]:
        """Of the primary events."""
        return list({key for portion in self.portions for key in portion.columns.keys})

    def __len__(self) -> int:
        return sum(map(len, (portion.times for portion in self.portions)))

    def rows(self) -> Iterator[tuple[Portion, slice]]:
        """Each portion, and which of the rows of an answer are its."""
        at = 0
        for portion in self.portions:
            yield portion, slice(at, at + len(portion.times))
            at += len(portion.times)

    def must_know(self, found: LookUps | None) -> bool:
        """Whether an answer is missing without which it cannot be told where a log departs."""
        if not any(len(portion.times) and portion.stretch.anew for portion in self.portions):
            return False
        return found is None or bool((found.answers == Answer.UNKNOWN).any())

    def departures(self, found: LookUps, waiting: Lines) -> dict[str, LogPosition]:
        """Where logs that are read ``anew`` go apart from what was counted: at the first line that nobody knows.

        To be made durable, and told to the core, before the question is settled. ``waiting``: as for ``settle``.
        """
        places: dict[str, LogPosition] = {}
        for portion, rows in self.rows():
            stretch, columns, part = portion.stretch, portion.columns, _rows(found, rows)
            if not stretch.anew or stretch.identity in places:
                continue
            known = _present(part) | (part.answers == Answer.BELOW_BOUNDARY) | _among(columns, waiting)
            at = next(
                (offset for offset, its in zip(columns.offsets, known, strict=True) if not its), stretch.seen_to
            )
            if at < stretch.seen_to:
                places[stretch.identity] = LogPosition(stretch.identity, stretch.file.path, at, stretch.file.header)
        return places

    @property
    def digests(self) -> bytes:
        """For ``Registry.look_up``."""
        return b"".join([portion.columns.digests for portion in self.portions])

    @property
    def times(self) -> I64:
        """For ``Registry.look_up``."""
        return (
            np.concatenate([portion.times for portion in self.portions]) if self.portions else np.empty(0, np.int64)
        )


@dataclass(frozen=True, slots=True)
class Rules:
    """What a verdict that stands in the registry means here (as ``Core.taken`` says for one event)."""

    datacentre: str
    identical_copies: bool

    def verdicts(self, columns: Columns, seen_to: int, found: LookUps) -> U8:
        """For each row its ``Verdict`` for the ledger, UNDECIDED where it has none yet. ``found``: rows alike.

        What stands before ``seen_to`` and has a verdict, or is too old for one, was counted before.
        """
        out = np.zeros(len(columns), np.uint8)
        if columns.offsets and columns.offsets[0] < seen_to:
            before = np.array(columns.offsets, np.int64) < seen_to
            out[before & (found.answers == Answer.BELOW_BOUNDARY)] = Verdict.REREAD
        present = _present(found)
        if not present.any():
            return out
        names = found.datacentres
        own = names.index(self.datacentre) if self.datacentre in names else len(names)
        other = found.owner_datacentres != own
        out[present & other] = Verdict.ELSEWHERE
        mine = present & ~other
        out[mine] = found.owner_kinds[mine]  # verdicts of the same numbers
        for row in np.flatnonzero(present if self.identical_copies else mine).tolist():
            if line_tag(columns.records[row], columns.offsets[row], columns.file.path) != found.owner_tags[row]:
                out[row] = Verdict.DUPLICATE
        if columns.offsets and columns.offsets[0] < seen_to:
            out[present & before] = Verdict.REREAD
        return out


def _present(found: LookUps) -> npt.NDArray[np.bool_]:
    present: npt.NDArray[np.bool_] = (found.answers == Answer.PRESENT) & np.isin(found.owner_kinds, _KINDS)
    return present


class Worth:
    """Whether asking about whole stretches first is worth its while: it is where most of them have a verdict."""

    def __init__(self) -> None:
        self._share = 1.0
        self._passed = 0

    def next(self) -> bool:
        """For what is read next."""
        if self._share >= WORTH:
            return True
        self._passed += 1
        if self._passed < PROBE_EVERY:
            return False
        self._passed = 0
        return True

    def observe(self, decided: int, asked: int) -> None:
        """Of so many events that were asked about, so many had a verdict."""
        if asked:
            self._share += (decided / asked - self._share) / 2


class Backlog:
    """Takes blocks over for a core, and settles them. Times: ``now_ns`` wall clock, ``now`` monotonic seconds."""

    def __init__(self, core: Core, rules: Rules, homes: Homes | None) -> None:
        self._core = core
        self._rules = rules
        self._homes = homes
        self._question = Question()
        self.worth = Worth()

    def take(self, block: Block, now_ns: int, now: float) -> Iterable[None]:
        """As ``Core.take``. Its events are part of the next question."""
        core, question = self._core, self._question
        stretch = core.begin(block, now)
        question.stretches.append(stretch)
        for columns in core.read(stretch, block, now_ns):
            question.portions.append(Portion(stretch, columns, columns.times()))
            core.open += len(columns)
            core.weigh(stretch, COLUMN_BYTES * len(columns))
            yield

    def question(self) -> Question:
        """Of all that was taken since the last one. Give each to ``settle``."""
        question, self._question = self._question, Question()
        return question

    def settle(
        self, question: Question, found: LookUps | None, now_ns: int, now: float, waiting: Lines = frozenset()
    ) -> None:
        """Counts what has a verdict; the others go on to a joiner. ``found`` None: nobody knows. ``waiting``: of what
        is read again, the lines that are rows of the retry store: they were counted before.

        A hint may be stale only towards absent, and a reopened id is answered ABSENT: it never decides wrongly.
        """
        decided = 0
        evidence = Evidence()
        for portion, rows in question.rows():
            if found is None:
                verdicts, answers = np.zeros(len(portion.times), np.uint8), np.zeros(0, np.uint8)
            else:
                part = _rows(found, rows)
                answers = part.answers
                verdicts = self._rules.verdicts(portion.columns, portion.stretch.seen_to, part)
                self._learn(evidence, portion.columns.digests, part, verdicts)
                self._retime(portion, part, verdicts)
            if waiting:
                before = np.array(portion.columns.offsets, np.int64) < portion.stretch.seen_to
                verdicts[before & _among(portion.columns, waiting)] = Verdict.REREAD
            decided += int(np.count_nonzero(verdicts))
            self._settle(portion, verdicts, answers, now_ns, now)
        for stretch in question.stretches:
            stretch.whole = True
            self._core.reject(stretch, now_ns)
        if not question.back:
            self.worth.observe(decided, len(question))
        if self._homes is not None:
            self._homes.observe(evidence, now)

    def _retime(self, portion: Portion, found: LookUps, verdicts: U8) -> None:
        """Counts those whose id was registered with another event time."""
        if found.owner_times is None:
            return
        told = (verdicts == Verdict.ELSEWHERE) | (verdicts == Verdict.DUPLICATE)
        columns = portion.columns
        for row in np.flatnonzero(told & (portion.times != found.owner_times)).tolist():
            time_ns, registered_ns = int(portion.times[row]), int(found.owner_times[row])
            kind, where = Kind(int(found.owner_kinds[row])), int(found.owner_datacentres[row])
            by = TakenBy(found.datacentres[where], kind, False, registered_ns)
            place = columns.ids[row], columns.file.path, columns.offsets[row]
            self._core.retime(portion.stretch.cells, Retimed(*place, time_ns, by))

    def _settle(self, portion: Portion, verdicts: U8, answers: U8, now_ns: int, now: float) -> None:
        core, stretch, columns = self._core, portion.stretch, portion.columns
        core.open -= len(columns)
        core.weigh(stretch, -COLUMN_BYTES * len(columns))
        decided = verdicts != UNDECIDED
        core.count_many(stretch, portion.times[decided], verdicts[decided])
        if decided.all():
            return
        left = ~decided
        late = left & (answers == Answer.BELOW_BOUNDARY) if answers.size else np.zeros_like(left)
        for item in core.add(stretch, _some(columns, late), now_ns, now):
            core.late(item, now_ns)
        core.send(core.add(stretch, _some(columns, left & ~late), now_ns, now), now)

    def _learn(self, evidence: Evidence, digests: bytes, found: LookUps, verdicts: U8) -> None:
        """As ``evidence.of_look_ups``: these were left to nobody, so whoever registered one is ahead of us."""
        homes = self._homes
        if homes is None:
            return
        elsewhere = verdicts == Verdict.ELSEWHERE
        if not elsewhere.any():
            return
        for at, name in enumerate(found.datacentres):
            if (number := homes.number.get(name)) is not None and number != homes.own:
                evidence.ahead[number] += int(np.count_nonzero(elsewhere & (found.owner_datacentres == at)))
        evidence.contested += int(np.count_nonzero(elsewhere & homes.own_ones(digests)))


def _among(columns: Columns, lines: Lines) -> npt.NDArray[np.bool_]:
    """Which of them are these very lines."""
    found = np.zeros(len(columns), np.bool_)
    if lines:
        rows = zip(split_digests(columns.digests), columns.records, columns.offsets, strict=True)
        for row, (digest, record, offset) in enumerate(rows):
            found[row] = (digest, line_tag(record, offset, columns.file.path)) in lines
    return found


def _some(columns: Columns, mask: npt.NDArray[np.bool_]) -> Columns:
    return columns if mask.all() else columns.take(np.flatnonzero(mask).tolist())


def _rows(found: LookUps, rows: slice) -> LookUps:
    return LookUps(
        found.answers[rows],
        found.owner_kinds[rows],
        found.owner_tags[rows],
        found.owner_datacentres[rows],
        found.datacentres,
        None if found.owner_times is None else found.owner_times[rows],
    )
