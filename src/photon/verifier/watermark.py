"""Computes a pipeline's watermarks from samples. Pure: no files, no clock.

A sample first asks the dispatcher for its read position and events without a verdict, then each slot for accepted
records not yet published, then for the end of the published output. Events move in the same order. So each
unpublished event is seen in one of these places, or was not read, and the least of the answers is a watermark for the
end of the published output, without any lock. In another order an event in transit might be missed.

    exact       the least of all answers, and of the lines that may still be written into the logs by the user's
                promise, ``written_within``. Records that break the promise are late, and are counted.
    percentile  without the events that wait for their primary event, which may be for hours, and without the promise;
                less the measured lateness that 99 % of the records did not exceed. ``waiting`` says how many events
                before it have no verdict.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from photon.batch.columns import I64
from photon.config.clock import NEVER_NS, NS_PER_S, utc
from photon.outputs.cursor import Cursor, OutputLog, Position
from photon.outputs.watermarks import STEP_NS, Late, Pair

PERCENTILE = 0.99
HALF_LIFE_S = 60.0  # of a record's weight in the lateness
STEPS_A_DOUBLING = 8
BUCKETS = 400
SILENT_NS = 10 * NS_PER_S  # a running dispatcher reports twice a second
PAIRS_KEPT = 4096  # in memory, to find late records


class Asked(Protocol):
    """The dispatcher's state at one moment (``photon.dispatcher.undecided``)."""

    @property
    def said_ns(self) -> int: ...
    @property
    def who(self) -> str: ...
    @property
    def read_ns(self) -> int | None: ...
    @property
    def why(self) -> str: ...
    @property
    def moving_ns(self) -> int: ...
    @property
    def oldest_ns(self) -> int: ...
    def before(self, time_ns: int) -> int: ...


ANY_NS = -NEVER_NS  # a slot's answer if its start found records that it may not have shown: any time


@dataclass(frozen=True, slots=True)
class SlotShown:
    """A slot's answer.

    ``unshown_ns``: the oldest event time that it has not published; ``None`` means unknown, and ``problem`` says why.
    """

    slot: str
    unshown_ns: int | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample of one pipeline, taken in the order of its fields."""

    at_ns: int
    undecided: Asked
    slots: Sequence[SlotShown]
    cursor: Cursor
    retired: Collection[str] = ()  # slots whose end in ``cursor`` is final, even if more was shown before


@dataclass(slots=True)
class Lateness:
    """A histogram of records' lateness in seconds, against the newest pair before them. Forgets old ones."""

    _weights: np.ndarray[tuple[int], np.dtype[np.float64]] = field(default_factory=lambda: np.zeros(BUCKETS))
    _at_s: float = float("-inf")

    def add(self, late_ns: I64, now_s: float) -> None:
        """Adds the lateness of records; 0 or less means not late."""
        self._forget(now_s)
        seconds = np.maximum(late_ns, 0) / NS_PER_S
        buckets = np.minimum(np.ceil(np.log2(seconds + 1) * STEPS_A_DOUBLING), BUCKETS - 1).astype(np.int64)
        self._weights += np.bincount(buckets, minlength=BUCKETS)

    def _forget(self, now_s: float) -> None:
        if self._at_s != float("-inf"):
            self._weights *= 0.5 ** (max(now_s - self._at_s, 0.0) / HALF_LIFE_S)
        self._at_s = now_s

    def quantile_s(self, share: float = PERCENTILE) -> float:
        """Returns the lateness that this share of the records does not exceed, rather too large than too small; 0 if
        there were none.
        """
        sums = np.cumsum(self._weights)
        if sums[-1] < 1e-6:
            return 0.0
        bucket = int(np.searchsorted(sums, share * sums[-1] * (1 - 1e-12)))
        return float(2 ** (min(bucket, BUCKETS - 1) / STEPS_A_DOUBLING) - 1)


def floored(time_ns: int) -> int:
    """Rounds a time down to a whole step, before which the number of events is exact."""
    return max(time_ns, ANY_NS + STEP_NS) // STEP_NS * STEP_NS


class Watermarks:
    """The watermarks of one pipeline.

    ``within_ns``: the longest time from a line's event time until it is in its log, including the clocks'
    uncertainty; ``None`` means that nothing is promised, and ``exact`` is never known.
    """

    def __init__(self, within_ns: int | None, pairs: Sequence[Pair] = (), late: Sequence[Late] = ()) -> None:
        """``pairs``, ``late``: as journaled earlier, oldest first."""
        self._within_ns = within_ns
        self._pairs = list(pairs[-PAIRS_KEPT:])
        self.lateness = Lateness()
        self.late_records = sum(each.records for each in late)
        self._counted: dict[str, int] = {}
        for each in late:
            self._counted[each.file] = max(each.end, self._counted.get(each.file, 0))
        self._leasts = [ANY_NS] * len(self._pairs)  # the value from which each pair's percentile was taken
        self._least_ns: int | None = None

    @property
    def last(self) -> Pair | None:
        return self._pairs[-1] if self._pairs else None

    def take(self, sample: Sample) -> Pair:
        """Computes the pair that follows from a sample."""
        last = self.last
        undecided = sample.undecided
        silent = [each for each in sample.slots if each.unshown_ns is None]
        shown_ns = min((each.unshown_ns for each in sample.slots if each.unshown_ns is not None), default=NEVER_NS)
        exact_ns, percentile_ns = (last.exact_ns, last.percentile_ns) if last is not None else (None, None)
        if undecided.read_ns is not None and not silent and shown_ns > ANY_NS:
            least_ns = min(undecided.read_ns, undecided.moving_ns, shown_ns)
            self._least_ns = max(least_ns, self._least_ns or least_ns)
            behind_ns = int(self.lateness.quantile_s() * NS_PER_S)
            percentile_ns = _later(percentile_ns, floored(self._least_ns - behind_ns))
            if self._within_ns is not None:
                exact_ns = _later(
                    exact_ns, floored(min(undecided.read_ns - self._within_ns, undecided.oldest_ns, shown_ns))
                )
                percentile_ns = max(percentile_ns, exact_ns)  # after an outage, lateness keeps it back for long
        held_by = tuple(self._holders(sample, shown_ns, silent))
        waiting = 0 if percentile_ns is None else self._waiting(sample, percentile_ns)
        return Pair(sample.at_ns, exact_ns, percentile_ns, waiting, _further(last, sample), held_by)

    def _waiting(self, sample: Sample, before_ns: int) -> int:
        """Returns the number of events before a time that are still to be published: events without a verdict, and
        one for each slot that has records to publish or does not answer.
        """
        undecided, last = sample.undecided, self.last
        waiting = undecided.before(before_ns)
        waiting += sum(each.unshown_ns is None or each.unshown_ns < before_ns for each in sample.slots)
        if last is not None and (undecided.read_ns is None or undecided.read_ns < before_ns):
            return max(waiting, last.waiting)  # its memory is gone, or older: it reads again events that it knew
        return waiting

    def held(self, at_ns: int, why: str) -> Pair | None:
        """Returns the last pair, which stays valid while no sample can be taken; ``None`` if there is none."""
        return None if self.last is None else replace(self.last, at_ns=at_ns, held_by=(why,))

    def _holders(self, sample: Sample, shown_ns: int, silent: Sequence[SlotShown]) -> list[str]:
        found = [f"slot {each.slot}: {each.problem}" for each in silent]
        undecided = sample.undecided
        if sample.at_ns - undecided.said_ns > SILENT_NS:
            found.append(f"{undecided.who} has not reported since {utc(undecided.said_ns)}")
        if undecided.read_ns is None or undecided.why:
            found.append(undecided.why or "its dispatcher has not read its logs to their ends since it was started")
        if self._within_ns is None:
            found.append(
                "written_within is not set: without it nothing is known about lines that are not written yet"
            )
        elif undecided.read_ns is not None:
            bound = undecided.read_ns - self._within_ns
            if undecided.oldest_ns < min(bound, shown_ns):
                found.append("events that have no verdict")
            elif shown_ns < bound:
                found.append("records that are not published")
        return found

    def journaled(self, pair: Pair) -> None:
        """Notes that the pair is in the journal, so that it is valid from now on."""
        self._pairs.append(pair)
        self._leasts.append(ANY_NS if self._least_ns is None else self._least_ns)
        if len(self._pairs) >= 2 * PAIRS_KEPT:
            del self._pairs[:-PAIRS_KEPT], self._leasts[:-PAIRS_KEPT]

    # -- published lines -------------------------------------------------------------------------------------------
    def published(self, file: str, offsets: Sequence[int], times_ns: I64, now_s: float) -> Late | None:
        """Compares an output file's lines with earlier pairs. Pass lines in order; after a crash some may come again.

        Returns the late records not counted yet: journal them, then pass them to ``count``.
        """
        if not len(times_ns):
            return None
        at = np.array(offsets, np.int64)
        begins, exact, least = self._before(file, int(at[0]))
        row = np.searchsorted(begins, at, "right")
        if (known := least[row] > ANY_NS).any():
            self.lateness.add((least[row] - times_ns)[known], now_s)
        bounds = exact[row]
        late = np.flatnonzero((times_ns < bounds) & (at >= self._counted.get(file, 0)))
        if not len(late):
            return None
        return Late(file, int(at[late[-1]]) + 1, len(late), int(times_ns[late].min()))

    def count(self, late: Late) -> None:
        self.late_records += late.records
        self._counted[late.file] = late.end

    def _before(self, file: str, first: int) -> tuple[I64, I64, I64]:
        """Returns n offsets in a file, n + 1 exact watermarks, and n + 1 times from which a percentile was taken. For
        a record after k of the offsets, the k-th of both apply: they are of the newest pair whose cursor is not past
        it (ANY_NS if there is none).
        """
        log, number = _log_of(file)
        rows: list[tuple[int, int, int]] = []
        for pair, least_ns in zip(reversed(self._pairs), reversed(self._leasts), strict=True):
            at = pair.cursor.positions.get(log, Position(0, 0))
            if at.number > number:
                continue
            begin = at.offset if at.number == number else 0
            if not rows or begin < rows[-1][0]:  # a retired slot may end before older pairs
                rows.append((begin, ANY_NS if pair.exact_ns is None else pair.exact_ns, least_ns))
            if begin <= first:
                break
        begins, exact, least = np.array(rows[::-1], np.int64).reshape(-1, 3).T
        return begins, np.append(ANY_NS, exact), np.append(ANY_NS, least)


def _later(before_ns: int | None, now_ns: int) -> int:
    return now_ns if before_ns is None else max(before_ns, now_ns)


def _further(last: Pair | None, sample: Sample) -> Cursor:
    """Returns the furthest position of each log, as a power cut may revert a publication for a while; of a retired
    slot its end, as no reader can pass it."""
    before = {} if last is None else last.cursor.positions
    return Cursor(
        {
            log: at if log.slot in sample.retired else max(at, before.get(log, at))
            for log, at in sample.cursor.positions.items()
        }
    )


def _log_of(file: str) -> tuple[OutputLog, int]:
    kind, _, name = file.partition("/")
    slot, _, number = name.removesuffix(".jsonl").rpartition("-")
    return OutputLog(slot, kind), int(number)
