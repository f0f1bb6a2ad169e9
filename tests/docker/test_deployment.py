"""The whole deployment for real: up, joins in both datacentres, every event exactly once, down."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator

import pytest

from deploy.docker.stack import DATACENTRES, Stack

PROJECT = "photontest"


@pytest.fixture(scope="module")
def stack(docker: None) -> Iterator[Stack]:
    os.environ |= {"COMPOSE_PROJECT_NAME": PROJECT, "PHOTON_STATUS_EAST": "18081", "PHOTON_STATUS_WEST": "18082"}
    made = Stack(print)
    try:
        made.build()
        made.up()
        yield made
    finally:
        made.down()


@pytest.mark.timeout(1800)
def test_every_event_comes_out_exactly_once(stack: Stack) -> None:
    stack.wait_for_joins()
    found = stack.verdict()
    assert found["problems"] == []
    assert found["joined"] > 0
    for name in DATACENTRES:
        assert stack.joined(name) > 0


@pytest.mark.timeout(300)
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
        assert not published or name.startswith("status-"), name


@pytest.mark.timeout(300)
def test_no_byte_goes_between_regions_but_through_the_gateway(stack: Stack) -> None:
    """Asked from the event store of east: a replica of west is there under its name, and not under its address."""
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
    asked = ["docker", "exec", containers["eventstore-east"]["Id"], "python", "-c", code]
    said = subprocess.run([*asked, "registry-r4", west["IPAddress"]], capture_output=True, text=True, check=True)
    assert json.loads(said.stdout) == [True, False]
    told = ("operator-east", "photon", "wan", "set", "east", "west", "--round-trip", "300ms")
    config = ("--config", "/etc/photon/photon.toml")
    stack.run("run", "--rm", "--no-deps", "-T", *told, *config)
    listed = stack.run(
        "run", "--rm", "--no-deps", "-T", "operator-west", "photon", "wan", "list", *config, "-o", "json"
    )
    assert "0.15" in listed
