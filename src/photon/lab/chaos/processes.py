"""A deployment under ``photon up`` as a target: uses its control socket, proxy and directories."""

from __future__ import annotations

import asyncio
import glob
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from photon.config.errors import PhotonError
from photon.config.settings import Settings
from photon.config.tls import OPERATOR, WAN, towards
from photon.fleet.access import tls_of
from photon.lab.chaos import disks
from photon.lab.chaos.api import ChaosFailed, Do, ProcessNow
from photon.lab.chaos.subprocesses import run_photon
from photon.lab.chaos.topology import REGISTRY, Topology
from photon.lab.wan.client import WanClient, WanError
from photon.lab.wan.links import Change, DirectionNow
from photon.supervision.control import Action, Reply, Request
from photon.supervision.detached import ask_patiently

FAKETIME = ("/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/lib/faketime/libfaketimeMT.so.1",
            "/usr/local/lib/faketime/libfaketimeMT.so.1")  # fmt: skip
SKEW = "FAKETIME"  # libfaketime's variable
GONE_S = 15.0
COMMAND_S = 300.0
POLL_S = 0.05


def libfaketime() -> Path | None:
    """The path of libfaketime; ``None`` if it is not installed."""
    return next((Path(found) for pattern in FAKETIME for found in sorted(glob.glob(pattern))), None)


class ProcessesTarget:
    """A deployment under ``photon up``. Create it on the event loop that uses it, and ``close`` it."""

    def __init__(
        self, file: Path, settings: Settings, run: Path, topology: Topology, *, own_logs: bool, library: Path | None
    ) -> None:
        """``own_logs``: true if this run writes the logs; ``library``: the path of libfaketime."""
        self._file = file
        self._base = file.parent
        self._settings = settings
        self._run = run
        self._topology = topology
        self._library = library
        self._own_logs = own_logs
        tls = tls_of(settings, self._base, OPERATOR)
        self._wan = None if settings.wan is None else WanClient(settings.wan.control, towards(tls, WAN))

    @property
    def able(self) -> frozenset[Do]:
        """The faults that are possible now; this changes if a small disk is mounted."""
        able = {Do.KILL, Do.PAUSE, Do.AWAY, Do.RESTART, Do.RESHARD}
        if self._wan is not None:
            able |= {Do.CUT, Do.LOSS, Do.DELAY}
        if self.fillable:
            able.add(Do.DISK)
        if self._library is not None:
            able.add(Do.CLOCK)
        if self._own_logs:
            able.add(Do.TRUNCATE)
        return frozenset(able)

    @property
    def fillable(self) -> Sequence[str]:
        """Processes whose state is on a small file system."""
        return [name for name in self._topology.processes if disks.is_small(self._directory(name))]

    async def processes(self) -> Mapping[str, ProcessNow]:
        return {
            each.name: ProcessNow(each.state == "up", each.pid, each.words, each.restarts, SKEW in each.variables)
            for each in (await self._ask("ps")).services
        }

    async def kill(self, names: Sequence[str], *, hold: bool) -> None:
        """Ends processes with SIGKILL and waits until they are gone."""
        before = {name: now.pid for name, now in (await self.processes()).items() if name in names}
        await self._ask("kill", names, hold=hold)
        async with asyncio.timeout(GONE_S):
            while any(pid is not None and _lives(pid) for pid in before.values()):  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)

    async def release(self, names: Sequence[str]) -> None:
        await self._ask("release", names)

    async def pause(self, names: Sequence[str]) -> None:
        await self._ask("pause", names)

    async def resume(self, names: Sequence[str]) -> None:
        await self._ask("resume", names)

    async def restart(self, name: str) -> None:
        await self._ask("restart", [name])

    async def directions(self) -> Sequence[DirectionNow]:
        try:
            return await self._wan.directions() if self._wan is not None else ()
        except WanError as error:
            raise ChaosFailed(str(error)) from None

    async def change(self, changes: Sequence[Change]) -> None:
        if self._wan is None:
            raise ChaosFailed(f"{self._file}: has no [wan], so there is no proxy between the regions; add it")
        try:
            await self._wan.set(changes)
        except WanError as error:
            raise ChaosFailed(str(error)) from None

    async def fill(self, name: str) -> None:
        """Fills the disk that has a replica's directory, or the state of the process's datacentre."""
        await asyncio.to_thread(disks.fill, self._directory(name))

    async def empty(self, name: str) -> None:
        await asyncio.to_thread(disks.empty, self._directory(name))

    async def skew(self, name: str, seconds: float | None) -> None:
        """Restarts a process with libfaketime, or without it if ``seconds`` is ``None``."""
        if seconds is None:
            await self._ask("restart", [name], environment={})
            return
        if self._library is None:
            raise ChaosFailed("libfaketime is missing; apt-get install faketime")
        # Monotonic clocks stay correct, as on a machine whose wall clock is wrong.
        environment = {"LD_PRELOAD": str(self._library), SKEW: f"{seconds:+g}"}
        environment |= dict.fromkeys(("FAKETIME_DONT_FAKE_MONOTONIC", "DONT_FAKE_MONOTONIC"), "1")
        await self._ask("restart", [name], environment=environment)

    async def wipe(self, datacentre: str) -> None:
        """Deletes the state of the dispatcher and the event store; refuses while either is running."""
        pipeline = self._settings.datacentre[datacentre]
        nouns = ("dispatcher", "eventstore")
        for name, now in (await self.processes()).items():
            if now.pid is not None and name.split()[0] in nouns and self._topology.processes.get(name) == datacentre:
                raise ChaosFailed(f"{name} is running (pid {now.pid}); stop it before its state is deleted")
        state = self._base / pipeline.state
        for found in state.glob("dispatcher*"):
            found.unlink()
        await asyncio.to_thread(shutil.rmtree, state / "eventstore", ignore_errors=True)

    async def photon(self, arguments: Sequence[str]) -> str:
        return (await run_photon([*arguments, "--config", str(self._file)], COMMAND_S)).out

    async def close(self) -> None:
        if self._wan is not None:
            await self._wan.close()

    def _directory(self, name: str) -> Path:
        if name.startswith(REGISTRY):
            return self._base / self._settings.registry.replicas[name.removeprefix(REGISTRY)].directory
        return self._base / self._settings.datacentre[self._topology.processes[name]].state

    async def _ask(
        self, do: Action, names: Sequence[str] = (), *, hold: bool = False, environment: dict[str, str] | None = None
    ) -> Reply:
        request = Request(do=do, names=tuple(names), hold=hold, environment=environment)
        try:
            return await asyncio.to_thread(ask_patiently, self._run, request)
        except PhotonError as error:
            raise ChaosFailed(str(error)) from None


def _lives(pid: int) -> bool:
    """True if the process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False
