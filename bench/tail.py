"""A process that watches a pipeline's joined output: ``python -m bench.tail CONFIG DATACENTRE FILE``.

Notes for each record when its line was first seen whole in the output (it survives a kill then) and when it was
first below the published length (synced: it survives a power cut). SIGTERM ends it; it writes ``FILE`` (``.npz``):
the numbers of clicks and of their queries, with both times (monotonic ns).
"""

from __future__ import annotations

import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import numpy as np
from numpy.typing import NDArray

from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.library.output import output_place
from photon.outputs import Reader

POLL_S = 0.003
ID = re.compile(rb'^\{"event_id":"[^":]*:[0-9]+:([0-9]+)","key":"[^":]*:[0-9]+:([0-9]+)"', re.MULTILINE)


class Seen:
    """Record numbers, with the time when each was first seen."""

    def __init__(self) -> None:
        self._numbers: list[NDArray[np.int64]] = []
        self._moments: list[tuple[int, int]] = []  # (ns, how many)

    def add(self, data: bytes) -> None:
        """Adds the numbers in whole lines, which are seen now."""
        moment = time.monotonic_ns()
        found = np.array(ID.findall(data), dtype="S16").astype(np.int64).reshape(-1, 2)
        self._numbers.append(found)
        self._moments.append((moment, len(found)))

    def arrays(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the numbers of clicks and queries, shape (n, 2), and their times."""
        if not self._numbers:
            return np.zeros((0, 2), np.int64), np.zeros(0, np.int64)
        moments = np.array([moment for moment, _ in self._moments], np.int64)
        return np.concatenate(self._numbers), np.repeat(moments, [count for _, count in self._moments])


class Written:
    """Follows complete lines in the plain output files; passes blocks of them to ``take``."""

    def __init__(self, directory: Path, take: Callable[[bytes], None]) -> None:
        self._directory = directory
        self._take = take
        self._at: dict[str, int] = {}

    def look(self) -> None:
        """Takes in new lines. A file that is compressed before its last lines were seen is an error."""
        for path in sorted(self._directory.glob("*.jsonl")):
            at = self._at.get(path.name, 0)
            try:
                if path.stat().st_size == at:
                    continue
                with open(path, "rb") as file:
                    file.seek(at)
                    data = file.read()
            except FileNotFoundError:
                continue
            whole = data.rfind(b"\n") + 1
            self._at[path.name] = at + whole
            self._take(data[:whole])


def main() -> None:
    """Runs the command that the module describes."""
    config, datacentre, target = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    ended = False

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal ended
        ended = True

    signal.signal(signal.SIGTERM, end)
    place = None
    while place is None and not ended:
        try:
            place = output_place(config, datacentre)
        except UsageError:
            time.sleep(0.05)
    if place is None:
        return
    seen, published, reader = Seen(), Seen(), Reader(RealDisk(), place)
    written = Written(place.output / "joined", seen.add)
    print("watching", flush=True)
    while True:
        last = ended
        written.look()
        for block in reader.read():
            published.add(block.data)
        if last:
            break
        time.sleep(POLL_S)
    numbers, at = seen.arrays()
    durable_numbers, durable_at = published.arrays()
    np.savez(
        target,
        numbers=numbers[:, 0],
        keys=numbers[:, 1],
        at_ns=at,
        durable_numbers=durable_numbers[:, 0],
        durable_at_ns=durable_at,
    )


if __name__ == "__main__":
    main()
