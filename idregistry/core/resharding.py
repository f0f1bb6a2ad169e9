"""Operators' requests about the shards, and a replica's answers. Enum values are those of registry.proto."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from photon.idregistry.core.commands import Range
from photon.idregistry.core.outcomes import Refusal


class Action(enum.IntEnum):
    """STATUS and VERIFY are answered by any replica from its own state; the others by the config group's leader."""

    STATUS = 1
    PLAN = 2  # what APPLY would do now, and when it would take effect
    APPLY = 3
    ABORT = 4
    VERIFY = 5


class Stage(enum.IntEnum):
    PLANNED = 1
    PREPARING = 2
    ACTIVATED = 3
    ABORTED = 4


@dataclass(frozen=True, slots=True)
class Ask:
    action: Action
    shards: int = 0  # PLAN, APPLY: number of shards for events from then on
    dry_run: bool = False  # APPLY, ABORT: only report what would be done
    lead_s: float | None = None  # PLAN, APPLY: time for the shards to prepare; ``None`` means the default
    # ABORT: the change's number, or 0 for the one under way. APPLY: only if it gets this number (so that a repeated
    # request applies once), or 0 for any.
    config: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    config: int
    starts_ns: int  # event times from here on belong to the new shards
    shards: tuple[int, ...]  # the shards of the new range
    added: tuple[int, ...]
    leaving: tuple[int, ...]  # take no new events from then on; removed when their last id is collected
    stage: Stage
    reason: str = ""  # why aborted
    settled: bool = False  # every shard has entered the decision, and new ones serve


@dataclass(frozen=True, slots=True)
class ShardView:
    """The answering replica's view of one shard."""

    shard: int
    config: int  # the config that it serves under; 0 if new and not open yet
    decided: int
    prepared: int  # the change that it has prepared, or 0
    refused: int  # the last change that it refused, or 0
    latest_ns: int  # latest event time ever entered, or NO_TIME if none was
    boundary_ns: int
    until_ns: int  # end of its last range, or END_OF_TIME
    ids: int
    leader: str


@dataclass(frozen=True, slots=True)
class Resharding:
    """A replica's answer to a request about the shards.

    ``change``: the planned change, else the one under way, else the last one; ``None`` if there never was one.
    """

    replica: str
    config: int
    ranges: tuple[Range, ...]
    change: Change | None
    shards: Sequence[ShardView]
    removed: Sequence[int]
    now_ns: int
    why_not_sooner: Sequence[str] = ()  # PLAN, APPLY, for display: reasons for the start time
    problems: Sequence[str] = ()  # VERIFY, for display; empty if all is well


ReshardOutcome = Resharding | Refusal
