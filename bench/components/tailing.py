"""Tailing thousands of growing logs: what it costs when nothing happens, and how soon a new line is noticed.

``python -m bench.components.tailing`` follows 5,000 files in 250 nested directories, once notified and once by
polling: CPU seconds of this process per second while idle; the delay from the write of a line to its block being
handed out, for lines in files picked at random; and the same delay while many files grow. Only the follower and what
wakes it are measured, in an event loop as the dispatcher has it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from photon.adapters.logs.follower import Follower
from photon.adapters.logs.tail import Tail
from photon.adapters.logs.watching import Watch, watching

FILES = 5_000
IN_A_DIRECTORY = 20
POLL_BYTES = 1 << 20
WRITER = """
import random, sys, time
count, pause, seed = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
rng = random.Random(seed)
paths = [line.rstrip("\\n") for line in sys.stdin]
for _ in range(count):
    time.sleep(pause * rng.uniform(0.5, 1.5))
    with open(rng.choice(paths), "ab", buffering=0) as log:
        log.write(b"%d\\n" % time.monotonic_ns())
"""


@dataclass
class Run:
    """What was measured with one way of watching."""

    watch: Watch
    first_scan_s: float = 0.0
    idle_share: float = 0.0
    delays: list[float] = field(default_factory=list)
    busy_delays: list[float] = field(default_factory=list)
    busy_share: float = 0.0


def fill(directory: Path, files: int) -> list[Path]:
    """Files of one line each, some hundred bytes, all different."""
    paths = []
    for number in range(files):
        below = directory / f"rack{number // (IN_A_DIRECTORY * 25):02}" / f"host{number // IN_A_DIRECTORY:04}"
        below.mkdir(parents=True, exist_ok=True)
        path = below / f"app{number:05}.log"
        path.write_bytes(b"first line of %d %s\n" % (number, b"x" * 80))
        paths.append(path)
    return paths


class Reader:
    """Follows as the dispatcher does: scans when it is time, reads, sleeps until the next scan or until woken."""

    def __init__(self, tail: Tail) -> None:
        self.tail = tail
        self.delays: list[float] = []
        self.wake = asyncio.Event()
        tail.attach(asyncio.get_running_loop(), self.wake.set)

    async def run(self, seconds: float, lines: int = sys.maxsize) -> None:
        """Until so many lines were read, or the time is over."""
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end and len(self.delays) < lines:
            self.wake.clear()
            if self.tail.due(now):
                self.tail.scan()
            while blocks := self.tail.poll(POLL_BYTES):
                read = time.monotonic_ns()
                for block in blocks:
                    self.delays += [(read - int(line)) / 1e9 for line in block.data.split() if line.isdigit()]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(min(self.tail.next_at(), end) - time.monotonic(), 0)):
                    await self.wake.wait()


@contextlib.contextmanager
def writer(paths: list[Path], count: int, pause: float, seed: int) -> Iterator[None]:
    """A process that appends the time to files picked at random."""
    arguments = [str(count), str(pause), str(seed)]
    with subprocess.Popen([sys.executable, "-c", WRITER, *arguments], stdin=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        process.stdin.write("".join(f"{path}\n" for path in paths))
        process.stdin.close()
        yield


async def measure(directory: Path, paths: list[Path], watch: Watch, options: argparse.Namespace) -> Run:
    """One way of watching."""
    run = Run(watch)
    with watching(directory, watch, print) as watcher:
        follower = Follower(
            directory, has_header=False, enter=(lambda path: None) if watcher is None else watcher.enter
        )
        tail = Tail(follower, watcher, time.monotonic, report=print)
        before = time.monotonic()
        tail.scan()
        run.first_scan_s = time.monotonic() - before
        reader = Reader(tail)
        await reader.run(3.0)
        cpu = time.process_time()
        await reader.run(options.idle)
        run.idle_share = (time.process_time() - cpu) / options.idle
        with writer(paths, options.lines, 0.01, options.seed):
            reader.delays = []
            await reader.run(60.0, options.lines)
        run.delays = sorted(reader.delays)
        with writer(paths, 10 * options.lines, 0.001, options.seed + 1):
            reader.delays = []
            cpu, begun = time.process_time(), time.monotonic()
            await reader.run(60.0, 10 * options.lines)
            run.busy_share = (time.process_time() - cpu) / (time.monotonic() - begun)
        run.busy_delays = sorted(reader.delays)
        tail.close()
        follower.close()
    return run


def show(run: Run, options: argparse.Namespace) -> None:
    """One row."""

    def at(delays: list[float], share: float) -> str:
        return f"{delays[int(share * (len(delays) - 1))] * 1000:.0f}" if delays else "-"

    complete = len(run.delays) == options.lines and len(run.busy_delays) == 10 * options.lines
    print(
        f"| {run.watch.value} | {run.idle_share:.2%} | {at(run.delays, 0.5)} / {at(run.delays, 0.99)} | "
        f"{at(run.busy_delays, 0.5)} / {at(run.busy_delays, 0.99)} | {run.busy_share:.0%} | {run.first_scan_s:.2f} | "
        f"{'all lines read' if complete else 'LINES MISSING'} |"
    )


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description="Tailing thousands of growing logs.")
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--idle", type=float, default=10.0, help="seconds without a line")
    parser.add_argument("--lines", type=int, default=500, help="lines whose delay is measured")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(f"{options.files} files in nested directories; load {os.getloadavg()[0]:.1f}; seed {options.seed}\n")
    print("| watch | CPU idle | delay p50 / p99, ms: 100 lines/s | 1,000 lines/s | CPU then | first scan, s | |")
    print("|---|---|---|---|---|---|---|")
    for watch in (Watch.NATIVE, Watch.POLL):
        with tempfile.TemporaryDirectory(prefix="photon-tailing-") as name:
            directory = Path(name)
            show(asyncio.run(measure(directory, fill(directory, options.files), watch, options)), options)


if __name__ == "__main__":
    main()
