"""What goes wrong with slots, and between clients and replicas, beside the faults of the world."""

from __future__ import annotations

from collections.abc import Sequence

from photon.idregistry.raft.api import Group
from tests.simulation.registry.clients import Operator
from tests.simulation.registry.world import REGISTRY_FAULTS, RegistryWorld
from tests.simulation.world.cluster import Cluster, Node
from tests.simulation.world.faults import Fault


def slot_copied(world: Cluster) -> None:
    """A directory is copied with all that is in it, and a process starts on the copy while the first one serves."""
    assert isinstance(world, RegistryWorld)
    client = world.random.choice(world.clients)
    if client.retired or client.copied:
        return
    world.tell(f"{client.name} is copied")
    copy = client.copy()
    world.clients.append(copy)
    world.later(world.random.uniform(0.0, 0.3), copy.start)


def late_opening(world: Cluster) -> None:
    """A process asks to open its slot, dies, and its successors have opened when the request arrives."""
    assert isinstance(world, RegistryWorld)
    client = world.random.choice(world.clients)
    client.kill()
    world.lateness[client.name] = 1.5
    world.later(0.01, client.start)

    def again() -> None:
        world.lateness.pop(client.name, None)
        if world.stormy:
            client.kill()
            client.start()

    world.later(0.05, again)


def late_requests(world: Cluster) -> None:
    """Requests of one client are on their way for seconds; it dies meanwhile, and at times its slot is retired."""
    assert isinstance(world, RegistryWorld)
    client = world.random.choice(world.clients)
    world.lateness[client.name] = world.random.choice((0.5, 3.0))

    def ends() -> None:
        world.lateness.pop(client.name, None)
        if not world.stormy:
            return
        client.kill()
        if client is not world.clients[0] and client.last and world.random.random() < 0.4:
            if not world.retiring(client):
                Operator(world, client).start()
        else:
            world.later(world.random.uniform(0.0, 0.5), client.start)

    world.later(world.random.uniform(0.2, 0.8), ends)


def unheard_and_set_back(world: Cluster) -> None:
    """A leader's answers are lost for a moment, and then its clock is set back: is what it took too new now?"""
    assert isinstance(world, RegistryWorld)
    leading = [node for node in world.nodes.values() if any(group.state().is_leader for group in _groups(node))]
    if not leading:
        return
    node = world.random.choice(leading)
    cut = {(node.name, client.name) for client in world.clients}
    world.cut |= cut
    world.tell(f"{node.name} is not heard, and its wall clock will be set back")

    def set_back() -> None:
        node.clock.skew -= 10.0

    def set_right() -> None:
        world.cut.difference_update(cut)
        node.clock.skew += 10.0

    world.later(0.2, set_back)
    world.later(0.25, lambda: world.cut.difference_update(cut))
    world.later(4.0, set_right)


def _groups(node: Node) -> Sequence[Group]:
    return list(node.host._groups.values()) if node.host is not None else []


SLOT_FAULTS: Sequence[Fault] = (slot_copied, late_opening, late_requests, unheard_and_set_back)
ALL_FAULTS: Sequence[Fault] = (*REGISTRY_FAULTS, *SLOT_FAULTS)
