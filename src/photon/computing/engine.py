"""Runs the computations of a topology for one interval of keys: see ``DESIGN.md``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from photon.computing.intervals import Intervals
from photon.computing.model import SECOND_NS, Computation
from photon.computing.store import Store
from photon.computing.topology import Topology
from photon.computing.wire import Ack, Input, Message, Watermark


@dataclass(frozen=True, slots=True)
class Limits:
    """Of what can grow."""

    cache_bytes: int = 256 << 20
    """Rows that are kept in memory; those with the latest timers leave first."""
    state_bytes: int = 1 << 20
    """Of one key, encoded."""
    value_bytes: int = 1 << 20
    """Of one production, encoded."""
    outbox_bytes: int = 256 << 20
    """Productions that were not acknowledged: above it no input is taken."""
    message_items: int = 10_000
    message_bytes: int = 4 << 20
    timers_at_once: int = 20_000
    """Keys whose timers are called between two commits."""
    timers_of_key: int = 10_000
    """Timers of one key that are called at once: a computation that sets its own timers in the past ends there."""
    aside: int = 100_000
    """Records and timers put aside: above it no input is taken."""
    skew_ns: int | None = None
    """Input that is so far ahead of the watermark is held back, as long as another source is behind it."""
    straggler_ns: int = SECOND_NS
    """Weak productions that were not acknowledged for so long are made durable like strong ones."""


class Fault(NamedTuple):
    """Of a computation and key; what came for it was put aside, if ``aside``."""

    computation: str
    key: str
    reason: str
    aside: bool = True

    @property
    def line(self) -> str:
        kept = "; what comes for the key is kept until it is tried again" if self.aside else ""
        return f"computation {self.computation}, key {self.key!r}: {self.reason}{kept}"


class Guard(Protocol):
    """Ends a call that does not come back (``photon.adapters.containment``). ``count`` moves on with each call."""

    count: int

    def __enter__(self) -> object: ...

    def __exit__(self, *error: object) -> object: ...


Guards = Callable[[Computation], "Guard"]


class Counts(NamedTuple):
    """Since the engine was made."""

    records: int = 0
    repeated: int = 0
    """Dropped: they had been committed before."""
    late: int = 0
    """Records before their computation's watermark."""
    timers: int = 0
    past: int = 0
    """Timers that were set in the past."""
    produced: int = 0
    aside: int = 0
    """Put aside, now."""
    dropped: int = 0
    """For computations that were taken out."""


class Engine:
    """The owner of one interval of keys. Not for several threads. After any exception but HeldBack it must not be
    used any more: another is made on the same store."""

    def __init__(
        self,
        topology: Topology,
        store: Store,
        intervals: Intervals,
        *,
        owner: str = "",
        limits: Limits = Limits(),
        guards: Guards | None = None,
    ) -> None:
        """Acquires the store. Raises TopologyError, Retired, ComputingError."""

    # -- input
    def position(self, source: str) -> bytes | None:
        """Where to read on; also what was taken since the last commit counts. None: from the begin."""
        raise NotImplementedError

    def take(self, batch: Input, now_ns: int) -> bool:
        """Runs the computations for it. False: held back (skew, outbox or what was put aside is at its limit; see
        ``held``): offer it again later. A repetition is dropped, and is True."""
        raise NotImplementedError

    def receive(self, message: Message, now_ns: int) -> bool:
        """The same for a message of another owner. False: it cannot be taken yet (a newer topology)."""
        raise NotImplementedError

    def advance(self, now_ns: int) -> bool:
        """Calls timers of the wall clock, and what is left of others. True: there is more to do at once."""
        raise NotImplementedError

    def retry(self, now_ns: int) -> None:
        """Tries again what was put aside."""
        raise NotImplementedError

    # -- commit
    def ready(self, now_ns: int) -> bool:
        """Whether to commit now: something changed, and no weak production waits for its acknowledgement."""
        raise NotImplementedError

    def commit(self) -> None:
        """All that was taken since the last one becomes durable. Raises Fenced, Retired, OSError."""
        raise NotImplementedError

    # -- output
    def outgoing(self) -> list[Message]:
        """Committed productions, and watermarks that moved: for each target one message at a time, again after
        ``resend``. Targets: ids of intervals, and PUBLISH + stream."""
        raise NotImplementedError

    def weak(self) -> list[Message]:
        """Weak productions: to be sent before the commit, each once."""
        raise NotImplementedError

    def acks(self) -> list[Ack]:
        """For messages whose content is committed now."""
        raise NotImplementedError

    def acknowledged(self, ack: Ack) -> None: ...

    def resend(self, target: str) -> None:
        """A message to this target was lost, or was not answered in time."""

    # -- changes while it runs
    def change(self, topology: Topology) -> None:
        """Parts were added or taken out. Between commits only. Raises TopologyError: then nothing was changed."""
        raise NotImplementedError

    def rewire(self, intervals: Intervals) -> None:
        """Intervals of other owners were split or merged."""
        raise NotImplementedError

    # -- what it says
    held: str
    """Why the last ``take`` was held back, for people; empty: it was not."""

    def faults(self) -> list[Fault]:
        """Since it was asked last."""
        raise NotImplementedError

    def watermarks(self) -> dict[str, Watermark]:
        """Of each computation: all its input before that has been processed."""
        raise NotImplementedError

    def counts(self) -> Counts:
        raise NotImplementedError
