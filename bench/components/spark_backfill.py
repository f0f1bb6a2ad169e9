"""``photon spark backfill`` against ``photon join --once`` on the same generated files, start-up included.

Prints wall time and CPU seconds of all processes (driver, Java, workers; the registry apart): compare within one run.
With few cores the join wins; the backfill's work, start-up excepted, divides by cores.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.components import join as join_bench
from bench.components.spark_verify import cpu_s
from bench.generated_logs import Written
from bench.workload import CONFIG
from photon.supervision.ports import free_ports

DEPLOYMENT = """\
key_file = "key"
{join}
[registry.replicas.r1]
address = "{registry}"
directory = "registry"
[datacentre.east]
join = "clicks"
primary = "{primary}"
foreign = "{foreign}"
output = "output"
state = "state"
eventstore = "127.0.0.1:1"
[datacentre.east.joiners.east-1]
address = "127.0.0.1:2"
"""


def backfill(root: Path, file: Path, master: str, file_format: str) -> tuple[float, float, dict[str, int]]:
    """Wall s, CPU s, events by what became of them."""
    output = root / f"backfill-{file_format}"
    command = [sys.executable, "-m", "photon", "spark", "backfill", "--config", str(file), "--from", "2000-01-01"]
    command += ["--to", str(int(time.time()) - 1), "--slack", "0s", "--output", str(output), "-o", "json"]
    command += ["--format", file_format]
    command += ["--master", master, "--spark", "spark.ui.enabled=false"]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    cpu = 0.0
    while process.poll() is None:
        cpu = max(cpu, cpu_s(process.pid))
        time.sleep(0.05)
    wall = time.perf_counter() - began
    assert process.stdout is not None
    text = process.stdout.read()
    if process.returncode != 0:
        raise SystemExit(f"photon spark backfill ended with {process.returncode}: {text}")
    return wall, cpu, json.loads(text)["events"]


def deployment(root: Path, written: Written) -> tuple[Path, str]:
    """A fresh one: file and the registry's address."""
    root.mkdir()
    address = f"127.0.0.1:{free_ports(1)[0]}"
    text = DEPLOYMENT.format(join=CONFIG, registry=address, primary=written.primary, foreign=written.foreign)
    (root / "photon.toml").write_text(text)
    (root / "key").write_bytes(b"k" * 32)
    return root / "photon.toml", address


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clicks", type=int, default=100_000)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--format", default="jsonl", choices=("jsonl", "parquet"))
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="photon-bench-"))
    try:
        written, _ = join_bench.generate(root / "logs", options.clicks)
        size = (written.primary_bytes + written.foreign_bytes) / 2**20
        print(f"{written.primary_records:,} queries, {written.foreign_records:,} clicks, {size:,.0f} MiB, "
              f"load average {os.getloadavg()[0]:.0f}")  # fmt: skip
        config = root / "photon.toml"
        config.write_text(CONFIG)
        joined = join_bench.measure(written, config, root / "joined")
        rate = joined.ledger["joined"] / joined.wall_s
        print(f"join:     {joined.wall_s:6.1f} s wall {joined.cpu_s:6.1f} s CPU {rate:9,.0f} joined/s")
        file, _ = deployment(root / "site", written)
        registry = subprocess.Popen(
            [sys.executable, "-m", "photon", "serve", "registry", "r1", "--config", str(file)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            wall, cpu, events = backfill(root, file, options.master, options.format)
            own = cpu_s(registry.pid)
        finally:
            registry.kill()
            registry.wait()
        if events["joined"] != joined.ledger["joined"]:
            raise SystemExit(f"joined {events['joined']}, photon join {joined.ledger['joined']}")
        print(f"backfill: {wall:6.1f} s wall {cpu:6.1f} s CPU {events['joined'] / wall:9,.0f} joined/s "
              f"({options.master}, {options.format}; registry {own:.1f} s CPU)")  # fmt: skip
        print(f"CPU of the backfill to the join's: {(cpu + own) / joined.cpu_s:.1f}; "
              f"load average {os.getloadavg()[0]:.0f}")  # fmt: skip
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
