"""An asyncio event loop in virtual time, for many simulated processes in one thread.

Time stands still while something is ready, and jumps to the next timer when nothing is. Each handle runs in a context
that names its process: handles of a dead process are dropped, those of a paused one wait until it goes on. So a
process can be killed or stopped between any two of its steps, and no ``finally`` of it is run.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any

from tests.simulation.world.disk import PowerOff

CLOSE_TRIES = 10


class Owner:
    """Anything that can die and be paused: a simulated process."""

    def __init__(self) -> None:
        self.alive = True
        self.paused = False
        self.frozen: deque[Any] = deque()
        self.tasks: list[asyncio.Task[Any]] = []
        self.tasks_kept = 64
        self.busy_until = 0.0  # its threads

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Remembers a task, so that no object of a dead process is collected before its world ends."""
        if len(self.tasks) >= self.tasks_kept:
            self.tasks = [each for each in self.tasks if not each.done()]
            self.tasks_kept = max(64, 2 * len(self.tasks))
        self.tasks.append(task)


OWNER: ContextVar[Owner | None] = ContextVar("owner", default=None)


class StandStill(Exception):
    """Nothing will ever happen again."""


class BusyLoop(Exception):
    """A task keeps running without waiting for anything."""


ROUNDS_AT_ONE_MOMENT_MAX = 5_000


class Handle:
    """Like ``asyncio.TimerHandle``, of which a schedule makes a hundred thousand, without the debugging support."""

    __slots__ = ("_args", "_callback", "_cancelled", "_context", "_when")

    def __init__(self, when: float, callback: Callable[..., Any], args: tuple[Any, ...], context: Context | None):
        self._when = when
        self._callback: Any = callback
        self._args = args
        self._context = copy_context() if context is None else context
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True
        self._callback, self._args = None, ()

    def cancelled(self) -> bool:
        return self._cancelled

    def when(self) -> float:
        return self._when


class VirtualLoop(asyncio.BaseEventLoop):
    """``failed`` receives a callback's exception."""

    def __init__(self, random: Random, failed: Callable[[BaseException], None]) -> None:
        super().__init__()
        self.now = 0.0
        self.steps = 0
        self._rounds = 0
        self._timers: list[tuple[float, int, Handle]] = []
        self._sequence = 0
        self.thread_delays = (0.0005, 0.003)  # least and greatest time in seconds of a job given to a thread
        self._random = random
        self._failed = failed
        self.outside = copy_context()
        self.set_exception_handler(self._on_exception)
        self.set_task_factory(self._make_task)

    # -- what asyncio asks ---------------------------------------------------------------------------------------
    def time(self) -> float:
        return self.now

    def _write_to_self(self) -> None:
        return None

    def _run_once(self) -> None:
        ready, timers = self._ready, self._timers  # type: ignore[attr-defined]
        self._rounds += 1
        if self._rounds > ROUNDS_AT_ONE_MOMENT_MAX:
            self.stop()
            self._failed(BusyLoop(f"{ready[0] if ready else None}"))
            return
        if not ready:
            while timers and timers[0][2]._cancelled:
                heapq.heappop(timers)
            if not timers:
                self.stop()
                self._failed(StandStill())
                return
            if timers[0][0] > self.now:
                self.now = timers[0][0]
                self._rounds = 0
        while timers and timers[0][0] <= self.now:
            ready.append(heapq.heappop(timers)[2])
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            owner = handle._context.get(OWNER)
            if owner is None or (owner.alive and not owner.paused):
                self.steps += 1
                try:
                    handle._context.run(handle._callback, *handle._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self.call_exception_handler({"message": "in a callback", "exception": error})
            elif owner.alive:
                owner.frozen.append(handle)

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:
        handle = Handle(self.now, callback, args, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:
        """Like the base class, with a heap of tuples: comparing handles would take a fifth of a seed's time."""
        handle = Handle(when, callback, args, context)
        self._sequence += 1
        heapq.heappush(self._timers, (when, self._sequence, handle))
        return handle

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Runs ``func`` a little later. Jobs of one pool run in order; a job for no pool runs after all of its
        process."""
        future: asyncio.Future[Any] = self.create_future()

        def work() -> None:
            try:
                result = func(*args)
            except PowerOff:
                return  # the process is gone
            except Exception as error:
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(result)

        owner = OWNER.get()
        free = self.now
        if executor is not None:
            free = max(free, getattr(executor, "free_at", 0.0))
        elif owner is not None:
            free = max(free, owner.busy_until)
        end = free + self._random.uniform(*self.thread_delays)
        if executor is not None:
            executor.free_at = end
        if owner is not None:
            owner.busy_until = max(owner.busy_until, end)
        self.call_at(end, work)
        return future

    # -- what the world asks -------------------------------------------------------------------------------------
    def later(self, delay: float, act: Callable[..., object], *args: Any) -> Handle:
        """Calls from outside all processes."""
        handle: Handle = self.call_at(self.now + delay, act, *args, context=self.outside)
        return handle

    def spawn(self, owner: Owner, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """A task within a process."""
        context = self.outside.copy()
        context.run(OWNER.set, owner)
        return self.create_task(work, context=context)

    def thaw(self, owner: Owner) -> None:
        """A paused process continues with everything that has come due meanwhile, in order."""
        owner.paused = False
        self._ready.extend(owner.frozen)  # type: ignore[attr-defined]
        owner.frozen.clear()

    def _make_task(self, loop: asyncio.AbstractEventLoop, work: Any, **kwargs: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **kwargs)
        context: Context | None = kwargs.get("context")
        owner = context.get(OWNER) if context is not None else OWNER.get()
        if owner is not None:
            owner.keep(task)
        return task

    def _on_exception(self, _: Any, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None and not isinstance(error, PowerOff):
            self._failed(error)


def bury(loop: VirtualLoop, owners: list[Owner]) -> None:
    """After the end: closes anything never finished. This can no longer change anything."""
    asyncio._set_running_loop(loop)  # a last step may make a task, as asyncio.shield does
    try:
        for owner in owners:
            owner.alive = False
            copy_context().run(_close_tasks, owner)
            owner.frozen.clear()
    finally:
        asyncio._set_running_loop(None)


def _close_tasks(owner: Owner) -> None:
    OWNER.set(owner)
    while owner.tasks:
        tasks, owner.tasks = owner.tasks, []
        for task in tasks:
            if task.done():
                with suppress(BaseException):
                    task.exception()
                continue
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            work: Any = task.get_coro()
            for _ in range(CLOSE_TRIES):
                with suppress(BaseException):
                    work.close()
                if work.cr_frame is None:
                    break
