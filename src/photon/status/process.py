"""``photon serve status``: polls all processes every few seconds, and serves the last result, the page, and
explanations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import orjson

from photon import __version__
from photon.config.clock import Clock
from photon.config.errors import UsageError
from photon.config.metrics.families import Family, families_of, text_of
from photon.config.metrics.readings import SERVED, ProcessMetrics, Readings
from photon.config.roles import Role, identity
from photon.config.settings import Settings
from photon.config.stopping import until
from photon.config.structured import get_logger
from photon.config.tls import OPERATOR, Tls
from photon.fleet.access import logged, tls_of
from photon.fleet.look import Asker, Look
from photon.fleet.processes import asked_of
from photon.status.explained import explained as explained_by
from photon.status.http import METRICS_TYPE, Answer, HttpServer, plain
from photon.status.parts import on_page
from photon.status.view import View

if TYPE_CHECKING:
    from photon.assembly.room import Room

EXPLAIN_PATH = "/explain.json"
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
# Suffix of a served file -> its media type.
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
}
INDEX = "index.html"
PERIOD_S = 2.0  # seconds from the start of one poll to the start of the next
WATCHED_S = 60.0  # without a request for this long, polls become rare, because each one costs work in all processes
# Period while nobody asks. The first answer after that tells the age of its data; new data follow in PERIOD_S.
RESTING_S = 10.0
LEAST_S = 0.5  # minimum pause between two polls, regardless of how long one of them took
STALE_S = 30.0  # healthy only if the last poll is not older than this
SECOND_S = 0.5  # seconds between the first two polls, because rates need two
JSON = "application/json"

log = get_logger(__name__)


def read_assets() -> Mapping[str, Answer]:
    """Returns path -> answer: the page at ``/``, its other files under ``/page/``."""
    headers = (("Content-Security-Policy", CONTENT_POLICY),)
    found = {}
    for file in files("photon.status").joinpath("page").iterdir():
        name, dot, ending = file.name.rpartition(".")
        media_type = MEDIA_TYPES.get(dot + ending)
        if name and media_type is not None:
            path = "/" if file.name == INDEX else f"/page/{file.name}"
            found[path] = Answer(file.read_bytes(), media_type, headers=headers)
    return found


class StatusService:
    def __init__(self, settings: Settings, datacentre: str, tls: Tls | None, clock: Clock) -> None:
        self._asker = Asker(settings, [datacentre], tls)
        self._settings, self._datacentre, self._tls, self._clock = settings, datacentre, tls, clock
        self._view = View(datacentre, __version__, settings.beside(datacentre))
        self._assets = read_assets()
        self._look = Look(0.0)
        self._said: dict[str, Any] = {}
        self._parts: list[dict[str, Any]] = []
        self._at: float | None = None
        self._next_at = 0.0
        self._asked_at = clock.monotonic()
        self._took_s = 0.0
        self._own = SERVED["status"] = ProcessMetrics([self._put])
        self._own_said: list[Family] = []

    async def gather(self) -> dict[str, Any]:
        """Polls all processes once. Returns the content of status.json."""
        begun = self._clock.monotonic()
        self._look = await self._asker.look()
        self._said = self._view.update(self._look)
        self._parts = on_page(self._said)
        self._at = self._clock.monotonic()
        self._took_s = self._at - begun
        self._own_said = families_of(await self._own.families())
        return self._said

    async def run(self, stop: asyncio.Event) -> None:
        first = True
        while not stop.is_set():
            self._next_at = self._clock.monotonic() + (SECOND_S if first else PERIOD_S)
            first = False
            try:
                if self._due():
                    await self.gather()
            except Exception:  # a bug in a view must not stop the page
                log.exception("the status cannot be collected")
            await until(stop, max(self._next_at - self._clock.monotonic(), LEAST_S))

    def _due(self) -> bool:
        now = self._clock.monotonic()
        return self._at is None or now - self._asked_at < WATCHED_S or now - self._at >= RESTING_S

    async def close(self) -> None:
        await self._asker.close()

    def answer(self, path: str) -> Answer | None:
        if path in ("/status.json", "/metrics"):
            self._asked_at = self._clock.monotonic()
        if path == "/status.json":
            return self._status_json()
        if path == "/metrics":
            return Answer(self.metrics(), METRICS_TYPE)
        if path == "/healthz":
            fresh = self._at is not None and self._clock.monotonic() - self._at < STALE_S
            return plain("ok") if fresh else plain("no status was collected recently", 503)
        return self._assets.get(path)

    def _status_json(self) -> Answer:
        """Returns status.json. Before the first poll it lists the processes to be asked, so that the page has
        something to show."""
        if self._at is None:
            names = [each.title for each in asked_of(self._settings, self._datacentre)]
            said = {"datacentre": self._datacentre, "version": __version__, "starting": names}
            return Answer(orjson.dumps(said), JSON, 503)
        now_s = self._clock.monotonic()
        ages = {"age_s": now_s - self._at, "next_s": max(self._next_at - now_s, 0.0)}
        return Answer(orjson.dumps({**self._said, "parts": self._parts, **ages}), JSON)

    def metrics(self) -> bytes:
        own = {"datacentre": self._datacentre, "service": "status", "process": self._datacentre}
        said = [(each.process.labels, each.families) for each in self._look.heard]
        up = Readings()
        for each in self._look.heard:
            up.put("photon_up", each.up, **each.process.labels)
        return text_of([({}, families_of(up.families())), *said, (own, self._own_said)])

    def _put(self, into: Readings) -> None:
        into.put("photon_status_gather_seconds", self._took_s)


async def serve_status(
    room: Room,
    *,
    operator: bool = False,
    serving: Callable[[str, str], None] = lambda datacentre, url: None,
) -> None:
    """Serves the status page. Raises UsageError, CannotListen.

    ``operator``: polls with an operator's identity instead of the status page's. ``serving``: called with the
    datacentre and the page's address.
    """
    settings, base, name = room.settings, room.base, room.datacentre
    address = room.listen or room.pipeline.page
    if not address:
        raise UsageError(f"--listen: give host:port, or set datacentre.{name}.status in the configuration")
    tls = logged(tls_of(settings, base, OPERATOR)) if operator else room.tls()
    service = StatusService(settings, name, tls, room.clock)
    explained = explained_by(settings, base, OPERATOR if operator else identity(Role.DATACENTRE, name))
    names = [each.rpartition(":")[0] for each in (address, room.pipeline.page) if each]
    server = HttpServer(service.answer, {EXPLAIN_PATH: explained.answer}, names)
    try:
        await server.start(address)
        log.info("status serves", datacentre=name, address=address, port=server.port)
        serving(name, f"http://{address.rpartition(':')[0] or '127.0.0.1'}:{server.port}/")
        room.up()
        await service.run(room.stop)
    finally:
        await server.stop()
        await service.close()
