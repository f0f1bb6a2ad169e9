"""Which joiners a dispatcher uses, where they are not listed in the deployment file. Pure (paper, 3.3: any joiner
serves any event, so joiners come and go without anybody being told).

The registry's list of slots says who opened each slot last, and where that process is reached. A *candidate* is an
address of that list. It is asked how it is, and *used* from the moment that it serves. It is used no longer

- when it says that it does not serve: it ends in order, what is on its way there is answered;
- when it has not answered for ``FORGET_S``, neither this question nor a batch, while another one does: it is gone,
  and what is on its way there is unknown, so it is sent again. Where all are silent it may be this process or the
  network that stands still, and to have none would be no better;
- when it left the list: another process opened its slot, or the slot was retired.

Who does not serve stays a candidate and is asked again, less and less often while it is silent. While the registry
does not answer the last list holds.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

from photon.idregistry.witness import KnownSlot
from photon.joiner.whereabouts import listed

ASK_S = 2.0  # time between two questions to a joiner
ASK_MOST_S = 30.0  # the same at most, for those that are silent: twice as long each time
FORGET_S = 15.0  # silent for so long, a joiner is used no more
CANDIDATES_MAX = 256  # joiners of one datacentre; those that opened their slots last are kept


class Heard(enum.Enum):
    SERVES = enum.auto()
    SERVES_NOT = enum.auto()  # it is starting, or about to end
    NOTHING = enum.auto()


@dataclass(frozen=True, slots=True)
class Removed:
    """No batch goes there any more."""

    address: str
    gone: bool  # nobody is there: what is on its way is not waited for


@dataclass(slots=True)
class Changes:
    add: list[str] = field(default_factory=list)
    remove: list[Removed] = field(default_factory=list)


@dataclass(slots=True)
class _Candidate:
    incarnation: int
    next: float
    pause: float = ASK_S
    used: bool = False
    answered: float = 0.0  # when it last served
    asked: bool = False  # an answer is awaited


class JoinerSet:
    """Times: monotonic seconds."""

    def __init__(self, datacentre: str, fixed: Iterable[str] = ()) -> None:
        """``fixed``: addresses that are used whatever is heard of them."""
        self._datacentre = datacentre
        self._fixed = frozenset(fixed)
        self._known: dict[str, _Candidate] = {}

    @property
    def used(self) -> list[str]:
        return [address for address, each in self._known.items() if each.used]

    def listed(self, slots: Iterable[KnownSlot], now: float) -> Changes:
        newest: dict[str, int] = {}
        for slot, address in listed(slots, self._datacentre, self._fixed):
            newest[address] = max(newest.get(address, 0), slot.newest)
        kept = sorted(newest, key=lambda address: -newest[address])[:CANDIDATES_MAX]
        gone = [Removed(address, False) for address in self.used if address not in kept]
        known = {}
        for address in kept:
            candidate = self._known.get(address) or _Candidate(newest[address], now)
            if newest[address] > candidate.incarnation:  # a process has begun there since
                candidate.incarnation, candidate.pause = newest[address], ASK_S
                candidate.next = now
            known[address] = candidate
        self._known = known
        return Changes(remove=gone)

    def due(self, now: float) -> list[str]:
        """Whom to ask now; tell ``heard`` of each."""
        found = [address for address, each in self._known.items() if not each.asked and each.next <= now]
        for address in found:
            self._known[address].asked = True
        return found

    def answered(self, address: str, at: float) -> None:
        """It gave an answer to a batch then, so it lives, however late it says so."""
        candidate = self._known.get(address)
        if candidate is not None:
            candidate.answered = max(candidate.answered, at)

    def heard(self, address: str, what: Heard, now: float) -> Changes:
        candidate = self._known.get(address)
        if candidate is None:
            return Changes()
        candidate.asked = False
        silent = what is Heard.NOTHING
        candidate.pause = min(ASK_MOST_S, 2 * candidate.pause) if silent and not candidate.used else ASK_S
        candidate.next = now + candidate.pause
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
