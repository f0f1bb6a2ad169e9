"""Decisions of `make up` and `make reload`, without Docker."""

from __future__ import annotations

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
