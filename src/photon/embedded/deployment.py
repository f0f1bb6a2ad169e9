"""From a deployment file to the processes that it means, for one machine. Pure, but for the ports it is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from photon.config.settings import Settings, Wan
from photon.config.tls import WAN, Tls, towards
from photon.embedded.supervisor import Service
from photon.wan.api import Route

HEALTH = {
    "registry": "photon.v1.Registry",
    "cache": "photon.v1.Cache",
    "eventstore": "photon.v1.EventStore",
    "joiner": "photon.v1.Joiner",
    "dispatcher": "photon.v1.Dispatcher",
    "verifier": "photon.v1.Verifier",
    "wan": "photon.v1.Wan",
    "copies": "photon.v1.Copies",
    "status": "",
    "pipeline": "photon.v1.Joiner",
}


@dataclass(frozen=True, slots=True)
class Deployment:
    """A deployment file and where its processes write what they say."""

    file: Path
    settings: Settings
    run: Path
    """Directory for the processes' logs and the routes of the proxy."""
    routes: tuple[Route, ...] = ()
    tls: Tls | None = None
    """What the operator shows who asks the processes how they are; None: plain text."""

    @property
    def routes_file(self) -> Path:
        """What the proxy is told to serve."""
        return self.run / "routes.json"

    def services(self) -> list[Service]:
        """Every process, in the order of their start."""
        return [service for stage in self.stages() for service in stage]

    def stages(self) -> list[list[Service]]:
        """Each stage needs those before it; they are stopped in the reverse order."""
        settings = self.settings
        wan = [] if settings.wan is None else [self._proxy(settings.wan)]
        registry = [
            self._of_file(
                "registry", name, ("--replica", name), r.address, r.datacentre, settings.region_of_replica(name)
            )
            for name, r in settings.registry.replicas.items()
        ]
        caches, stores, joiners, verifiers, dispatchers = [], [], [], [], []
        for name, pipeline in settings.datacentre.items():
            where, region = ("--datacentre", name), settings.region(name)
            caches += [
                self._of_file("cache", node, (*where, "--node", node), cache.address, name, region)
                for node, cache in pipeline.caches.items()
            ]
            if pipeline.copies is not None and settings.output.copies > 1:
                stores.append(self._of_file("copies", name, where, pipeline.copies, name, region))
            if pipeline.together:
                first = next(iter(pipeline.joiners.values())).address
                dispatchers.append(self._of_file("pipeline", name, where, first, name, region))
                continue
            stores.append(self._of_file("eventstore", name, where, pipeline.eventstore, name, region))
            joiners += [
                self._of_file("joiner", slot, (*where, "--slot", slot), joiner.address, name, region)
                for slot, joiner in pipeline.joiners.items()
            ]
            verifiers.append(self._of_file("verifier", name, where, pipeline.verifier, name, region))
            if not pipeline.dispatchers:
                dispatchers.append(self._of_file("dispatcher", name, where, pipeline.dispatcher, name, region))
            dispatchers += [
                self._of_file("dispatcher", f"{name} {n}", (*where, "--worker", n), worker.address, name, region)
                for n, worker in pipeline.dispatchers.items()
            ]
        stages = [wan, registry, *([caches] if caches else []), stores, [*joiners, *verifiers], dispatchers]
        return [*stages, statuses] if (statuses := self._statuses()) else stages

    def _statuses(self) -> list[Service]:
        """Pages; their health is not asked for, as it is not gRPC's."""
        return [
            self._of_file("status", name, ("--datacentre", name), None, name, self.settings.region(name))
            for name, pipeline in self.settings.datacentre.items()
            if pipeline.status is not None
        ]

    def _proxy(self, wan: Wan) -> Service:
        command = ("wan", "serve", "--routes", str(self.routes_file), "--control", wan.control)
        delay = ("--round-trip", f"{wan.round_trip:.6f}s", "--stop-with-parent")
        tls = self.settings.tls
        own = () if tls is None else ("--tls", str(self.file.parent / tls.directory))
        return self._service("wan", "", (*command, *delay, *own), wan.control, "", WAN)

    def _of_file(
        self, noun: str, name: str, arguments: Sequence[str], address: str | None, datacentre: str, region: str
    ) -> Service:
        """One that reads the deployment file, with the proxy's ports in place of replicas in other regions."""
        seen = [
            ("--set", f'registry.replicas.{replica}.address="{route.listen}"')
            for replica, route in self._routes_from(region).items()
        ]
        if noun in ("joiner", "pipeline"):
            seen += [
                ("--set", f'datacentre.{keeper}.copies="{route.listen}"')
                for keeper, route in self._routes_to_keepers(region).items()
            ]
        flags = [each for pair in seen for each in pair]
        command = (noun, "serve", "--config", str(self.file), *arguments, *flags, "--stop-with-parent")
        kind = "joiner" if noun == "pipeline" else noun  # the first joiner says how it is
        identity = f"{kind}-{name if noun == 'registry' else datacentre}"
        return self._service(noun, name, command, address, datacentre, identity)

    def _routes_from(self, region: str) -> Mapping[str, Route]:
        """Replica in another region -> the port that leads there."""
        by_target = {route.target: route for route in self.routes if route.source == region}
        replicas = self.settings.registry.replicas
        return {name: by_target[r.address] for name, r in replicas.items() if r.address in by_target}

    def _routes_to_keepers(self, region: str) -> Mapping[str, Route]:
        """Datacentre in another region -> the port that leads to its keeper of copies."""
        by_target = {route.target: route for route in self.routes if route.source == region}
        kept = {name: pipeline.copies for name, pipeline in self.settings.datacentre.items()}
        return {name: by_target[at] for name, at in kept.items() if at is not None and at in by_target}

    def _service(
        self, noun: str, name: str, command: tuple[str, ...], address: str | None, datacentre: str, identity: str
    ) -> Service:
        label = f"{noun} {name}".strip()
        log = self.run / "logs" / f"{label.replace(' ', '-')}.log"
        return Service(label, command, log, address, HEALTH[noun], datacentre, towards(self.tls, identity))


def routes_of(settings: Settings, ports: Sequence[int], host: str = "127.0.0.1") -> tuple[Route, ...]:
    """A port of the proxy for each pair of a region and a replica or keeper of copies elsewhere; none without
    ``[wan]``.

    ``ports``: at least ``routes_needed`` free ones.
    """
    pairs = _pairs(settings)
    return tuple(
        Route(f"{host}:{port}", source, destination, target)
        for (source, destination, target), port in zip(pairs, ports, strict=False)
    )


def routes_needed(settings: Settings) -> int:
    """How many ports the proxy listens on."""
    return len(_pairs(settings))


def regions(settings: Settings) -> list[str]:
    """All regions that something is in."""
    found = {settings.region(name) for name in settings.datacentre}
    found |= {settings.region_of_replica(name) for name in settings.registry.replicas}
    return sorted(found)


def _pairs(settings: Settings) -> list[tuple[str, str, str]]:
    """(region, region elsewhere, address there)."""
    if settings.wan is None:
        return []
    registry = settings.registry.replicas
    targets = [(settings.region_of_replica(name), registry[name].address) for name in sorted(registry)]
    if settings.output.copies > 1:
        kept = sorted(settings.datacentre.items())
        targets += [
            (settings.region(name), pipeline.copies) for name, pipeline in kept if pipeline.copies is not None
        ]
    return [(source, at, target) for source in regions(settings) for at, target in targets if at != source]
