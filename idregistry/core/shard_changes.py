"""The config group's side of a change of the shards (rule 16): intents, decisions, removals.

Invariants: there is one change at a time; each has its own number and ends once, activated or aborted. A shard's
number is given out once. A change names only shards that take new events now, and new shards. A shard is dropped only
once it takes no new events.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from photon.idregistry.core import commands as c
from photon.idregistry.core.commands import END_OF_TIME
from photon.idregistry.core.sharding import shards_in, single_range, with_range

Count = Annotated[int, msgspec.Meta(ge=0)]


class Intent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    config: c.ConfigNumber
    starts_ns: c.TimeNs
    shards: c.ShardNumbers
    added: tuple[c.ShardNumber, ...]
    leaving: tuple[c.ShardNumber, ...]


class Ended(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    intent: Intent
    activated: bool
    reason: str = ""


class Changes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The shards of the deployment and their changes, as one immutable value: readers may keep it."""

    ranges: tuple[c.Range, ...] = ()  # the active config; empty before the first set-up
    config: Count = 0  # number of the active config
    decided: Count = 0  # number of the last change that has ended; all before it have ended, too
    last_shard: Count = 0  # the highest shard number ever given out
    pending: Intent | None = None
    last: Ended | None = None
    removed: tuple[c.ShardNumber, ...] = ()

    @property
    def named(self) -> tuple[int, ...]:
        return self.ranges[-1].shards if self.ranges else ()

    @property
    def live(self) -> tuple[int, ...]:
        """The shards of the active config that are not removed, ascending."""
        return tuple(sorted(shards_in(self.ranges) - {*self.removed}))

    def until(self, shard: int) -> int:
        """Returns the end of a shard's last range, ns."""
        return max((each.end_ns for each in self.ranges if shard in each.shards), default=-(2**63))


def set_up(ranges: tuple[c.Range, ...]) -> Changes:
    return Changes(ranges, 1, 1, max(shards_in(ranges)))


def fits(changes: Changes, ranges: tuple[c.Range, ...]) -> bool:
    """True if a configuration with these ranges belongs to this deployment: they are its ranges, or a single range
    with as many shards as one of its ranges has.
    """
    if changes.ranges == ranges:
        return True
    counts = {len(each.shards) for each in changes.ranges}
    return changes.config > 1 and len(ranges[0].shards) in counts and ranges == single_range(len(ranges[0].shards))


def new_shards(changes: Changes, count: int) -> tuple[int, ...]:
    """Returns the shards after a change to ``count``: present shards in their order, then new ones."""
    kept = changes.named[:count]
    first = changes.last_shard + 1
    return (*kept, *range(first, first + count - len(kept)))


def change(changes: Changes, command: c.Intend | c.Decide | c.Drop) -> tuple[Changes, str]:
    """Applies a command. Returns (the new state, the reason for a refusal or an empty string)."""
    if isinstance(command, c.Intend):
        return intend(changes, command)
    if isinstance(command, c.Decide):
        return decide(changes, command)
    return drop(changes, command.shard)


def intend(changes: Changes, command: c.Intend) -> tuple[Changes, str]:
    reason = _refusal(changes, command)
    if reason:
        return changes, reason
    known = set(changes.named)
    added = tuple(shard for shard in command.shards if shard not in known)
    leaving = tuple(shard for shard in changes.named if shard not in command.shards)
    pending = Intent(command.config, command.starts_ns, command.shards, added, leaving)
    last_shard = max(changes.last_shard, *command.shards)
    return msgspec.structs.replace(changes, pending=pending, last_shard=last_shard), ""


def decide(changes: Changes, command: c.Decide) -> tuple[Changes, str]:
    """Ends a change. The first decision wins; repeating the same one is no error."""
    pending = changes.pending
    if pending is None or pending.config != command.config:
        last = changes.last
        if last is None or last.intent.config != command.config:
            return changes, f"change {command.config} of the shards is not under way"
        if last.activated == command.activate:
            return changes, ""
        return changes, f"change {command.config} of the shards was {'activated' if last.activated else 'aborted'}"
    ended = Ended(pending, command.activate, command.reason)
    if not command.activate:
        return msgspec.structs.replace(changes, decided=pending.config, pending=None, last=ended), ""
    return msgspec.structs.replace(
        changes,
        ranges=with_range(changes.ranges, pending.starts_ns, pending.shards),
        config=pending.config,
        decided=pending.config,
        pending=None,
        last=ended,
    ), ""


def drop(changes: Changes, shard: int) -> tuple[Changes, str]:
    """Removes a closed shard; the caller has checked that it is closed."""
    if shard in changes.removed:
        return changes, ""
    if changes.pending is not None:
        return changes, f"change {changes.pending.config} of the shards is under way"
    if shard not in changes.live:
        return changes, f"there is no shard {shard}"
    if shard in changes.named:
        return changes, f"shard {shard} still takes new events"
    return msgspec.structs.replace(changes, removed=tuple(sorted((*changes.removed, shard)))), ""


def _refusal(changes: Changes, command: c.Intend) -> str:
    """Returns the reason why a change must not begin; empty if it may."""
    if not changes.ranges:
        return "the registry is not set up yet"
    if changes.pending is not None:
        return f"change {changes.pending.config} of the shards is under way: only one is possible at a time"
    if command.config != changes.decided + 1:
        return f"the next change of the shards is number {changes.decided + 1}, not {command.config}"
    last = changes.ranges[-1]
    if last.end_ns != END_OF_TIME or not last.start_ns < command.starts_ns < END_OF_TIME:
        return (
            f"event times from {command.starts_ns} on are not within the last range, which begins at {last.start_ns}"
        )
    added = sorted(set(command.shards) - set(changes.named))
    if added != list(range(changes.last_shard + 1, changes.last_shard + 1 + len(added))):
        return f"new shards are numbered from {changes.last_shard + 1} on, not {added}"
    try:
        with_range(changes.ranges, command.starts_ns, command.shards)
    except c.CommandError as error:
        return str(error)
    return ""
