"""A datacentre whose join is on Spark, in containers: a day of logs by jobs of Spark, among which it is killed, and
what comes; each event is there once."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from deploy.docker.stack import HEALTHY_SECONDS_MAX, Stack
from tests.docker.operating import make_compose
from tests.unit.deploy.scripts import on_spark, one_datacentre

SERVICE = "dispatcher-east"
JAVA_SECONDS_MAX = 120.0
CLICKS = 10_000
"""More than a MiB of them: less is joined without Java."""
KILL = "import os; os.kill(-1, 9)"
"""All processes of a container but its first, which then ends like them: the restart policy starts it again."""
pytestmark = pytest.mark.timeout(1800)  # it may wait for the images, which a new machine makes


@pytest.fixture(scope="module")
def stack(docker: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    settings = tmp_path_factory.mktemp("settings")
    for directory in (settings, settings.parent, settings.parent.parent):
        directory.chmod(0o755)  # pytest's own directories are its user's alone
    (settings / "photon.toml").write_text(
        on_spark(one_datacentre(), "east").replace('_after = "30s"', '_after = "5s"')
    )
    make_compose(settings, settings / "docker-compose.yml")
    own = {
        "COMPOSE_PROJECT_NAME": "photonspark", "PHOTON_STATUS_EAST": "18085", "PHOTON_RATE": "5",
        "PHOTON_SETTINGS": str(settings), "PHOTON_COMPOSE": str(settings / "docker-compose.yml"),
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        for name, value in own.items():
            patch.setenv(name, value)
        made = Stack(print)
        try:
            made.build()
            day = ("feed", "day", "--into", "/feed/1", "--clicks", str(CLICKS))
            made.run("run", "--rm", "-T", "generator", *day)
            made.run("up", "-d")
            yield made
        finally:
            made.down()


def driver(stack: Stack) -> dict[str, Any]:
    """The container of the join on Spark, as ``docker inspect`` describes it."""
    [found] = [
        each for each in stack.containers() if each["Config"]["Labels"]["com.docker.compose.service"] == SERVICE
    ]
    return found


def metric(name: str) -> float:
    """The sum of a metric on the status page."""
    with urllib.request.urlopen("http://127.0.0.1:18085/metrics", timeout=9) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(f"{name}{{"))


def test_it_is_killed_among_jobs_of_spark_and_joins_each_event_once(stack: Stack) -> None:
    assert all("joiner" not in each["Name"] for each in stack.containers())

    def idle() -> str:
        return "" if "java" in stack.docker("top", driver(stack)["Id"]) else "no Java yet"

    stack.wait("Java at work", idle, JAVA_SECONDS_MAX)
    subprocess.run(["docker", "exec", driver(stack)["Id"], "python", "-Sc", KILL], check=False)  # may be ended too
    stack.wait("all healthy", stack.unhealthy, HEALTHY_SECONDS_MAX)
    assert driver(stack)["RestartCount"] > 0
    stack.run("stop", "generator")
    check = ("photon", "feed", "check", "--of", "/logs", "--output", "/output", "--wait", "300s", "-o", "json")
    found = json.loads(stack.operator("east", *check).strip().splitlines()[-1])
    assert found["problems"] == []
    assert found["joined"] > CLICKS / 2
    assert metric("photon_spark_batches_total") > 0
    stack.run("stop", SERVICE)
    assert driver(stack)["State"]["ExitCode"] == 0
