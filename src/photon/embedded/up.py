"""``photon up``: the processes of a deployment file, kept running on one machine until somebody ends them.

A supervisor that never gives up, a lock and a control socket in the run directory (run_directory.py, control.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from photon.config.errors import UsageError
from photon.config.settings import Settings
from photon.embedded.control import ControlServer
from photon.embedded.deployment import Deployment
from photon.embedded.leftovers import end_leftovers, forget, remember
from photon.embedded.process_log import LOG_BYTES, LogFollower, cut_log, is_above, plain
from photon.embedded.restarts import LONG_RUN
from photon.embedded.run_directory import LOG_NAME, kept_routes, locked
from photon.embedded.supervisor import Supervisor, Watching
from photon.wan.routes import write_routes

FOLLOW_S = 0.2
LOGS = "logs"


def check_runnable(file: Path, settings: Settings, notes: list[str]) -> None:
    """What ``photon up`` needs beyond a good file; ``notes``: what must still be made. Raises UsageError."""
    if not settings.datacentre:
        raise UsageError(f"{file}: has no [datacentre.NAME], so there is nothing to run; photon join needs none")
    if not settings.registry.replicas:
        raise UsageError(f"{file}: registry.replicas is empty; a deployment names 1, 3 or 5 replicas")
    if settings.wan is not None:
        for name in settings.registry.replicas:
            if not settings.region_of_replica(name):
                where = f"{file}: registry.replicas.{name}"
                raise UsageError(f"{where}: is in no region, which [wan] needs; set its datacentre or region")
    if notes:
        raise UsageError(f"{file}: {'; '.join(notes)}")


def make_directories(settings: Settings, base: Path) -> None:
    """Makes what the processes write in. Raises UsageError."""
    wanted = [replica.directory for replica in settings.registry.replicas.values()]
    for pipeline in settings.datacentre.values():
        wanted += [pipeline.state, pipeline.output]
    for name in wanted:
        try:
            (base / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{base / name}: cannot be made ({error.strerror})") from None


class Up:
    """One run of a deployment."""

    def __init__(
        self,
        deployment: Deployment,
        *,
        say: Callable[[str, str], None],
        unhealthy_s: float | None,
        follow: bool,
        log_bytes: int = LOG_BYTES,
    ) -> None:
        """``say(process, line)`` hears what happens and, with ``follow``, what the processes write; ``unhealthy_s``:
        one that has not answered for so long is killed and started again."""
        self._deployment = deployment
        self._run = deployment.run
        self._say = say
        self._follow = follow
        self._log_bytes = log_bytes
        self.supervisor = Supervisor(
            policy=LONG_RUN,
            watching=Watching(unhealthy_s=unhealthy_s, log_bytes=log_bytes),
            tell=self._heard,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Until ``stop`` is set, or somebody says so at the control socket. Raises RunBusy, UsageError, OSError."""
        with locked(self._run):
            for name in await asyncio.to_thread(end_leftovers, self._run):
                self._say(name, "was left by a photon up that was killed; it has ended")
            deployment = self._deployment
            make_directories(deployment.settings, deployment.file.parent)
            if deployment.settings.wan is not None:
                routes = kept_routes(deployment.settings, deployment.routes_file)
                write_routes(deployment.routes_file, routes)
                deployment = replace(deployment, routes=routes)
            await self._supervise(deployment, stop)

    def hurry(self) -> None:
        """kill -9 of what has not ended yet."""
        for name in self.supervisor.names():
            self.supervisor.kill(name, hold=True)

    async def _supervise(self, deployment: Deployment, stop: asyncio.Event) -> None:
        stages = deployment.stages()
        control = ControlServer(self._run, self.supervisor, stop.set)
        followers = {s.name: LogFollower(s.log) for stage in stages for s in stage} if self._follow else {}
        following = asyncio.create_task(self._housekeeping(followers))
        try:
            await control.start()
            await self.supervisor.start([service for stage in stages for service in stage])
            await stop.wait()
            self._say("photon", f"stopping {len(self.supervisor.names())} processes")
        finally:
            await self.supervisor.stop([[service.name for service in stage] for stage in reversed(stages)])
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            self._hand_on(followers)
            await control.close()
            forget(self._run)

    def _heard(self, name: str, what: str) -> None:
        self._say(name, what)
        pids = {name: pid for name in self.supervisor.names() if (pid := self.supervisor.pid(name)) is not None}
        try:
            remember(self._run, pids)
        except OSError as error:  # a full disk is no reason to end what runs
            self._say("photon", f"{self._run}: cannot be written: {error.strerror}")

    async def _housekeeping(self, followers: dict[str, LogFollower]) -> None:
        own = self._run / LOGS / LOG_NAME
        while True:
            await asyncio.sleep(FOLLOW_S)
            self._hand_on(followers)
            with contextlib.suppress(OSError):  # tried again
                if is_above(own, self._log_bytes):
                    cut_log(own)

    def _hand_on(self, followers: dict[str, LogFollower]) -> None:
        for name, follower in followers.items():
            for line in follower.lines():
                self._say(name, plain(line))
