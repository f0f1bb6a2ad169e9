"""Containers as a target, with a recorded command runner in place of docker."""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from photon.config.loader import convert
from photon.lab.chaos.api import ChaosFailed, Do, ProcessNow
from photon.lab.chaos.containers import ContainersTarget
from photon.lab.chaos.subprocesses import Done, run_command
from photon.lab.chaos.watch import Containers
from photon.lab.wan.links import Change, DirectionNow, Fault

FILE = Path(__file__).parents[4] / "deploy" / "compose" / "photon.toml"
COMPOSE = "docker-compose -f x.yml -p demo run --rm --no-deps -T"


def container(service: str, number: int = 1, policy: str = "unless-stopped", **state: Any) -> dict[str, Any]:
    labels = {"com.docker.compose.service": service, "com.docker.compose.container-number": str(number)}
    return {
        "Id": f"id-{service}-{number}",
        "Config": {"Labels": labels},
        "HostConfig": {"RestartPolicy": {"Name": policy}},
        "RestartCount": 2,
        "State": {"Running": True, "Paused": False, "Pid": 0, "Health": {"Status": "healthy"}} | state,
    }


class Docker:
    """Its answers, and the requests it got."""

    def __init__(self) -> None:
        services = ["wan", "generator", *(f"registry-r{n}" for n in range(1, 6))]
        services += [f"{noun}-{name}" for name in ("east", "west") for noun in ("eventstore", "joiner", "dispatcher")]
        self.containers = {s: container(s) for s in services} | {"certs": container("certs", policy="no")}
        self.asked: list[str] = []
        self.answers: dict[str, Done] = {}

    async def run(self, command: Sequence[str], timeout: float) -> Done:
        said = " ".join(command)
        if said.startswith("docker ps") and "service=" not in said:
            return Done(0, "\n".join(str(each["Id"]) for each in self.containers.values()), "")
        if said.startswith("docker inspect"):
            return Done(0, orjson.dumps(list(self.containers.values())).decode(), "")
        self.asked.append(said)
        return next((answer for start, answer in self.answers.items() if start in said), Done(0, "", ""))


@pytest.fixture
def docker() -> Docker:
    return Docker()


@pytest.fixture
def target(docker: Docker) -> ContainersTarget:
    settings = convert(tomllib.loads(FILE.read_text()), str(FILE))
    return ContainersTarget("demo", ("docker-compose", "-f", "x.yml"), settings, docker.run)


async def test_what_stands_where(docker: Docker, target: ContainersTarget) -> None:
    docker.containers["more"] = container("joiner-east", 2)
    docker.containers["stopped"] = container("hbase-east", Running=False, ExitCode=0)
    topology = await target.topology()
    assert topology.regions == ("central", "east", "west")
    assert (len(topology.replicas), topology.spare) == (5, 2)
    assert {"registry-r1", "joiner-east", "joiner-east.2", "dispatcher-east"} <= set(topology.of_datacentre("east"))
    assert "wan" not in topology.processes
    assert "hbase-east" not in topology.processes
    assert (await target.processes())["hbase-east"].detail == "ended"
    assert "certs" not in await target.processes()
    assert "generator" not in await target.processes()
    assert Do.CUT in target.able
    assert not {Do.CLOCK, Do.DISK, Do.TRUNCATE} & target.able


async def test_states(docker: Docker, target: ContainersTarget) -> None:
    docker.containers["joiner-east"] = container("joiner-east", Paused=True)
    docker.containers["joiner-west"] = container("joiner-west", Running=False, ExitCode=137)
    docker.containers["wan"] = container("wan", Health={"Status": "starting"})
    found = await target.processes()
    assert found["registry-r1"] == ProcessNow(True, None, "up", 2)
    assert [found[name].detail for name in ("joiner-east", "joiner-west", "wan")] == ["paused", "held", "starting"]
    await target.resume(["joiner-east", "joiner-west"])
    assert docker.asked == ["docker unpause id-joiner-east-1"]


async def test_what_is_done_to_containers(docker: Docker, target: ContainersTarget) -> None:
    await target.kill(["joiner-east"], hold=False)
    await target.kill(["registry-r1", "wan"], hold=True)
    await target.release(["wan"])
    await target.pause(["wan"])
    await target.restart("wan")
    assert docker.asked == [
        "docker kill --signal KILL id-joiner-east-1",
        "docker start id-joiner-east-1",
        "docker kill --signal KILL id-registry-r1-1 id-wan-1",
        "docker start id-wan-1",
        "docker pause id-wan-1",
        "docker restart --time 25 id-wan-1",
    ]
    with pytest.raises(ChaosFailed, match="nobody: no such container"):
        await target.pause(["nobody"])
    docker.answers["docker pause"] = Done(1, "", "Error\nalready paused\n")
    with pytest.raises(ChaosFailed, match="docker pause: already paused"):
        await target.pause(["wan"])


async def test_links_are_changed_by_the_operator(docker: Docker, target: ContainersTarget) -> None:
    row = {"source": "east", "destination": "west", "delay_ms": 50, "fault": "drop", "bytes": 1, "connections": 2}
    docker.answers["status wan"] = Done(0, orjson.dumps([row]).decode(), "")
    assert await target.directions() == [DirectionNow("east", "west", 0.05, Fault.DROP, 1, 2)]
    docker.asked.clear()
    await target.change([Change("east", "west", fault=Fault.DROP), Change("west", "east", delay_s=0.2)])
    await target.change([Change("east", "west", fault=Fault.NONE), Change("west", "east", fault=Fault.NONE)])
    end = "--config /etc/photon/photon.toml"
    assert docker.asked == [
        f"{COMPOSE} operator-east photon wan set east west --cut --one-way --fault drop {end}",
        f"{COMPOSE} operator-east photon wan set west east --delay 200ms --one-way {end}",
        f"{COMPOSE} operator-east photon wan set east west --heal {end}",
    ]


async def test_the_operator_of_the_datacentre_that_is_meant(docker: Docker, target: ContainersTarget) -> None:
    await target.photon(["dispatcher", "skip", "--datacentre", "west", "--to", "now", "--yes"])
    assert "operator-west photon dispatcher skip" in docker.asked[-1]
    docker.answers["operator-east"] = Done(1, "", "no network")
    await target.photon(["status", "registry"])
    assert "operator-west photon status registry" in docker.asked[-1]
    docker.answers["operator-west"] = Done(1, "", "no network either")
    with pytest.raises(ChaosFailed, match="no network either"):
        await target.photon(["status", "registry"])


async def test_state_is_deleted_only_when_nobody_lives_there(docker: Docker, target: ContainersTarget) -> None:
    docker.containers["dispatcher-west"] = container("dispatcher-west", Pid=1 << 22)
    with pytest.raises(ChaosFailed, match="dispatcher-west is running"):
        await target.wipe("west")
    docker.containers["dispatcher-west"] = container("dispatcher-west", Running=False)
    await target.wipe("west")
    assert docker.asked == [f"{COMPOSE} operator-west sh -c rm -rf /state/dispatcher* /state/eventstore"]


async def test_the_leader(docker: Docker, target: ContainersTarget) -> None:
    groups = {"groups": [{"group": 0, "leader": "r9"}, {"group": 1, "leader": "r4"}]}
    docker.answers["operator-east"] = Done(1, "", "away")
    docker.answers["operator-west photon status registry"] = Done(3, orjson.dumps(groups).decode(), "")
    assert await target.leader() == "registry-r4"


async def test_verified_against_the_generators_truth(
    docker: Docker, target: ContainersTarget, tmp_path: Path
) -> None:
    docker.answers["docker ps"] = Done(0, "id-generator-1\n", "")
    docker.answers["feed check"] = Done(1, '{"problems":["2 clicks lost: a, b"]}', "")
    around = Containers("demo", target, ["east", "west"])
    assert await around.checks(tmp_path) == (["2 clicks lost: a, b"], ["photon feed check"])
    done = [each for each in docker.asked if not each.startswith("docker ps")]
    assert done[0] == "docker stop --time 25 id-generator-1"
    assert done[-1] == "docker start id-generator-1"
    docker.answers["feed check"] = Done(0, "nonsense", "")
    with pytest.raises(ChaosFailed, match="did not print the expected JSON: 'nonsense'"):
        await around.checks(tmp_path)


async def test_commands_that_cannot_be_run() -> None:
    assert await run_command(["sh", "-c", "echo out; echo err >&2; exit 3"], 20) == Done(3, "out\n", "err\n")
    with pytest.raises(ChaosFailed, match="cannot be run"):
        await run_command(["/no/such/command"], 20)
    with pytest.raises(ChaosFailed, match="has not ended after"):
        await run_command(["sleep", "60"], 0.05)
