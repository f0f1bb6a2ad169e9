"""The faults in a schedule of a ``Cluster``: crashes at any disk operation, power cuts, bad disks, bad network,
pauses, bad clocks. Each seed draws a few kinds, so that some schedules have much of one and nothing of another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from photon.idregistry.raft import segment_file
from tests.simulation.world.cluster import DIRECTORY, Cluster, Node
from tests.simulation.world.faulty_disk import FaultyDisk

Fault = Callable[[Cluster], None]


def plan(world: Cluster, until: float, kinds: Sequence[Fault]) -> None:
    """Plans faults of some of the kinds up to a time (seconds)."""
    random = world.random
    chosen = random.sample(kinds, min(len(kinds), random.randint(2, 6)))
    at = random.uniform(0.3, 1.2)
    while at < until:
        world.later(at, partial(random.choice(chosen), world))
        at += random.expovariate(1 / random.choice((0.25, 0.6)))


def heal(world: Cluster) -> None:
    """Nothing is wrong from now on; nodes that refuse to continue stay down."""
    world.tell("all faults end")
    world.stormy = False
    world.cut.clear()
    world.loss = world.doubling = world.slow = 0.0
    for node in world.nodes.values():
        node.paused_until = 0.0
        node.disk.crash_after(None)
        node.disk.fail_sync_after(0)
        node.disk.room = None
        node.disk.sync_seconds = 0.0
        world.later(0.0, node.boot_if_down)
        world.pump_at(node, world.now)


def _some(world: Cluster) -> Node:
    return world.nodes[world.random.choice(world.names)]


def _spare(world: Cluster) -> Node | None:
    """A machine that may be lost for good: a majority keeps its disks."""
    harmed = [node for node in world.nodes.values() if node.harmed]
    if len(harmed) >= (len(world.names) - 1) // 2:
        return world.random.choice(harmed) if harmed else None
    return _some(world)


def crash(world: Cluster) -> None:
    node = _some(world)
    if node.up:
        node.crash(power=world.random.random() < 0.7)


def crash_soon(world: Cluster) -> None:
    """Crashes at any disk operation, halfway through a write."""
    node = _some(world)
    if node.up:
        node.disk.crash_after(world.random.randint(1, 40))


def power_cut_all(world: Cluster) -> None:
    world.tell("the power goes everywhere")
    for node in world.nodes.values():
        if node.up:
            node.crash(power=True)


def partition(world: Cluster) -> None:
    """Some are cut off from the others, in one or both directions."""
    random = world.random
    lonely = random.sample(world.names, random.randint(1, len(world.names) // 2))
    cut = {(a, b) for a in world.names for b in world.names if (a in lonely) != (b in lonely)}
    if random.random() < 0.3:
        heard = random.random() < 0.5
        cut = {(a, b) for a, b in cut if (a in lonely) == heard}
    world.cut |= cut
    world.tell("cut: " + " ".join(sorted(f"{a}->{b}" for a, b in cut)))

    def mend() -> None:
        world.cut.difference_update(cut)
        world.tell("mended: " + " ".join(sorted(f"{a}->{b}" for a, b in cut)))

    world.later(random.uniform(0.2, 2.5), mend)


def pause(world: Cluster) -> None:
    """A process stands still, at times for longer than every time-out."""
    node = _some(world)
    seconds = world.random.choice((world.random.uniform(0.1, 1.5), world.random.uniform(2.0, 4.0)))
    node.paused_until = world.now + seconds
    world.tell(f"{node.name} stands still for {seconds:.2f} s")


def weather(world: Cluster) -> None:
    """Loss, doubling, delay (and so reordering) of messages."""
    random = world.random
    world.loss = random.choice((0, 0, 0.05, 0.3))
    world.doubling = random.choice((0, 0.1, 0.5))
    world.slow = random.choice((0, 0.02, 0.2))
    world.slow_seconds = random.choice((0.05, 0.4, 1.5, 4.0))
    late = f"{world.slow:.0%} up to {world.slow_seconds} s late"
    world.tell(f"network: {world.loss:.0%} lost, {world.doubling:.0%} doubled, {late}")


def full_disk(world: Cluster) -> None:
    """Writes fail halfway for a while."""
    node = _some(world)
    disk = node.disk
    disk.room = world.random.choice((0, world.random.randint(0, 2000)))
    world.tell(f"{node.name}: {disk.room} bytes are left on the disk")

    def free() -> None:
        disk.room = None
        world.tell(f"{node.name}: the disk has room again")

    world.later(world.random.uniform(0.1, 3.0), free)


def slow_disk(world: Cluster) -> None:
    node = _some(world)
    disk = node.disk
    disk.sync_seconds = world.random.choice((0.01, 0.1, 0.6))
    world.tell(f"{node.name}: a sync takes up to {disk.sync_seconds} s")
    world.later(world.random.uniform(0.2, 2.0), lambda: setattr(disk, "sync_seconds", 0.0))


def failing_sync(world: Cluster) -> None:
    """The process must end; the power may go some time later."""
    node = _some(world)
    node.disk.fail_sync_after(world.random.randint(1, 6))
    if world.random.random() < 0.7:
        world.later(world.random.uniform(0.0, 2.0), lambda: node.up and node.crash(power=True))


def bit_rot(world: Cluster) -> None:
    """A bit of a file flips; often its replica restarts soon after."""
    node = _spare(world)
    if node is None or node.broken or node.harmed:
        return
    proven = node.host is not None and all(group._journal._proven for group in node.host._groups.values())
    where = node.disk.rot(str(DIRECTORY), (lambda path, data: 0) if proven else _unprovable)
    if where is None:
        return
    node.harmed = f"a bit flipped in {where}"
    world.tell(f"{node.name}: {node.harmed}")
    if world.random.random() < 0.7:
        world.later(world.random.uniform(0.0, 0.5), lambda: node.up and node.crash(power=world.random.random() < 0.5))


def _unprovable(path: str, data: bytes) -> int:
    """Bytes of a journal's last frame, if the power went before the frame behind it was written back.

    That such a frame rots as well is the one thing that the journal takes for a torn write (see `segment_file.py`).
    """
    if "journal-" not in path:
        return 0
    _, _, segment, durable = segment_file.HEADER.unpack_from(data)
    at = segment_file.HEADER_BYTES
    while (parsed := segment_file.parse(data, at, segment)) is not None:
        durable = max(durable, parsed[1])
        at += segment_file.FRAME.size + len(parsed[2])
    return int(len(data) - durable)


def wiped_disk(world: Cluster) -> None:
    """A replica comes back under its name with an empty disk. It must not take part."""
    node = _spare(world)
    if node is None or node.broken or node.harmed:
        return
    if not all((node.name, other) in world.met for other in world.names if other != node.name):
        return
    node.harmed = "its disk was wiped"
    world.tell(f"{node.name}: {node.harmed}")
    if node.up:
        node.crash(power=True)
    node.disk = FaultyDisk(Random(world.random.getrandbits(64)), lies_about=world.lies_about)


def clock_jump(world: Cluster) -> None:
    """A wall clock is set, by seconds or by days."""
    node = _some(world)
    seconds = world.random.choice((-1, 1)) * world.random.choice((1.0, 10.0, 3600.0, 3 * 86400.0))
    node.clock.skew += seconds
    world.tell(f"{node.name}: the wall clock jumps by {seconds:+} s")


RAFT_FAULTS: Sequence[Fault] = (
    crash,
    crash_soon,
    power_cut_all,
    partition,
    pause,
    weather,
    full_disk,
    slow_disk,
    failing_sync,
    bit_rot,
    wiped_disk,
)
