"""Counts each event's outcome once, in its verdict's column of the ledger. Pure.

Counting an event frees its row. A stretch's counts are committed when its log's offset moves past it; the count of a
row of the retry store is committed when that row is deleted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from photon.adapters.envelope import Envelope
from photon.batch.columns import I64, U8, Mask, RowIndexes
from photon.batch.verdicts import Verdicts
from photon.dispatcher.events import LATE, LATE_REASON, REJECTED, Export, Retimed, Stretch
from photon.dispatcher.ledger import Verdict, cells, unknown_cell
from photon.dispatcher.open_events import OpenEvents
from photon.dispatcher.open_logs import OpenLogs
from photon.dispatcher.state import Changes
from photon.dispatcher.status import JoinTimes
from photon.idregistry.api import Kind


@dataclass(eq=False)
class Counting:
    """Counts events by outcome. ``identical_copies``, ``uncertainty_ns``: as in ``engine.Options``."""

    table: OpenEvents
    logs: OpenLogs
    envelope: Envelope
    datacentre: str
    identical_copies: bool
    uncertainty_ns: int

    def __post_init__(self) -> None:
        self._of_rows = Changes()  # of rows of the retry store: counts, lines to export, deletions
        self.live: Counter[Verdict] = Counter()  # counts of this process, before they are committed
        self.times = JoinTimes()
        self.retimed: Retimed | None = None  # the first one since this was last taken out, to be reported

    def take_out(self) -> Changes:
        """Returns the changes to rows of the retry store since the last call."""
        changes, self._of_rows = self._of_rows, Changes()
        return changes

    # -- lines that are read -----------------------------------------------------------------------------------------
    def read(self, stretch: Stretch, times: I64) -> None:
        stretch.left += len(times)
        stretch.cells.update(cells(times, Verdict.READ))
        self.live[Verdict.READ] += len(times)

    def reject_unread(self, stretch: Stretch, now_ns: int) -> None:
        """Rejects a stretch's ``unread`` lines. Call it once the lines counted before a crash are known."""
        if stretch.rewritten and not stretch.whole:
            return
        for offset, record, reason in stretch.unread:
            if offset < stretch.counted_to:
                verdicts = [Verdict.REREAD]
            else:
                verdicts = [Verdict.READ, Verdict.REJECTED]
                line = self.envelope.unreadable(record, stretch.file, offset, reason, at_ns=now_ns)
                self._export(stretch, Export(REJECTED, line))
            stretch.cells.update(map(unknown_cell, verdicts))
            self.live.update(verdicts)
        stretch.unread = []

    def were_read(self, rows: RowIndexes) -> Mask:
        """Returns a mask of the rows whose lines were already counted when first read."""
        before = np.zeros(len(rows), np.bool_)
        for stretch, which in self.table.by_stretch(rows):
            if stretch is not None and stretch.counted_to > stretch.begin:
                before[which] = self.table.offsets[rows[which]] < stretch.counted_to
        return before

    def reread(self, rows: RowIndexes) -> None:
        """Frees rows of lines that were counted when first read; they are not counted as read again."""
        for stretch, which in self.table.by_stretch(rows):
            assert stretch is not None
            stretch.cells.subtract(cells(self.table.times[rows[which]], Verdict.READ))
        self.live[Verdict.READ] -= len(rows)
        self.count(rows, np.full(len(rows), Verdict.REREAD, np.uint8))

    def _first_times(self, rows: RowIndexes) -> RowIndexes:
        """Frees the rows of lines that were counted before; returns the others, as indices into ``rows``."""
        before = self.were_read(rows)
        if not before.any():
            return np.arange(len(rows))
        self.reread(rows[before])
        return np.flatnonzero(~before)

    # -- verdicts ----------------------------------------------------------------------------------------------------
    def of_others(self, owners: Verdicts) -> Mask:
        """Returns a mask of the ids that another datacentre owns."""
        names = owners.datacentres
        own = names.index(self.datacentre) if self.datacentre in names else len(names)
        other: Mask = owners.owner_datacentres != own
        return other

    def taken(self, rows: RowIndexes, owners: Verdicts, same_line: Mask) -> None:
        """Counts events whose ids were registered under other tokens. ``same_line``: as in ``JoinAnswers``."""
        first = self._first_times(rows)
        if not len(first):
            return
        other = self.of_others(owners)
        registered = owners.owner_times
        moved = (registered != 0) & (registered != self.table.times[rows])
        if moved[first].any():
            self._retime(rows, owners, first[moved[first]])
        verdicts = np.where(other, np.uint8(Verdict.ELSEWHERE), owners.owner_kinds)  # kinds are verdicts
        # Otherwise it is this very line, read before a crash but not counted.
        verdicts[~same_line & (self.identical_copies | ~other)] = Verdict.DUPLICATE
        self.count(rows[first], verdicts[first])

    def _retime(self, rows: RowIndexes, owners: Verdicts, which: RowIndexes) -> None:
        """Counts lines whose ids were registered with event times too far from theirs."""
        table = self.table
        # Two clocks within the permitted uncertainty may give one event different times.
        times, registered = table.times[rows[which]], owners.owner_times[which]
        apart_ns = np.maximum(times, registered).view(np.uint64) - np.minimum(times, registered).view(np.uint64)
        which = which[(apart_ns > self.uncertainty_ns) & ~table.redispatched[rows[which]]]
        if not len(which):
            return
        self.apart(rows[which], Verdict.RETIMED)
        if self.retimed is None:
            row, at = rows[which[0]], which[0]
            self.retimed = Retimed(
                table.ids[row],
                table.files[row].path,
                int(table.offsets[row]),
                int(table.times[row]),
                int(owners.owner_times[at]),
                owners.datacentres[owners.owner_datacentres[at]],
                Kind(int(owners.owner_kinds[at])),
                int(owners.owner_tokens[at]),
            )

    def late(self, rows: RowIndexes, now_ns: int) -> None:
        """Exports and counts events below the boundary as late: this datacentre claims them (protocol rule 10)."""
        rows = rows[self._first_times(rows)]
        if not len(rows):
            return
        reasons = [LATE_REASON] * len(rows)
        lines = self.envelope.undone(self.table.events(rows), reasons, token=None, at_ns=now_ns)
        for line, stretch in zip(lines, self.table.stretch[rows].tolist(), strict=True):
            self._export(stretch, Export(LATE, line))
        self.count(rows, np.full(len(rows), Verdict.LATE, np.uint8))

    def _export(self, stretch: Stretch | None, export: Export) -> None:
        if stretch is None:
            self._of_rows.exports.append(export)
        elif stretch.redispatched is None:
            stretch.exports.append(export)
            self.logs.weigh(stretch, len(export.line))

    def apart(self, rows: RowIndexes, verdict: Verdict) -> None:
        """Counts events in a column that the ledger keeps in addition to the verdicts."""
        self.live[verdict] += len(rows)
        for stretch, which in self.table.by_stretch(rows):
            into = self._of_rows.cells if stretch is None else stretch.cells
            into.update(cells(self.table.times[rows[which]], verdict))

    def count(self, rows: RowIndexes, verdicts: U8) -> None:
        """Counts events under their verdicts, and frees their rows."""
        times = self.table.times[rows]
        for stretch, which in self.table.by_stretch(rows):
            some = verdicts[which]
            if stretch is None:
                into = self._of_rows.cells
                self._of_rows.deleted += self.table.row_id[rows[which]].tolist()
            else:
                into = stretch.cells
                stretch.left -= len(which)
                some = stretch.counted(some)
            into.update(cells(times[which], some))
            self.live.update(some.tolist())
        self.table.end(rows)
