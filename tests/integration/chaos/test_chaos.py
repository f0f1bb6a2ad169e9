"""photon chaos with real processes: mixed random faults, and every event has exactly one verdict afterwards.

One fault in each nine of 36 seconds, or in each 15 of three minutes with PHOTON_FULL, or for PHOTON_CHAOS_SECONDS;
the scenarios one by one with PHOTON_FULL, as in `make chaos`.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import orjson
import pytest

from photon.lab.chaos.disks import can_mount
from photon.lab.chaos.history import read
from photon.lab.chaos.processes import libfaketime
from photon.lab.chaos.scenario import load, names
from tests.integration.commands import drawn_seed, photon

FULL = bool(os.environ.get("PHOTON_FULL"))
SECONDS = float(os.environ.get("PHOTON_CHAOS_SECONDS", "180" if FULL else "36"))
DENSE = """
version = 1
about = "as many random faults in 36 s as --random has in a minute"
seconds = 36

[random]
every = "9s"
longest = "6s"
"""
RATE = 4
TIMEOUT_S = 900
LONG = {"soak", "mixed"}  # run by hand, or as the random run below


async def verdict(*arguments: str, directory: Path) -> dict[str, Any]:
    command = ("chaos", "run", *arguments, "--directory", str(directory), "-o", "json")
    done = await asyncio.to_thread(photon, *command, timeout=TIMEOUT_S)
    print(done.err)
    assert done.out, done.err
    report: dict[str, Any] = orjson.loads(done.out)
    assert (done.code, report["problems"]) == (0, [])
    return report


@pytest.mark.timeout(TIMEOUT_S + SECONDS)
async def test_random_faults_lose_and_double_nothing(tmp_path: Path) -> None:
    dense = tmp_path / "dense.toml"
    dense.write_text(DENSE)
    faults = "--random" if FULL else str(dense)
    words = f"{faults} --minutes {SECONDS / 60:.3f} --rate {RATE} --joiners 1 --seed {drawn_seed()}"
    report = await verdict(*words.split(), directory=tmp_path / "run")
    assert report["good"] is True
    assert report["events"] == int(SECONDS * RATE)
    assert report["latency"]["outstanding"] == 0
    history = list(read(tmp_path / "run" / "history.jsonl"))
    assert [entry["what"] for entry in history if entry.get("what") == "begin"] == ["begin"] * report["faults"]
    assert history[-1]["good"] is True
    assert orjson.loads((tmp_path / "run" / "report.json").read_bytes())["seed"] == report["seed"]


@pytest.mark.full
@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("name", [name for name in names() if name not in LONG])
async def test_scenario(tmp_path: Path, name: str) -> None:
    wanted = {step.do for step in load(name).steps}
    if "disk" in wanted and not can_mount():
        pytest.skip("needs the right to mount a small file system")
    if "clock" in wanted and libfaketime() is None:
        pytest.skip("needs libfaketime")
    report = await verdict(name, "--seed", str(drawn_seed()), directory=tmp_path / "run")
    # For the figures of docs/chaos.md: pytest -s shows it.
    print(name, {key: report[key] for key in ("latency", "backs", "wasted", "settle_s", "load_before", "load_after")})
    assert report["faults"] == len(load(name).steps)
