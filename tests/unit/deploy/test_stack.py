"""Decisions of `make up` and `make reload`, without Docker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deploy.docker import stack as module
from deploy.docker.stack import Failed, Stack


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> Stack:
    monkeypatch.setattr(module, "POLL_SECONDS", 0.0)
    return Stack(lambda line: None, command=["true"])


def test_joins_flow_only_when_both_grow_even_if_a_status_page_was_away(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {"east": iter([5, 6, 6, 6]), "west": iter([0, 9, 9, 10])}  # 0: no answer; 9 was joined before it was lost
    monkeypatch.setattr(stack, "joined", lambda name: next(said[name]))
    stack.wait_for_joins()
    assert list(said["west"]) == []


def test_a_restarted_process_is_waited_for_alone(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    def container(service: str, status: str) -> dict[str, Any]:
        config = {"Labels": {"com.docker.compose.service": service}}
        return {"Config": config, "State": {"Status": status, "ExitCode": 0}}

    found = [container("datacentre-east", "running"), container("registry-r1", "restarting")]
    monkeypatch.setattr(stack, "containers", lambda: found)
    assert stack.unhealthy() == "registry-r1 restarting"
    assert stack.unhealthy("datacentre-east") == ""
    with pytest.raises(Failed, match="not up within 0 s: registry-r1 restarting"):
        stack.wait("up", stack.unhealthy, 0.0)


def test_networks_are_removed_once_containers_have_left_them(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    fails = ["network east has active endpoints", "network east has active endpoints", ""]

    def run(*arguments: str) -> str:
        assert arguments == ("down", "--remove-orphans", "-v")
        if why := fails.pop(0):
            raise Failed(why)
        return ""

    monkeypatch.setattr(stack, "run", run)
    stack.down()
    assert fails == []
    fails.append("no daemon")
    with pytest.raises(Failed, match="no daemon"):
        stack.down()


class _Docker:
    """Containers of a deployment; ``told`` has what was done, in its order."""

    def __init__(self, stack: Stack, *services: str) -> None:
        self.stack, self.told = stack, list[str]()
        self.hashes = dict.fromkeys(services, "1")
        self.found = [self.container(service, str(number)) for number, service in enumerate(services)]

    def container(self, service: str, number: str) -> dict[str, Any]:
        labels = {"com.docker.compose.service": service, "com.docker.compose.config-hash": self.hashes[service]}
        state = {"Status": "running", "ExitCode": 0}
        config = {"Labels": labels, "Image": "photon"}
        return {"Id": number, "Name": f"/{service}", "Image": "now", "Config": config, "State": state}

    def run(self, verb: str, *words: str, **_: Any) -> str:
        if verb == "config":
            return "".join(f"{service} {each}\n" for service, each in self.hashes.items())
        if verb == "up":
            again = "--no-deps" in words
            self.told.append(f"again {words[-1]}" if again else f"up {'--no-recreate' in words}")
            self.found = [
                self.container(words[-1], f"{each['Id']}'") if again and each["Name"] == f"/{words[-1]}" else each
                for each in self.found
            ]
        return ""

    def docker(self, verb: str, *words: str) -> str:
        if verb == "restart":
            self.told.append(next(each["Name"][1:] for each in self.found if each["Id"] == words[-1]))
        return "now" if verb == "image" else ""


@pytest.fixture
def docker(stack: Stack, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> _Docker:
    pipelines = [f"{kind}-{where}" for kind in reversed(PIPELINE) for where in ("west", "east")]
    docker = _Docker(stack, "generator", "wan", *pipelines, "registry-r2", "registry-r1")
    monkeypatch.setattr(stack, "run", docker.run)
    monkeypatch.setattr(stack, "docker", docker.docker)
    monkeypatch.setattr(stack, "containers", lambda: list(docker.found))
    monkeypatch.setattr(stack, "operator", lambda *words: "")
    monkeypatch.setattr(stack, "settings", tmp_path / "photon.toml")
    monkeypatch.setattr(stack, "_applied", tmp_path / "applied.toml")
    for file, limit in (("photon.toml", 2), ("applied.toml", 1)):
        (tmp_path / file).write_text(f"[limits]\nbatch = {limit}\n")
    return docker


PIPELINE = ("datacentre", "joiner")
TURN = ["registry-r1", "registry-r2", *(f"{kind}-{where}" for where in ("east", "west") for kind in PIPELINE), "wan"]


def test_a_reload_stops_one_datacentre_after_the_other(stack: Stack, docker: _Docker) -> None:
    stack.reload()
    assert docker.told == ["up True", *TURN]
    stack.reload()
    assert docker.told[len(TURN) + 1 :] == ["up True"]  # nothing has changed since


@pytest.mark.parametrize("status", ["exited", "restarting"])
def test_no_datacentre_is_stopped_while_the_other_is_away(
    stack: Stack, docker: _Docker, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    """As when it has ended since the reload began."""
    monkeypatch.setattr(module, "FLOW_SECONDS_MAX", 0.0)
    west = next(each for each in docker.found if each["Name"] == "/joiner-west")
    west["State"]["Status"] = status
    said = f"^datacentre-east was not restarted, because nothing would join meanwhile: joiner-west {status}; "
    with pytest.raises(Failed, match=said):
        stack.restart_each()
    assert docker.told == TURN[:2]
    docker.found.append(docker.container("joiner-west", "second"))  # another one of its service
    stack.restart(next(each for each in docker.found if each["Name"] == "/datacentre-east"))
    assert docker.told == TURN[:3]


def test_a_reload_says_first_what_it_restarts(stack: Stack, docker: _Docker, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(stack, "_say", said.append)
    stack.reload(dry_run=True)
    assert docker.told == []
    assert said == [
        "limits.batch: 1 -> 2",
        f"restarts 7 processes in turn, in about 84 s: {', '.join(TURN)}",
        "nothing was changed",
    ]


def test_what_is_defined_otherwise_is_made_again_in_its_turn_and_the_gateway_first(
    stack: Stack, docker: _Docker
) -> None:
    stack.reload()
    docker.told.clear()
    docker.hashes |= {"joiner-west": "2", "joiner-east": "2", "wan": "2", "generator": "2"}
    stack.reload()
    assert docker.told == ["again wan", "up True", "again joiner-east", "again joiner-west"]
