"""``photon up --detach`` when something fails."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from photon.supervision import detached
from photon.supervision.control import ControlFailed, Reply, Request
from photon.supervision.detached import UpFailed, start_detached, stop_detached
from photon.supervision.run_directory import RunBusy, locked
from photon.supervision.states import ServiceState

UP = ServiceState(name="a", datacentre="", pid=1, state="up")
STARTING = ServiceState(name="b", datacentre="", pid=2, state="starting")
FAILING = ServiceState(name="c", datacentre="", pid=None, state="failing", exit_code=1, detail="port in use")
WRONG = ServiceState(name="d", datacentre="", pid=None, state="failing", exit_code=2, detail="no such file")


class Alive:
    """A background process that keeps running."""

    def __init__(self, *arguments: object, **options: object) -> None:
        pass

    def poll(self) -> int | None:
        return None


def test_a_process_that_ends_at_once_is_quoted_with_its_exit_code(tmp_path: Path) -> None:
    with pytest.raises(UpFailed, match=r"none\.toml: no such file") as failed:
        start_detached(tmp_path, ["up", "none.toml", "--background"], 60.0, print)
    assert failed.value.exit_code == 2
    with pytest.raises(UpFailed) as failed:  # ended without giving a reason
        start_detached(tmp_path, ["--version"], 60.0, print)
    assert failed.value.exit_code == 1


@pytest.mark.parametrize(
    ("states", "said", "timeout"),
    [
        ([UP, WRONG], r"^1 of 2 processes are not up: d is failing: no such file \(photon up keeps trying", 60.0),
        ([UP, FAILING], r"^after 0\.3 s 1 of 2 processes are not up: c is failing: port in use", 0.3),
        ([UP, STARTING], r"^after 0\.3 s 1 of 2 processes are not up: b is starting", 0.3),
        ([], r"^after 0\.3 s no status is available yet", 0.3),
    ],
)
def test_what_does_not_come_up_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, states: list[ServiceState], said: str, timeout: float
) -> None:
    monkeypatch.setattr(subprocess, "Popen", Alive)
    monkeypatch.setattr(detached, "ask", lambda run, request: Reply(services=states))
    heard: list[str] = []
    with pytest.raises(UpFailed, match=said):
        start_detached(tmp_path, ["up"], timeout, heard.append)
    assert heard == [f"{s.name} is failing: {s.detail}" for s in states if s.state == "failing"]


def test_all_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [[STARTING], [UP]]
    monkeypatch.setattr(subprocess, "Popen", Alive)
    monkeypatch.setattr(detached, "ask", lambda run, request: Reply(services=answers.pop(0)))
    assert start_detached(tmp_path, ["up"], 60.0, print) == [UP]
    assert answers == []


def test_a_second_one_does_not_even_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", None)
    with locked(tmp_path), pytest.raises(RunBusy):
        start_detached(tmp_path, ["up"], 60.0, print)


def test_stopping_where_nothing_ever_ran_makes_nothing(tmp_path: Path) -> None:
    assert stop_detached(tmp_path / "none", 1.0) == []
    assert not (tmp_path / "none").exists()


def test_one_that_does_not_end_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lives = ServiceState(name="joiner", datacentre="", pid=os.getpid(), state="up")

    def ask(run: Path, request: Request, timeout: float = 1.0) -> Reply:
        return Reply(pid=77, services=[lives])

    monkeypatch.setattr(detached, "ask", ask)
    with locked(tmp_path), pytest.raises(ControlFailed, match=r"\(pid 77\) has not stopped after 0\.1 s; .*: joiner"):
        stop_detached(tmp_path, 0.1)
