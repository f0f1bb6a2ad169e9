"""Rules that only several rooms together can break, one taken out each: the joined world must notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from photon.batch.ids import Ids
from photon.batch.verdicts import Verdicts
from photon.idregistry.api import DIGEST_BYTES
from photon.idregistry.client.recovery import Recovery
from photon.idregistry.core.config_machine import ConfigMachine, Founding
from photon.idregistry.core.shard_standing import Bools
from photon.idregistry.core.state_machine import ShardMachine
from photon.idregistry.replica.proposing import not_leading
from photon.idregistry.replica.recovery import RecoveryServer, _unless_refused
from photon.idregistry.replica.shard_server import ShardServer
from photon.verifier.verifier import DURABLE_VERSION, Verifier, _Durable, read_versioned
from tests.simulation.world import adopting, replacing
from tests.simulation.world.joined import JoinedWorld
from tests.simulation.world.world import Variant


# -- shards that change ----------------------------------------------------------------------------------------------
def nobody_asked(self: ShardServer, digests: bytes, *, restoring: bool = False) -> tuple[Bools, int]:
    """Each datacentre's copy of a log may stamp an id with another time: it is another shard's then."""
    return np.zeros(len(digests) // DIGEST_BYTES, np.bool_), self.machine.serving[0].config


def of_any_config(self: ShardMachine, ids: Ids, config: int) -> Verdicts:
    """On its way while the shards change: the one that it comes to never had the id, and refuses."""
    return _clear(self, ids, 0)


_clear = ShardMachine._clear


def unfenced(self: ConfigMachine, shard: int) -> Founding:
    """A shard that is new since a slot was retired opens without its fence: what is late takes ids there."""
    known = _founding(self, shard)
    return Founding(known.configure, [(name, place, newest, False) for name, place, newest, _ in known.slots])


_founding = ConfigMachine.founding


async def newest_shards(self: Recovery, *, timeout: float) -> tuple[int, ...]:
    """Operators, verifiers and dispatchers ask the shards of now, not those that took events before."""
    known = await self._described(self._deadline(timeout))
    return () if known is None or not known.ranges else tuple(sorted(known.ranges[-1].shards))


# -- copies ----------------------------------------------------------------------------------------------------------
def clears_what_is_shown(self: Verifier) -> dict[str, int]:
    """Where a slot goes on without its keeper, what only it has is cleared; then its disk is lost."""
    durable = read_versioned(self.disk, self._durable_path, _Durable, DURABLE_VERSION)
    return {} if durable is None else durable.files


# -- the registry ----------------------------------------------------------------------------------------------------
def any_leader(self: RecoveryServer) -> None:
    """A leader that has just started tells of slots and witnesses, though it has applied nothing yet."""
    _unless_refused(not_leading(self._replica.config_group.state()))


@dataclass(frozen=True)
class Ablation:
    """What the world has to find is a regular expression over the violation."""

    variant: Variant
    finds: str
    shows: Callable[[JoinedWorld], bool]
    """Only such schedules can show it."""


TWICE = "twice"
LEFT = "are owned|are reopened|lost"


def _without(where: object, name: str, instead: object) -> Variant:
    return Variant(patches=((where, name, instead),))


def _loses_while_shards_change(world: JoinedWorld) -> bool:
    return bool(world.targets) and world.loses_slots


def _loses_copied(world: JoinedWorld) -> bool:
    return world.loses_slots and world.copies_wait_s == 2.0


ABLATIONS: dict[str, Ablation] = {
    "resharding, stamps: former shards are not asked": Ablation(
        _without(ShardServer, "held_elsewhere", nobody_asked), TWICE, lambda world: bool(world.targets)
    ),
    "resharding, retirement: a new shard opens without fences": Ablation(
        _without(ConfigMachine, "founding", unfenced), LEFT, _loses_while_shards_change
    ),
    "resharding, reopened ids: only the shards of now are asked": Ablation(
        _without(Recovery, "shards", newest_shards), LEFT, _loses_while_shards_change
    ),
    "resharding, verifier: a clear is judged by the config of when it is applied": Ablation(
        _without(ShardMachine, "_clear", of_any_config), "are owned|alarm", lambda world: bool(world.targets)
    ),
    "copies, loss: what only the slot has is cleared": Ablation(
        _without(Verifier, "_read_durable", clears_what_is_shown), LEFT, _loses_copied
    ),
    "copies, adoption: an adopter does not ship": Ablation(
        _without(adopting, "copying_of_adopted", lambda process: None), f"{LEFT}|copy", _loses_copied
    ),
    "registry, retirement: a leader that has just started tells of slots": Ablation(
        _without(RecoveryServer, "_check_leads_config", any_leader), LEFT, lambda world: world.loses_slots
    ),
    "registry, replacement: no barrier": Ablation(
        _without(replacing, "BARRIER", False), f"{LEFT}|{TWICE}|another state", lambda world: world.replaces
    ),
}
