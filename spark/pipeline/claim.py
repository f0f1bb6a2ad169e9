"""A record of a slot's undecided events, from which readers compute the watermark.

A *claim* has the time up to which all lines of the foreign logs are decided or waiting, and the event times of
waiting events. The driver makes one when readers see everything it has committed. So an event without a visible line
is counted in the claim, or was in no log at ``read_ns``. A claim therefore stays true at any age, even if its driver
is gone (for dispatchers see ``photon.dispatcher.undecided``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from photon.adapters.logs.lag import LogLag
from photon.config.clock import NEVER_NS
from photon.config.disk import Disk
from photon.dispatcher.undecided import Counts
from photon.outputs.watermarks import STEP_NS
from photon.spark.pipeline.journal import CLAIM, Journal
from photon.spark.pipeline.listing import Listing


class Claim(msgspec.Struct, frozen=True, kw_only=True, tag_field="version", tag=1):
    """The file ``claim`` next to the journal's directories; each claim replaces the previous one."""

    at_ns: int
    read_ns: int | None  # all lines in the logs at that time are decided or wait; ``None`` if nothing is known
    why: str  # why ``read_ns`` is behind, for people; empty if it is not
    waiting: Counts


def claimed(before: Claim | None, listing: Listing, behind: Iterable[LogLag], waiting: Counts, at_ns: int) -> Claim:
    """Makes a claim. Call it when everything committed is shown. ``behind``: logs of the listing with undecided
    bytes; ``waiting``: number of waiting events by event time."""
    why = listing.doubt or next((f"{log.path} is not read to its end" for log in behind), "")
    if why or not listing.seen_ns:
        return Claim(at_ns=at_ns, read_ns=None if before is None else before.read_ns, why=why, waiting=waiting)
    return Claim(at_ns=at_ns, read_ns=listing.seen_ns, why="", waiting=waiting)


@dataclass(frozen=True, slots=True)
class Undecided:
    """A claim with the interface of ``photon.verifier.watermark.Asked``."""

    claim: Claim
    who: str = "its join on Spark"
    moving_ns: int = NEVER_NS  # a claim is made between two batches

    @property
    def said_ns(self) -> int:
        return self.claim.at_ns

    @property
    def read_ns(self) -> int | None:
        return self.claim.read_ns

    @property
    def why(self) -> str:
        return self.claim.why

    @property
    def oldest_ns(self) -> int:
        return min((step * STEP_NS for step, _ in self.claim.waiting), default=NEVER_NS)

    def before(self, time_ns: int) -> int:
        """Returns the number of undecided events before this time, counted in whole steps of STEP_NS."""
        return sum(events for step, events in self.claim.waiting if step * STEP_NS < time_ns)


@contextmanager
def read_claimed(disk: Disk, directory: Path) -> Iterator[Undecided | None]:
    """Reads the newest claim. ``directory``: the journal's directory. Raises JournalDamaged, OSError."""
    claim = Journal(disk, directory).read_last(CLAIM, Claim)
    yield None if claim is None else Undecided(claim)
