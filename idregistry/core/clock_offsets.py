"""Compares a replica's clock with its peers' clocks. Pure; all arithmetic is on intervals.

A peer's clock is read with one request. The peer reads it between request and reply, so its offset from the asker's
*monotonic* clock is known within one round trip, regardless of the two one-way delays (NTP's error bound without its
assumption that they are equal). The offset from the asker's wall clock is computed when that clock is read: a step of
the local wall clock shows at once, not at the next request.

The *median* is over all replicas, including this one: while fewer than half of the clocks are wrong, it lies between
correct ones. An unknown clock may show any time, so the median is an interval, too.
"""

from __future__ import annotations

import enum
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from photon.config.interval_clock import Interval

NS_PER_S = 1_000_000_000
INFINITE_NS = 1 << 62  # bound on an unknown clock's offset in either direction; larger than any real one
READING_S_MAX = 30.0  # older readings are ignored, as clocks may be stepped
DRIFT = 0.001  # unstepped clocks drift apart by less than this share of the time: twice the kernel's 500 ppm


@dataclass(frozen=True, slots=True)
class Offset:
    """The bounds within which a clock is ahead of the local one: [``low_ns``, ``high_ns``], both inclusive."""

    low_ns: int
    high_ns: int

    def within(self, bound_ns: int) -> bool:
        """True if the clocks certainly differ by at most ``bound_ns``."""
        return -bound_ns <= self.low_ns and self.high_ns <= bound_ns

    def beyond(self, bound_ns: int) -> bool:
        """True if the clocks certainly differ by more than ``bound_ns``."""
        return self.low_ns > bound_ns or self.high_ns < -bound_ns

    @property
    def known(self) -> bool:
        return self.low_ns > -INFINITE_NS and self.high_ns < INFINITE_NS


ANYWHERE = Offset(-INFINITE_NS, INFINITE_NS)
OWN = Offset(0, 0)


@dataclass(frozen=True, slots=True)
class Reading:
    """A reading of one peer's wall clock, with the local monotonic times of request and reply, in seconds."""

    wall_ns: int
    asked_s: float
    answered_s: float


def ahead_by(reading: Reading, now: Interval, monotonic_s: float) -> Offset:
    """Returns the peer's wall clock minus the local one, which reads ``now`` at ``monotonic_s``."""
    age_s = monotonic_s - reading.asked_s
    if age_s > READING_S_MAX or age_s < 0:
        return ANYWHERE
    drift_ns = int(age_s * DRIFT * NS_PER_S)
    # The peer read its clock when the local one showed between now - (age) and now - (age - round trip).
    low = reading.wall_ns - now.now_ns + int((monotonic_s - reading.answered_s) * NS_PER_S) - drift_ns
    high = reading.wall_ns - now.now_ns + int(age_s * NS_PER_S) + 1 + drift_ns
    return Offset(_clipped(low), _clipped(high))


def median(offsets: Sequence[Offset]) -> Offset:
    """Returns the median offset of all clocks, with the local one. For an even number, it spans the middle two."""
    if not offsets:
        raise ValueError("no clocks")
    lows, highs = sorted(each.low_ns for each in offsets), sorted(each.high_ns for each in offsets)
    return Offset(lows[(len(offsets) - 1) // 2], highs[len(offsets) // 2])


def middle_s(clocks: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Returns the two offsets, in seconds, between which the median of clocks lies.

    ``clocks``: how far each clock is ahead, and the error in either direction. A paused or starved process has a
    large error.
    """
    known = list(clocks)
    return statistics.median(at - error for at, error in known), statistics.median(at + error for at, error in known)


def surely_apart_s(ahead_s: float, error_s: float, middle: tuple[float, float]) -> float:
    """Returns by how many seconds a clock certainly differs from a median of ``middle_s``; 0 if it may not differ."""
    return max(ahead_s - error_s - middle[1], middle[0] - ahead_s - error_s, 0.0)


class Agreement(enum.IntEnum):
    """The result of comparing clocks; the numbers are those of registry.proto."""

    AGREES = 1  # the local clock is certainly within S of the median
    APART = 2  # it is certainly further away
    UNCERTAIN = 3  # too few peers answer, or not quickly enough for S


@dataclass(frozen=True, slots=True)
class ClockFacts:
    """A replica's own view of its clock. ``middle``, ``peers``: how far the median and the peers are ahead of it."""

    now: Interval
    agreement: Agreement
    middle: Offset
    peers: Mapping[str, Offset]
    objection: str  # why this replica proposes no boundary and no change of the shards; empty if it does


def judged(middle: Offset, uncertainty_ns: int) -> Agreement:
    """Compares the local clock with the median, which is ``middle`` ahead of it."""
    if middle.within(uncertainty_ns):
        return Agreement.AGREES
    return Agreement.APART if middle.beyond(uncertainty_ns) else Agreement.UNCERTAIN


def objection(
    now: Interval, middle: Offset, peers: Mapping[str, Offset], *, uncertainty_ns: int, require_sync: bool
) -> str:
    """Returns one line that says why no time-dependent proposal may be made; empty if it may."""
    bound = f"S = {uncertainty_ns / NS_PER_S:g} s"
    agreement = judged(middle, uncertainty_ns)
    if agreement is Agreement.APART:
        by = min(abs(middle.low_ns), abs(middle.high_ns)) / NS_PER_S
        way = "behind" if middle.low_ns > 0 else "ahead of"
        return f"this clock is {by:.3f} s {way} the median of all replicas ({bound}): correct it"
    if agreement is Agreement.UNCERTAIN:
        unknown = sorted(name for name, offset in peers.items() if not offset.known)
        if unknown and not middle.known:
            return f"too few clocks are known for a comparison: no reading of {', '.join(unknown)}"
        if unknown:
            return f"the clocks of too few replicas agree within {bound}: no reading of {', '.join(unknown)}"
        return f"it is unknown whether this clock is within {bound} of the others: correct the clocks, or raise S"
    if require_sync and not now.synchronised:
        return "this machine's clock is not synchronised, and clock.require_sync is set: start its time daemon"
    return ""


def too_new_after(now: Interval, middle: Offset, uncertainty_ns: int) -> int:
    """Returns the time after which event times are TOO_NEW: now + S by any clock that may be right.

    S bounds the difference of any two machines, so an event may carry up to S more than this clock shows; a kernel
    that reports a greater error is believed. A clock that is certainly wrong is replaced by the median. Otherwise a
    leader with a slow clock would block its shard until an operator corrects it.
    """
    if middle.beyond(uncertainty_ns):
        return now.now_ns + middle.high_ns + uncertainty_ns
    return max(now.latest_ns, now.now_ns + uncertainty_ns)


def not_after(now: Interval, uncertainty_ns: int) -> int:
    """Returns a lower bound on every machine's clock; boundaries are computed from it."""
    return min(now.earliest_ns, now.now_ns - uncertainty_ns)


def _clipped(offset_ns: int) -> int:
    return max(-INFINITE_NS, min(offset_ns, INFINITE_NS))
