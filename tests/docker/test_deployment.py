"""The whole deployment for real: up, joins in both datacentres, more joiners, one killed, every event exactly once, a
datacentre permanently lost, down. One deployment for all tests of this file, which run in this order."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from deploy.docker.stack import CONFIG, ROOT, Failed, Stack
from tests.docker.operating import read_ids

PROJECT = "photontest"
COMMAND = re.compile(r"^docker-compose .*$", re.M)
JOINS_SECONDS_MAX = 180.0
SETTLE_SECONDS_MAX = 300.0
OF_EAST = {"registry-r1", "registry-r2", "datacentre-east"}
pytestmark = pytest.mark.timeout(1800)  # whichever test is first waits for the images, which a new machine makes


@pytest.fixture(scope="module")
def stack(docker: None) -> Iterator[Stack]:
    os.environ |= {"COMPOSE_PROJECT_NAME": PROJECT, "PHOTON_STATUS_EAST": "18081", "PHOTON_STATUS_WEST": "18082"}
    os.environ["PHOTON_RATE"] = "5"  # two cores are few
    made = Stack(print)
    try:
        made.build()
        made.up()
        yield made
    finally:
        made.down()


def test_no_container_has_more_rights_than_it_needs(stack: Stack) -> None:
    for each in stack.containers():
        name, host = each["Config"]["Labels"]["com.docker.compose.service"], each["HostConfig"]
        assert each["Config"]["User"] in ("10001:10001", "10002:10002"), name
        assert host["ReadonlyRootfs"], name
        assert host["CapDrop"] == ["ALL"], name
        assert not host["CapAdd"], name
        assert host["Memory"] > 0, name
        published = [place for places in (host["PortBindings"] or {}).values() for place in places]
        assert all(place["HostIp"] == "127.0.0.1" for place in published), name
        assert not published or name.startswith("datacentre-"), name


def test_no_byte_goes_between_regions_but_through_the_gateway(stack: Stack) -> None:
    """Asked from the datacentre east: a replica of west is there under its name, and not under its address."""
    containers = {each["Config"]["Labels"]["com.docker.compose.service"]: each for each in stack.containers()}
    [west] = containers["registry-r4"]["NetworkSettings"]["Networks"].values()
    code = (
        "import socket, sys, json\n"
        "def reached(host):\n"
        "    try:\n"
        "        socket.create_connection((host, 7004), 3).close(); return True\n"
        "    except OSError:\n"
        "        return False\n"
        "print(json.dumps([reached(each) for each in sys.argv[1:]]))"
    )
    asked = ["docker", "exec", containers["datacentre-east"]["Id"], "python", "-c", code]
    said = subprocess.run([*asked, "registry-r4", west["IPAddress"]], capture_output=True, text=True, check=True)
    assert json.loads(said.stdout) == [True, False]
    config = " ".join(CONFIG)
    told = f"photon wan set east west --round-trip 300ms {config} >&2; exec photon status wan {config} -o json"
    listed = json.loads(stack.operator("east", "sh", "-euc", told).strip().splitlines()[-1])
    delays = {(each["source"], each["destination"]): each["delay_ms"] for each in listed}
    assert delays["east", "west"] == delays["west", "east"] == 150.0
    assert delays["east", "central"] == 50.0


def test_what_the_documents_ask_of_an_operator(stack: Stack) -> None:
    """The proxy is told, the parts answer; what was cut heals."""
    asked = [words for words in documented("run", "--rm") if "feed" not in words]
    assert len(asked) >= 4
    for words in asked:
        stack.run(*words)
    stack.operator("east", "photon", "wan", "set", "east", "west", "--round-trip", "100ms", *CONFIG)


def documented(*parts: str) -> list[list[str]]:
    """The words behind ``docker-compose`` of each command in docs/deployment.md that has these. Those of the profile
    ``monitoring`` are left out: its images come from elsewhere."""
    found = [
        shlex.split(line, comments=True)[1:] for line in COMMAND.findall((ROOT / "docs/deployment.md").read_text())
    ]
    wanted = [words for words in found if set(parts) <= set(words)]
    return [["run", "-T", *words[1:]] if words[0] == "run" else words for words in wanted]


def test_a_datacentre_that_is_stopped_three_times_hides_nothing(stack: Stack) -> None:
    """Under traffic; what stands in its files is what readers are shown, while it is away."""
    for stops in (1, 2, 3):
        stack.wait_for_joins("east")
        stack.run("stop", "datacentre-east")
        written = int(stack.operator("east", "sh", "-euc", "zcat -f /output/joined/*.jsonl* | wc -l"))
        assert len(read_ids(stack, "east")) == written > 0
        said = stack.run("logs", "--no-color", "datacentre-east")
        assert said.count("everything accepted is decided and published") == stops
        stack.run("start", "datacentre-east")


def test_a_datacentre_that_is_killed_costs_no_event(stack: Stack) -> None:
    stack.wait_for_joins()
    killed = next(each["Id"] for each in stack.containers() if _service(each) == "datacentre-east")
    stack.docker("kill", "-s", "KILL", killed)
    stack.docker("start", killed)
    stack.wait_for_joins()
    _exactly_once(stack.verdict())
    for words in (*documented("stop", "generator"), *documented("feed", "check")):  # as verdict() has done
        stack.run(*words)


def _exactly_once(found: dict[str, Any]) -> None:
    assert found["problems"] == []
    assert found["joined"] > 0


def _service(container: dict[str, Any]) -> str:
    return str(container["Config"]["Labels"]["com.docker.compose.service"])


@pytest.mark.full
def test_a_datacentre_is_deleted_for_ever_and_no_reader_misses_or_doubles_a_record(stack: Stack) -> None:
    """All of east's containers at once, under traffic, then its volumes. What its readers had read stands in the
    copies that west keeps; what it owned and nobody has seen is joined by west."""
    stack.run("start", "generator")
    stack.wait_for_joins()
    read = read_ids(stack, "east")
    of_east = [each for each in stack.containers() if _service(each) in OF_EAST]
    assert len(of_east) >= len(OF_EAST)
    stack.docker("kill", "-s", "KILL", *(each["Id"] for each in of_east if each["State"]["Running"]))
    stack.run("stop", "generator")
    writers = [each for each in stack.containers() if _service(each) == "generator"]
    stack.docker("rm", "-f", "-v", *(each["Id"] for each in [*of_east, *writers]))
    lost = ("logs-east", "state-east", "output-east", "registry-r1", "registry-r2")
    stack.docker("volume", "rm", *(f"{stack.project}_{each}" for each in lost))

    listed = json.loads(stack.operator("west", "photon", "status", "slots", *CONFIG, "-o", "json"))["slots"]
    slots = [each["slot"] for each in listed if each["datacentre"] == "east"]
    assert slots
    for slot in slots:
        stack.operator("west", "photon", "slot", "retire", slot, "--yes", *CONFIG)
    found: list[dict[str, Any]] = []

    def wrong() -> str:
        try:
            said = stack.operator("west", "sh", "-euc", OF_BOTH)
        except Failed as error:  # exit 1: not all is there yet
            return str(error)
        found.append(json.loads(said.strip().splitlines()[-1]))
        return "; ".join(found[-1]["problems"])

    stack.wait("all clicks once in west and the copies of east", wrong, SETTLE_SECONDS_MAX)
    _exactly_once(found[-1])
    again = read_ids(stack, "west", of="east")
    assert len(again) == len(set(again))
    assert set(read) <= set(again)


OF_BOTH = """
for kind in joined unmatched; do
  mkdir -p /tmp/all/$kind
  for file in /output/$kind/* /state/copies/east/*/output/$kind/*; do
    if [ -f "$file" ]; then ln -s "$file" /tmp/all/$kind/; fi
  done
done
ln -s /output/rejected /tmp/all/rejected
exec photon feed check --of /logs --output /tmp/all -o json
"""
