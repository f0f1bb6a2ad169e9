"""Rules that only several components together can break, with one removed each: the joined world must notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from photon.idregistry.api import DIGEST_BYTES
from photon.idregistry.client.recovery import Recovery
from photon.idregistry.core.shard_standing import Bools
from photon.idregistry.core.sharding import shards_in
from photon.idregistry.replica.shard_server import ShardServer
from tests.simulation.world.adopting import lose_machine
from tests.simulation.world.joined import JoinedWorld
from tests.simulation.world.replica import shard_machines
from tests.simulation.world.retiring import ALL
from tests.simulation.world.world import Variant


# -- shards that change ----------------------------------------------------------------------------------------------
def nobody_asked(self: ShardServer, digests: bytes, *, restoring: bool = False) -> tuple[Bools, int]:
    """Each datacentre's copy of a log may stamp an id with a different time, which puts it in another shard."""
    return np.zeros(len(digests) // DIGEST_BYTES, np.bool_), self.machine.serving[0].config


async def shards_of_before(self: Recovery, *, timeout: float) -> tuple[int, ...]:
    """The shards this client last heard of: a dispatcher with nothing to send hears of no change."""
    known = await self._described(self._deadline(timeout))
    return () if known is None else tuple(sorted(shards_in(known.ranges) - {*known.removed}))


@dataclass(frozen=True)
class Ablation:
    """``finds``: the violation the world must find, as a regular expression."""

    variant: Variant
    finds: str
    shows: Callable[[JoinedWorld], bool]  # only such schedules can show it


TWICE = "twice"
# An id not known to be reopened is left, or joined behind a watermark that had not waited for it; or removed shards
# are asked forever.
LEFT = "are owned|are reopened|lost|late|are not retired"


def _loses_slots(world: JoinedWorld) -> None:
    """Loses a machine's slots before the shards change, so that the retiring operator knows the old shards."""
    if not world.lost:
        lose_machine(world, world.datacentres[0])
        _loses_more(world)


def _loses_more(world: JoinedWorld) -> None:
    """Loses the slots of the replacement machine, once they own ids in new shards."""
    place = world.datacentres[0]
    slots = [place.slots.get(name, name) for name in place.joiners]
    new = [machine for machine in shard_machines(world) if machine.sharding.number > world.shards]
    if any(len(each.owned_page(slot, ALL, b"").times) for each in new for slot in slots):
        lose_machine(world, place)
    elif world.faults:
        world.loop.later(0.2, _loses_more, world)


def _loses_while_shards_come(world: JoinedWorld) -> bool:
    return world.loses_slots and max(world.targets, default=0) > world.shards and len(world.truth.events) > 10


ABLATIONS: dict[str, Ablation] = {
    "resharding, stamps: former shards are not asked": Ablation(
        Variant(patches=((ShardServer, "held_elsewhere", nobody_asked),)), TWICE, lambda world: bool(world.targets)
    ),
    "resharding, reopened ids: the shards are asked for once": Ablation(
        Variant(patches=((Recovery, "shards", shards_of_before),), faults=((_loses_slots, 1),)),
        LEFT,
        _loses_while_shards_come,
    ),
}
