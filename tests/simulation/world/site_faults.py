"""The faults and their times. ``plan`` draws them all at the start; ``heal`` ends them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from photon.config.clock import NS_PER_S
from photon.dispatcher.database import Transaction
from photon.dispatcher.replay import requests
from tests.simulation.world import settings
from tests.simulation.world.process import DispatcherProcess, Process
from tests.simulation.world.truth import EPOCH_NS

if TYPE_CHECKING:
    from tests.simulation.world.world import Place, World

Fault = Callable[[Any], None]  # a fault of a world, or of a further one's


def plan(world: World) -> None:
    """Network weather, and a list of faults, each at its own moment."""
    random = world.random
    if random.random() < 0.1 or world.quiet:
        return  # a quiet day
    kinds = [*(world.variant.faults or (*world.common_faults, *world.faults_here))]
    if world.apart:
        kinds.append((leap_clock, 4))
    if world.loses_slots:
        kinds.append((world.lose_slot, 2))
        world.loop.later(random.uniform(3.0, world.faults_s), world.lose_slot, world)
    chosen = [each for each in kinds if random.random() < 0.6] or kinds
    names, weights = [fault for fault, _ in chosen], [weight for _, weight in chosen]
    mean = random.choice((1.0, 3.0, 8.0))
    at = random.uniform(0.5, 4.0)
    while at < world.faults_s:
        world.loop.later(at, random.choices(names, weights)[0], world)
        at += random.expovariate(1 / mean)


def heal(world: World) -> None:
    """The end of all faults: everything runs, is connected, and its disks and clocks are good."""
    network = world.network
    world.faults = False
    network.cut.clear()
    network.loss = network.doubling = network.late = 0.0
    for place in world.places.values():
        place.down = False
        place.wrong.clear()
        for disk in place.disks.values():
            disk.crash_after(None)
            disk.fail_sync_after(0)
            disk.room, disk.sync_seconds = None, 0.0
    for name in world.kinds:
        process = world.running(name)
        if process is not None and process.paused:
            world.loop.thaw(process)
        world.loop.later(0.1, world.boot, name)


# -- one process -----------------------------------------------------------------------------------------------------
def _some(world: World, kinds: tuple[str, ...] = ()) -> Process | None:
    names = [name for name in world.kinds if world.running(name) is not None]
    if kinds:
        names = [name for name in names if name.rstrip("01").endswith(kinds)]
    return world.running(world.random.choice(names)) if names else None


def kill_one(world: World) -> None:
    if (process := _some(world)) is not None:
        world.ended(process, "kill -9")


def crash_in_a_write(world: World) -> None:
    if (process := _some(world, world.crash_in)) is not None:
        process.place.disks[process.name].crash_after(world.random.randint(1, 30))


def fail_a_sync(world: World) -> None:
    if (process := _some(world, world.crash_in)) is not None:
        process.place.disks[process.name].fail_sync_after(world.random.randint(1, 6))


def stop_one(world: World) -> None:
    if (process := _some(world, ("joiner", "dispatcher"))) is not None and not process.paused:
        world.say(f"{process.name} is asked to stop")
        world.loop.spawn(process, process.stop())


def pause_one(world: World) -> None:
    if (process := _some(world)) is not None:
        _pause(world, process, world.random.choice((0.5, 3.0, 12.0)))


def _pause(world: World, process: Process, seconds: float) -> None:
    if process.paused:
        return
    world.say(f"{process.name} is paused for {seconds} s")
    world.counts["pauses"] += 1
    process.paused = True
    world.loop.later(seconds, _go_on, world, process)


def _go_on(world: World, process: Process) -> None:
    if process.alive and process.paused:
        world.say(f"{process.name} goes on")
        world.loop.thaw(process)


# -- datacentres -----------------------------------------------------------------------------------------------------
def pause_datacentre(world: World) -> None:
    seconds = world.random.choice((2.0, 12.0))
    for name in world.random.choice(world.datacentres).names:
        if (process := world.running(name)) is not None:
            _pause(world, process, seconds)


def kill_datacentre(world: World) -> None:
    down(world, world.random.choice(world.datacentres), power=False)


def cut_power(world: World) -> None:
    down(world, world.random.choice(world.datacentres), power=True)


def kill_both(world: World) -> None:
    power = world.random.random() < 0.5
    for place in world.datacentres:
        down(world, place, power=power)


def down(world: World, place: Place, *, power: bool, choice: Sequence[float] = (0.5, 4.0, 15.0)) -> None:
    """``choice``: duration in seconds."""
    random = world.random
    world.say(f"{place.name}: {'power cut' if power else 'everything is killed'}")
    place.down = True
    for name in place.names:
        if (process := world.running(name)) is not None:
            world.ended(process, "with its datacentre")
    if power:
        for disk in place.disks.values():
            disk.power_cut()
        for images in place.images.values():
            images.lose(random.choice((0, len(images.history) - 1, random.randrange(len(images.history)))))
        place.mapped = [random.choice((mapped, random.randint(0, mapped))) for mapped in place.mapped]
    world.loop.later(random.choice(choice), _up, world, place)


def _up(world: World, place: Place) -> None:
    place.down = False
    for name in place.names:
        world.loop.later(world.random.uniform(0.0, 1.0), world.boot, name)


def delete_state(world: World) -> None:
    """Dispatcher and event store of a datacentre start from scratch."""
    place = world.random.choice(world.datacentres)
    world.say(f"{place.name}: the state of dispatcher and event store is deleted")
    for name in (*place.images, f"{place.name}-store"):
        if (process := world.running(name)) is not None:
            world.ended(process, "its state is deleted")
    for images in place.images.values():
        images.wipe()
    place.mapped = [0] * len(place.mapped)


def ask_replay(world: World) -> None:
    """An operator has a time range dispatched again."""
    place = world.random.choice(world.datacentres)
    names = list(place.images)
    process = world.running(names[0] if len(names) == 1 else world.random.choice(names))
    if not isinstance(process, DispatcherProcess) or process.engine is None or process.paused:
        return
    state: Any = process.engine._state
    since = EPOCH_NS + int(world.random.choice((-30 * 3600, -10, 0, 10)) * NS_PER_S)
    until = EPOCH_NS + int(world.random.choice((0.1, 10, 30, 60)) * NS_PER_S)
    pattern = world.random.choice(("", "clicks-0*"))
    with Transaction(state.database, state.path):
        (newest,) = state.database.execute("SELECT coalesce(max(id), 0) FROM replays").fetchone()
        number = newest + 1
        requests.add(state.database, number, min(since, until - 1), until, pattern, process.clock.now_ns())
    state._keep(synced=False)
    world.say(f"{place.name}: replay {number} is asked for")


def wrong_clock(world: World) -> None:
    """Sets a clock wrong by more than S, on one machine at a time: an event store or a dispatcher, running or as it
    starts."""
    for place in world.places.values():
        place.wrong.clear()
    process = _some(world, ("store", "dispatcher"))
    if process is None:
        return
    skew = world.random.choice((-60.0, -20.0, 20.0, 60.0))
    process.place.wrong[process.name] = skew
    process.place.misled.add(process.name)
    world.say(f"{process.name}: the clock is wrong by {skew:g} s")


def shift_clock(world: World) -> None:
    place = world.random.choice(list(world.places.values()))
    world.set_clocks(place, world.random.uniform(-0.5, 0.5) * settings.UNCERTAINTY_S)


def leap_clock(world: World) -> None:
    """All clocks of a region are set, while it runs or between two of its lives: to another day, or right again."""
    place = world.random.choice([place for place in world.places.values() if len(place.leaps) > 1])
    if world.random.random() < 0.5 and not place.down:
        down(world, place, power=world.random.random() < 0.5)
    world.set_clocks(place, world.random.choice(place.leaps))


# -- network and registry --------------------------------------------------------------------------------------------
def cut_network(world: World) -> None:
    random = world.random
    regions = list(world.places)
    one = random.choice(regions)
    others = [each for each in regions if each != one]
    if random.random() < 0.5:
        others = [random.choice(others)]
    ways = random.choice((0, 1, 2))
    cut = {(one, other) for other in others if ways != 1} | {(other, one) for other in others if ways != 0}
    seconds = random.choice((1.0, 5.0, 15.0))
    world.say(f"cut for {seconds} s: {sorted(cut)}")
    world.counts["cuts"] += 1
    world.network.cut |= cut
    world.loop.later(seconds, world.network.cut.difference_update, cut)


def weather(world: World) -> None:
    random, network = world.random, world.network
    network.loss = random.choice((0.0, 0.05, 0.3))
    network.doubling = random.choice((0.0, 0.1, 0.4))
    network.late = random.choice((0.0, 0.05, 0.2))
    world.say(f"weather: loss {network.loss}, doubled {network.doubling}, late {network.late}")


def new_leader(world: World) -> None:
    world.new_leader()


# Faults with their weights.
KINDS: tuple[tuple[Fault, int], ...] = (
    (kill_one, 6),
    (crash_in_a_write, 4),
    (fail_a_sync, 2),
    (stop_one, 2),
    (pause_one, 4),
    (pause_datacentre, 1),
    (kill_datacentre, 3),
    (cut_power, 3),
    (kill_both, 1),
    (cut_network, 4),
    (weather, 3),
    (new_leader, 3),
    (shift_clock, 2),
    (wrong_clock, 2),
    (delete_state, 2),
    (ask_replay, 2),
)
