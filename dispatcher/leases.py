"""Decides which worker reads which logs: one worker's decisions from the shared state. Pure (paper, 3.2).

A *unit* is a log, or a part of a huge one; a *lease* says which incarnation of which worker reads it. Leases change
hands in two ways only: the owner returns one after it has committed everything it had read of the unit; or an
incarnation is *fenced*, that is permanently declared dead, and all its units are free. A worker is taken for dead
when its beat, a counter in the shared state, has not changed for the length of a lease by the observer's own
monotonic clock, and over several looks of the observer: clocks are never compared, and an observer that was itself
stopped does not blame the others. A mistake costs time but no event: a fenced worker learns it at its next commit,
which is refused.

Shares are even: with n visible units each of w workers reads n // w, and the earliest workers one more. Each takes
free units up to its share and returns those above it, so that units move only when a worker comes or goes. Workers
may disagree about visible units for a long time (a log renamed beyond recognition is another one to those started
since): units that have been free for some leases are taken beyond the share, so that nothing stays unread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from zlib import crc32

from photon.dispatcher.errors import WorkerFenced

LEASE_S = 10.0
BEATS_A_LEASE = 5  # changes of a worker's beat in the length of a lease
LOOKS_MIN = 3  # looks that must see the same beat, however much time has passed
STRANDED_LEASES = 2  # a unit free for this many leases is taken beyond the share,
KEPT_LEASES = 20  # and kept for this many before it counts in the share, and may be returned
TAKEN_AT_ONCE = 500  # units taken, and returned, in one decision: transactions stay short


@dataclass(frozen=True, slots=True)
class WorkerRow:
    incarnation: int
    name: str
    beat: int
    fenced: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """The shared state at one moment. ``owners``: unit -> incarnation, which may be fenced or gone."""

    workers: Sequence[WorkerRow]
    owners: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Decision:
    """``fence``: (incarnation, unchanged beat); only valid if the beat is still that one."""

    fence: tuple[tuple[int, int], ...] = ()
    take: tuple[str, ...] = ()
    give: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.fence or self.take or self.give)


@dataclass(slots=True)
class _Beat:
    beat: int
    since: float  # monotonic seconds of the observer
    looks: int = 1


@dataclass(slots=True)
class Leases:
    """One worker's view of the others. ``now``: its own monotonic clock in seconds."""

    me: int
    lease_s: float = LEASE_S
    living: int = 1  # workers, including this one, at the last decision
    _beats: dict[int, _Beat] = field(default_factory=dict)
    _free: dict[str, float] = field(default_factory=dict)  # free unit -> since when
    _extra: dict[str, float] = field(default_factory=dict)  # unit taken beyond the share -> when

    def decide(self, view: View, in_sight: Iterable[str], now: float, *, to_split: Iterable[str] = ()) -> Decision:
        """``in_sight``: the units that can be read now; ``to_split``: own units that should be several.

        Raises WorkerFenced if this worker has been fenced.
        """
        alive = {row.incarnation: row for row in view.workers if not row.fenced}
        if self.me not in alive:
            raise WorkerFenced()
        dead = self._dead(alive.values(), now)
        living = sorted(incarnation for incarnation in alive if incarnation not in dead)
        self.living = len(living)
        units = list(dict.fromkeys(in_sight))
        seen = set(units)
        owners = view.owners
        mine = [unit for unit, owner in owners.items() if owner == self.me]
        share = self._share(len(units), living)
        give = [unit for unit in mine if unit not in seen]
        mine_now = set(mine)
        until = now - KEPT_LEASES * self.lease_s
        self._extra = {unit: at for unit, at in self._extra.items() if unit in mine_now and at > until}
        held = [unit for unit in mine if unit in seen and unit not in self._extra]
        again = set(to_split) & mine_now & seen if len(living) > 1 else set()
        excess = len(held) - share
        if excess > 0:
            held.sort(key=lambda unit: (unit not in again, self._order(unit)))
            again.update(held[:excess])
        give += sorted(again, key=self._order)
        free = sorted((u for u in units if (o := owners.get(u)) is None or o not in living), key=self._order)
        take = free[: max(0, -excess)]
        stranded = self._stranded(free, now)
        self._extra.update((unit, now) for unit in stranded if unit not in take)
        take = list(dict.fromkeys((*take, *stranded)))
        fence = tuple((incarnation, alive[incarnation].beat) for incarnation in sorted(dead))
        return Decision(fence, tuple(take[:TAKEN_AT_ONCE]), tuple(give[:TAKEN_AT_ONCE]))

    def _dead(self, rows: Iterable[WorkerRow], now: float) -> set[int]:
        dead = set()
        beats: dict[int, _Beat] = {}
        for row in rows:
            known = self._beats.get(row.incarnation)
            if known is None or known.beat != row.beat:
                beats[row.incarnation] = _Beat(row.beat, now)
                continue
            known.looks += 1
            beats[row.incarnation] = known
            still = now - known.since >= self.lease_s and known.looks > LOOKS_MIN
            if still and row.incarnation != self.me:
                dead.add(row.incarnation)
        self._beats = beats
        return dead

    def _stranded(self, free: Sequence[str], now: float) -> list[str]:
        self._free = {unit: self._free.get(unit, now) for unit in free}
        since = now - STRANDED_LEASES * self.lease_s
        return [unit for unit in free if self._free[unit] <= since]

    def _share(self, units: int, living: Sequence[int]) -> int:
        return units // len(living) + (living.index(self.me) < units % len(living))

    def _order(self, unit: str) -> int:
        """Returns a position in this worker's own order of units, so that workers seldom want the same one."""
        return crc32(b"%d:%b" % (self.me, unit.encode()))
