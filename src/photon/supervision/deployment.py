"""Derives one machine's service processes from a deployment file. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from photon.config.settings import Settings
from photon.config.tls import Tls, towards
from photon.fleet.processes import DATACENTRE, KINDS, Process, stages
from photon.supervision.routes import Route, called_across
from photon.supervision.supervisor import Service


def changed_keys(before: Settings, after: Settings) -> list[str]:
    """Returns the key, as ``a.b.c``, of each changed, new or removed value."""
    then, now = (_flat(msgspec.to_builtins(each, enc_hook=float)) for each in (before, after))
    return sorted(key for key in then.keys() | now.keys() if then.get(key) != now.get(key))


def _flat(table: dict[str, Any], above: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in table.items():
        found |= _flat(value, f"{above}{key}.") if isinstance(value, dict) else {f"{above}{key}": value}
    return found


# Key of [datacentre.NAME] -> kinds of processes in other datacentres that read it.
_OF_OTHERS: Mapping[str, Collection[str]] = {
    "join": ("copies", "dispatcher", "joiner", "relay"),
    "address": ("copies", "joiner", "relay"),
    "apart": ("copies", "joiner", "relay"),
    "output": ("compute", "relay"),
    "state": ("compute", "relay"),
    "joiners": ("relay",),
    "region": ("registry",),
}


def reads(service: Service, keys: Iterable[str]) -> bool:
    """Returns True if the process reads one of these keys when it starts. [datacentre.NAME] is read by that
    datacentre's processes, by all that have a status page, and by those in ``_OF_OTHERS``; [wan] by the proxy only;
    other tables by all processes except the proxy."""
    kind = service.name.partition(" ")[0]
    for key in keys:
        table, _, rest = key.partition(".")
        if table == "wan":
            found = kind == "wan"
        elif table == "datacentre":
            name, _, rest = rest.partition(".")
            own = service.datacentre == name and kind != "registry"
            found = own or kind in ("status", DATACENTRE) or kind in _OF_OTHERS.get(rest.partition(".")[0], ())
        else:
            found = kind != "wan"
        if found:
            return True
    return False


@dataclass(frozen=True, slots=True)
class Deployment:
    file: Path
    settings: Settings
    run: Path  # directory for the processes' logs and the proxy's routes
    routes: tuple[Route, ...] = ()
    tls: Tls | None = None  # the operator's certificate, for health checks; `None` means plain text

    @property
    def routes_file(self) -> Path:
        return self.run / "routes.json"

    def services(self) -> list[Service]:
        """Returns all services in start order."""
        return [service for stage in self.stages() for service in stage]

    def stages(self) -> list[list[Service]]:
        """Returns the services by stage. Each stage needs the stages before it; stages stop in reverse order."""
        return [[self._service(process) for process in stage] for stage in stages(self.settings)]

    def _service(self, process: Process) -> Service:
        log = self.run / "logs" / f"{process.label.replace(' ', '-')}.log"
        health = KINDS[process.kind].health
        address = process.address if health else None  # a status page has no gRPC health service
        to = towards(self.tls, process.identity)
        command = (*self._command(process), "--stop-with-parent")
        return Service(process.label, command, log, address, health, process.datacentre, to)

    def _command(self, process: Process) -> Iterator[str]:
        """Yields the arguments of a process. Instead of addresses in other regions, it gets the proxy's ports."""
        wan, tls = self.settings.wan, self.settings.tls
        if process.kind == "wan" and wan is not None:
            yield from ("wan", "serve", "--routes", str(self.routes_file), "--control", wan.control)
            yield from ("--round-trip", f"{wan.round_trip:.6f}s")
            yield from () if tls is None else ("--tls", str(self.file.parent / tls.directory))
            return
        yield from ("serve", process.kind, *(process.arguments or ()), "--config", str(self.file))
        by_target = {route.target: route for route in self.routes if route.source == process.region}
        for each in called_across(self.settings):
            route = by_target.get(each.address or "")
            if route is not None and each.kind == "registry":
                yield from ("--set", f'registry.replicas.{each.name}.address="{route.listen}"')
            elif route is not None and process.kind in ("joiner", DATACENTRE):
                yield from ("--set", f'datacentre.{each.datacentre}.apart.copies="{route.listen}"')
