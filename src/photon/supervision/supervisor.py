"""Runs service processes on one machine: starts them, waits until they are healthy, and restarts them with back-off.

A child watches its standard input and stops when that closes, so that no child outlives a killed supervisor. Only
processes started here are ever signalled, by their pid.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import random
import signal
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from photon.adapters.crumbs import ENDED, ended_words
from photon.config.errors import PhotonError
from photon.config.tls import Towards
from photon.supervision.health import Answers, Health, ask_health, listens, turns_of, used_s
from photon.supervision.process_log import cut_log, is_above, last_said, open_log
from photon.supervision.states import EMBEDDED, Condition, RestartPolicy, Restarts, ServiceState
from photon.supervision.zygote import Child, Zygote, ZygoteGone, begin

STOP_S = 30.0  # seconds between SIGTERM and SIGKILL, without time in which a process is kept from running,
STOP_TIMES = 6.0  # but at most this many times STOP_S
CHECK_TIMEOUT_S = 1.0
ASK_MOST_S = 30.0  # a silent process's time-out grows up to this, because a second is too short on a busy machine
# Silence between two checks counts up to this many intervals plus a time-out; more means that the supervisor itself
# was suspended.
CHECK_GAPS = 3.0


class ServiceFailed(PhotonError):
    """Raised if a service did not come up. One line, with the last line of its log."""


@dataclass(frozen=True, slots=True)
class Service:
    """One process: ``photon ARGUMENTS``."""

    name: str
    arguments: tuple[str, ...]
    log: Path
    address: str | None = None  # host:port of its gRPC health service; `None` if it has none
    health: str = ""  # name of its service in gRPC's health protocol
    datacentre: str = ""  # the datacentre that it is lost with; empty if none
    to: Towards | None = None  # how to query its health; `None` means plain text


@dataclass(frozen=True, slots=True)
class Watching:
    """How closely a supervisor watches running processes, and when it kills one or rotates its log."""

    every_s: float = 1.0
    # A process that was healthy and has not answered for this long, though it could run (``health``), is killed and
    # restarted; `None` means never. At most one is killed in this time: if many are silent at once, the machine is
    # overloaded, and many starts would keep it overloaded.
    unhealthy_s: float | None = 30.0
    log_bytes: int | None = None  # a larger log is rotated; `None` means never


@dataclass(slots=True)
class _Running:
    service: Service
    restarts: Restarts
    next: Service | None = None  # definition of its next process, if different
    process: Child | None = None
    task: asyncio.Task[None] | None = None
    spawn: asyncio.Task[None] | None = None
    check: asyncio.Task[None] | None = None  # the pending health check, which may take long if the process is silent
    starts: int = 0
    free: asyncio.Event = field(default_factory=asyncio.Event)  # cleared while the process is held
    soon: asyncio.Event = field(default_factory=asyncio.Event)  # set to restart it now
    told: bool = False  # an operator told the current process to stop
    paused: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)  # variables in addition to the supervisor's own
    since_s: float = 0.0
    start_s: float | None = None  # seconds from its start until it was up
    log_from: int = 0  # offset in the log at which the current process's output starts
    answers: Answers = field(default_factory=Answers)
    restart_at_s: float | None = None
    code: int | None = None  # exit code of its last run
    problem: str = ""  # why the process could not be started
    reason: str = ""  # why the process last stopped by itself

    def alive(self) -> bool:
        return self.process is not None and self.process.returncode is None

    def present(self) -> bool:
        """Returns True if the process is alive or starting."""
        return self.alive() or (self.spawn is not None and not self.spawn.done())


def _by(code: int) -> str:
    return f"ended by signal {-code} ({signal.strsignal(-code) or 'unknown'})"


class Supervisor:
    def __init__(
        self,
        *,
        policy: RestartPolicy = EMBEDDED,
        watching: Watching | None = None,
        tell: Callable[[str, str], None] = lambda name, what: None,
        draw: Callable[[], float] = random.random,
        zygote: Zygote | None = None,
    ) -> None:
        """``tell(name, what)``: called at each start and end of a process. ``draw``: uniform in [0, 1). ``zygote``:
        processes are forked from it until an operator restarts or holds one, perhaps for a new release; from then on
        all starts run the code on disk."""
        self._policy = policy
        self._watching = watching
        self._tell = tell
        self._draw = draw
        self._zygote = zygote
        self._running: dict[str, _Running] = {}
        self._stopping = False
        self._watcher: asyncio.Task[None] | None = None
        self._silenced_s = -math.inf  # time of the last kill of a silent process
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, services: Sequence[Service]) -> None:
        """Starts services, which are restarted whenever they stop. Starts none once ``stop`` has been called."""
        if self._watching is not None and self._watcher is None:
            self._watcher = self._aside(self._watch(self._watching))
        for service in services:
            running = self._running[service.name] = _Running(service, Restarts(self._policy))
            running.free.set()
        for service in services:
            running = self._running[service.name]
            await self._start(running)
            if self._stopping:
                return
            running.task = asyncio.create_task(self._keep(running), name=f"keep {service.name}")

    def redefine(self, service: Service) -> None:
        """Changes a service's definition from its next start on. The way to query its health changes at once."""
        running = self._running[service.name]
        running.next = service
        running.service = replace(running.service, to=service.to, datacentre=service.datacentre)

    async def remove(self, names: Sequence[str]) -> None:
        """Stops processes and forgets them."""
        for name in names:
            self.hold(name)
        await self.gone(names)
        for name in names:
            task = self._running.pop(name).task
            if task is not None:
                task.cancel()

    async def ready(self, timeout: float, names: Sequence[str] | None = None) -> None:
        """Waits until each service with an address is healthy. Without ``names``: all services except held ones.

        Raises ServiceFailed.
        """
        deadline = asyncio.get_running_loop().time() + timeout
        for name in list(self._running) if names is None else names:
            running = self._running[name]
            while not await self._is_up(running) and (names is not None or running.free.is_set()):
                if (failure := self.failure()) is not None:
                    raise ServiceFailed(failure)
                if asyncio.get_running_loop().time() > deadline:
                    raise ServiceFailed(f"{running.service.name} is not up after {timeout:g} s{self._why(running)}")
                await asyncio.sleep(0.05)

    async def gone(self, names: Sequence[str]) -> None:
        """Waits until none of these processes runs or is starting. Hold them first."""
        while any(self._running[name].present() for name in names):  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    def names(self, datacentre: str | None = None) -> list[str]:
        """Returns the names of all services, or of a datacentre's, in start order."""
        return [
            name
            for name, running in self._running.items()
            if datacentre is None or running.service.datacentre == datacentre
        ]

    def pid(self, name: str) -> int | None:
        """Returns the process id; `None` while the process is down."""
        process = self._running[name].process
        return process.pid if process is not None and process.returncode is None else None

    def failure(self) -> str | None:
        """Describes a service that keeps stopping by itself, in one line. Returns `None` while services may recover,
        and always under a policy that never gives up."""
        for running in self._running.values():
            if running.restarts.failing and self._policy.gives_up:
                return f"{running.service.name} cannot continue{self._why(running)}"
            task = running.task
            if task is not None and task.done() and not task.cancelled() and (error := task.exception()) is not None:
                return f"{running.service.name} cannot be started again: {error}"
        return None

    def starts(self, name: str) -> int:
        return self._running[name].starts

    def states(self) -> list[ServiceState]:
        """Returns the states of all services in start order. Without ``watching``, a live process counts as up."""
        return [self._state(running) for running in self._running.values()]

    def kill(self, name: str, *, hold: bool = False) -> int | None:
        """Kills a process with SIGKILL. ``hold``: keep it down until release(). Returns the pid, or `None` if it was
        down."""
        running = self._running[name]
        if hold:
            running.free.clear()
        return self._signal(running, signal.SIGKILL, told=True)

    def hold(self, name: str, patience_s: float = STOP_S) -> int | None:
        """Stops a process gracefully and keeps it down until release(). ``patience_s``: seconds between SIGTERM and
        SIGKILL."""
        self._zygote = None
        running = self._running[name]
        running.free.clear()
        return self._end_soon(running, patience_s)

    def release(self, name: str) -> None:
        self._running[name].free.set()

    def restart(self, name: str, environment: Mapping[str, str] | None = None) -> int | None:
        """Stops a process gracefully and starts it again at once, even if it is waiting for its restart.
        ``environment``: variables in addition to the supervisor's own from now on; `None` keeps the previous ones."""
        running = self._running[name]
        if environment is not None:
            running.environment = dict(environment)
        running.free.set()
        running.soon.set()
        self._zygote = None
        return self._end_soon(running)

    def pause(self, name: str) -> int | None:
        """Sends SIGSTOP: the process does not answer but keeps its state, like a machine that is frozen."""
        running = self._running[name]
        running.paused = running.alive()
        return self._signal(running, signal.SIGSTOP)

    def resume(self, name: str) -> int | None:
        """Sends SIGCONT to a paused process."""
        running = self._running[name]
        running.paused = False
        running.answers.excused()
        return self._signal(running, signal.SIGCONT)

    async def stop(self, stages: Sequence[Sequence[str]] = ()) -> None:
        """Sends SIGTERM to all processes, then SIGKILL to those that do not stop. ``stages``: stop these first, each
        stage after the previous one has stopped."""
        self._stopping = True
        keepers = [running.task for running in self._running.values() if running.task is not None]
        for task in (*keepers, *self._tasks):
            task.cancel()
        starting = [running.spawn for running in self._running.values() if running.spawn is not None]
        await asyncio.gather(*keepers, *self._tasks, *starting, return_exceptions=True)
        for stage in (*stages, self.names()):
            await asyncio.gather(*(self._end(self._running[name]) for name in stage if name in self._running))

    def _aside(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _signal(self, running: _Running, number: signal.Signals, *, told: bool = False) -> int | None:
        process = running.process
        if process is None or process.returncode is not None:
            return None
        running.told = running.told or told
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)
        return process.pid

    def _end_soon(self, running: _Running, patience_s: float = STOP_S) -> int | None:
        pid = self.pid(running.service.name)
        if pid is not None:
            running.told = True
            self._aside(self._end(running, patience_s))
        return pid

    async def _start(self, running: _Running) -> None:
        """Starts a process. Completes the start even if the caller is cancelled, because stop() must know the
        process. Raises OSError, except under a policy that never gives up."""
        if self._stopping:
            return
        running.spawn = asyncio.create_task(self._spawn(running))
        try:
            await asyncio.shield(running.spawn)
        except OSError as error:
            if self._policy.gives_up:
                raise
            running.process, running.problem = None, f"cannot be started: {error.strerror or error}"

    async def _spawn(self, running: _Running) -> None:
        limit = self._watching.log_bytes if self._watching is not None else None
        running.service, running.next = running.next or running.service, None
        with open_log(running.service.log, limit) as log:
            running.log_from = log.tell()
            process = await self._begin(running, log)
        running.process, running.problem = process, ""
        running.told = running.paused = False
        running.answers = Answers()
        running.since_s = asyncio.get_running_loop().time()
        running.restart_at_s = None
        running.starts += 1
        self._tell(running.service.name, f"started, pid {process.pid}")
        if not running.free.is_set():  # it was held while it was being started
            self._signal(running, signal.SIGKILL, told=True)

    async def _begin(self, running: _Running, log: BinaryIO) -> Child:
        ended = "" if running.code is None else ended_words(running.code)
        if self._zygote is not None:
            try:
                return await self._zygote.begin(running.service.arguments, log, ended)
            except ZygoteGone as error:
                self._zygote = None
                self._tell("photon", f"{error}; from now on, processes start without the zygote")
        told = {ENDED: ended} if ended else {}
        return await begin(running.service.arguments, log, {**running.environment, **told})

    async def _keep(self, running: _Running) -> None:
        loop = asyncio.get_running_loop()
        while True:
            code = await running.process.wait() if running.process is not None else None
            running.paused, running.code = False, code
            if running.told:
                wait = 0.0 if running.soon.is_set() else running.restarts.ended_by_operator()
                running.reason = running.reason if running.restarts.failing else ""
            else:
                lived_s = loop.time() - running.since_s if code is not None else 0.0
                wait = running.restarts.ended(code, lived_s, self._draw())
                running.reason = self._said(running) if code is None or code >= 0 else _by(code)
            running.restart_at_s = loop.time() + wait
            self._tell(running.service.name, self._ended(running, code, wait))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await running.soon.wait()
            await running.free.wait()
            await self._start(running)
            running.soon.clear()

    def _ended(self, running: _Running, code: int | None, wait: float) -> str:
        if code is None:
            how, why = running.problem, ""
        elif code < 0:
            how, why = _by(code), ""
        else:
            how, why = f"ended with exit code {code}", self._why(running) if code else ""
        again = "held down" if not running.free.is_set() else f"again in {wait:.1f} s"
        return f"{how}, {again}{why}"

    async def _is_up(self, running: _Running) -> bool:
        service = running.service
        if service.address is None:
            return True
        process = running.process
        if process is None or process.returncode is not None or running.told:
            return False
        health = await ask_health(service.address, service.health, CHECK_TIMEOUT_S, service.to)
        return health is Health.SERVING and listens(process.pid, service.address)

    async def _watch(self, watching: Watching) -> None:
        while True:
            for running in list(self._running.values()):
                if running.check is None or running.check.done():
                    running.check = self._aside(self._look_after(running, watching))
            await asyncio.sleep(watching.every_s)

    async def _look_after(self, running: _Running, watching: Watching) -> None:
        try:
            await self._check(running, watching)
        except Exception as error:  # later checks are still made
            self._tell(running.service.name, f"cannot be monitored: {error}")

    async def _check(self, running: _Running, watching: Watching) -> None:
        with contextlib.suppress(OSError):  # a full disk; the next check retries
            if watching.log_bytes is not None and is_above(running.service.log, watching.log_bytes):
                await asyncio.to_thread(cut_log, running.service.log)
        process, answers, service = running.process, running.answers, running.service
        if process is None or process.returncode is not None or running.paused:
            return
        health, limit_s = Health.SERVING, watching.unhealthy_s
        most_s = max(CHECK_TIMEOUT_S, min(ASK_MOST_S, limit_s or ASK_MOST_S))
        timeout_s = min(CHECK_TIMEOUT_S + answers.silent_s, most_s)
        if service.address is not None:
            health = await ask_health(service.address, service.health, timeout_s, service.to)
        if running.process is not process or not running.alive() or running.paused or running.told:
            return
        if health is not Health.SILENT and not answers.was_up and service.address is not None:
            health = health if listens(process.pid, service.address) else Health.SILENT
        if health is Health.SERVING and not answers.was_up:
            if service.address is not None:  # without a health service, being alive does not prove that it works
                running.restarts.came_up()
            running.start_s = asyncio.get_running_loop().time() - running.since_s
            self._tell(service.name, "is up")
        gap_max_s = CHECK_GAPS * watching.every_s + timeout_s
        turns = (turns_of(process.pid), turns_of(os.getpid())) if health is Health.SILENT and answers.was_up else ()
        now = asyncio.get_running_loop().time()
        answers.heard(health, now, gap_max_s, turns)
        if limit_s is not None and answers.hangs(limit_s) and now - self._silenced_s > limit_s:
            self._silenced_s = now
            self._tell(service.name, f"{answers.words}: it hangs; sending SIGKILL")
            self._signal(running, signal.SIGKILL)

    async def _end(self, running: _Running, patience_s: float = STOP_S) -> None:
        """Sends SIGTERM to the current process, later SIGKILL."""
        process = running.process
        if process is None or process.returncode is not None:
            return
        for number in (signal.SIGTERM, signal.SIGCONT):  # a suspended process would not get the first one
            self._signal(running, number)
        if not await self._ended_by_itself(process, patience_s):
            process.kill()
            await process.wait()

    async def _ended_by_itself(self, process: Child, patience_s: float) -> bool:
        """Waits up to ``patience_s`` for the process to stop, not counting time in which it is kept from running."""
        loop = asyncio.get_running_loop()
        at, left_s, turns = loop.time(), patience_s, turns_of(process.pid)
        until = at + STOP_TIMES * patience_s
        while left_s > 0.0 and at < until:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left_s, 1.0)):
                    await process.wait()
                return True
            seen, now = turns_of(process.pid), loop.time()
            left_s -= now - at
            if turns is not None and seen is not None:
                left_s += used_s(turns, seen, now - at)[1]
            at, turns = now, seen
        return process.returncode is not None

    def _state(self, running: _Running) -> ServiceState:
        now = asyncio.get_running_loop().time()
        service, alive = running.service, running.alive()
        state = self._condition(running)
        waits = not alive and running.restart_at_s is not None and state in ("restarting", "failing")
        return ServiceState(
            name=service.name,
            datacentre=service.datacentre,
            pid=self.pid(service.name),
            state=state,
            detail=self._detail(running, state),
            exit_code=running.code,
            restart_in_s=max(0.0, running.restart_at_s - now) if waits and running.restart_at_s is not None else None,
            uptime_s=now - running.since_s if alive else None,
            start_s=running.start_s,
            restarts=max(0, running.starts - 1),
            address=service.address,
            variables=tuple(sorted(running.environment)),
        )

    def _detail(self, running: _Running, state: Condition) -> str:
        if state in ("up", "held", "paused"):
            return ""
        if state in ("failing", "restarting"):  # the last reason, even if the new process has logged nothing yet
            return running.reason
        return self._said(running)

    def _condition(self, running: _Running) -> Condition:
        if not running.alive():
            if self._stopping:
                return "ended"
            if not running.free.is_set():
                return "held"
            if running.restarts.failing:
                return "failing"
            return "restarting" if running.starts else "starting"
        if running.paused:
            return "paused"
        answers = running.answers
        if self._watching is None or answers.last is Health.SERVING:
            return "up"
        if answers.was_up:
            return "silent" if answers.last is Health.SILENT else "not serving"
        return "failing" if running.restarts.failing else "starting"

    def _said(self, running: _Running) -> str:
        return running.problem or last_said(running.service.log, running.log_from)

    def _why(self, running: _Running) -> str:
        # A failing service may have been restarted meanwhile and not have logged anything yet.
        said = (running.reason if running.restarts.failing else "") or self._said(running)
        return f": {said}" if said else ""
