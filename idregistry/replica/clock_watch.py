"""A replica's time: its own clock, what it knows of the others', and what follows for what it may propose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from photon.config.interval_clock import Interval, IntervalClock
from photon.config.structured import get_logger
from photon.idregistry.core.clock_offsets import (
    ANYWHERE,
    OWN,
    Agreement,
    Range,
    Reading,
    ahead_by,
    judged,
    median,
    not_after,
    objection,
    too_new_after,
)

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ClockFacts:
    """A replica's clock as it sees it itself."""

    now: Interval
    agreement: Agreement
    middle: Range
    """The median of all replicas' clocks, as ahead of this one."""
    peers: Mapping[str, Range]
    """The others, as ahead of this one."""
    objection: str
    """Why this replica proposes no boundary and no change of the shards; empty: it does."""


class ClockWatch:
    """Not thread-safe: lives on the replica's event loop."""

    def __init__(self, time: IntervalClock, peers: Sequence[str] = (), *, require_sync: bool = False) -> None:
        """``peers``: the other replicas. ``require_sync``: see ``clock.require_sync``."""
        self.time = time
        self._require_sync = require_sync
        self._readings: dict[str, Reading | None] = dict.fromkeys(peers)
        self._said: tuple[str, str] = ("", "")

    @property
    def peers(self) -> Sequence[str]:
        """The other replicas."""
        return list(self._readings)

    def read(self, peer: str, reading: Reading) -> None:
        """A peer answered. KeyError for a stranger."""
        if peer not in self._readings:
            raise KeyError(peer)
        self._readings[peer] = reading

    def too_new_after_ns(self) -> int:
        """Event times beyond this are TOO_NEW."""
        now, peers = self._now()
        return too_new_after(now, _middle(peers), self.time.uncertainty_ns)

    def not_after_ns(self) -> int:
        """No machine's clock shows less than this."""
        return not_after(self.time.read(), self.time.uncertainty_ns)

    def objection(self) -> str:
        """Why nothing may be proposed now that depends on the time; empty: it may."""
        return self.facts().objection

    def facts(self) -> ClockFacts:
        """As of now."""
        now, peers = self._now()
        middle, uncertainty = _middle(peers), self.time.uncertainty_ns
        why = objection(now, middle, peers, uncertainty_ns=uncertainty, require_sync=self._require_sync)
        return ClockFacts(now, judged(middle, uncertainty), middle, peers, why)

    def say(self, replica: str) -> None:
        """Logs what has changed since the last call."""
        facts = self.facts()
        note = _note(facts.now, self.time.uncertainty_ns)
        said = (facts.objection, note)
        if note and note != self._said[1]:
            log.warning("registry.clock", replica=replica, note=note)
        if facts.objection != self._said[0]:
            if facts.objection:
                log.warning("registry.clock", replica=replica, proposes_no_boundary=facts.objection)
            else:
                log.info("registry.clock", replica=replica, agrees=True)
        self._said = said

    def _now(self) -> tuple[Interval, dict[str, Range]]:
        now, monotonic = self.time.read(), self.time.clock.monotonic()
        return now, {
            peer: ANYWHERE if reading is None else ahead_by(reading, now, monotonic)
            for peer, reading in self._readings.items()
        }


def _middle(peers: Mapping[str, Range]) -> Range:
    return median([OWN, *peers.values()])


def _note(now: Interval, uncertainty_ns: int) -> str:
    """What is not as it should be with this machine's own clock, for the log."""
    bound = f"S = {uncertainty_ns / 1e9:g} s"
    if not now.synchronised:
        return f"the kernel does not know its clock's error (no time daemon): it is taken to be within {bound}"
    if now.error_ns > uncertainty_ns:
        return f"the kernel's bound on its clock's error is more than {bound}: look after the time daemon"
    return ""
