"""Chooses the joiners that a dispatcher uses. Pure.

Any joiner serves any event, so joiners come and go without notice (paper, 3.3).

The registry lists for each slot the address of the process that opened it last. Each such address is a *candidate*:
it is asked for its health, and *used* once it serves. It is no longer used

- when it reports that it does not serve: it is shutting down, and answers batches in flight;
- when it has answered neither health checks nor batches for ``FORGET_S`` while another joiner does: it counts as
  gone; its batches in flight have an unknown outcome, and are sent again. If all are silent, all stay in use: this
  process or the network may be at fault;
- when it is no longer listed: another process opened its slot, or the slot was retired.

A joiner that does not serve remains a candidate and is asked again; if it is silent and another is used, at growing
intervals. While the registry does not answer, the last list is used.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

from photon.config.back_off import BackOff
from photon.idregistry.client.whereabouts import listed
from photon.idregistry.witness import KnownSlot

ASK_S = 2.0  # time between two questions to a joiner;
FIRST_S = 0.25  # the same while none is used
ASK_MOST_S = 30.0  # its maximum for silent ones, doubled each time
FORGET_S = 15.0  # after this silence a joiner is no longer used
CANDIDATES_MAX = 256  # joiners of one datacentre; those that opened their slots last are kept


class Heard(enum.Enum):
    SERVES = enum.auto()
    SERVES_NOT = enum.auto()  # it is starting, or shutting down
    NOTHING = enum.auto()


@dataclass(frozen=True, slots=True)
class Removed:
    """A joiner to remove from use."""

    address: str
    gone: bool  # the process is gone: batches in flight are not waited for


@dataclass(slots=True)
class Changes:
    add: list[str] = field(default_factory=list)
    remove: list[Removed] = field(default_factory=list)


@dataclass(slots=True)
class _Candidate:
    incarnation: int
    next: float
    silent: int = 0  # consecutive missing answers while others are used
    used: bool = False
    answered: float = 0.0  # when it last served
    asked: bool = False  # an answer is awaited


class JoinerSet:
    """The candidates, and the joiners in use. Times are monotonic seconds."""

    def __init__(self, datacentre: str) -> None:
        self._datacentre = datacentre
        self._known: dict[str, _Candidate] = {}

    @property
    def used(self) -> list[str]:
        return [address for address, each in self._known.items() if each.used]

    def listed(self, slots: Iterable[KnownSlot], now: float) -> Changes:
        newest: dict[str, int] = {}
        for slot, address in listed(slots, self._datacentre):
            newest[address] = max(newest.get(address, 0), slot.newest)
        kept = sorted(newest, key=lambda address: -newest[address])[:CANDIDATES_MAX]
        gone = [Removed(address, False) for address in self.used if address not in kept]
        known = {}
        for address in kept:
            candidate = self._known.get(address) or _Candidate(newest[address], now)
            if newest[address] > candidate.incarnation:  # another process has started there
                candidate.incarnation, candidate.silent, candidate.next = newest[address], 0, now
            known[address] = candidate
        self._known = known
        return Changes(remove=gone)

    def due(self, now: float) -> list[str]:
        """Returns the joiners whose health to ask now; call ``heard`` with each answer."""
        found = [address for address, each in self._known.items() if not each.asked and each.next <= now]
        for address in found:
            self._known[address].asked = True
        return found

    def answered(self, address: str, at: float) -> None:
        """Notes that a joiner answered a batch at ``at``: it is alive, even if its health answer is late."""
        candidate = self._known.get(address)
        if candidate is not None:
            candidate.answered = max(candidate.answered, at)

    def heard(self, address: str, what: Heard, now: float) -> Changes:
        candidate = self._known.get(address)
        if candidate is None:
            return Changes()
        candidate.asked = False
        silent = what is Heard.NOTHING
        candidate.silent = candidate.silent + 1 if silent and not candidate.used and self.used else 0
        is_first = what is Heard.SERVES_NOT and not self.used
        candidate.next = now + (FIRST_S if is_first else BackOff(ASK_S, ASK_MOST_S).delay(candidate.silent + 1))
        if what is Heard.SERVES:
            candidate.answered = now
            if not candidate.used:
                candidate.used = True
                return Changes(add=[address])
        elif candidate.used and (not silent or self._gone(candidate, now)):
            candidate.used = False
            return Changes(remove=[Removed(address, silent)])
        return Changes()

    def _gone(self, silent: _Candidate, now: float) -> bool:
        if now - silent.answered < FORGET_S:
            return False
        others = (each for each in self._known.values() if each is not silent)
        return any(each.used and now - each.answered < FORGET_S for each in others)
