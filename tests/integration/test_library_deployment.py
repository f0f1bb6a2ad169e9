"""A deployment in another program: the example of the documents, and one that is held, found, killed and left."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from photon.config.errors import PhotonError, UsageError
from photon.library import Deployment, DeploymentFailed
from photon.supervision.run_directory import RunBusy
from tests.deployments import deployment, join
from tests.integration.commands import alive, until

DOCUMENT = Path(__file__).parents[2] / "docs" / "embedding.md"
CLICKS = 30
LONG_S = 300.0
"""Much more than anything takes on a quiet machine."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    joined = join('unmatched_after = "1h"', key="query", event_id="click", time="at")
    file = deployment(tmp_path, joined, "eventstore", "dispatcher", "verifier", "joiners.east-1")
    queries = (json.dumps({"query": f"q{n}"}) + "\n" for n in range(CLICKS))
    (tmp_path / "queries" / "q.log").write_text("".join(queries))
    now = int(time.time())
    clicks = (json.dumps({"click": f"c{n}", "query": f"q{n}", "at": now}) + "\n" for n in range(CLICKS))
    (tmp_path / "clicks" / "c.log").write_text("".join(clicks))
    return file


def test_the_example_of_the_document(file: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    (example,) = [each for each in examples if "Deployment.up" in each]
    (file.parent / "follow.py").write_text(example)
    command = [sys.executable, "follow.py", str(CLICKS)]
    try:
        said = subprocess.run(command, cwd=file.parent, capture_output=True, text=True, timeout=2 * LONG_S)
        assert said.returncode == 0, said.stderr
        assert said.stdout.splitlines() == ["['held']", f"{CLICKS} joined by 5 processes of east"]
        with pytest.raises(UsageError, match="nothing runs"):
            Deployment.running(file)
    finally:
        subprocess.run([sys.executable, "-m", "photon", "down", str(file)], check=False)


def test_it_is_found_and_only_its_own_end_ends_it(file: Path) -> None:
    with Deployment.up(file) as deployment:
        states = deployment.wait_until_up(LONG_S)
        assert {each.name for each in states} == {
            "registry r1", "eventstore east", "joiner east-1", "verifier east", "dispatcher east",
        }  # fmt: skip
        assert all(each.up and alive(each.pid) for each in states)
        assert deployment.datacentres == ("east",)
        with pytest.raises(RunBusy), Deployment.up(file):
            pass
        with Deployment.running(file) as found:
            assert [each.pid for each in found.processes()] == [each.pid for each in states]
        assert deployment.alive()
        with pytest.raises(UsageError, match="no such process"):
            deployment.hold("joiner west-1")
        with pytest.raises(UsageError, match="there are: east"):
            deployment.ledger("west")
        until(lambda: deployment.ledger("east")["joined"] >= CLICKS, LONG_S, "every click is joined")
    assert not deployment.alive()
    assert not [each.name for each in states if alive(each.pid)]
    with pytest.raises(DeploymentFailed):
        deployment.processes()


def test_what_a_killed_one_left_is_ended_too(file: Path) -> None:
    with Deployment.up(file) as deployment:
        states = deployment.wait_until_up(LONG_S)
        launched = deployment._launched
        assert launched is not None
        os.kill(launched.process.pid, signal.SIGKILL)
        launched.process.wait()
        with pytest.raises(DeploymentFailed):
            deployment.processes()
    assert not [each.name for each in states if alive(each.pid)]


def test_what_is_wrong_is_one_line_and_leaves_nothing_behind(file: Path) -> None:
    with pytest.raises(PhotonError) as missing:
        Deployment.up(file.parent / "nothing.toml")
    file.write_text(file.read_text().replace('state = "state"', 'stat = "state"'))
    with pytest.raises(UsageError, match="stat") as caught:
        Deployment.up(file)
    assert "\n" not in str(caught.value) + str(missing.value)
    with pytest.raises(UsageError, match="nothing runs"):
        Deployment.running(file)
