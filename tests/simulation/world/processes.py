"""asyncio in simulated time: one loop for each process, which stands still or dies with it.

A loop puts its callbacks among the world's events. A process that is killed never runs another instruction: its
callbacks are dropped, no ``finally`` is reached.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, Protocol

LOOK_SECONDS = 0.5


class Time(Protocol):
    """What a loop needs of a world."""

    now: float

    def later(self, delay: float, act: Callable[[], object]) -> None: ...


class ProcessLoop(asyncio.AbstractEventLoop):
    """The event loop of one life of one process."""

    def __init__(self, world: Time, paused_until: Callable[[], float] = lambda: 0.0) -> None:
        self._world = world
        self._paused_until = paused_until
        self._due: deque[asyncio.Handle] = deque()
        self._scheduled = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self.dead = False
        self.errors: list[str] = []
        """What callbacks and tasks raised that nobody caught."""

    def kill(self) -> None:
        self.dead = True
        self._due.clear()
        for task in self._tasks:
            coroutine = task.get_coro()
            if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:  # type: ignore[arg-type]
                coroutine.close()  # else it is complained of that it never ran

    def start(self, work: Coroutine[Any, Any, Any], done: Callable[[Any], None] = lambda result: None) -> None:
        """Runs a coroutine as a task; what it raises is an error of the process."""
        if self.dead:
            work.close()
            return
        task = self.create_task(work)

        def ended(task: asyncio.Task[Any]) -> None:
            if task.cancelled():
                return
            error = task.exception()
            if error is not None:
                self.errors.append(repr(error))
            else:
                done(task.result())

        task.add_done_callback(ended)

    # --- asyncio's interface ----------------------------------------------------------------------------------

    def time(self) -> float:
        return self._world.now

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.dead

    def is_closed(self) -> bool:
        return self.dead

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, name=name or "task", context=context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, list(args), self, context)
        self._put(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(self.time() + delay, callback, list(args), self, context)
        self._world.later(max(delay, 0.0), lambda: None if handle.cancelled() else self._put(handle))
        return handle

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> asyncio.TimerHandle:
        return self.call_later(when - self.time(), callback, *args, context=context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.dead:
            self.errors.append(f"{context.get('message')}: {context.get('exception')!r}")

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is passed over when its time comes."""

    # --- inside -----------------------------------------------------------------------------------------------

    def _put(self, handle: asyncio.Handle) -> None:
        if self.dead:
            return
        self._due.append(handle)
        if not self._scheduled:
            self._scheduled = True
            self._world.later(0.0, self._run)

    def _run(self) -> None:
        """One turn: what is due now; what that makes due has the next turn."""
        self._scheduled = False
        if self.dead or not self._due:
            return
        if self._paused_until() > self._world.now:
            self._scheduled = True
            # Looked at again before its end: when all faults end, so does a pause.
            self._world.later(min(self._paused_until() - self._world.now, LOOK_SECONDS), self._run)
            return
        due, self._due = self._due, deque()
        asyncio._set_running_loop(self)
        try:
            for handle in due:
                if not handle.cancelled() and not self.dead:
                    handle._run()
        finally:
            asyncio._set_running_loop(None)
