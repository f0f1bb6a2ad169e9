"""Fresh seeds of every simulation for a given time: ``make soak HOURS=8``.

A seed that finds something is added to ``found.json``, ready to commit, so that the gate runs it from then on.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from tests.simulation.world.seeds import FOUND, file_of

PIECE = 20  # seeds per run: a failure is reported within minutes
_REPLAY = re.compile(r"SEED=(\d+)|\bseed (\d+)")
_WORLD = re.compile(r"\[([a-z]+)-\d")


def main(hours: float, workers: int, base: int) -> int:
    ends = time.monotonic() + 3600 * hours
    found, tried = 0, 0
    while time.monotonic() < ends:
        with tempfile.TemporaryDirectory() as directory:
            report = Path(directory, "report.xml")
            failed, before = _piece(base + tried, workers, report), found
            for file, seed, what in _failures(report):
                found += 1
                _keep(file, seed)
                print(f"{file}: seed {seed}: {what}\n  make sim SEED={seed}", flush=True)
            if failed and found == before:
                print("a failure that names no seed: see above", flush=True)
                return 1
        tried += PIECE
        print(f"{tried} seeds from {base} on, {found} found something", flush=True)
    return int(found > 0)


def _piece(base: int, workers: int, report: Path) -> bool:
    drawn = {"PHOTON_SIM_BASE": str(base), "PHOTON_SIM_SEEDS": str(PIECE), "PHOTON_SIM_ALL": "1"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "tests/simulation",
        "-m",
        "seeded",
        "-n",
        str(workers),
        "--timeout=86400",
    ]
    done = subprocess.run([*command, "-q", "--tb=short", f"--junitxml={report}"], env={**os.environ, **drawn})
    return done.returncode != 0


def _failures(report: Path) -> Iterator[tuple[str, int, str]]:
    """(file and its world, seed, finding)."""
    for case in ElementTree.parse(report).iter("testcase"):
        for failure in (*case.iter("failure"), *case.iter("error")):
            said = f"{failure.get('message')}\n{failure.text}"
            if named := _REPLAY.search(said):
                what = (failure.get("message") or "").partition("\n")[0]
                world = _WORLD.search(case.get("name", ""))
                file = file_of(case.get("classname", "")) + (f" {world[1]}" if world else "")
                yield file, int(named[1] or named[2]), what


def _keep(file: str, seed: int) -> None:
    known = json.loads(FOUND.read_text())
    known[file] = sorted({*known.get(file, []), seed})
    FOUND.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    hours, workers, base = sys.argv[1:]
    sys.exit(main(float(hours), int(workers), int(base)))
