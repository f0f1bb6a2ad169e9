"""A shard's side of a change of the shards (rule 16): entries that prepare, activate, abort, and close.

Invariants: ids are entered only if they belong to the shard under its active config. A shard prepares only while
every event time it ever entered is below the change's start; afterwards it enters later ids only if they belong to it
under both configs. So all ids that it holds for other shards lie below the start. A new config comes from the shard's
own Activate entry; a change at or below ``decided`` is never prepared. Before a leader proposes an id, it must know
that no other shard holds it (``former_shards``); the entry names the config under which it knew this, which must be
the shard's when the entry is applied.

``latest`` is the latest event time ever entered, and never below the boundary.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt

from photon.idregistry.api import DIGEST_BYTES, I64
from photon.idregistry.core import commands as c
from photon.idregistry.core.id_bucket import Rows, times_in
from photon.idregistry.core.sharding import shards_by, shards_of, with_range

Bools = npt.NDArray[np.bool_]
Count = Annotated[int, msgspec.Meta(ge=0)]


class Prepared(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    config: c.ConfigNumber
    starts_ns: c.TimeNs
    shards: c.ShardNumbers


class Standing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A shard's progress through changes of the shards. Immutable; replaced as a whole."""

    config: Count = 0  # number of its config; 0 if not open
    decided: Count = 0  # the last change whose end it knows
    prepared: Prepared | None = None
    refused: Count = 0  # the last change that it refused
    closed: bool = False


@dataclass(frozen=True, slots=True)
class ShardFacts:
    number: int  # 0 if not open
    standing: Standing
    latest: int
    boundary: int
    until: int
    ids: int


@dataclass(slots=True)
class Sharding:
    """A shard's copy of the shard config, and its progress through changes. Only its log entries modify it."""

    number: int = 0  # 0 until it is configured
    ranges: tuple[c.Range, ...] = ()
    standing: Standing = field(default_factory=Standing)
    latest: int = c.NO_TIME  # latest event time ever entered, or the boundary, whichever is later; ns
    # (config, end of this shard's last range in it), cached: it is needed every second.
    _until: tuple[tuple[c.Range, ...], int] = field(default=((), c.NO_TIME), compare=False, repr=False)

    # -- ids ----------------------------------------------------------------------------------------------------
    def own(self, digests: bytes) -> Bools:
        """True for ids that belong to this shard under the active config."""
        if not self.number:
            return np.zeros(len(digests) // DIGEST_BYTES, np.bool_)
        own: Bools = shards_of(digests, self.ranges[-1].shards) == self.number
        return own

    def takes(self, digests: bytes, times: I64, config: int) -> Bools:
        """True for ids that may be entered now. ``config``: the config under which no other shard held them."""
        own = self.own(digests)
        if self.standing.prepared is not None:
            later = times >= self.standing.prepared.starts_ns
            own &= ~later | (shards_of(digests, self.standing.prepared.shards) == self.number)
        if config != self.standing.config:
            for each in self.ranges[:-1]:
                own &= shards_of(digests, each.shards) == self.number
        return own

    def keeps(self, digests: bytes, times: I64, config: int) -> Bools:
        """True for ids that may get an entry by an operator's order, regardless of the boundary."""
        return np.zeros(len(times), np.bool_) if self.standing.closed else self.takes(digests, times, config)

    def facts(self, ids: int, boundary: int) -> ShardFacts:
        return ShardFacts(self.number, self.standing, self.latest, boundary, self.until, ids)

    def entered(self, times: I64) -> None:
        if len(times):
            self.latest = max(self.latest, int(times.max()))

    def passed(self, boundary: int) -> None:
        self.latest = max(self.latest, boundary)

    # -- entries ------------------------------------------------------------------------------------------------
    def apply(
        self, command: c.Configure | c.Prepare | c.Activate | c.Abort | c.Close, ids: int, boundary: int
    ) -> str:
        """Applies a command; returns the reason for a refusal, or "". ``ids``: the number of ids in the shard."""
        if isinstance(command, c.Configure):
            return self.configure(command)
        if isinstance(command, c.Prepare):
            return self.prepare(command)
        if isinstance(command, c.Activate):
            return self.activate(command)
        if isinstance(command, c.Abort):
            return self.abort(command)
        return self.close(ids, boundary)

    def configure(self, command: c.Configure) -> str:
        """Configures the shard; the first call counts.

        Like the following methods, returns the reason for a refusal, or an empty string.
        """
        if self.number:
            if (self.number, self.ranges) == (command.shard, command.ranges):
                return ""
            return f"shard {self.number} is already configured differently"
        self.number, self.ranges = command.shard, command.ranges
        self.standing = Standing(command.config, command.decided)
        return ""

    def prepare(self, command: c.Prepare) -> str:
        """Prepares a change. Refuses if an event time at or after its start was entered, so clocks need not agree."""
        known = self.standing
        if not self.number:
            return "the shard is not open yet"
        if command.config <= known.decided:
            return f"change {command.config} has ended already"
        if known.prepared is not None:
            if known.prepared.config == command.config:
                return ""
            return f"change {known.prepared.config} has not ended here yet"
        if command.config != known.decided + 1:
            return f"the shard knows changes up to {known.decided}, but not the outcome of {command.config - 1}"
        try:
            with_range(self.ranges, command.starts_ns, command.shards)
        except c.CommandError as error:  # does not fit this shard's config
            return str(error)
        if known.refused != command.config and self.latest < command.starts_ns:
            self._replace(prepared=Prepared(command.config, command.starts_ns, command.shards))
            return ""
        self._replace(refused=command.config)
        return (
            f"an event time of {self.latest} was entered, but change {command.config} starts at {command.starts_ns}"
        )

    def activate(self, command: c.Activate) -> str:
        """Makes the prepared config the active one."""
        known = self.standing
        if command.config <= known.decided:
            return ""
        if known.prepared is None or known.prepared.config != command.config:
            return f"change {command.config} was not prepared here"
        self.ranges = with_range(self.ranges, known.prepared.starts_ns, known.prepared.shards)
        self._replace(config=command.config, decided=command.config, prepared=None)
        return ""

    def abort(self, command: c.Abort) -> str:
        """Aborts a change. The proposer knows from the config group that no earlier unknown change was activated."""
        known = self.standing
        if not self.number:
            return "the shard is not open yet"
        if command.config > known.decided:
            self._replace(decided=command.config, prepared=None)
        return ""

    def close(self, ids: int, boundary: int) -> str:
        """Closes the shard to new ids for good, if it is empty and its boundary has passed its last range."""
        if not self.number:
            return "the shard is not open yet"
        if ids:
            return f"the shard holds {ids} ids"
        until = self.until
        if boundary < until:
            return f"the boundary is {boundary}, but the shard's last range ends at {until}"
        if self.standing.prepared is not None:
            return f"change {self.standing.prepared.config} has not ended here yet"
        self._replace(closed=True)
        return ""

    @property
    def until(self) -> int:
        """The end of this shard's last range, ns."""
        if self._until[0] is not self.ranges:
            ends = (each.end_ns for each in self.ranges if self.number in each.shards)
            self._until = self.ranges, max(ends, default=c.NO_TIME)
        return self._until[1]

    def _replace(self, **changed: object) -> None:
        self.standing = msgspec.structs.replace(self.standing, **changed)


def misplaced(rows: Rows, bucket_start: int, sharding: Sharding) -> int:
    """Counts a bucket's rows that never belonged to this shard, or no longer did at their event time."""
    times = times_in(rows) + np.int64(bucket_start)
    hi = rows["hi"].astype(np.uint64)
    fits = np.zeros(len(rows), np.bool_)
    for each in sharding.ranges:
        fits |= (times < each.end_ns) & (shards_by(hi, each.shards) == sharding.number)
    return int(np.count_nonzero(~fits))
