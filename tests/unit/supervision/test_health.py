"""The time for which a process has not answered, and whether a silent one hangs."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from photon.supervision.health import (
    STARVED_TIMES,
    UNKNOWN_TIMES,
    Answers,
    Health,
    Turn,
    ask_health,
    listens,
    turns_of,
    used_s,
)
from photon.supervision.ports import free_ports

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


LIMIT_S = 30.0
LOOP, OTHER = 1, 2


class Drawn:
    """A process with two threads and its checker, second by second, on a machine of a given load."""

    def __init__(self, seed: int, load: float) -> None:
        self.random = random.Random(seed)
        self.load = load
        self.threads = {LOOP: Turn(0, 0, False), OTHER: Turn(0, 0, False)}
        self.asker = Turn(0, 0, False)
        self.answers = Answers()
        self.answers.heard(Health.SERVING, 0.0, GAP_S)
        self.now = 0.0

    def _turned(self, turn: Turn, wants_s: float, passed_s: float) -> Turn:
        """It wants to run for ``wants_s``: it gets a share, and waits for the rest, which shows when it gets it."""
        share = self.random.uniform(0.5, 1.5) / self.load
        ran = min(wants_s, passed_s * min(1.0, share))
        waited = min(passed_s - ran, ran * (self.load - 1.0)) if wants_s <= ran else passed_s - ran
        ready = wants_s > ran
        shows = not ready or self.random.random() < 0.7
        return Turn(turn.ran_ns + int(ran * 1e9), turn.waited_ns + (int(waited * 1e9) if shows else 0), ready)

    def silent(self, wants: Callable[[int], float]) -> bool:
        """One more check without an answer; true if it is taken to hang. ``wants``: seconds each thread would run."""
        passed_s = self.random.uniform(1.0, GAP_S)
        self.now += passed_s
        self.threads = {id: self._turned(turn, wants(id), passed_s) for id, turn in self.threads.items()}
        self.asker = self._turned(self.asker, 0.02, passed_s)._replace(ready=False)
        self.answers.heard(Health.SILENT, self.now, GAP_S, (dict(self.threads), {LOOP: self.asker}))
        return self.answers.hangs(LIMIT_S)

    def found_after_s(self, wants: Callable[[int], float]) -> float:
        while not self.silent(wants):
            assert self.now < 2 * STARVED_TIMES * LIMIT_S
        return self.now


@pytest.mark.parametrize("seed", range(20))
def test_under_a_load_of_fifty_one_that_would_run_is_left_alone_for_minutes(seed: int) -> None:
    drawn = Drawn(seed, load=50.0)
    while drawn.now < 5 * 60:
        assert not drawn.silent(lambda thread: GAP_S if thread == LOOP else 0.0)
    drawn.answers.heard(Health.SERVING, drawn.now + 1, GAP_S)
    assert drawn.answers.silent_s == drawn.answers.starved_s == 0.0


@pytest.mark.parametrize("load", [1.0, 3.0, 10.0])
@pytest.mark.parametrize("seed", range(5))
def test_one_that_stands_still_is_found_soon(seed: int, load: float) -> None:
    """The others of its threads, and the checker, wait now and then."""
    assert LIMIT_S < Drawn(seed, load).found_after_s(lambda thread: 0.001 if thread == OTHER else 0.0) < 3 * LIMIT_S


@pytest.mark.parametrize("seed", range(5))
def test_one_that_spins_is_found_when_it_has_run_for_the_limit(seed: int) -> None:
    def spins(thread: int) -> float:
        return GAP_S if thread == LOOP else 0.0

    idle = Drawn(seed, load=1.0)
    assert idle.found_after_s(spins) < 3 * LIMIT_S
    assert idle.answers.ran_s > LIMIT_S / 2
    assert Drawn(seed, load=4.0).found_after_s(spins) < 10 * LIMIT_S


@pytest.mark.parametrize("seed", range(5))
def test_whatever_the_load_there_is_a_bound(seed: int) -> None:
    assert Drawn(seed, load=1000.0).found_after_s(lambda _: GAP_S) <= STARVED_TIMES * LIMIT_S + 2 * GAP_S


def test_without_the_kernels_word_it_is_the_clock_with_a_longer_limit() -> None:
    answers = Answers()
    answers.heard(Health.SERVING, 0, GAP_S)
    now = 0.0
    while not answers.hangs(LIMIT_S):
        now += 1.0
        answers.heard(Health.SILENT, now, GAP_S, (None, None))
    assert UNKNOWN_TIMES * LIMIT_S < now < UNKNOWN_TIMES * LIMIT_S + 3
    assert answers.words == f"has not answered for {answers.silent_s:.0f} s"


def test_a_wait_that_still_lasts_counts() -> None:
    before, after = {LOOP: Turn(0, 0, True)}, {LOOP: Turn(0, 0, True)}
    assert used_s(before, after, 2.0) == (0.0, 2.0)
    assert used_s(before, {LOOP: Turn(2 * 10**9, 0, True)}, 2.0) == (2.0, 0.0)  # it had the processor all the time
    assert used_s({LOOP: Turn(0, 0, False)}, after, 2.0) == (0.0, 0.0)  # ready since a moment ago, perhaps
    assert used_s({}, after, 2.0) == (0.0, 0.0)


def test_what_the_kernel_says_of_a_process_that_runs_and_of_one_that_sleeps() -> None:
    code = "import sys\nprint(flush=True)\n{}"
    commands = {"runs": "while True: pass", "sleeps": "sys.stdin.read()"}
    processes = {
        name: subprocess.Popen(
            [sys.executable, "-c", code.format(what)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for name, what in commands.items()
    }
    try:
        for process in processes.values():
            process.stdout.readline()
        before = {name: turns_of(process.pid) for name, process in processes.items()}
        began = time.monotonic()
        time.sleep(0.3)
        passed_s = time.monotonic() - began
        for name, process in processes.items():
            was, now = before[name], turns_of(process.pid)
            assert was is not None
            assert now is not None
            ran_s, waited_s = used_s(was, now, passed_s)
            if name == "runs":
                assert ran_s + waited_s > 0.2
            else:
                assert ran_s + waited_s < 0.1
    finally:
        for process in processes.values():
            process.kill()
            process.communicate()
    assert turns_of(processes["runs"].pid) is None


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
