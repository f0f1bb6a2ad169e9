"""What a run needs beside its target, for a deployment in processes and for one in containers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import orjson

from photon.lab.chaos import verify
from photon.lab.chaos.api import ChaosFailed, Target
from photon.lab.chaos.containers import GENERATOR, ContainersTarget
from photon.lab.chaos.follow import Follower
from photon.lab.chaos.site import Site
from photon.lab.chaos.watch import Watch, Watching
from photon.lab.demo.alarms import alarms_in
from photon.lab.demo.deployment import Place

CONTAINERS_EVERY_S = 10.0
WAIT_S = 240
"""How long events may still come out in containers."""


class Processes:
    """Under ``photon up``."""

    def __init__(self, site: Site, target: Target, *, spark: bool) -> None:
        self._site = site
        self._target = target
        self._spark = spark

    @property
    def name(self) -> str:
        """The deployment file."""
        return str(self._site.file)

    def places(self) -> Mapping[str, Place]:
        """Of the file."""
        return self._site.places()

    def watch(self, follower: Follower | None) -> Watching:
        """Asks everybody."""
        return Watch(self._site, self._target, follower)

    async def checks(self, directory: Path) -> tuple[list[str], list[str]]:
        """What the continuous verifiers have found; and the nightly job, where it was asked for."""
        problems = await asyncio.to_thread(alarms_in, self._site.settings, self._site.file.parent)
        verified = ["the alarms of the verifiers"]
        if self._spark:
            problems += await verify.with_spark(self._site, directory / "spark", "2h")
            verified.append("photon spark verify")
        return problems, verified


class Containers:
    """Of docker-compose. Its logs are written by the service ``generator``, which knows the truth."""

    def __init__(self, project: str, target: ContainersTarget, datacentres: list[str]) -> None:
        self._project = project
        self._target = target
        self._datacentres = datacentres

    @property
    def name(self) -> str:
        """The project."""
        return f"containers of {self._project}"

    def places(self) -> Mapping[str, Place]:
        """In volumes."""
        return {}

    def watch(self, follower: Follower | None) -> Watching:
        """Memory and open files only."""
        return ContainersWatch(self._target)

    async def checks(self, directory: Path) -> tuple[list[str], list[str]]:
        """The generator is stopped, its truth compared with all outputs, and it goes on."""
        await self._target.service("stop", GENERATOR)
        try:
            command = ["photon", "feed", "check", "--of", "/logs", "--output", "/output", "--output"]
            command += ["/elsewhere/output", "--wait", f"{WAIT_S}s", "-o", "json"]
            said = await self._target.operator(self._datacentres[0], command, codes=(0, 1))
        finally:
            await self._target.service("start", GENERATOR)
        try:
            problems = orjson.loads(said)["problems"]
        except (orjson.JSONDecodeError, KeyError):
            raise ChaosFailed(f"photon feed check said what is not understood: {said[:200]!r}") from None
        return list(map(str, problems)), ["photon feed check"]


class ContainersWatch(Watching):
    """Outputs and state lie in volumes."""

    def __init__(self, target: ContainersTarget) -> None:
        super().__init__(target, CONTAINERS_EVERY_S)
        self._containers = target

    async def leader(self) -> str | None:
        """As the registry's status says."""
        return await self._containers.leader()
