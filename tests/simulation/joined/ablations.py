"""Rules that only several rooms together can break, one taken out each: the joined world must notice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from photon.idregistry.api import DIGEST_BYTES
from photon.idregistry.client.recovery import Recovery
from photon.idregistry.core import commands as c
from photon.idregistry.core.config_machine import ConfigMachine, Founding
from photon.idregistry.core.shard_standing import Bools, Sharding
from photon.idregistry.replica.proposing import not_leading
from photon.idregistry.replica.recovery import RecoveryServer, _unless_refused
from photon.idregistry.replica.shard_server import ShardServer
from photon.verifier.verifier import DURABLE_VERSION, Verifier, _Durable, read_versioned
from tests.simulation.world import adopting, replacing
from tests.simulation.world.world import Variant


# -- shards that change ----------------------------------------------------------------------------------------------
def nobody_asked(self: ShardServer, digests: bytes, *, restoring: bool = False) -> tuple[Bools, int]:
    """Each datacentre's copy of a log may stamp an id with another time: it is another shard's then."""
    return np.zeros(len(digests) // DIGEST_BYTES, np.bool_), self.machine.serving[0].config


def start_believed(self: Sharding, command: c.Prepare) -> str:
    """Whoever chose the start of a change is believed to have chosen it beyond all that dispatchers sent."""
    latest, self.latest = self.latest, -(2**63)
    why = _prepare(self, command)
    self.latest = latest
    return why


_prepare = Sharding.prepare


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


TWICE = "twice|refuses to go on|has another state"
LEFT = "are owned|are reopened|lost"
ABLATIONS: dict[str, Ablation] = {
    "resharding, stamps: former shards are not asked": Ablation(
        Variant(patches=((ShardServer, "held_elsewhere", nobody_asked),)), TWICE
    ),
    "resharding, clocks: the start is not compared": Ablation(
        Variant(patches=((Sharding, "prepare", start_believed),)), TWICE
    ),
    "resharding, retirement: a new shard opens without fences": Ablation(
        Variant(patches=((ConfigMachine, "founding", unfenced),)), LEFT
    ),
    "resharding, reopened ids: only the shards of now are asked": Ablation(
        Variant(patches=((Recovery, "shards", newest_shards),)), LEFT
    ),
    "copies, loss: what only the slot has is cleared": Ablation(
        Variant(patches=((Verifier, "_read_durable", clears_what_is_shown),)), LEFT
    ),
    "copies, adoption: an adopter does not ship": Ablation(
        Variant(patches=((adopting, "copying_of_adopted", lambda process: None),)), f"{LEFT}|copy"
    ),
    "registry, retirement: a leader that has just started tells of slots": Ablation(
        Variant(patches=((RecoveryServer, "_check_leads_config", any_leader),)), LEFT
    ),
    "registry, replacement: no barrier": Ablation(
        Variant(patches=((replacing, "BARRIER", False),)), "another state|twice|lost|are owned|have no|not settled"
    ),
}
