"""The registry of an embedded deployment: one replica in this process, or three or five as child processes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from photon.config.clock import Clock
from photon.config.disk import Disk
from photon.config.errors import UsageError
from photon.config.settings import Settings
from photon.config.stopping import unless_stopped
from photon.embedded.ports import free_ports
from photon.embedded.site import Site
from photon.embedded.supervisor import Service, Supervisor
from photon.idregistry.api import Registry

READY_S = 30.0


@dataclass(frozen=True, slots=True)
class RegistryPlan:
    """How many replicas, of what."""

    replicas: int
    id_rules: Mapping[str, bytes]
    """By join."""


async def start_replicas(
    site: Site, settings: Settings, plan: RegistryPlan, supervisor: Supervisor, disk: Disk
) -> dict[str, str]:
    """Begins to start the processes of a site's registry, name -> address; none where it is in this process."""
    _check_replicas(site, plan.replicas, disk)
    if plan.replicas == 1:
        return {}
    names = [f"r{number}" for number in range(1, plan.replicas + 1)]
    addresses = {name: f"127.0.0.1:{port}" for name, port in zip(names, free_ports(len(names)), strict=True)}
    await supervisor.start([_service(site, settings, plan, name, addresses) for name in names])
    return addresses


@contextlib.asynccontextmanager
async def open_registry(
    site: Site,
    settings: Settings,
    plan: RegistryPlan,
    supervisor: Supervisor,
    addresses: Mapping[str, str],
    *,
    disk: Disk,
    clock: Clock,
    stop: asyncio.Event,
) -> AsyncIterator[Registry]:
    """Opens the registry of a site, whose replicas were started; closed at the end. Raises Stopped."""
    if not addresses:
        from photon.idregistry.embedded import EmbeddedRegistry, RegistryConflict

        try:
            local = await EmbeddedRegistry.open(
                site.registry("local"),
                shards=settings.registry.shards,
                id_rules=plan.id_rules,
                uncertainty_ns=int(settings.clock.uncertainty * 1e9),
                retention_ns=None if settings.registry.retention is None else int(settings.registry.retention * 1e9),
                memory_limit=settings.registry.memory_limit,
                disk=disk,
                clock=clock,
            )
        except RegistryConflict as conflict:
            raise UsageError(f"{site.output}: {conflict}") from None
        try:
            yield local
        finally:
            await local.close()
        return
    from photon.idregistry.client import RegistryClient

    await unless_stopped(stop, supervisor.ready(READY_S))
    client = RegistryClient(addresses, clock=clock)
    try:
        yield client
    finally:
        await client.close()


def _check_replicas(site: Site, replicas: int, disk: Disk) -> None:
    """A site's ids live in the replicas it was begun with: others would know none of them."""
    path = site.state / "replicas"
    if not disk.exists(path):
        disk.replace(path, b"%d\n" % replicas)
    begun = disk.read(path).strip().decode(errors="replace")
    if begun != str(replicas):
        raise UsageError(
            f"{site.output}: was begun with --replicas {begun}, its ids are there; "
            f"repeat with --replicas {begun}, or name another output"
        )


def _service(site: Site, settings: Settings, plan: RegistryPlan, name: str, addresses: dict[str, str]) -> Service:
    overrides = [f"registry.shards={settings.registry.shards}", f"clock.uncertainty={settings.clock.uncertainty:g}"]
    if settings.registry.retention is not None:
        overrides.append(f"registry.retention={settings.registry.retention:g}")
    if settings.registry.memory_limit is not None:
        overrides.append(f"registry.memory_limit={int(settings.registry.memory_limit)}")
    for other, address in addresses.items():
        overrides.append(f'registry.replicas.{other}.address="{address}"')
        overrides.append(f'registry.replicas.{other}.directory="{site.registry(other).absolute()}"')
    arguments = ["serve", "registry", name, "--stop-with-parent"]
    for join, rule in plan.id_rules.items():
        arguments += ["--id-rule", f"{join}={rule.hex()}"]
    for override in overrides:
        arguments += ["--set", override]
    log = site.state / "logs" / f"registry-{name}.log"
    return Service(f"registry {name}", tuple(arguments), log, addresses[name], "photon.v1.Registry")
