"""kill -9 under load, and the resulting pause in the output: ``python -m bench.restart [--rate N] [--results DIR]``.

Under a steady load single processes are killed, then the whole pipeline; ``photon up`` restarts each. Then
``photon up`` is killed with all its processes and restarted. *Pause*: the longest time without a joined line. In the
end every click must have come out once. Then ``bench.components.datacentres``: a datacentre that comes late to events
that another one has registered, compared with joining them.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.catch_up import scratch
from bench.deployed import Deployed, Feeding, Watch, deployed
from bench.live import SETTLE_S, figures
from bench.measure import kill_tree, measure
from bench.results import BenchmarkFailed, Figures, Results, run_round
from photon import __version__

GROUP = "restart"
KILL9, CATCH_UP = "kill -9 under load", "catch-up of registered events"
RATE = 1_000.0
BETWEEN_S = 15.0
BATCH_S = 1.0  # more than lines of one batch are apart
# Scene -> killed services.
KINDS: Mapping[str, tuple[str, ...]] = {
    "joiner": ("joiner",),
    "dispatcher": ("dispatcher",),
    "eventstore": ("eventstore",),
    "pipeline": ("joiner", "dispatcher", "eventstore", "verifier"),
}
CLICKS = 200_000


def of_kind(running: Deployed, kind: str) -> list[int]:
    """Returns the pids of a service, found by command line."""
    mark = f" serve {kind} ".encode()
    found = []
    for pid in running.pids():
        try:
            if mark in Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" "):
                found.append(pid)
        except OSError:
            continue
    return found


def kill9(rate: float, between_s: float = BETWEEN_S) -> Figures:
    """Runs all scenes with kills in one deployment. Raises BenchmarkFailed."""
    moments: dict[str, int] = {}
    with scratch() as directory, deployed(directory) as running:
        watch = Watch(running)
        try:
            feeding = Feeding(running, rate=rate, seconds=between_s * (len(KINDS) + 3))
            try:
                for scene, kinds in KINDS.items():
                    time.sleep(between_s)
                    pids = [pid for kind in kinds for pid in of_kind(running, kind)]
                    if not pids:
                        raise BenchmarkFailed(f"no process of {scene} was found")
                    moments[scene] = time.monotonic_ns()
                    for pid in pids:
                        os.kill(pid, signal.SIGKILL)
                time.sleep(between_s)
                moments["everything"] = time.monotonic_ns()
                kill_tree(running.up.pid)
                running.up.wait()
                started = time.monotonic_ns()
                running.start()
                feeding.end()
            finally:
                feeding.kill()
            fed = dict(np.load(feeding.file))
            if running.settled(int((fed["ready_ns"] > 0).sum()), SETTLE_S) is None:
                raise BenchmarkFailed(f"not all clicks were joined {SETTLE_S:g} s after the last line")
            watch.end()
        finally:
            watch.kill()
        seen = dict(np.load(watch.file))
    if lost := figures(fed, seen, rate=rate)["lost"]:
        raise BenchmarkFailed(f"wrong output: {lost:,.0f} clicks lost")
    # The gap that the next kill makes begins up to one batch before it.
    window_s = between_s - BATCH_S
    found = {f"{scene}_pause_s": pause_s(seen["at_ns"], killed, window_s) for scene, killed in moments.items()}
    found["everything_from_start_s"] = first_after_s(seen["at_ns"], started)
    return found


def pause_s(at_ns: NDArray[Any], killed_ns: int, window_s: float) -> float:
    """The longest time without a line, among gaps that end after the kill and begin within the window after it."""
    rising = np.sort(at_ns)
    first = max(0, int(np.searchsorted(rising, killed_ns)) - 1)
    near = rising[first : int(np.searchsorted(rising, killed_ns + int(window_s * 1e9))) + 1]
    if len(near) < 2:
        raise BenchmarkFailed("no joined line after a kill")
    return round(float(np.diff(near).max() / 1e9), 3)


def first_after_s(at_ns: NDArray[Any], moment_ns: int) -> float:
    """Returns the seconds from a moment to the first line after it."""
    later = at_ns[at_ns > moment_ns]
    if not len(later):
        raise BenchmarkFailed("no joined line after the start")
    return round(float((later.min() - moment_ns) / 1e9), 3)


def catch_up(clicks: int) -> Figures:
    """Measures the events decided a second, while joining and while catching up. Raises BenchmarkFailed."""
    with scratch() as directory:
        file = directory / "figures.json"
        command: list[str | Path] = [sys.executable, "-m", "bench.components.datacentres", "catch-up", "--runs", "1"]
        command += ["--clicks", str(clicks), "--directory", directory, "--json", file]
        took = measure(command, scratch=directory)
        if took.code:
            raise BenchmarkFailed(f"ended with {took.code}: {took.error.splitlines()[-1:]}")
        [run] = json.loads(file.read_text())["catch-up"]
    return {name: round(float(run[name]), 2) for name in ("joining", "catch_up", "ratio", "ratio_with_start_up")}


def bench(
    results: Results, rounds: int, say: Callable[[str], None], *, rate: float = RATE, clicks: int = CLICKS
) -> None:
    """Runs the rounds that ``results`` still lacks."""
    command = "python -m bench.restart"
    settings = {"rate": f"{rate:g}", "clicks": str(clicks)}
    for number in range(1, rounds + 1):
        for name, run in ((KILL9, partial(kill9, rate)), (CATCH_UP, partial(catch_up, clicks))):
            row = results.row(GROUP, name, command, settings)
            row.versions = {"photon": __version__}
            if run_round(results, row, number, run):
                say(f"  round {number}  {name:<32} {row.problem or json.dumps(row.rounds[-1].figures)}")


def main() -> None:
    """Runs the command that the module describes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=RATE, help="clicks/s while processes are killed")
    parser.add_argument("--clicks", type=int, default=CLICKS, help="number of clicks in the backlog to catch up with")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--results", type=Path, help="directory for the results (default: not kept)")
    given = parser.parse_args()
    with scratch() as fresh:
        results = Results(given.results or fresh)
        bench(results, given.rounds, lambda line: print(line, flush=True), rate=given.rate, clicks=given.clicks)
        if any(row.problem for row in results.rows()):
            sys.exit(1)


if __name__ == "__main__":
    main()
