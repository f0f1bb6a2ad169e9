"""Decides what a slot sends to its copy next, and how much of its output it may publish meanwhile (rule 14). Pure.

Only durable bytes are sent, exactly from the copy's end on, one request at a time, so that the copy is a byte-wise
prefix of the slot's output. Acknowledged bytes may be published. If no keeper answers for ``wait_s``, the slot
publishes output that is durable only here, until the copy has caught up.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from photon.config.back_off import BackOff
from photon.idregistry.witness import Witness
from photon.joiner.copies.api import EMPTY, CopyAnswer, Status, held_by_all

# For each of KINDS: (file number, durable length) of the slot's files, in order, including final ones.
LocalFiles = tuple[tuple[tuple[int, int], ...], ...]


@dataclass(frozen=True, slots=True)
class ShipperLimits:
    """Sizes in bytes, times in seconds."""

    # Bytes shipped per request, and so the limit in flight; a longer line is shipped alone.
    request_bytes: int = 4 << 20
    retry: BackOff = BackOff(first=0.2, most=5.0)
    trouble_s: float = 30.0  # wait after a refusal that only an operator can resolve


@dataclass(frozen=True, slots=True)
class Open:
    """Ask the keeper to fence earlier incarnations; then call ``answered``."""


@dataclass(frozen=True, slots=True)
class Verify:
    """Check whether the slot's output begins with these bytes; then call ``verified``."""

    ends: Witness


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of one file, from ``start`` to a line end at most at ``end``."""

    log: int
    number: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Ship:
    """Send these bytes after ``ends``, at most ``request_bytes`` in total; then call ``answered``."""

    ends: Witness
    pieces: tuple[Piece, ...]
    shown: Witness


Step = Open | Verify | Ship


class Shipper:
    """Plans the shipping for one incarnation of one slot. Times: monotonic seconds."""

    def __init__(
        self, incarnation: int, *, wait_s: float, required: bool, now: float, limits: ShipperLimits | None = None
    ) -> None:
        """``required``: never publish output that the copy lacks."""
        self.incarnation = incarnation
        self._wait_s = wait_s
        self._required = required
        self.limits = limits or ShipperLimits()
        # the copy's content, with which this output begins; ``None`` if not known yet
        self.ends: Witness | None = None
        self._told: Witness | None = None  # the copy's content as reported by the keeper, not compared yet
        self._asked: Step | None = None
        self._again_s = now
        self._failures = 0
        self._waiting_since: float | None = now
        self._shown_there: Witness = ()
        self.fallback = False  # output that is durable only here is shown
        self.trouble = ""  # why nothing can be shipped until an operator acts
        self.ended = ""  # why the process must end: another process works in this slot, or the slot is retired

    def next(self, now: float, local: LocalFiles, shown: Witness) -> Step | None:
        """Returns the next step, once; ``None`` if there is none, or one is in progress.

        ``shown``: the output published so far.
        """
        self._look(now, local)
        if self._asked is not None or self.ended or now < self._again_s:
            return None
        if self.ends is None:
            self._asked = Open() if self._told is None else Verify(self._told)
            return self._asked
        pieces = self._pieces(local)
        if pieces or shown != self._shown_there:
            self._asked = Ship(self.ends, pieces, shown)
        return self._asked

    def opened(self, ends: Witness) -> None:
        """Notes that the copy was opened at the start, and that the slot's output begins with all of it."""
        self.ends = ends

    def answered(self, answer: CopyAnswer | None, now: float, *, expected: Witness | None = None) -> None:
        """Handles the keeper's answer to the last step. ``expected``: the copy's ends after the bytes sent."""
        asked, self._asked = self._asked, None
        if answer is None:
            self._retry(now)
        elif answer.status is Status.STALE:
            self.ended = (
                f"the keeper of the copy has seen incarnation {answer.newest}, this process is {self.incarnation}: "
                "another process is at work in this slot"
            )
        elif answer.status is Status.SEALED:
            self.ended = "the copy of this slot is sealed: the slot is retired; start with another slot name"
        elif answer.status is Status.REFUSED:
            self._refused(answer.reason, now)
        elif answer.status is Status.OK and isinstance(asked, Ship) and answer.ends == expected:
            self.ends = answer.ends
            self._shown_there = asked.shown
            self._heard(now)
        else:
            opened = answer.newest == self.incarnation  # otherwise it was set aside there, and must be opened first
            self.ends, self._told = None, answer.ends if opened else None
            self._again_s = now

    def verified(self, same: bool, now: float) -> None:
        """Notes whether the slot's output begins with the bytes in ``Verify``."""
        self._asked = None
        if same:
            self.ends, self._told = self._told, None
            self._heard(now)
        else:
            self._refused("the copy differs from this slot's output; set its directory aside there", now)

    def failed(self, why: str, now: float) -> None:
        self._asked = None
        self._refused(why, now)

    def bound(self, now: float, local: LocalFiles, whole: Witness, end: Witness) -> Witness:
        """Returns the limit for the witness, and so for the published output.

        ``whole``: the durable output; ``end``: the present witness.
        """
        self._look(now, local)
        if self.fallback:
            return whole
        return held_by_all(whole, self.ends or EMPTY, end)

    def told(self, shown: Witness) -> bool:
        """True if the keeper knows that ``shown`` is published, so that readers of the copy see it, or if the slot
        does not wait for that.
        """
        return self.fallback or self._shown_there == shown

    def behind(self, local: LocalFiles) -> int:
        """Returns the number of durable bytes not known to be in the copy."""
        ends = self.ends or EMPTY
        return sum(
            length - (end.length if number == end.number else 0)
            for files, end in zip(local, ends, strict=True)
            for number, length in files[_first(files, end.number) :]
        )

    # -- inside ----------------------------------------------------------------------------------------------
    def _look(self, now: float, local: LocalFiles) -> None:
        """Tracks how long publishing has waited for the copy, and decides whether to continue without it."""
        if self.ends is not None and not self._pieces(local):
            self._waiting_since = None
            self.fallback = False
            return
        if self._waiting_since is None:
            self._waiting_since = now
        if not self._required and now - self._waiting_since >= self._wait_s:
            self.fallback = True

    def _pieces(self, local: LocalFiles) -> tuple[Piece, ...]:
        if self.ends is None:
            return ()
        left = self.limits.request_bytes
        found: list[Piece] = []
        for log, (files, end) in enumerate(zip(local, self.ends, strict=True)):
            for number, length in files[_first(files, end.number) :]:
                start = end.length if number == end.number else 0
                if left <= 0:
                    return tuple(found)
                if start < length:
                    found.append(Piece(log, number, start, length))
                    left -= length - start
        return tuple(found)

    def _heard(self, now: float) -> None:
        self._failures = 0
        self._again_s = now
        self._waiting_since = now if self._waiting_since is not None else None
        self.trouble = ""

    def _retry(self, now: float) -> None:
        self._failures += 1
        self._again_s = now + self.limits.retry.delay(self._failures)

    def _refused(self, why: str, now: float) -> None:
        self.trouble = why
        self.ends = self._told = None
        self._again_s = now + self.limits.trouble_s


def _first(files: tuple[tuple[int, int], ...], number: int) -> int:
    return bisect_left(files, (number, 0))
