"""``photon status serve``: gathers every few seconds, and serves what was gathered last."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from importlib.resources import files
from pathlib import Path
from typing import Any

import orjson
import structlog

from photon import __version__
from photon.config.clock import Clock, SystemClock
from photon.config.errors import UsageError
from photon.config.metrics.readings import ProcessMetrics, Readings
from photon.config.settings import Settings
from photon.config.tls import Tls, status_identity
from photon.embedded.services import logged, pipeline_named, registry_client, tls_of
from photon.idregistry.client import RegistryClient
from photon.idregistry.outcomes import Refusal
from photon.status.discovered import Discovered
from photon.status.exposition import merged
from photon.status.gathering import Gatherer, Heard
from photon.status.http import Answer, HttpServer, plain
from photon.status.targets import joiner_target, targets_of
from photon.status.view import View

PERIOD_S = 2.0
LIST_S = 1.5
"""The registry's list of slots is waited for so long."""
STALE_S = 30.0
"""Health: the last gathering must not be older."""
TEXT = "text/plain; version=0.0.4; charset=utf-8"
CONTENT_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

log = structlog.get_logger(__name__)


class StatusService:
    """What was gathered last, and the answers made of it."""

    def __init__(self, settings: Settings, datacentre: str, tls: Tls | None, clock: Clock) -> None:
        named = [joiner.address for joiner in settings.datacentre[datacentre].joiners.values()]
        self._discovered = Discovered(datacentre, named)
        self._registry: RegistryClient | None = None
        self._settings, self._datacentre, self._tls, self._clock = settings, datacentre, tls, clock
        self._view = View(datacentre, __version__)
        self._gatherer = Gatherer()
        self._heard: list[Heard] = []
        self._said: dict[str, Any] = {}
        self._at: float | None = None
        self._took_s = 0.0
        self._own = ProcessMetrics([self._put])
        self._own_text = b""

    async def gather(self) -> dict[str, Any]:
        """Asks all processes once; what status.json says then."""
        begun = self._clock.monotonic()
        await self._discover()
        found = [joiner_target(self._datacentre, *each, self._tls) for each in self._discovered.candidates()]
        heard = await self._gatherer.gather([*targets_of(self._settings, self._datacentre, self._tls), *found])
        now_s = self._clock.monotonic()
        self._heard = [
            each
            for each in heard
            if each.target not in found or self._discovered.shows(each.target.process, up=each.up, now_s=now_s)
        ]
        self._said = self._view.update(self._heard, self._clock.now_ns() / 1e9)
        self._at = self._clock.monotonic()
        self._took_s = self._at - begun
        self._own_text = await self._own.text()
        return self._said

    async def _discover(self) -> None:
        """Joiners that the file does not name: asks the registry where the pipeline has it so."""
        if not self._settings.datacentre[self._datacentre].discover:
            return
        if self._registry is None:
            self._registry = registry_client(self._settings, self._tls)
        listed = await self._registry.recovery.list_slots(timeout=LIST_S)
        if not isinstance(listed, Refusal):
            self._discovered.heard_list(listed)

    async def run(self, stop: asyncio.Event) -> None:
        """Gathers until ``stop``."""
        while not stop.is_set():
            try:
                await self.gather()
            except Exception:  # a bug in a view must not end what others look at
                log.exception("the status cannot be gathered")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), PERIOD_S)

    async def close(self) -> None:
        """Of the channels."""
        await self._gatherer.close()
        if self._registry is not None:
            await self._registry.close()

    def answer(self, path: str) -> Answer | None:
        """Of the HTTP server."""
        if path == "/":
            policy = ("Content-Security-Policy", CONTENT_POLICY)
            return Answer(page(), "text/html; charset=utf-8", headers=(policy,))
        if path == "/status.json":
            status = 200 if self._said else 503
            return Answer(orjson.dumps(self._said), "application/json", status)
        if path == "/metrics":
            return Answer(self.metrics().encode(), TEXT)
        if path == "/healthz":
            fresh = self._at is not None and self._clock.monotonic() - self._at < STALE_S
            return plain("ok") if fresh else plain("nothing was gathered of late", 503)
        return None

    def metrics(self) -> str:
        """Of all processes, this one included."""
        own = {"datacentre": self._datacentre, "service": "status", "process": self._datacentre}
        texts = [(each.target.labels, each.text) for each in self._heard]
        up = Readings()
        for each in self._heard:
            up.put("photon_up", each.up, **each.target.labels)
        return merged([({}, up.text()), *texts, (own, self._own_text.decode())])

    def _put(self, into: Readings) -> None:
        into.put("photon_status_gather_seconds", self._took_s)


@functools.cache
def page() -> bytes:
    """The page; it asks for /status.json itself."""
    return files("photon.status").joinpath("page.html").read_bytes()


async def serve_status(
    settings: Settings, base: Path, datacentre: str | None, listen: str | None, stop: asyncio.Event
) -> None:
    """Until ``stop``. ``listen`` None: as the deployment file says. Raises UsageError, CannotListen."""
    name, pipeline = pipeline_named(settings, datacentre)
    address = listen or pipeline.status
    if address is None:
        raise UsageError(f"--listen: name host:port, or set datacentre.{name}.status in the configuration")
    tls = logged(tls_of(settings, base, status_identity(name)))
    service = StatusService(settings, name, tls, SystemClock())
    server = HttpServer(service.answer)
    try:
        await server.start(address)
        log.info("status serves", datacentre=name, address=address, port=server.port)
        await service.run(stop)
    finally:
        await server.stop()
        await service.close()
