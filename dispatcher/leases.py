"""Which worker reads which logs: what one worker decides from what the shared state says. Pure (paper, 3.2).

A *unit* is a log, or a part of a huge one; a *lease* says which incarnation of which worker reads it. Leases change
hands in two ways only: their owner gives one back, after it has committed all that it had read of it; or an
incarnation is *fenced*, that is declared dead for ever, and all its units are free. A worker is taken for dead when
its beat, a counter in the shared state, has stood still for the length of a lease by the observer's own monotonic
clock, and for several looks of the observer: clocks are never compared, and an observer that stood still itself
does not blame the others. Being wrong about it costs time and no event: who was fenced learns so at its next commit,
which is refused.

Shares are even: of n units in sight w workers read n // w each, those that came first one more. Each takes what is
free up to its share and gives back what it has above it, so that units move only when a worker comes or goes. Workers
may see different units for long (a log renamed beyond recognition is another one to those started since): what has
been free for some leases is taken beyond the share, so that nothing stays unread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from zlib import crc32

from photon.dispatcher.errors import WorkerFenced

LEASE_S = 10.0
BEATS_A_LEASE = 5  # a worker's beat moves on so often in the length of a lease
LOOKS_MIN = 3  # a beat has to be seen standing still so often, however much time has gone by
STRANDED_LEASES = 2  # free for so long, it is taken beyond the share,
KEPT_LEASES = 20  # and kept for so long before it counts in the share, and may be given back
TAKEN_AT_ONCE = 500  # units taken, and given back, in one decision: transactions stay short


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
    """``fence``: (incarnation, beat that stood still); to hold only if the beat is still that one."""

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
    living: int = 1  # workers, this one included, as of the last decision
    _beats: dict[int, _Beat] = field(default_factory=dict)
    _free: dict[str, float] = field(default_factory=dict)  # unit that nobody has -> since when
    _extra: dict[str, float] = field(default_factory=dict)  # unit taken beyond the share -> when

    def decide(self, view: View, in_sight: Iterable[str], now: float, *, to_split: Iterable[str] = ()) -> Decision:
        """``in_sight``: the units that can be read now; ``to_split``: those of mine that should be several.

        Raises WorkerFenced when this worker is one of the dead.
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
        """Each worker has an order of its own, so that they seldom want the same one."""
        return crc32(b"%d:%b" % (self.me, unit.encode()))
