"""Computations as processes of a deployment, as a person uses them: one is correct, and one is no Python at first."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import photon
from photon.supervision.ports import free_ports
from tests.deployments import deployment, join
from tests.integration.commands import UP_S, Detached, alive, until
from tests.integration.commands import photon as command

ATTENTION = 3
COMPUTE = """\
[compute.spend]
file = "spend.py"
state = "compute/spend"
processes = 2
address = "127.0.0.1:{}"
[compute.broken]
file = "broken.py"
state = "compute/broken"
address = "127.0.0.1:{}"
"""
SPEND = """
from photon.computing import SECOND_NS, Computation, Topology, seconds

class Spend(Computation):
    def process_record(self, ctx, record):
        end = seconds(record.time_ns) + SECOND_NS
        ctx.state[end] = ctx.state.get(end, 0) + 1
        ctx.set_timer("end", end)

    def process_timer(self, ctx, timer):
        ctx.produce("spend", {"second": timer.time_ns, "clicks": ctx.state.pop(timer.time_ns)})

topology = Topology("spend")
topology.add(Spend(), {topology.joined("photon.toml"): lambda record: record.value["primary"]["q"]}, ["spend"])
topology.publish("spend", "streams/spend")
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Path]:
    services = ("eventstore", "dispatcher", "verifier", "joiners.east-1")
    file = deployment(tmp_path, join('written_within = "1s"'), *services, top=COMPUTE.format(*free_ports(2)))
    (tmp_path / "spend.py").write_text(SPEND)
    (tmp_path / "broken.py").write_text("topology = (\n")
    yield file
    command("down", file)


def test_they_start_with_the_deployment_and_a_broken_file_is_one_line_that_holds_nobody_up(site: Path) -> None:
    processes = Detached(site).up()
    assert {"compute spend", "compute spend-2", "compute broken", "joiner east-1"} <= processes.keys()
    assert {each["state"] for each in processes.values()} == {"up"}

    now = time.time()
    for n in range(5):
        with (
            open(site.parent / "queries" / "a.log", "a") as queries,
            open(site.parent / "clicks" / "a.log", "a") as to,
        ):
            queries.write(f'{{"q":"q{n}"}}\n')
            to.write(f'{{"id":"c{n}","q":"q{n}","t":{now}}}\n')
    spend = site.parent / "streams" / "spend"
    until(lambda: (spend / ".photon").exists() and len(list(photon.read(spend))) == 5, UP_S, "all five are published")

    said = _status(site)
    assert said["spend"]["running"]
    assert (said["spend"]["records"], said["spend"]["processes"], said["spend"]["intervals"]) == (5, 2, 2)
    assert [(each["stage"], each["computation"]) for each in said["spend"]["stages"]] == [(1, "spend")]
    broken = f"{site.parent / 'broken.py'}:1: SyntaxError: "
    assert not said["broken"]["running"]
    assert said["broken"]["problem"].startswith(broken)
    shown = command("status", "--config", site).out
    assert re.search("spend +1 spend ", shown)
    assert re.search(f"compute broken +does not run: {re.escape(broken)}", shown)
    top = json.loads(command("status", "top", "--config", site, "-o", "json").out)
    assert {"spend", "broken"} <= {each["process"] for each in top["processes"] if each["service"] == "compute"}
    doctor = command("doctor", "--config", site, "-o", "json")
    assert doctor.code == ATTENTION
    assert [each["where"] for each in json.loads(doctor.out)["findings"] if each["area"] == "computations"] == [
        "compute broken"
    ]

    owners = _pids(site)
    os.kill(owners["i1"], signal.SIGKILL)
    until(lambda: _pids(site)["i1"] != owners["i1"], UP_S, "the killed process is restarted")
    assert _pids(site)["i0"] == owners["i0"], "the other one goes on"

    file = (site.parent / "spend.py", "--state", site.parent / "compute" / "spend", "-o", "json")
    rescaled = command("compute", "rescale", *file, "--processes", "3")
    assert len(json.loads(rescaled.out)["intervals"]) == 3, rescaled.err
    reloaded = command("compute", "reload", *file)
    assert json.loads(reloaded.out)["running"], reloaded.err
    until(lambda: len(set(_pids(site).values())) == 2 and len(_pids(site)) == 3, UP_S, "two processes have three")

    (site.parent / "broken.py").write_text(
        SPEND.replace("streams/spend", "streams/more").replace('"spend")', '"more")')
    )
    until(lambda: _status(site)["broken"]["running"], UP_S, "it is tried again, as its file has changed")
    down = command("down", site)
    assert down.code == 0, down.err
    states = (site.parent / "compute").glob("*/*.status.json")
    assert not [pid for pid in (json.loads(each.read_bytes())["pid"] for each in states) if alive(pid)]


def _pids(site: Path) -> dict[str, int]:
    found = (json.loads(each.read_bytes()) for each in (site.parent / "compute" / "spend").glob("*.status.json"))
    return {each["interval"]: each["pid"] for each in found}


def _status(site: Path) -> dict[str, Any]:
    said = json.loads(command("status", "--config", site, "-o", "json").out)
    return {each["compute"]: each for each in said["datacentres"][0]["computations"]}
