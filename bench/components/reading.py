"""What photon read costs: ``python -m bench.components.reading [--mib N] [--runs N]``.

A finished output of several files, plain and compressed, read by the real command into a pipe and into a file. CPU
seconds of the command, with its start and without, the least of the runs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.unit.outputs.helpers import WrittenSlot

FILES = 4
RECORD = (
    b'{"event_id":"10.0.2.13:%d:%d","key":"10.7.1.14:4131:%d","event_time_ns":%d,"foreign":{"position":%d,"cost":%d},'
    b'"primary":{"user":"u%d","terms":"lamp coat drum","country":"de","device":"mobile","bid":%d,"page":'
    b'"https://search.example/results?session=%d&layout=standard"},"source":{"file":"clicks.log","offset":%d},'
    b'"primary_source":{"file":"queries.log","offset":%d},"joined_at":"2026-11-21T21:37:48.373186Z",'
    b'"token":"0000010000000001"}\n'
)


def write_output(base: Path, mib: int, *, final: bool) -> tuple[Path, int]:
    """An output of photon join, and how many bytes of records it has."""
    slot, draw, total = WrittenSlot(base, "local-1"), random.Random(1), 0
    for number in range(1, FILES + 1):
        lines = [
            RECORD % tuple(draw.randrange(10**12) for _ in range(11)) for _ in range((mib << 20) // FILES // 520)
        ]
        slot.append(number, b"".join(lines))
        slot.roll(number)
        total += slot.path(number).stat().st_size
        if final:
            slot.finish(number)
    slot.place.state.rename(slot.place.output / ".photon")
    return slot.place.output, total


def cost(output: Path, target: str, *more: str) -> float:
    """CPU seconds of one run."""
    command = [sys.executable, "-m", "photon", "read", str(output), *more]
    with tempfile.TemporaryFile() as file:
        process = subprocess.Popen(command, stdout=subprocess.PIPE if target == "pipe" else file)
        if process.stdout is not None:
            while os.read(process.stdout.fileno(), 1 << 20):
                pass
            process.stdout.close()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=100)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        for final in (False, True):
            output, total = write_output(Path(directory) / str(final), options.mib, final=final)
            start = min(cost(output, "file", "--limit", "0") for _ in range(options.runs))
            for target in ("pipe", "file"):
                cpu = min(cost(output, target) for _ in range(options.runs))
                result = {
                    "files": "compressed" if final else "plain",
                    "into": target,
                    "bytes": total,
                    "start_cpu_s": round(start, 3),
                    "cpu_s": round(cpu, 3),
                    "mb_per_cpu_s": round(total / 1e6 / cpu),
                    "mb_per_cpu_s_without_start": round(total / 1e6 / max(cpu - start, 1e-3)),
                    "load": round(os.getloadavg()[0], 1),
                }
                print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
