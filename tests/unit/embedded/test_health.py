"""For how long a process has not answered."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

from photon.embedded.health import Answers, Health, ask_health, listens
from photon.embedded.ports import free_ports

GAP_S = 3.0


def _heard(answers: Answers, health: Health, *times: float) -> float:
    for at in times:
        answers.heard(health, at, GAP_S)
    return answers.silent_s


def test_silence_is_counted_only_after_it_was_up() -> None:
    answers = Answers()
    assert _heard(answers, Health.SILENT, *range(60)) == 0.0
    assert _heard(answers, Health.SERVING, 60) == 0.0
    assert _heard(answers, Health.SILENT, 61, 62, 63) == 3.0


def test_an_answer_of_any_kind_ends_the_silence() -> None:
    for answer in (Health.SERVING, Health.NOT_SERVING):
        answers = Answers()
        _heard(answers, Health.SERVING, 0)
        _heard(answers, Health.SILENT, 1, 2)
        assert _heard(answers, answer, 3) == 0.0
        assert _heard(answers, Health.SILENT, 4) == 1.0


def test_one_that_says_it_cannot_serve_is_never_silent() -> None:
    answers = Answers()
    _heard(answers, Health.SERVING, 0)
    assert _heard(answers, Health.NOT_SERVING, *range(1, 1000)) == 0.0
    assert answers.was_up


def test_a_supervisor_that_stood_still_blames_nobody() -> None:
    answers = Answers()
    _heard(answers, Health.SERVING, 0)
    assert _heard(answers, Health.SILENT, 3600) == GAP_S


def test_after_a_pause_the_count_starts_anew() -> None:
    answers = Answers()
    _heard(answers, Health.SERVING, 0)
    _heard(answers, Health.SILENT, 1, 2)
    answers.excused()
    assert _heard(answers, Health.SILENT, 50) == 0.0
    assert _heard(answers, Health.SILENT, 51) == 1.0


def test_who_listens_at_an_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert listens(os.getpid(), address)
        other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        assert not listens(other.pid, address)
        other.communicate(b"\n")
        assert not listens(other.pid, address)
    assert not listens(os.getpid(), address)
    assert listens(os.getpid(), "unix:/run/a.sock")


async def test_where_nobody_listens_there_is_silence() -> None:
    [port] = free_ports(1)
    assert await ask_health(f"127.0.0.1:{port}", "photon.v1.Wan", 1.0) is Health.SILENT
