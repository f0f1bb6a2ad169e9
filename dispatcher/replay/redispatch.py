"""Dispatches events again that were read and counted before.

They are in separate stretches, which no log's offset waits for and which never become rows: they are held here until
each has its verdict, and their sender keeps a durable record of the work. So a crash costs only their attempts. The
ledger counts them as ``reread``, regardless of the new outcome: it already has each line's first outcome, and a line
counted twice would unbalance it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from photon.batch.events import Events
from photon.config.clock import Clock
from photon.dispatcher.events import Stretch
from photon.dispatcher.intake import Intake

REDISPATCHED_MAX = 50_000  # events in flight at a time: some 45 MB with records of 300 bytes


@dataclass(eq=False)
class Redispatcher:
    """Passes events to the intake and tracks those in flight."""

    intake: Intake
    clock: Clock
    wake: Callable[[], None]

    def __post_init__(self) -> None:
        self._stretches: list[Stretch] = []

    def room(self) -> bool:
        self._stretches = [each for each in self._stretches if each.left]
        return sum(each.left for each in self._stretches) < REDISPATCHED_MAX

    def send(self, events: Events, first_read_ns: int) -> Stretch:
        """Sends events again; returns their stretch, with none left once done. ``first_read_ns``: patience begins."""
        stretch = self.intake.redispatch(events, first_read_ns, self.clock.monotonic())
        self._stretches.append(stretch)
        self.wake()
        return stretch
