"""``photon watermark``: its output for several datacentres, and waiting."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
from click.testing import Result

from photon.config.clock import NS_PER_S
from photon.config.metrics.readings import ProcessMetrics
from photon.config.serving import listen
from photon.fleet.processes import KINDS
from photon.outputs.cursor import Cursor
from photon.outputs.watermarks import JOURNAL, Late, Pair
from photon.supervision.ports import free_ports
from tests.deployments import datacentre, join, replica, write
from tests.unit.refusals import photon, refused

S = NS_PER_S
NOON = 1_764_072_000


def _deployment(base: Path, promise: str = 'written_within = "5s"') -> Path:
    free = iter([f"127.0.0.1:{port}" for port in (7101, 7201, 7202, 7211, 7212)])
    registry = replica(next(free))
    east, west = (
        datacentre(free, "eventstore", f"joiners.{name}-1", name=name, base=f"{name}/") for name in ("east", "west")
    )
    return write(base, join(promise), registry, east, west)


def _journal(base: Path, datacentre: str, exact_s: int | None, percentile_s: int, waiting: int = 0) -> None:
    path = base / datacentre / "state" / JOURNAL
    path.parent.mkdir(parents=True, exist_ok=True)
    exact_ns = None if exact_s is None else exact_s * S
    pair = Pair(NOON * S, exact_ns, percentile_s * S, waiting, Cursor(), (f"{datacentre} waits",))
    late = Late("joined/a-000001.jsonl", 1, 2, 3)
    path.write_bytes(pair.encode() + b"\n" + late.encode() + b"\n")


def _run(file: Path, *arguments: str) -> Result:
    return photon("watermark", *arguments, "--config", file)


def test_over_all_it_is_the_least_and_who_holds_it_is_named(tmp_path: Path) -> None:
    file = _deployment(tmp_path)
    _journal(tmp_path, "east", NOON, NOON + 9, 4)
    _journal(tmp_path, "west", NOON - 60, NOON + 5, 7)
    result = _run(file, "-o", "json")
    assert result.exit_code == 0
    said = json.loads(result.output)
    assert said["joins"] == [
        {"join": "clicks", "exact": "2025-11-25T11:59:00Z", "percentile": "2025-11-25T12:00:05Z", "waiting": 7,
         "held_by": ["west: west waits"]}
    ]  # fmt: skip
    assert [each["late_records"] for each in said["datacentres"]] == [2, 2]
    table = _run(file).output
    assert "all of clicks" in table
    assert "all of" not in _run(file, "--datacentre", "east").output


def test_one_that_is_expected_and_says_nothing_holds_all_back(tmp_path: Path) -> None:
    file = _deployment(tmp_path)
    _journal(tmp_path, "east", NOON, NOON)
    result = _run(file, "-o", "json")
    assert result.exit_code == 3
    (join,) = json.loads(result.output)["joins"]
    assert (join["exact"], join["percentile"]) == (None, None)
    assert "west/state is not on this machine, and its verifier does not answer" in join["held_by"][0]
    (tmp_path / "west" / "state").mkdir(parents=True)
    (join,) = json.loads(_run(file, "-o", "json").output)["joins"]
    assert join["held_by"][0].startswith("west: no ")
    assert "west" in _run(file).output


async def test_the_verifier_of_another_machine_is_asked(tmp_path: Path) -> None:
    file = _deployment(tmp_path)
    (port,) = free_ports(1)
    west, table = file.read_text().rpartition("[datacentre.west]")[::2]
    table = re.sub("verifier = .*", f"verifier = '127.0.0.1:{port}'", table)
    text = f"{west}[datacentre.west]{table}"
    file.write_text(text)
    _journal(tmp_path, "east", NOON, NOON)
    silent = await asyncio.to_thread(_run, file, "-o", "json")
    assert "its verifier does not answer" in silent.output
    pair = Pair(NOON * S, (NOON - 60) * S, NOON * S, 3, Cursor(), ("far away",))
    said = {"watermark": {"line": pair.encode().decode(), "late_records": 5}}
    server = await listen(f"127.0.0.1:{port}", KINDS["verifier"].health, metrics=ProcessMetrics([], lambda: said))
    await server.serving()
    try:
        result = await asyncio.to_thread(_run, file, "-o", "json")
    finally:
        await server.stop()
    found = json.loads(result.output)
    assert (result.exit_code, found["joins"][0]["held_by"]) == (0, ["west: far away"])
    assert (found["datacentres"][1]["late_records"], found["datacentres"][1]["waiting"]) == (5, 3)


@pytest.mark.parametrize(
    ("how", "moment", "code"),
    [
        (["--final"], NOON - 60, 0), ([], NOON - 60, 0), (["--final"], NOON - 59, 3),
        (["--percentile"], NOON + 5, 0), (["--percentile"], NOON + 6, 3),
    ],
)  # fmt: skip
def test_waiting_ends_when_it_is_reached_or_time_is_over(
    tmp_path: Path, how: list[str], moment: int, code: int
) -> None:
    file = _deployment(tmp_path)
    _journal(tmp_path, "east", NOON, NOON + 9)
    _journal(tmp_path, "west", NOON - 60, NOON + 5)
    result = _run(file, "wait", str(moment), *how, "--timeout", "0", "-o", "json")
    assert result.exit_code == code
    said = json.loads(result.output)
    assert (said["reached"], said["final"]) == (code == 0, moment <= NOON - 60)
    assert (said["waiting"] == 0) == (moment <= NOON - 60)
    assert "reached" in _run(file, "wait", str(moment), *how, "--timeout", "0").output


def test_without_a_promise_nobody_waits_for_the_exact_one(tmp_path: Path) -> None:
    file = _deployment(tmp_path, "")
    _journal(tmp_path, "east", None, NOON)
    _journal(tmp_path, "west", None, NOON)
    assert "written_within is not set" in refused(_run(file, "wait", "2025-11-25T11:00", "--final"))
    assert _run(file, "wait", "2025-11-25T11:00", "--percentile").exit_code == 0


def test_wrong_usage(tmp_path: Path) -> None:
    file = _deployment(tmp_path)
    refused(_run(file, "wait", "tomorrow"))
    refused(_run(file, "--datacentre", "north"))
