"""A worker's leases in practice: the shell around ``leases``, between state, follower and core.

A new unit is given to follower and core with its committed position; a huge log is first cut into parts, while
nothing of it is in memory. A returned unit is read no further, and its lease ends once everything read of it is
committed. A log that has become huge is returned for that reason: its next reader cuts it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from photon.adapters.logs.api import LogPart, LogPosition
from photon.adapters.logs.lag import Unread
from photon.adapters.logs.shared import SharedFollower
from photon.config.clock import Clock
from photon.config.structured import get_logger
from photon.dispatcher.core import Core
from photon.dispatcher.leases import BEATS_A_LEASE, LEASE_S, TAKEN_AT_ONCE, Leases
from photon.dispatcher.ledger import figures
from photon.dispatcher.shared_state import Granted, SharedState
from photon.dispatcher.state import PART_MARK, is_part
from photon.dispatcher.status import Status
from photon.dispatcher.undecided import lease_moves

SPLIT_BYTES = 256 << 20
PARTS_A_SPLIT = 4  # parts of a log that is just huge enough
PARTS_MAX = 64  # parts of one log
AGAIN_S = 0.05  # pause before the next look if not everything could be done
LOOKED_AT_ONCE = 200  # files that others read whose heads are examined in one look
NEWS_S = 0.1  # delay before new logs are taken


@dataclass(frozen=True, slots=True)
class Terms:
    """``split_bytes``: a log with at least this much unread is read by several workers; ``None`` means never."""

    lease_s: float = LEASE_S
    split_bytes: int | None = SPLIT_BYTES


@dataclass(eq=False)
class LogLeases:
    """Call ``turn`` now and then; it does all its work once in a fifth of a lease.

    ``adopt_exports`` writes out lines that another worker left to export, if that one is dead.
    """

    state: SharedState
    follower: SharedFollower
    clock: Clock
    terms: Terms
    adopt_exports: Callable[[str], None] = lambda worker: None

    def __post_init__(self) -> None:
        self._leases = Leases(self.state.owner, self.terms.lease_s)
        self._log = get_logger("photon.dispatcher").bind(worker=self.state.worker)
        self._mine: set[str] = set()
        self._leaving: set[str] = set()
        self._left: list[str] = []  # all read lines are committed; the lease has not ended
        self._next = self._next_leave = self._next_news = self._next_orphans = 0.0
        self._moves = -1
        self._living = 1
        self._missing: dict[str, float] = {}  # logs with unread parts that do not exist -> since when
        self._told: set[str] = set()
        self._free: tuple[tuple[int, int], str] = (-1, -1), ""  # a unit without a reader, as of some moves

    @property
    def units(self) -> frozenset[str]:
        return frozenset(self._mine)

    def status(self, own: Status) -> Status:
        """Returns a worker's status with the committed counts of all workers; its own may be ahead of them."""
        return replace(own, **figures(self.state.counts()))

    def unread_now(self) -> Unread:
        """Like ``Follower.unread_now``; also in doubt while a visible unit has no reader, or changes hands."""
        unread = self.follower.unread_now()

        def next_part() -> str:
            return "a log that is given back" if self._leaving or self._left else unread.next_part()

        doubt = unread.doubt
        if not doubt and (free := self._without_reader()):
            doubt = f"{self.follower.path_of(free) or free} is read by no dispatcher yet"
        return replace(unread, doubt=doubt, next_part=next_part)

    def _without_reader(self) -> str:
        as_of = (self.follower.moves, lease_moves(self.state.database))
        if self._free[0] != as_of:
            there = set(self.follower.in_sight())
            parts = {part.unit for part in self.state.parts() if part.identity in there}
            self._free = as_of, min((there | parts) - self.state.leased(), default="")
        return self._free[1]

    def turn(self, core: Core, now: float) -> None:
        """``now``: monotonic seconds. Raises WorkerFenced, StateError."""
        if (self._leaving or self._left) and now >= self._next_leave:
            self._next_leave = now + AGAIN_S
            self._let_go(core)
        news = self.follower.moves != self._moves and now >= self._next_news
        if not news and now < self._next:
            return
        if not self.state.ready():
            self._next, self._next_news = max(self._next, now + AGAIN_S), now + AGAIN_S
            return
        self._moves, self._next_news = self.follower.moves, now + NEWS_S
        more = self._look(core, now)
        self._next = now + (AGAIN_S if more else self.terms.lease_s / BEATS_A_LEASE)
        if now >= self._next_orphans:
            self._next_orphans = now + self.terms.lease_s
            for worker in self.state.outbox_of_others():
                self.adopt_exports(worker)

    def _look(self, core: Core, now: float) -> bool:
        """Renews, and carries out decisions. Returns True if there is more to do."""
        state, follower = self.state, self.follower
        if follower.lost_parts:
            state.drop_parts([unit for unit in follower.lost_parts if unit in self._mine])
            follower.lost_parts.clear()
        follower.look_at_held(LOOKED_AT_ONCE)
        view, parts = state.view(), state.parts()
        in_sight = follower.in_sight()
        known = set(in_sight)
        in_parts = {part.identity for part in parts}
        self._tell_missing(in_parts - known, now)
        in_sight += [part.unit for part in parts if part.identity in known]
        huge = [] if self.terms.split_bytes is None else follower.huge(self.terms.split_bytes)
        to_split = [unit for unit in huge if unit not in in_parts and unit not in self._leaving]
        decision = self._leases.decide(view, in_sight, now, to_split=to_split)
        self._living = self._leases.living
        granted = state.renew(self.clock.now_ns(), decision)
        for incarnation, _ in decision.fence:
            self._log.warning("a worker stands still; its logs are read by others now", incarnation=incarnation)
        for each in granted:
            self._have(core, each, in_parts)
        self._give(decision.give)
        more = state.claim_retries() or len(decision.take) == TAKEN_AT_ONCE
        state.refresh()
        core.retry_bytes = state.retry_bytes
        return more

    def _tell_missing(self, identities: Iterable[str], now: float) -> None:
        """Reports missing logs with unread parts once, when they stay away for a lease."""
        self._missing = {identity: self._missing.get(identity, now) for identity in identities}
        for identity, since in self._missing.items():
            if now - since >= self.terms.lease_s and identity not in self._told:
                self._told.add(identity)
                self._log.warning("a log is gone before all its parts were read", identity=identity)

    def _have(self, core: Core, granted: Granted, in_parts: Iterable[str]) -> None:
        unit = granted.position.identity
        self._mine.add(unit)
        if granted.part is not None:
            core.adopt(unit, granted.high)
            self.follower.own_part(granted.part)
            return
        position = self._cut(granted) if unit not in in_parts else granted.position
        core.adopt(unit, granted.high if position is granted.position else position.offset, anew=granted.anew)
        self.follower.own(position)

    def _cut(self, granted: Granted) -> LogPosition:
        """Returns where the log continues, after cutting off its parts if it is huge."""
        before, limit = granted.position, self.terms.split_bytes
        if limit is None or self._living < 2 or granted.high > before.offset:
            return before
        size = self.follower.plain_size(before.identity)
        if size - before.offset < limit:
            return before
        step = max(1, limit // PARTS_A_SPLIT, (size - before.offset) // PARTS_MAX)
        try:
            ends = self.follower.begins(
                before.identity, before.offset, [*range(before.offset + step, size, step), size]
            )
        except OSError:  # it is then read as a whole
            return before
        if not ends:
            return before
        here = ends[-1]
        parts = parts_of(self.follower.placed(before), ends)
        self.state.split(here, parts)
        self._log.info("a huge log is read in parts", path=here.path, parts=len(parts))
        return here

    def _give(self, units: Sequence[str]) -> None:
        for unit in units:
            if unit not in self._mine or unit in self._leaving:
                continue
            if is_part(unit):
                self.follower.disown_part(unit)
            elif not self.follower.disown(unit):
                continue
            self._leaving.add(unit)

    def _let_go(self, core: Core) -> None:
        gone = [unit for unit in self._leaving if core.forget(unit)]
        self._left += gone
        self._leaving.difference_update(gone)
        if self._left and self.state.ready():
            self.state.release(self._left)
            self._mine.difference_update(self._left)
            self._left.clear()


def parts_of(begin: LogPosition, ends: Sequence[LogPosition]) -> list[LogPart]:
    """Returns one part up to each of the ends, which are starts of records in order."""
    identity = begin.identity
    return [
        LogPart(f"{identity}{PART_MARK}{at.offset:x}", identity, at.offset, end.offset, at.offset, at.proof)
        for at, end in zip([begin, *ends[:-1]], ends, strict=True)
    ]
