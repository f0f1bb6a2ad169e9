"""Finds the datacentre, the certificate and the registry client with which a caller can query a deployment."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from photon.config.clock import SystemClock
from photon.config.errors import UsageError
from photon.config.settings import Pipeline, Settings
from photon.config.structured import get_logger
from photon.config.tls import Tls

if TYPE_CHECKING:
    from photon.idregistry.client.grpc_client import RegistryClient
    from photon.outputs import OutputPlace

log = get_logger(__name__)


def pipeline_named(settings: Settings, name: str | None) -> tuple[str, Pipeline]:
    """Returns the name and settings of the named datacentre, or of the only one. Raises UsageError."""
    known = ", ".join(sorted(settings.datacentre)) or "none"
    if not settings.datacentre:
        raise UsageError("the configuration has no datacentre; give a deployment file with --config")
    if name is None:
        if len(settings.datacentre) != 1:
            raise UsageError(f"the configuration has datacentres {known}; choose one with --datacentre")
        name = next(iter(settings.datacentre))
    if name not in settings.datacentre:
        raise UsageError(f"--datacentre {name}: not in the configuration; there are: {known}")
    return name, settings.datacentre[name]


def pipelines_named(settings: Settings, name: str | None) -> list[str]:
    """Returns the name of the datacentre, or all names if ``name`` is `None`. Raises UsageError."""
    found = sorted(settings.datacentre) if name is None else []
    return found or [pipeline_named(settings, name)[0]]


def output_of(settings: Settings, base: Path, datacentre: str) -> OutputPlace:
    """Returns the place of a datacentre's output, with its copies on this machine."""
    from photon.outputs.output_places import COPIES_NAME, OutputPlace

    pipeline = settings.datacentre[datacentre]
    kept = [base / each.state / COPIES_NAME / datacentre for each in settings.datacentre.values()]
    copies = tuple(directory for directory in kept if directory.is_dir())
    return OutputPlace(base / pipeline.output, base / pipeline.state, copies)


def output_here(settings: Settings, base: Path, datacentre: str) -> OutputPlace:
    """Like `output_of`, for readers: if the state is on another machine, readers follow the copies as they grow."""
    place = output_of(settings, base, datacentre)
    return place if place.state.is_dir() or not place.copies else replace(place, live=True)


def tls_of(settings: Settings, base: Path, identity: str) -> Tls | None:
    """Reads the certificate of a process with this identity, and the trusted authority. Returns `None` without
    ``[tls]``.

    Raises UsageError.
    """
    return None if settings.tls is None else tls_in(base / settings.tls.directory, identity)


def tls_in(directory: Path, identity: str) -> Tls:
    """Like `tls_of`, but reads a given directory of certificates."""
    from photon.config.certificate_files import load

    return load(directory, identity, datetime.now(UTC))


def logged(tls: Tls | None) -> Tls | None:
    """Returns `tls` unchanged. Logs a warning if its certificate expires soon; call it when a service starts."""
    for note in tls.notes if tls is not None else ():
        log.warning("tls", note=note)
    return tls


def registry_client(settings: Settings, tls: Tls | None, here: Mapping[str, object] | None = None) -> RegistryClient:
    """Returns a client of the deployment's registry. ``here``: servicers of replicas in this process. Raises
    UsageError."""
    from photon.idregistry.client.grpc_client import RegistryClient

    addresses = {name: replica.address for name, replica in settings.registry.replicas.items()}
    if not addresses:
        raise UsageError("registry.replicas: is empty; a deployment needs 1, 3 or 5 replicas")
    return RegistryClient(addresses, clock=SystemClock(), tls=tls, here=here)


@asynccontextmanager
async def registry_of(
    settings: Settings, tls: Tls | None, here: Mapping[str, object] | None = None
) -> AsyncIterator[RegistryClient]:
    """Like `registry_client`, as a context that closes the client."""
    client = registry_client(settings, tls, here)
    try:
        yield client
    finally:
        await client.close()
