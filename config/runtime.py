"""How each long-running command runs: event loop, garbage collector and threads' turns, chosen once.

And where its time goes, by room of the code: a sampling thread, cheap enough to leave on in a benchmark.
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

from photon.config.structured import get_logger

log = get_logger(__name__)

T = TypeVar("T")

GC_THRESHOLDS = (100_000, 50, 100)
"""Batches make many short-lived tuples and no cycles: the defaults look through them in vain, for some 6 % of the
time of a join. So it hardly ever comes, and what makes a cycle for each event has to undo it: three hundred thousand
events that name their stretch of a log, and it them, were 270 MB of garbage."""

SWITCH_S = 0.0005
"""How long a thread keeps the interpreter from another one that wants it: the default of 5 ms, at each step of an
event's way, is most of what an event takes. It costs a twentieth of the throughput."""
INTERVAL_S = 0.005
_WAITING = ("wait", "select", "poll", "get", "acquire", "epoll", "_worker", "run_forever", "sleep")
_AROUND = ("photon.assembly", "photon.cli", "photon.config.runtime", "photon.local_join", "photon.supervision")


def run(main: Coroutine[Any, Any, T], *, prompt: bool = True) -> T:
    """Runs a command's coroutine to its end. ``prompt`` False: nobody waits for a single event (finished logs)."""
    if prompt:
        sys.setswitchinterval(SWITCH_S)
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    return uvloop.run(_told(main))


async def _told(main: Coroutine[Any, Any, T]) -> T:
    asyncio.get_running_loop().set_exception_handler(unheard)
    return await main


def unheard(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What nobody waits for any more, as a line of the log. The network's errors need no traceback: a name that does
    not resolve, of a connection that was given up, is one."""
    error = context.get("exception")
    said = {"error": f"{type(error).__name__}: {error}"} if error is not None else {}
    more = {} if error is None or isinstance(error, OSError) else {"exc_info": error}
    log.warning("not waited for", what=str(context.get("message")), **said, **more)


class StageSampler:
    """Counts, for each thread that is at work, the innermost room of ``photon`` on its stack."""

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
    """Samples what runs inside, and writes the counts; does nothing without a file."""
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
    """Share of each room over several processes; they add up to 1."""
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
