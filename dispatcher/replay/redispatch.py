"""Redispatches events that were read and counted before.

They are in separate stretches, for which no log's offset waits, and never become rows of the retry store: they stay
here until each has its verdict, and the code that sends them keeps a durable record of the work. So a crash loses
only attempts. The ledger counts them as ``reread`` regardless of their new outcome: it already has each line's first
outcome, and counting a line twice would unbalance it.
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
    """Passes events to the intake, and tracks the ones without a verdict."""

    intake: Intake
    clock: Clock
    wake: Callable[[], None]

    def __post_init__(self) -> None:
        self._stretches: list[Stretch] = []

    def room(self) -> bool:
        self._stretches = [each for each in self._stretches if each.left]
        return sum(each.left for each in self._stretches) < REDISPATCHED_MAX

    def send(self, events: Events, first_read_ns: int) -> Stretch:
        """Sends events; ``left`` of their stretch is 0 once done. ``first_read_ns``: when patience begins."""
        stretch = self.intake.redispatch(events, first_read_ns, self.clock.monotonic())
        self._stretches.append(stretch)
        self.wake()
        return stretch
