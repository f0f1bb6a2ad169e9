"""When a service process ends: SIGTERM, SIGINT, or (as a child) the end of its standard input."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading


def stop_event(*, with_parent: bool) -> asyncio.Event:
    """Set when the process is to end gracefully. ``with_parent``: also when the parent's end of our stdin is gone."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if with_parent:
        threading.Thread(target=_watch, args=(loop, stop), name="parent-watch", daemon=True).start()
    return stop


def _watch(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    descriptor = sys.stdin.fileno()
    while os.read(descriptor, 4096):
        pass
    if not loop.is_closed():
        loop.call_soon_threadsafe(stop.set)
