"""Hosts other replicated services on the registry's Raft host: each is one group, served on the replica's port."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from photon.config.metrics.readings import Source
from photon.idregistry.core.commands import MAX_SHARDS
from photon.idregistry.raft.api import Group, StateMachine

if TYPE_CHECKING:
    import grpc.aio

# Group numbers from here on belong to guests: a guest's group is never opened as a shard, even without its guest.
FIRST_NUMBER = 2 * MAX_SHARDS


@dataclass(frozen=True, slots=True)
class Guest:
    """A replicated service unknown to the registry; the replica's readiness does not depend on it."""

    number: int  # group number: FIRST_NUMBER or more, permanently the same on each replica
    machine: StateMachine
    # Adds its services to the server before the start; returns the sources of its metrics.
    serve: Callable[[Group, grpc.aio.Server], list[Source]]
