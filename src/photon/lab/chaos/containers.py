"""A deployment in containers as a target: uses docker, and docker-compose for commands in a region's network."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from photon.config.settings import Settings
from photon.fleet.processes import COMMON, KINDS
from photon.lab.chaos.api import ChaosFailed, Do, ProcessNow
from photon.lab.chaos.subprocesses import Done, run_command
from photon.lab.chaos.topology import Topology
from photon.lab.wan.links import Change, DirectionNow, Fault

PROJECT = "com.docker.compose.project"
SERVICE = "com.docker.compose.service"
NUMBER = "com.docker.compose.container-number"
ONE_OFF = "com.docker.compose.oneoff"
GENERATOR = "generator"
FILE = "/etc/photon/photon.toml"  # the deployment file inside the containers
DOCKER_S = 60.0
RUN_S = 300.0
STOP_S = 25
REPLICA = "registry-"
KILLED = 137  # the exit code of a container that ended with kill -9
ENDED = "ended"  # state of a container that was stopped, or never started, and so is not part of the deployment
NOUNS = {*KINDS.keys() - {*COMMON}, "hbase"}  # kinds of services that belong to a datacentre: noun-datacentre


Runner = Callable[[Sequence[str], float], Awaitable[Done]]  # like ``run_command``


class ContainersTarget:
    """The containers of a docker-compose project. A process is named like its service (``joiner-east``; with
    ``--scale`` also ``joiner-east.2``)."""

    def __init__(self, project: str, compose: Sequence[str], settings: Settings, run: Runner = run_command) -> None:
        """``compose``: a command with its files, ``("docker-compose", "-f", "docker-compose.yml")`` for instance."""
        self._project = project
        self._compose = (*compose, "-p", project)
        self._settings = settings
        self._run = run

    @property
    def able(self) -> frozenset[Do]:
        """The possible faults. Clocks and disks belong to the machine, and logs to the generator, so their faults are
        excluded."""
        able = {Do.KILL, Do.PAUSE, Do.AWAY, Do.RESTART, Do.RESHARD}
        return frozenset(able | ({Do.CUT, Do.LOSS, Do.DELAY} if self._settings.wan is not None else set()))

    @property
    def fillable(self) -> Sequence[str]:
        """Always empty: volumes are on the machine's own disk."""
        return ()

    async def topology(self) -> Topology:
        names = [name for name, now in (await self.processes()).items() if now.detail != ENDED]
        datacentres = {name: self._settings.region(name) for name in self._settings.datacentre}
        replicas = {
            f"{REPLICA}{name}": self._settings.region_of_replica(name) for name in self._settings.registry.replicas
        }
        processes = {
            name: self._settings.registry.replicas[name.removeprefix(REPLICA)].datacentre for name in replicas
        }
        for name in names:
            noun, _, where = name.partition("-")
            if noun in NOUNS and (datacentre := where.partition(".")[0]) in datacentres:
                processes[name] = datacentre
        regions = {region for region in (*replicas.values(), *datacentres.values()) if region}
        return Topology(replicas, datacentres, processes, tuple(sorted(regions)))

    async def processes(self) -> Mapping[str, ProcessNow]:
        return {name: _now(each) for name, each in await self._containers()}

    async def kill(self, names: Sequence[str], *, hold: bool) -> None:
        """Kills with docker, which never restarts a container killed by hand, so this starts it again unless held."""
        ids = await self._ids(names)
        await self._docker("kill", "--signal", "KILL", *ids)
        if not hold:
            await self._docker("start", *ids)

    async def release(self, names: Sequence[str]) -> None:
        await self._docker("start", *await self._ids(names))

    async def pause(self, names: Sequence[str]) -> None:
        await self._docker("pause", *await self._ids(names))

    async def resume(self, names: Sequence[str]) -> None:
        found = {name: each for name, each in await self._containers() if name in names}
        ids = [str(each["Id"]) for each in found.values() if each["State"].get("Paused")]
        if ids:
            await self._docker("unpause", *ids)

    async def restart(self, name: str) -> None:
        await self._docker("restart", "--time", str(STOP_S), *await self._ids([name]))

    async def directions(self) -> Sequence[DirectionNow]:
        if self._settings.wan is None:
            return ()
        rows = orjson.loads(await self.photon(["status", "wan", "-o", "json"]))
        return [
            DirectionNow(
                row["source"], row["destination"], row["delay_ms"] / 1000, Fault[row["fault"].upper()], row["bytes"],
                row["connections"],
            )
            for row in rows
        ]  # fmt: skip

    async def change(self, changes: Sequence[Change]) -> None:
        """Runs one command for each change; a command that lifts a fault lifts it in both directions."""
        healed = set[frozenset[str]]()
        for each in changes:
            pair = [each.source, each.destination]
            if each.delay_s is not None:
                delay = f"{each.delay_s * 1000:g}ms"
                await self.photon(["wan", "set", *pair, "--delay", delay, "--one-way"])
            if each.fault is Fault.NONE:
                if frozenset(pair) not in healed:
                    await self.photon(["wan", "set", *pair, "--heal"])
                healed.add(frozenset(pair))
            elif each.fault is not None:
                await self.photon(["wan", "set", *pair, "--cut", "--one-way", "--fault", each.fault.name.lower()])

    async def fill(self, name: str) -> None:
        raise ChaosFailed(f"{name}: its volume is on the machine's own disk, which must not be filled")

    async def empty(self, name: str) -> None:
        """Does nothing, as nothing can be filled."""

    async def skew(self, name: str, seconds: float | None) -> None:
        if seconds is not None:
            raise ChaosFailed(f"{name}: containers share the machine's clock, so it cannot be changed")

    async def wipe(self, datacentre: str) -> None:
        live = [
            name
            for name, now in (await self.processes()).items()
            if now.pid and name.partition(".")[0] in (f"dispatcher-{datacentre}", f"eventstore-{datacentre}")
        ]
        if live:
            raise ChaosFailed(f"{live[0]} is running; stop it before its state is deleted")
        state = self._settings.datacentre[datacentre].state
        await self.operator(datacentre, ["sh", "-c", f"rm -rf {state}/dispatcher* {state}/eventstore"])

    async def photon(self, arguments: Sequence[str]) -> str:
        """Runs in an operator container of the datacentre named in the arguments, or in the first one that works."""
        named = [arguments[n + 1] for n, each in enumerate(arguments[:-1]) if each == "--datacentre"]
        last = ChaosFailed("the deployment file names no datacentre")
        for datacentre in named or list(self._settings.datacentre):
            try:
                return await self.operator(datacentre, ["photon", *arguments, "--config", FILE])
            except ChaosFailed as error:
                last = error
        raise last

    async def operator(self, datacentre: str, command: Sequence[str], codes: Sequence[int] = (0,)) -> str:
        """Runs a command in the operator container of a datacentre; returns its standard output."""
        service = f"operator-{datacentre}"
        done = await self._run((*self._compose, "run", "--rm", "--no-deps", "-T", service, *command), RUN_S)
        if done.code not in codes:
            raise ChaosFailed(f"{' '.join(command[:3])} in {service}: {done.last}")
        return done.out

    async def service(self, action: str, name: str) -> None:
        """Stops or starts a service that is not part of the deployment."""
        done = await self._docker("ps", "-aq", *self._filters(), "--filter", f"label={SERVICE}={name}")
        if done.split():
            more = ("--time", str(STOP_S)) if action == "stop" else ()
            await self._docker(action, *more, *done.split())

    async def leader(self) -> str | None:
        for datacentre in self._settings.datacentre:
            try:
                command = ["photon", "status", "registry", "--config", FILE, "-o", "json"]
                groups = orjson.loads(await self.operator(datacentre, command, codes=(0, 3)))["groups"]
            except (ChaosFailed, orjson.JSONDecodeError):
                continue
            found = [row["leader"] for row in groups if row["group"] == 1 and row["leader"]]
            if found:
                return f"{REPLICA}{found[0]}"
        return None

    async def close(self) -> None:
        """Does nothing, as nothing is open."""

    def _filters(self) -> tuple[str, ...]:
        return ("--filter", f"label={PROJECT}={self._project}", "--filter", f"label={ONE_OFF}=False")

    async def _containers(self) -> list[tuple[str, dict[str, Any]]]:
        """Returns (name, output of docker inspect) for each service that should be running."""
        ids = (await self._docker("ps", "-aq", *self._filters())).split()
        if not ids:
            raise ChaosFailed(
                f"no container of project {self._project}; start it with docker-compose -p {self._project} up"
            )
        found = [(_name(each), each) for each in orjson.loads(await self._docker("inspect", *ids))]
        return sorted((name, each) for name, each in found if _is_kept(name, each))

    async def _ids(self, names: Sequence[str]) -> list[str]:
        found = {name: str(each["Id"]) for name, each in await self._containers()}
        for name in names:
            if name not in found:
                raise ChaosFailed(f"{name}: no such container; there are: {', '.join(found)}")
        return [found[name] for name in names]

    async def _docker(self, *arguments: str) -> str:
        done = await self._run(("docker", *arguments), DOCKER_S)
        if done.code:
            raise ChaosFailed(f"docker {arguments[0]}: {done.last}")
        return done.out


def _name(container: Mapping[str, Any]) -> str:
    labels = container["Config"]["Labels"]
    number = labels.get(NUMBER, "1")
    return str(labels[SERVICE]) if number == "1" else f"{labels[SERVICE]}.{number}"


def _is_kept(name: str, container: Mapping[str, Any]) -> bool:
    """True for a long-running process of Photon, but not for a one-off container or the generator."""
    policy = container["HostConfig"]["RestartPolicy"]["Name"]
    return policy not in ("", "no") and name != GENERATOR


def _now(container: Mapping[str, Any]) -> ProcessNow:
    state = container["State"]
    health = state.get("Health", {}).get("Status", "healthy")
    running = bool(state["Running"]) and not state.get("Paused")
    up = running and health == "healthy"
    down = "held" if state.get("ExitCode") == KILLED else ENDED
    words = "up" if up else "paused" if state.get("Paused") else health if running else down
    return ProcessNow(up, _inner(int(state["Pid"])) or None, words, int(container.get("RestartCount", 0)))


def _inner(pid: int, proc: Path = Path("/proc")) -> int:
    """Returns the pid of the process that a container's init runs; the init's own pid if that is not visible."""
    try:
        return int((proc / str(pid) / "task" / str(pid) / "children").read_text().split()[0])
    except (OSError, IndexError, ValueError):
        return pid
