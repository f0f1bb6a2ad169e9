"""Events that were read and counted before, dispatched once more.

They are in stretches of their own, which no log's offset waits for and which never become rows: until each has its
verdict they are held here, and their sender durably keeps that they are still to be sent. So a crash costs only their
attempts. The ledger counts them as ``reread``, regardless of the outcome now: it has the outcome of each line when it
was first read, and a line counted twice would unbalance it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from photon.adapters.contract import Adapter, LogFile
from photon.adapters.logs.api import Block
from photon.batch.events import Events
from photon.config.clock import Clock
from photon.dispatcher.core import Core
from photon.dispatcher.events import Stretch
from photon.dispatcher.retry import Patience
from photon.idregistry.api import Digester
from photon.joiner.foreign_columns import events_of, records_of


@dataclass(frozen=True, slots=True)
class LineRules:
    """Turns the lines of a log into events again, by the dispatcher's own rules."""

    adapter: Adapter
    digester: Digester
    patience: Patience

    def events(self, block: Block) -> Events:
        """Returns the readable events; the others were reported when they were first read."""
        read = events_of(block, *records_of(block), self.adapter, self.digester, self.patience.at_first_ns)
        return read.events


REDISPATCHED_MAX = 50_000  # events on their way at a time: some 45 MB with records of 300 bytes
_NO_FILE = LogFile("")


@dataclass(eq=False)
class Redispatcher:
    """Passes events to a core and tracks those on their way."""

    core: Core
    clock: Clock
    wake: Callable[[], None]

    def __post_init__(self) -> None:
        self._stretches: list[Stretch] = []

    def room(self) -> bool:
        self._stretches = [each for each in self._stretches if each.left]
        return sum(each.left for each in self._stretches) < REDISPATCHED_MAX

    def send(self, events: Events, first_read_ns: int) -> Stretch:
        """Returns a stretch that has none left when all are done. ``first_read_ns``: start of the patience."""
        now = self.clock.monotonic()
        stretch = Stretch("", _NO_FILE, 0, 0, 0, now, whole=True, redispatched=Counter())
        self._stretches.append(stretch)
        self.core.redispatch(stretch, events, first_read_ns, now)
        self.wake()
        return stretch
