"""The dispatcher's logic: turns blocks into batches and outcomes into the ledger, without files, sockets or clocks.

Theory of operation. An event is a row of a table (``OpenEvents``), and belongs to one part at a time:

- ``intake`` turns a block's events into rows, in a ``Stretch`` of their log (``logs``);
- ``queues`` hands them out in batches, some after a look-up in the registry. Outcomes come back (``Core.answered``)
  in any order;
- ``counting`` counts an event that has a verdict, and frees its row;
- ``waiting`` keeps an event without a verdict until its next try: first in memory, later as a row of the retry store
  if its stretch has been held too long or memory is short;
- ``committing`` returns the content of the next transaction: a log's offset moves past its first stretches once none
  of their events is left in memory, and their counts are committed with it.

Invariant: at each commit read = all verdicts + rows of the retry store (see ``ledger``): each line before an offset
was counted as read exactly once, and its event either is counted under a verdict or is a row. Lines after the offset
are not counted, and are read again after a crash; the registry then answers with their earlier verdicts. If a log is
read again (its stretches are ``repeated``), its events are sent only after a look-up has shown which lines were
counted (``lookups``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from photon.adapters.envelope import Envelope
from photon.batch.columns import RowIndexes
from photon.batch.events import Events
from photon.batch.verdicts import Verdicts
from photon.dispatcher.committing import Committing
from photon.dispatcher.counting import Counting
from photon.dispatcher.events import Batch, Stretch
from photon.dispatcher.homes import YIELDED, Homes
from photon.dispatcher.intake import Intake, LineRules
from photon.dispatcher.ledger import Verdict
from photon.dispatcher.limits import Limits
from photon.dispatcher.open_events import LoadedRows, OpenEvent, OpenEvents, rows_of
from photon.dispatcher.open_logs import OpenLogs
from photon.dispatcher.queues import Queues, Shares
from photon.dispatcher.retry import NextTries
from photon.dispatcher.two_clocks import FirstRead, ask_for_final
from photon.dispatcher.waiting import Waiting
from photon.joiner.api import GONE_REASON, JoinAnswers, Outcome
from photon.joiner.verdicts import tags_of

# As numbers: looking up enumeration members is slow, and these are used once a batch.
_JOINED, _REJECTED = int(Outcome.JOINED), int(Outcome.REJECTED)
_TAKEN, _LATE = int(Outcome.TAKEN), int(Outcome.LATE)
_VERDICTS = frozenset(range(_JOINED, _REJECTED + 1))


class Core:
    """Connects the parts: makes batches, and passes outcomes to the part concerned.

    Times: ``now_ns`` wall clock, ``now`` monotonic seconds.
    """

    def __init__(
        self,
        rules: LineRules,
        envelope: Envelope,
        limits: Limits,
        datacentre: str,
        *,
        random: Callable[[], float],
        highs: Mapping[str, int],
        rewritten: Collection[str] = (),
        retry_rows: int = 0,
        retry_bytes: int = 0,
        homes: Homes | None = None,
        shares: Shares | None = None,
        identical_copies: bool = False,
        uncertainty_ns: int = 0,
        seen: Callable[[Events], None] | None = None,
    ) -> None:
        """``random``: uniform in [0, 1). ``highs`` to ``retry_bytes``: as in ``State``.

        ``homes``: the datacentres that share the work; ``None`` if there is only one. ``shares``: limits catch-up;
        ``None`` if old events are treated like fresh ones. ``identical_copies``, ``uncertainty_ns``: as in
        ``engine.Options``. ``seen``: as in ``Intake``.
        """
        patience = rules.patience
        shares = shares or Shares(1.0, 0)
        table, first_read = OpenEvents(), FirstRead(patience.slack_ns)
        next_tries = NextTries(patience, limits.hold_once_s, random)
        self._homes = homes
        self._patience = patience
        self._table = table
        self.logs = OpenLogs(highs, rewritten)
        loaded = LoadedRows(table, retry_rows, retry_bytes)
        self.queues = Queues(table, limits, homes, shares)
        self.counting = Counting(table, self.logs, envelope, datacentre, identical_copies, uncertainty_ns)
        self.intake = Intake(table, self.logs, rules, self.counting, self.queues, shares, first_read, limits, seen)
        self.waiting = Waiting(table, loaded, self.queues, shares, next_tries, first_read)
        self.committing = Committing(table, self.logs, loaded, self.counting, self.waiting, limits, patience.once)

    def held(self, stretch: Stretch) -> list[OpenEvent]:
        return self._table.describe(self._table.of_stretch(stretch))

    def find(self, event_id: bytes, offset: int) -> list[OpenEvent]:
        return self._table.describe(self._table.find(event_id, offset))

    # -- out: batches ----------------------------------------------------------------------------------------------
    def next_question(self, now: float) -> Batch | None:
        """Returns events to look up in the registry now. Pass those without a verdict to ``queues.asked``."""
        self.waiting.requeue(now)
        rows, patient = self.queues.next_question(now)
        return self.batch(rows, patient=patient) if len(rows) else None

    def next_batch(
        self, now: float, *, flush: bool, wait_s: float | None = None, most: int | None = None
    ) -> Batch | None:
        """Returns the next batch, of at most ``most`` events. ``flush``, ``wait_s``: as in ``Queues.next_batch``."""
        self.waiting.requeue(now)
        rows = self.queues.next_batch(now, flush=flush, wait_s=wait_s, most=most, full=not self.intake.room())
        if not len(rows):
            return None
        ask_for_final(self._table, rows, self._patience, self.waiting.read_past_ns)
        return self.batch(rows)

    def batch(self, rows: RowIndexes, *, patient: bool = False, stretches: Sequence[Stretch] = ()) -> Batch:
        waiting = self.waiting
        events = self._table.events(rows)
        return Batch(rows, events, waiting.read_past_ns, patient, waiting.recent.number, stretches)

    def next_due(self, wait_s: float) -> float | None:
        """Returns when the next event is due, or has waited ``wait_s`` for a batch to fill. Monotonic seconds."""
        dues = (self.waiting.room.next_due(), self.queues.fresh_due(wait_s))
        due = min((due for due in dues if due is not None), default=None)
        return None if due is None else max(due, self.queues.gathered_at)

    # -- in: outcomes ----------------------------------------------------------------------------------------------
    def answered(self, batch: Batch, answers: JoinAnswers, now_ns: int, now: float) -> None:
        table, counting, rows = self._table, self.counting, batch.rows
        self.queues.behind_in_flight -= len(rows) if table.behind[rows[0]] else 0
        if len(answers.verdicts) != len(rows):
            answers = JoinAnswers.alike(len(rows), Outcome.RETRY)
        verdicts = answers.verdicts
        outcomes = verdicts.outcomes
        kinds = set(outcomes.tolist())
        if self._homes is not None:
            tells, placed_at = table.counts_as_evidence(rows), table.placed_at[rows]
            evidence = self._homes.of_answers(tells, table.left_to[rows], placed_at, verdicts, now)
            self._homes.observe(evidence, now, backlog=self.queues.look_first)
        if answers.ambiguous:
            ambiguous = rows_of([at for at in answers.ambiguous if outcomes[at] in (_JOINED, _REJECTED)])
            counting.apart(rows[ambiguous], Verdict.AMBIGUOUS)
        if answers.unpaired:
            unpaired = rows_of([at for at in answers.unpaired if outcomes[at] == Outcome.UNMATCHED])
            counting.apart(rows[unpaired], Verdict.UNPAIRED)
        if _JOINED in kinds:
            joined = rows[outcomes == _JOINED]
            counting.times.joined(table.times[joined], table.first_read_ns[joined], now_ns)
        if kinds <= _VERDICTS:
            counting.count(rows, outcomes)
            return
        decided = (outcomes >= _JOINED) & (outcomes <= _REJECTED)
        late = outcomes == _LATE
        waits = ~(decided | late)
        if _TAKEN in kinds:
            taken = np.flatnonzero((outcomes == _TAKEN) & (verdicts.owner_kinds != 0))
            waits[taken] = False
            owners = verdicts.take(taken)
            counting.apart(rows[taken[counting.of_others(owners)]], Verdict.WASTED)
            counting.taken(rows[taken], owners, answers.same_line[taken])
        counting.count(rows[decided], outcomes[decided])
        counting.late(rows[late], now_ns)
        if waits.any():
            gone = np.zeros(len(rows), np.bool_)
            gone[[at for at, reason in verdicts.reasons.items() if reason == GONE_REASON]] = True
            self.waiting.wait(batch, outcomes, waits & ~gone, answers.overloaded, now_ns, now)
            self.waiting.wait(batch, outcomes, waits & gone, answers.overloaded, now_ns, now, gone=True)

    def looked_up(self, rows: RowIndexes, owners: Verdicts, absent: RowIndexes, now: float) -> None:
        """Handles a look-up's answer: the registry knows the ids of ``rows``, and not the ids of ``absent``."""
        table, counting = self._table, self.counting
        if self._homes is not None:
            tells = ~counting.were_read(rows) & table.counts_as_evidence(rows)
            evidence = self._homes.of_look_ups(tells, table.left_to[rows], table.digests[rows], owners)
            evidence.own = int(np.count_nonzero(table.left_to[absent] == YIELDED))
            self._homes.observe(evidence, now, backlog=self.queues.look_first)
        # Only needed here, to tell if it was the same line.
        same_line = counting.identical_copies | ~counting.of_others(owners)
        if same_line.any():
            same_line[same_line] = tags_of(table.events(rows[same_line])) == owners.owner_tags[same_line]
        counting.taken(rows, owners, same_line)
