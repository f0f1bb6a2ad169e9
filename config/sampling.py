"""Where the time of a run goes, by room of the code: a sampling thread, cheap enough to leave on in a benchmark."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType

import orjson

INTERVAL_S = 0.005
_WAITING = ("wait", "select", "poll", "get", "acquire", "epoll", "_worker", "run_forever", "sleep")
_AROUND = ("photon.assembly", "photon.cli", "photon.config.runtime", "photon.local_join", "photon.supervision")


class StageSampler:
    """Counts, for each thread that is at work, the innermost room of ``photon`` on its stack."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stage sampler", daemon=True)

    def start(self) -> None:
        """Starts sampling."""
        self._thread.start()

    def stop(self) -> dict[str, int]:
        """Samples of each room."""
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
    """Of each room over several processes, summing to 1."""
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
