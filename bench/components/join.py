"""``python -m bench.components.join``: the whole path of ``photon join --once`` on a generated set.

Prints joined clicks/s of wall time, CPU seconds, peak memory and the share of each stage. Absolute figures move
from machine to machine: compare within one run, quote medians.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.generated_logs import Written, write
from bench.workload import CONFIG
from photon.config.runtime import shares
from photon.lab.demo.check import check
from photon.lab.demo.generator import Disorder, Generator, Truth


@dataclass(frozen=True, slots=True)
class Run:
    wall_s: float
    cpu_s: float
    peak_mib: float
    stages: dict[str, float]
    ledger: dict[str, int]


def measure(written: Written, config: Path, output: Path) -> Run:
    """One run in a process of its own; CPU and memory are of it and its children."""
    stages = output.with_suffix(".stages.json")
    command = [sys.executable, "-m", "photon", "join", "--once", "-o", "json", "--config", str(config)]
    command += ["--primary", str(written.primary), "--foreign", str(written.foreign), "--output", str(output)]
    command += ["--stages", str(stages), "--max-rejected", "1000000"]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    peak = 0
    while process.poll() is None:
        peak = max(peak, _resident(process.pid))
        time.sleep(0.02)
    wall = time.perf_counter() - began
    assert process.stdout is not None
    text = process.stdout.read()
    if process.returncode != 0:
        raise SystemExit(f"photon join ended with {process.returncode}: {text}")
    times = os.times()
    return Run(
        wall,
        times.children_user + times.children_system,
        peak / 2**20,
        _shares(stages),
        json.loads(text),
    )


def _shares(stages: Path) -> dict[str, float]:
    files = (stages, stages.with_suffix(".eventstore.json"))
    return shares(json.loads(file.read_text()) for file in files)


def _resident(pid: int) -> int:
    """Resident bytes of a process and its children."""
    total = 0
    pending = [pid]
    while pending:
        each = pending.pop()
        try:
            status = Path(f"/proc/{each}/statm").read_text().split()
            pending += [int(c) for c in Path(f"/proc/{each}/task/{each}/children").read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += int(status[1]) * os.sysconf("SC_PAGE_SIZE")
    return total


def generate(directory: Path, clicks: int) -> tuple[Written, Truth]:
    """Twenty rolled files a side; a primary record is some 300 bytes."""
    generator = Generator(
        20, clicks=clicks, seconds=clicks / 10, disorder=Disorder(malformed=0.0), keep_truth=clicks <= 200_000
    )
    return write(generator.lines(), directory, files=20), generator.truth


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clicks", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="photon-bench-"))
    try:
        written, truth = generate(root / "logs", options.clicks)
        size = (written.primary_bytes + written.foreign_bytes) / 2**20
        print(f"{written.primary_records:,} queries, {written.foreign_records:,} clicks, {size:,.0f} MiB, "
              f"{os.cpu_count()} cores")  # fmt: skip
        config = root / "photon.toml"
        config.write_text(CONFIG)
        runs = []
        cpu_before = 0.0
        for number in range(options.runs):
            output = root / f"out-{number}"
            run = measure(written, config, output)
            cpu, cpu_before = run.cpu_s - cpu_before, run.cpu_s
            problems = check([output], truth).problems
            if problems:
                raise SystemExit(f"wrong output: {problems}")
            rate = run.ledger["joined"] / run.wall_s
            print(f"run {number + 1}: {run.wall_s:6.2f} s wall  {rate:9,.0f} joined clicks/s  {cpu:6.2f} s CPU  "
                  f"{run.peak_mib:6.0f} MiB peak")  # fmt: skip
            runs.append((rate, run))
            shutil.rmtree(output)
        rate, run = sorted(runs, key=lambda pair: pair[0])[len(runs) // 2]
        print(f"median: {statistics.median(r for r, _ in runs):,.0f} joined clicks/s of wall time, start-up included")
        print("share of each stage at work:")
        for stage, share in sorted(run.stages.items(), key=lambda pair: -pair[1]):
            if share >= 0.005:
                print(f"  {stage:<28} {share:6.1%}")
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
