"""``photon up``: keeps the processes of a deployment file running on one machine until told to stop.

Consists of a supervisor that never gives up, and of a lock and a control socket in the run directory
(run_directory.py, control.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from photon.config.errors import UsageError
from photon.config.settings import Settings
from photon.config.words import many
from photon.supervision.control import Changes, ControlServer
from photon.supervision.deployment import Deployment, changed_keys, reads
from photon.supervision.leftovers import end_leftovers, forget, remember
from photon.supervision.ports import can_listen
from photon.supervision.process_log import LOG_BYTES, LogFollower, cut_log, is_above, plain
from photon.supervision.routes import kept_routes, write_routes
from photon.supervision.run_directory import LOG_NAME, locked
from photon.supervision.states import LONG_RUN
from photon.supervision.supervisor import Service, Supervisor, Watching
from photon.supervision.zygote import Zygote

FOLLOW_S = 0.2
LOGS = "logs"


def check_runnable(file: Path, settings: Settings, missing: list[str]) -> None:
    """Checks what ``photon up`` needs in addition to a valid file. ``missing``: lines about files that must still be
    created. Raises UsageError."""
    if not (settings.datacentre or settings.observe):
        raise UsageError(f"{file}: has no [datacentre.NAME], so there is nothing to run; use photon join without one")
    if settings.datacentre and not settings.registry.replicas:
        raise UsageError(f"{file}: registry.replicas is empty; a deployment needs 1, 3 or 5 replicas")
    for name, pipeline in settings.datacentre.items():
        if not pipeline.joiners and not pipeline.on_spark:
            raise UsageError(
                f"{file}: datacentre.{name}.joiners = 0, so there is no joiner to start; write 1 or more"
            )
    if settings.wan is not None:
        for name in settings.registry.replicas:
            if not settings.region_of_replica(name):
                where = f"{file}: registry.replicas.{name}"
                raise UsageError(f"{where}: has no region, as required by [wan]; set its datacentre or region")
    if missing:
        raise UsageError(f"{file}: {'; '.join(missing)}")


def make_directories(settings: Settings, base: Path) -> None:
    """Creates the directories that the processes write to. Raises UsageError, also if two parts share a directory,
    which is allowed only on different machines."""
    wanted = [(f"registry.replicas.{name}", each.directory) for name, each in settings.registry.replicas.items()]
    for name, pipeline in settings.datacentre.items():
        wanted += [(f"datacentre.{name}", pipeline.state), (f"datacentre.{name}", pipeline.output)]
    owners: dict[Path, str] = {}
    for owner, name in wanted:
        path = base / name
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{path}: cannot be created ({error.strerror})") from None
        if (other := owners.setdefault(path.resolve(), owner)) != owner:
            raise UsageError(f"{path}: is a directory of both {other} and {owner}; give each its own")


class Up:
    def __init__(
        self,
        deployment: Deployment,
        *,
        say: Callable[[str, str], None],
        unhealthy_s: float | None,
        follow: bool,
        load: Callable[[], Deployment],
        log_bytes: int = LOG_BYTES,
        zygote: Zygote | None = None,
    ) -> None:
        """``load()``: rereads the deployment file; raises PhotonError. ``say(process, line)``: receives events and,
        with ``follow``, the processes' output. ``unhealthy_s``: a process silent for this long is killed and
        restarted. ``zygote``: processes are forked from it."""
        self._deployment = deployment
        self._run = deployment.run
        self._say = say
        self._follow = follow
        self._log_bytes = log_bytes
        self._load = load
        self._stages: list[list[str]] = []
        self._followers: dict[str, LogFollower] = {}
        self._reloading = asyncio.Lock()
        self.supervisor = Supervisor(
            policy=LONG_RUN,
            watching=Watching(unhealthy_s=unhealthy_s, log_bytes=log_bytes),
            tell=self._heard,
            zygote=zygote,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Runs until ``stop`` is set, or a stop is requested at the control socket. Raises RunBusy, UsageError,
        OSError."""
        with locked(self._run):
            for name in await asyncio.to_thread(end_leftovers, self._run):
                self._say(name, "left running by a photon up that was killed; stopped")
            self._deployment = self._with_routes(self._deployment)
            await self._supervise(stop)

    def _with_routes(self, deployment: Deployment) -> Deployment:
        """Creates the directories that processes write to, and adds the proxy's routes. Raises UsageError."""
        make_directories(deployment.settings, deployment.file.parent)
        if deployment.settings.wan is None:
            return deployment
        ours = {route.listen for route in self._deployment.routes}
        routes = kept_routes(
            deployment.settings, deployment.routes_file, is_free=lambda port: port in ours or can_listen(port)
        )
        write_routes(deployment.routes_file, routes)
        return replace(deployment, routes=routes)

    async def reload(self, dry_run: bool = False) -> Changes:
        """Applies the current deployment file: starts new processes and stops removed ones. Others keep running and
        use the new file after their next restart. ``dry_run``: only reports the changes, without new routes of the
        proxy. Raises PhotonError."""
        async with self._reloading:
            before = self._deployment
            loaded = await asyncio.to_thread(self._load)
            after = replace(loaded, routes=before.routes) if dry_run else self._with_routes(loaded)
            services = {service.name: service for service in after.services()}
            known = {service.name: service for service in before.services()}
            ended = [name for name in known if name not in services]
            started = [service for name, service in services.items() if name not in known]
            keys = changed_keys(before.settings, after.settings)
            changed = [
                name
                for name in services
                if name in known and (_differs(known[name], services[name]) or reads(services[name], keys))
            ]
            changes = Changes(
                started=tuple(service.name for service in started), ended=tuple(ended), changed=tuple(changed),
                keys=tuple(keys),
            )  # fmt: skip
            if dry_run:
                return changes
            self._deployment = after
            self._arrange()
            for name in services:
                if name in known:
                    self.supervisor.redefine(services[name])
            await self.supervisor.remove(ended)
            await self.supervisor.start(started)
            if after.routes != before.routes and "wan" in known and "wan" in services:
                self.supervisor.restart("wan")  # because it reads its routes when it starts
            return changes

    def _arrange(self) -> None:
        stages = self._deployment.stages()
        self._stages = [[service.name for service in stage] for stage in stages]
        if self._follow:
            logs = {service.name: service.log for stage in stages for service in stage}
            self._followers = {name: self._followers.get(name) or LogFollower(log) for name, log in logs.items()}

    def hurry(self) -> None:
        """Kills the processes that have not stopped yet (SIGKILL)."""
        for name in self.supervisor.names():
            self.supervisor.kill(name, hold=True)

    async def _supervise(self, stop: asyncio.Event) -> None:
        self._arrange()
        control = ControlServer(self._run, self.supervisor, stop.set, self.reload)
        following = asyncio.create_task(self._housekeeping())
        try:
            await control.start()
            await self.supervisor.start(self._deployment.services())
            await stop.wait()
            self._say("photon", f"stopping {many(len(self.supervisor.names()), 'process', 'processes')}")
        finally:
            await self.supervisor.stop(list(reversed(self._stages)))
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            self._hand_on()
            await control.close()
            forget(self._run)

    def _heard(self, name: str, what: str) -> None:
        self._say(name, what)
        pids = {name: pid for name in self.supervisor.names() if (pid := self.supervisor.pid(name)) is not None}
        try:
            remember(self._run, pids)
        except OSError as error:  # a full disk must not stop processes
            self._say("photon", f"{self._run}: cannot be written: {error.strerror}")

    async def _housekeeping(self) -> None:
        own = self._run / LOGS / LOG_NAME
        while True:
            await asyncio.sleep(FOLLOW_S)
            self._hand_on()
            with contextlib.suppress(OSError):  # retried
                if is_above(own, self._log_bytes):
                    cut_log(own)

    def _hand_on(self) -> None:
        for name, follower in self._followers.items():
            for line in follower.lines():
                self._say(name, plain(line))


def _differs(before: Service, after: Service) -> bool:
    """Returns True if a process's arguments or address changed. Certificates are read at each start anyway."""
    return (before.arguments, before.address) != (after.arguments, after.address)
