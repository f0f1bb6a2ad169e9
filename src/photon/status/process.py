"""``photon status serve``: gathers every few seconds, and serves what was gathered last."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
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
from photon.dispatcher.worker_names import living_workers
from photon.embedded.ledger import ledger_file
from photon.embedded.services import logged, pipeline_named, registry_client, tls_of
from photon.idregistry.client import RegistryClient
from photon.idregistry.outcomes import Refusal
from photon.status.assets import read_assets
from photon.status.discovered import Discovered, DiscoveredWorkers, once
from photon.status.explained import ASK_S, PATH, Explained
from photon.status.explaining import Asking, explain
from photon.status.exposition import merged
from photon.status.gathering import Gatherer, Heard
from photon.status.http import Answer, HttpServer, plain
from photon.status.targets import joiner_target, targets_of, worker_target
from photon.status.view import View

PERIOD_S = 2.0
LIST_S = 1.5
"""The registry's list of slots is waited for so long."""
STALE_S = 30.0
"""Health: the last gathering must not be older."""
SECOND_S = 0.5
"""From the first gathering to the second: from then on rates are known."""
TEXT = "text/plain; version=0.0.4; charset=utf-8"
JSON = "application/json"

log = structlog.get_logger(__name__)


class StatusService:
    """What was gathered last, and the answers made of it."""

    def __init__(
        self, settings: Settings, datacentre: str, tls: Tls | None, clock: Clock, base: Path | None = None
    ) -> None:
        """``base``: directory of the deployment file, for what lies on this machine; None: nothing does."""
        pipeline = settings.datacentre[datacentre]
        self._discovered = Discovered(datacentre, [joiner.address for joiner in pipeline.joiners.values()])
        self._workers = DiscoveredWorkers(pipeline.dispatcher_addresses())
        self._state = None if base is None else ledger_file(base / pipeline.state)
        self._registry: RegistryClient | None = None
        self._settings, self._datacentre, self._tls, self._clock = settings, datacentre, tls, clock
        self._view = View(datacentre, __version__, sorted(settings.datacentre.keys() - {datacentre}))
        self._assets = read_assets()
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
        joiners = [joiner_target(self._datacentre, *each, self._tls) for each in self._discovered.candidates()]
        workers = [worker_target(self._datacentre, *each, self._tls) for each in self._workers.candidates()]
        named = targets_of(self._settings, self._datacentre, self._tls)
        heard = await self._gatherer.gather([*named, *workers, *joiners])
        found = {**dict.fromkeys(joiners, self._discovered), **dict.fromkeys(workers, self._workers)}
        now_s = self._clock.monotonic()
        self._heard = once(
            [
                each
                for each in heard
                if each.target not in found or found[each.target].shows(each.target.process, up=each.up, now_s=now_s)
            ]
        )
        self._workers.heard_workers(self._heard, self._workers_here())
        self._said = self._view.update(self._heard, self._clock.now_ns() / 1e9)
        self._at = self._clock.monotonic()
        self._took_s = self._at - begun
        self._own_text = await self._own.text()
        return self._said

    def _workers_here(self) -> dict[str, str]:
        """Dispatchers whose state lies on this machine, name -> host:port."""
        return {} if self._state is None else {each.name: each.address for each in living_workers(self._state)}

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
        pause_s = SECOND_S
        while not stop.is_set():
            try:
                await self.gather()
            except Exception:  # a bug in a view must not end what others look at
                log.exception("the status cannot be gathered")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause_s)
            pause_s = PERIOD_S

    async def close(self) -> None:
        """Of the channels."""
        await self._gatherer.close()
        if self._registry is not None:
            await self._registry.close()

    def answer(self, path: str) -> Answer | None:
        """Of the HTTP server."""
        if path == "/status.json":
            return self._status_json()
        if path == "/metrics":
            return Answer(self.metrics().encode(), TEXT)
        if path == "/healthz":
            fresh = self._at is not None and self._clock.monotonic() - self._at < STALE_S
            return plain("ok") if fresh else plain("nothing was gathered of late", 503)
        return self._assets.get(path)

    def _status_json(self) -> Answer:
        """Before the first gathering it says whom it asks, so that the page has something to show."""
        if self._at is None:
            names = [target.name for target in targets_of(self._settings, self._datacentre, self._tls)]
            said = {"datacentre": self._datacentre, "version": __version__, "starting": names}
            return Answer(orjson.dumps(said), JSON, 503)
        return Answer(orjson.dumps({**self._said, "age_s": self._clock.monotonic() - self._at}), JSON)

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


async def serve_status(
    settings: Settings,
    base: Path,
    datacentre: str | None,
    listen: str | None,
    stop: asyncio.Event,
    *,
    identity: str | None = None,
    serving: Callable[[str, str], None] = lambda datacentre, url: None,
) -> None:
    """Until ``stop``. ``listen`` None: as the deployment file says. Raises UsageError, CannotListen.

    ``identity``: shown to the processes; None: that of a status page. ``serving`` is told the datacentre and the
    page's address.
    """
    name, pipeline = pipeline_named(settings, datacentre)
    address = listen or pipeline.status
    if address is None:
        raise UsageError(f"--listen: name host:port, or set datacentre.{name}.status in the configuration")
    tls = logged(tls_of(settings, base, identity or status_identity(name)))
    service = StatusService(settings, name, tls, SystemClock(), base)
    asking = Asking(settings, base, tls, ASK_S, operator=identity is not None)
    server = HttpServer(service.answer, {PATH: Explained(lambda question: explain(asking, question)).answer})
    try:
        await server.start(address)
        log.info("status serves", datacentre=name, address=address, port=server.port)
        serving(name, f"http://{address.rpartition(':')[0] or '127.0.0.1'}:{server.port}/")
        await service.run(stop)
    finally:
        await server.stop()
        await service.close()
