"""From a deployment file to the processes that it means, for one machine. Pure, but for the ports it is given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from photon.config.settings import Settings
from photon.config.tls import Tls, towards
from photon.embedded.supervisor import Service
from photon.fleet.processes import KINDS, PIPELINE, Process, processes, stages
from photon.wan.api import Route


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
        return [[self._service(process) for process in stage] for stage in stages(self.settings)]

    def _service(self, process: Process) -> Service:
        log = self.run / "logs" / f"{process.label.replace(' ', '-')}.log"
        health = KINDS[process.kind].health
        address = process.address if health else None  # a page's health is not gRPC's
        to = towards(self.tls, process.identity)
        command = (*self._command(process), "--stop-with-parent")
        return Service(process.label, command, log, address, health, process.datacentre, to)

    def _command(self, process: Process) -> Iterator[str]:
        """Those that read the deployment file get the proxy's ports in place of addresses in other regions."""
        wan, tls = self.settings.wan, self.settings.tls
        if process.kind == "wan" and wan is not None:
            yield from ("wan", "serve", "--routes", str(self.routes_file), "--control", wan.control)
            yield from ("--round-trip", f"{wan.round_trip:.6f}s")
            yield from () if tls is None else ("--tls", str(self.file.parent / tls.directory))
            return
        yield from ("serve", process.kind, *(process.arguments or ()), "--config", str(self.file))
        by_target = {route.target: route for route in self.routes if route.source == process.region}
        for each in _across(self.settings):
            route = by_target.get(each.address or "")
            if route is not None and each.kind == "registry":
                yield from ("--set", f'registry.replicas.{each.name}.address="{route.listen}"')
            elif route is not None and process.kind in ("joiner", PIPELINE):
                yield from ("--set", f'datacentre.{each.datacentre}.copies="{route.listen}"')


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
    return sorted({each.region for each in processes(settings) if each.kind != "wan"})


def _across(settings: Settings) -> list[Process]:
    """Those that are called from other regions: replicas and keepers of copies."""
    called = [each for each in processes(settings) if each.arguments is not None]
    return [
        *sorted((each for each in called if each.kind == "registry"), key=lambda each: each.name),
        *sorted((each for each in called if each.kind == "copies"), key=lambda each: each.name),
    ]


def _pairs(settings: Settings) -> list[tuple[str, str, str]]:
    """(region, region elsewhere, address there)."""
    if settings.wan is None:
        return []
    called = [(each.region, each.address or "") for each in _across(settings)]
    return [(source, at, target) for source in regions(settings) for at, target in called if at != source]
