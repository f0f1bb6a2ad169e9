"""Registry replicas whose clocks are wrong, step, drift and cannot always be read: no boundary moves beyond what the
correct clocks say, and correct replicas propose again once all is well.

Runs wherever regions' clocks are days apart.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from photon.config.clock import NS_PER_S
from photon.idregistry.core.shard_snapshot import NO_BOUNDARY
from tests.simulation.world import settings
from tests.simulation.world.truth import EPOCH_NS

if TYPE_CHECKING:
    from tests.simulation.world.world import World

LOOK_S = 0.5
SLACK_S = 0.2  # added to the bounds by round trips, readings of 30 s and drifts
DRIFT = 0.0004  # drift of the monotonic clocks, either way: within the kernel's 500 ppm
WRONG_S = (1.5 * settings.UNCERTAINTY_S, 60.0, 86_400.0, 1e9)


def drift(world: World, random: Random) -> None:
    for name, (_, place) in world.kinds.items():
        if name.startswith(f"{place.name}-replica"):
            place.rates[name] = 1 + random.uniform(-DRIFT, DRIFT)


# -- faults ----------------------------------------------------------------------------------------------------------
def set_replica_clock(world: World) -> None:
    """Sets one machine's clock in the direction in which its region's clocks leap: fewer than half are ahead and
    fewer than half behind, regardless of the others; or corrects it."""
    place = world.random.choice([place for place in world.places.values() if len(place.leaps) > 1])
    name = world.random.choice([name for name in world.replicas if world.kinds[name][1] is place])
    place.wrong.pop(name, None)
    if world.random.random() < 0.6:
        way = 1 if max(place.leaps) > 0 else -1
        place.wrong[name] = way * world.random.choice(WRONG_S)
    world.say(f"{name}: the clock is wrong by {place.wrong.get(name, 0.0):g} s")


# -- what must hold --------------------------------------------------------------------------------------------------
def look(world: World) -> None:
    """Checks the boundaries as long as the world lasts. A leader is within S of the median, which is within S / 2 of
    the truth; it subtracts S from its own clock."""
    most_ns = EPOCH_NS + int((world.loop.now + settings.UNCERTAINTY_S / 2 + SLACK_S) * NS_PER_S)
    for machine in world.shard_machines():
        over = machine.boundary + settings.RETENTION_S * NS_PER_S - most_ns
        if machine.boundary != NO_BOUNDARY and over > 0:
            world.violated(f"somebody moved the boundary {over / NS_PER_S:.1f} s beyond what it may be")
    world.loop.later(LOOK_S, look, world)


def objecting(world: World) -> str:
    """Replicas whose clocks are right, and that propose nothing all the same."""
    here: list[Any] = [world.running(name) for name in world.replicas]
    if any(each is None or each.watch is None for each in here):
        return "not all replicas run"
    skews = sorted(each.place.skew for each in here)
    for each in here:
        right = abs(each.place.skew - skews[len(skews) // 2]) <= settings.UNCERTAINTY_S / 2
        if right and (why := each.watch.objection()):
            return f"{each.name} objects when all is well: {why}"
    return ""
