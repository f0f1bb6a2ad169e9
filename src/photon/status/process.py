"""``photon serve status``: gathers every few seconds, and serves what was gathered last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from photon import __version__
from photon.config import roles
from photon.config.clock import Clock, SystemClock
from photon.config.errors import UsageError
from photon.config.metrics.readings import ProcessMetrics, Readings
from photon.config.settings import Settings
from photon.config.stopping import until
from photon.config.structured import get_logger
from photon.config.tls import Tls
from photon.embedded.explaining.inquiry import Asking, explain
from photon.fleet.access import logged, pipeline_named, tls_of
from photon.fleet.asking import Asker, Heard
from photon.fleet.numbers import merged
from photon.fleet.processes import asked_of
from photon.status.assets import read_assets
from photon.status.explained import ASK_S, PATH, Explained
from photon.status.http import Answer, HttpServer, plain
from photon.status.view import View

PERIOD_S = 2.0
"""From the beginning of one gathering to that of the next."""
LEAST_S = 0.5
"""Between two gatherings, however long one of them took."""
STALE_S = 30.0
"""Health: the last gathering must not be older."""
SECOND_S = 0.5
"""From the first gathering to the second: from then on rates are known."""
TEXT = "text/plain; version=0.0.4; charset=utf-8"
JSON = "application/json"

log = get_logger(__name__)


class StatusService:
    """What was gathered last, and the answers made of it."""

    def __init__(
        self, settings: Settings, datacentre: str, tls: Tls | None, clock: Clock, base: Path | None = None
    ) -> None:
        """``base``: directory of the deployment file, for what lies on this machine; None: nothing does."""
        self._asker = Asker(settings, [datacentre], tls, base)
        self._settings, self._datacentre, self._tls, self._clock = settings, datacentre, tls, clock
        self._view = View(datacentre, __version__, sorted(settings.datacentre.keys() - {datacentre}))
        self._assets = read_assets()
        self._heard: list[Heard] = []
        self._said: dict[str, Any] = {}
        self._at: float | None = None
        self._next_at = 0.0
        self._took_s = 0.0
        self._own = ProcessMetrics([self._put])
        self._own_text = b""

    async def gather(self) -> dict[str, Any]:
        """Asks all processes once; what status.json says then."""
        begun = self._clock.monotonic()
        self._heard = await self._asker.look(begun)
        self._said = self._view.update(self._heard, self._clock.now_ns() / 1e9)
        self._at = self._clock.monotonic()
        self._took_s = self._at - begun
        self._own_text = await self._own.text()
        return self._said

    async def run(self, stop: asyncio.Event) -> None:
        """Gathers until ``stop``."""
        first = True
        while not stop.is_set():
            self._next_at = self._clock.monotonic() + (SECOND_S if first else PERIOD_S)
            first = False
            try:
                await self.gather()
            except Exception:  # a bug in a view must not end what others look at
                log.exception("the status cannot be gathered")
            await until(stop, max(self._next_at - self._clock.monotonic(), LEAST_S))

    async def close(self) -> None:
        """Of the channels."""
        await self._asker.close()

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
            names = [each.title for each in asked_of(self._settings, self._datacentre)]
            said = {"datacentre": self._datacentre, "version": __version__, "starting": names}
            return Answer(orjson.dumps(said), JSON, 503)
        now_s = self._clock.monotonic()
        ages = {"age_s": now_s - self._at, "next_s": max(self._next_at - now_s, 0.0)}
        return Answer(orjson.dumps({**self._said, **ages}), JSON)

    def metrics(self) -> str:
        """Of all processes, this one included."""
        own = {"datacentre": self._datacentre, "service": "status", "process": self._datacentre}
        texts = [(each.process.labels, each.text) for each in self._heard]
        up = Readings()
        for each in self._heard:
            up.put("photon_up", each.up, **each.process.labels)
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
    tls = logged(tls_of(settings, base, identity or roles.identity(roles.Role.STATUS, name)))
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
