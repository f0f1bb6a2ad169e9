"""Chooses the next proposal in a change of the shards: pure functions of a replica's applied state.

Every replica hosts every group, so its knowledge of all shards comes from entries applied on it. This knowledge may
be outdated, so each proposal is checked again when it is applied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from photon.idregistry.core import commands as c
from photon.idregistry.core.commands import NO_TIME
from photon.idregistry.core.shard_changes import Changes, new_shards
from photon.idregistry.core.shard_standing import ShardFacts

LEAD_S = 10.0  # default time from an intent to the earliest start, allowing for clock errors
LEAD_S_MAX = 30 * 86_400.0
_ROUND_NS = 1_000_000
_SEED_BYTES = 1 << 18

SlotSeed = tuple[str, str, int, bool]  # (slot, datacentre, newest incarnation, retired)


def shard_step(changes: Changes, shard: ShardFacts, *, retention: bool) -> c.ShardCommand | None:
    """Returns the next proposal for a shard's leader, or ``None``. The shard must be open and not removed."""
    known = shard.standing
    if known.decided < changes.config:  # it was prepared; otherwise the change would not have been activated
        return c.Activate(changes.config)
    if known.decided < changes.decided:
        return c.Abort(changes.decided)
    pending = changes.pending
    if pending is not None:
        if known.prepared is None and known.refused != pending.config and known.decided == pending.config - 1:
            return c.Prepare(pending.config, pending.starts_ns, pending.shards)
        return None
    if retention and not known.closed and not shard.ids and shard.until <= shard.boundary:
        return c.Close()
    return None


def config_step(changes: Changes, shards: Mapping[int, ShardFacts], now_ns: int) -> c.ConfigCommand | None:
    """Returns the next proposal for the config group's leader, or ``None``."""
    pending = changes.pending
    if pending is None:
        gone = (number for number in changes.live if number in shards and shards[number].standing.closed)
        return next((c.Drop(number) for number in gone if number not in changes.named), None)
    waiting = []
    for number in changes.live:
        facts = shards.get(number)
        if facts is not None and facts.standing.refused == pending.config:
            return c.Decide(
                pending.config,
                False,
                f"shard {number} has entered an event time of {facts.latest} ns, not before the start",
            )
        prepared = None if facts is None else facts.standing.prepared
        if prepared is None or prepared.config != pending.config:
            waiting.append(number)
    if not waiting:
        return c.Decide(pending.config, True)
    if now_ns >= pending.starts_ns:
        return c.Decide(pending.config, False, f"shards {waiting[:8]} did not prepare before the start")
    return None


def seeds(slots: Sequence[SlotSeed]) -> Iterator[c.Seed]:
    part: list[SlotSeed] = []
    size = 0
    for slot in slots:
        weight = len(slot[0].encode()) + len(slot[1].encode()) + 16
        if part and (len(part) == c.MAX_SEEDED or size + weight > _SEED_BYTES):
            yield c.Seed(part)
            part, size = [], 0
        part.append(slot)
        size += weight
    if part:
        yield c.Seed(part)


@dataclass(frozen=True, slots=True)
class Plan:
    """A change that may begin now, and the reasons for its start time."""

    intend: c.Intend
    added: tuple[int, ...]
    leaving: tuple[int, ...]
    why: tuple[str, ...]


def plan(
    changes: Changes,
    shards: Mapping[int, ShardFacts],
    count: int,
    *,
    now_ns: int,
    uncertainty_ns: int,
    lead_s: float | None,
) -> Plan | str:
    """Plans a change to ``count`` shards, as early as is sensible. A string says why none is possible.

    Safety does not depend on the start chosen here: a shard that has entered a later time refuses to prepare.
    """
    if not changes.ranges:
        return "the registry is not set up yet"
    if changes.pending is not None:
        return f"change {changes.pending.config} of the shards is under way: only one is possible at a time"
    if not 1 <= count <= c.MAX_SHARDS:
        return f"shards: {count} is not from 1 to {c.MAX_SHARDS}"
    if count == len(changes.named):
        return f"there are {count} shards already"
    closed = [number for number in changes.live if number not in shards or not shards[number].number]
    if closed:
        return f"shards {closed[:8]} are not open yet: wait for the last change to settle"
    wanted = new_shards(changes, count)
    if wanted[-1] > c.MAX_SHARDS:
        return f"shard numbers are never reused: {changes.last_shard} of {c.MAX_SHARDS} are used up"
    lead_ns = int((LEAD_S if lead_s is None else min(max(lead_s, 0.0), LEAD_S_MAX)) * 1e9)
    clock_ns = now_ns + uncertainty_ns
    latest, holder = max((shards[number].latest, number) for number in changes.live)
    why = [
        f"until every shard has prepared, events up to {uncertainty_ns / 1e9:g} s ahead of the clock may still be "
        f"entered, and the shards get {lead_ns / 1e9:g} s to prepare"
    ]
    if latest != NO_TIME and latest >= clock_ns:
        ahead = (latest - now_ns) / 1e9
        why.append(f"shard {holder} has entered an event {ahead:.1f} s ahead of the clock: the start must be later")
    begun = changes.ranges[-1].start_ns
    if begun >= max(clock_ns, latest):
        why.append("the last change has not taken effect yet, and changes take effect one at a time")
    starts = max(clock_ns, latest + 1, begun + 1) + lead_ns
    starts = -(-starts // _ROUND_NS) * _ROUND_NS
    added = tuple(number for number in wanted if number not in changes.named)
    leaving = tuple(number for number in changes.named if number not in wanted)
    return Plan(c.Intend(changes.decided + 1, starts, wanted), added, leaving, tuple(why))
