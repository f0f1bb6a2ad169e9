"""Settings of every long-running command: event loop, garbage collector and thread switching.

It can also measure which packages spend the time, with a sampling thread, cheap enough for benchmarks.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import threading
import time
from collections import Counter
from collections.abc import Coroutine, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import orjson
import uvloop

from photon.config.garbage import collect_rarely
from photon.config.structured import get_logger

log = get_logger(__name__)

T = TypeVar("T")

# How long a thread keeps the interpreter when another one wants it. The default of 5 ms, at each step of an event,
# would be most of its latency. This costs a twentieth of the throughput.
SWITCH_S = 0.0005
INTERVAL_S = 0.005
_WAITING = ("wait", "select", "poll", "get", "acquire", "epoll", "_worker", "run_forever", "sleep")
_AROUND = ("photon.assembly", "photon.cli", "photon.config.runtime", "photon.local_join", "photon.supervision")


def run(main: Coroutine[Any, Any, T], *, prompt: bool = True) -> T:
    """Runs a command's coroutine. ``prompt``: false if no one waits for single events (finished logs)."""
    if prompt:
        sys.setswitchinterval(SWITCH_S)
    gc.freeze()
    collect_rarely()
    return uvloop.run(_told(main))


async def _told(main: Coroutine[Any, Any, T]) -> T:
    asyncio.get_running_loop().set_exception_handler(unheard)
    return await main


def unheard(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Logs an exception that nobody awaits.

    Network errors, such as an unresolvable name for an abandoned connection, need no traceback.
    """
    error = context.get("exception")
    said = {"error": f"{type(error).__name__}: {error}"} if error is not None else {}
    more = {} if error is None or isinstance(error, OSError) else {"exc_info": error}
    log.warning("not waited for", what=str(context.get("message")), **said, **more)


class StageSampler:
    """Counts, for each running thread, the innermost room of ``photon`` on its stack."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stage sampler", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> dict[str, int]:
        self._stop.set()
        self._thread.join()
        return dict(self._counts.most_common())

    def _run(self) -> None:
        own = threading.get_ident()
        while not self._stop.is_set():
            for thread, frame in sys._current_frames().items():
                if thread != own:
                    room = _room(frame)
                    if room is not None:
                        self._counts[room] += 1
            time.sleep(INTERVAL_S)


@contextlib.contextmanager
def sampled(file: Path | None) -> Iterator[None]:
    """Samples the code inside the context, and writes the counts to ``file``; does nothing if it is ``None``."""
    if file is None:
        yield
        return
    sampler = StageSampler()
    sampler.start()
    try:
        yield
    finally:
        file.write_bytes(orjson.dumps(sampler.stop()))


def shares(counts: Iterable[dict[str, int]]) -> dict[str, float]:
    """Returns each package's share of the samples of all processes; the shares add up to 1."""
    whole: Counter[str] = Counter()
    for each in counts:
        whole.update(each)
    total = whole.total() or 1
    return {room: count / total for room, count in whole.most_common()}


def _room(frame: FrameType | None) -> str | None:
    if frame is None or frame.f_code.co_name in _WAITING:
        return None
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("photon.") and not module.startswith(_AROUND):
            return ".".join(module.split(".")[1:3])
        frame = frame.f_back
    return None
