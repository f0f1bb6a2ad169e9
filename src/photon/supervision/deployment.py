"""Derives the processes of one machine from a deployment file. Pure."""

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
    """Returns ``a.b.c`` for each changed, new or removed value."""
    then, now = (_flat(msgspec.to_builtins(each, enc_hook=float)) for each in (before, after))
    return sorted(key for key in then.keys() | now.keys() if then.get(key) != now.get(key))


def _flat(table: dict[str, Any], above: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in table.items():
        found |= _flat(value, f"{above}{key}.") if isinstance(value, dict) else {f"{above}{key}": value}
    return found


# Keys of [datacentre.NAME] -> kinds of processes of other datacentres that read them.
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
    """True if a process read one of these keys at its start. A table [datacentre.NAME] is read by that datacentre's
    processes, all with a status page and those in ``_OF_OTHERS``; [wan] by the proxy; any other by all processes
    except the proxy."""
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
    run: Path  # directory for the processes' logs and the routes of the proxy
    routes: tuple[Route, ...] = ()
    tls: Tls | None = None  # the operator's certificate for health checks; None means plain text

    @property
    def routes_file(self) -> Path:
        return self.run / "routes.json"

    def services(self) -> list[Service]:
        """Every process, in the order of their start."""
        return [service for stage in self.stages() for service in stage]

    def stages(self) -> list[list[Service]]:
        """Returns the services by stage: each stage needs those before it; they stop in reverse order."""
        return [[self._service(process) for process in stage] for stage in stages(self.settings)]

    def _service(self, process: Process) -> Service:
        log = self.run / "logs" / f"{process.label.replace(' ', '-')}.log"
        health = KINDS[process.kind].health
        address = process.address if health else None  # as a page's health is not in gRPC
        to = towards(self.tls, process.identity)
        command = (*self._command(process), "--stop-with-parent")
        return Service(process.label, command, log, address, health, process.datacentre, to)

    def _command(self, process: Process) -> Iterator[str]:
        """Processes that read the deployment file get the proxy's ports instead of addresses in other regions."""
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
