"""Which processes a pipeline's status asks: its own, the registry's replicas, the proxy between regions. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from photon.config.settings import Settings
from photon.config.tls import (
    WAN,
    Tls,
    Towards,
    cache_identity,
    copies_identity,
    dispatcher_identity,
    eventstore_identity,
    joiner_identity,
    registry_identity,
    towards,
    verifier_identity,
)


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
    return Target(datacentre, "joiner", slot, address, towards(tls, joiner_identity(datacentre)))


def worker_target(datacentre: str, worker: str, address: str, tls: Tls | None) -> Target:
    """A dispatcher that the deployment file does not name."""
    return Target(datacentre, "dispatcher", worker, address, towards(tls, dispatcher_identity(datacentre)))


def targets_of(settings: Settings, datacentre: str, tls: Tls | None) -> list[Target]:
    """Those that have an address in the deployment file."""
    pipeline = settings.datacentre[datacentre]

    def here(service: str, process: str, address: str | None, identity: str) -> list[Target]:
        return [Target(datacentre, service, process, address, towards(tls, identity))] if address else []

    found = here("dispatcher", datacentre, pipeline.dispatcher, dispatcher_identity(datacentre))
    for name, worker in pipeline.dispatchers.items():
        found += here("dispatcher", name, worker.address, dispatcher_identity(datacentre))
    for name, joiner in pipeline.joiners.items():
        found += here("joiner", name, joiner.address, joiner_identity(datacentre))
    found += here("eventstore", datacentre, pipeline.eventstore, eventstore_identity(datacentre))
    for name, cache in pipeline.caches.items():
        found += here("cache", name, cache.address, cache_identity(datacentre))
    found += here("copies", datacentre, pipeline.copies, copies_identity(datacentre))
    found += here("verifier", datacentre, pipeline.verifier, verifier_identity(datacentre))
    found += [
        Target(replica.datacentre, "registry", name, replica.address, towards(tls, registry_identity(name)))
        for name, replica in settings.registry.replicas.items()
    ]
    if settings.wan is not None:
        found.append(Target("", "wan", "gateway", settings.wan.control, towards(tls, WAN)))
    return found
