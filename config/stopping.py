"""Stops a process on SIGTERM, SIGINT or, for a child, the end of standard input, and cuts its waits short."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

_T = TypeVar("_T")
# Called before this process ends itself by ``os._exit``: tells its parent that no adapter's code ended it.
at_own_end: list[Callable[[], None]] = []


class Stopped(Exception):
    """The process was asked to stop before the awaited event."""


def stop_event(*, with_parent: bool) -> asyncio.Event:
    """Returns an event that is set when the process should end gracefully.

    ``with_parent``: also when the parent closes its end of our stdin.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    def gone() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(stop.set)

    if with_parent:
        threading.Thread(target=_watch, args=(gone,), name="parent-watch", daemon=True).start()
    return stop


def stop_flag(*, with_parent: bool = False) -> threading.Event:
    """Like ``stop_event``, for a program without an event loop."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    if with_parent:
        threading.Thread(target=_watch, args=(stop.set,), name="parent-watch", daemon=True).start()
    return stop


def _watch(gone: Callable[[], None]) -> None:
    descriptor = sys.stdin.fileno()
    while os.read(descriptor, 4096):
        pass
    gone()


async def until(stop: asyncio.Event, seconds: float) -> bool:
    """Waits ``seconds``, or until ``stop`` is set. Returns True if ``stop`` is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()
    return stop.is_set()


async def first(stop: asyncio.Event, tasks: Iterable[asyncio.Future[Any]], timeout: float | None = None) -> None:
    """Waits at most ``timeout`` seconds until ``stop`` is set or one of the tasks is done. Cancels none of them."""
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((*tasks, stopping), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()


async def end(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancels these tasks and waits until all have ended, regardless of their outcome."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def unless_stopped(stop: asyncio.Event, work: Coroutine[Any, Any, _T]) -> _T:
    """Returns the result of ``work``. If ``stop`` comes first, cancels it and raises Stopped."""
    working = asyncio.create_task(work)
    try:
        await first(stop, [working])
        if not working.done():
            raise Stopped
        return working.result()
    finally:
        await end([working])
