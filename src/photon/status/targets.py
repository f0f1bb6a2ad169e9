"""Which processes a pipeline's status asks: its own, the registry's replicas, the proxy between regions. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from photon.config.roles import Role, identity
from photon.config.settings import Settings
from photon.config.tls import WAN, Tls, Towards, towards


@dataclass(frozen=True, slots=True)
class Target:
    """One process."""

    datacentre: str
    """It is lost with; empty: with none."""
    service: str
    process: str
    """Its name among those of its service."""
    address: str
    """host:port."""
    to: Towards | None = None
    """None: in plain text."""

    @property
    def labels(self) -> dict[str, str]:
        """What its samples get."""
        return {"datacentre": self.datacentre, "service": self.service, "process": self.process}

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.service} {self.process}"


def joiner_target(datacentre: str, slot: str, address: str, tls: Tls | None) -> Target:
    """A joiner that the deployment file does not name."""
    return Target(datacentre, "joiner", slot, address, towards(tls, identity(Role.JOINER, datacentre)))


def worker_target(datacentre: str, worker: str, address: str, tls: Tls | None) -> Target:
    """A dispatcher that the deployment file does not name."""
    return Target(datacentre, "dispatcher", worker, address, towards(tls, identity(Role.DISPATCHER, datacentre)))


def targets_of(settings: Settings, datacentre: str, tls: Tls | None) -> list[Target]:
    """Those that have an address in the deployment file."""
    pipeline = settings.datacentre[datacentre]

    def here(role: Role, process: str, address: str | None) -> list[Target]:
        to = towards(tls, identity(role, datacentre))
        return [Target(datacentre, str(role), process, address, to)] if address else []

    found = here(Role.DISPATCHER, datacentre, pipeline.dispatcher)
    for name, worker in pipeline.dispatchers.items():
        found += here(Role.DISPATCHER, name, worker.address)
    for name, joiner in pipeline.joiners.items():
        found += here(Role.JOINER, name, joiner.address)
    found += here(Role.EVENTSTORE, datacentre, pipeline.eventstore)
    for name, cache in pipeline.caches.items():
        found += here(Role.CACHE, name, cache.address)
    found += here(Role.COPIES, datacentre, pipeline.copies)
    found += here(Role.VERIFIER, datacentre, pipeline.verifier)
    found += [
        Target(replica.datacentre, "registry", name, replica.address, towards(tls, identity(Role.REGISTRY, name)))
        for name, replica in settings.registry.replicas.items()
    ]
    if settings.wan is not None:
        found.append(Target("", "wan", "gateway", settings.wan.control, towards(tls, WAN)))
    return found
