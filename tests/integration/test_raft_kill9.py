"""Three real replicas, kill -9 on the leader and on others while numbers are proposed: none acknowledged is lost."""

from __future__ import annotations

import contextlib
import json
import queue
import random
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.forked import Process, begin

NODE = "tests.integration.raft_node"
NAMES = ("a", "b", "c")
ROUNDS = 6


class Replica:
    """One process and its answers."""

    def __init__(self, name: str, directory: Path, members: dict[str, str]) -> None:
        self.name = name
        self._directory = directory
        self._members = [f"{n}={address}" for n, address in members.items()]
        self.answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self.outcomes: list[dict[str, Any]] = []
        self.process: Process | None = None

    def start(self) -> None:
        self._log = (self._directory / f"{self.name}.log").open("a")
        self.answers = queue.Queue()
        self.process = begin(
            self.name, self._directory / self.name, *self._members,
            module=NODE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
            cwd=Path(__file__).parents[2],
        )  # fmt: skip
        threading.Thread(target=self._read, args=(self.process, self.answers), daemon=True).start()

    def _read(self, process: Process, answers: queue.Queue[dict[str, Any]]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                try:
                    answer = json.loads(line)
                except ValueError:
                    assert not line.endswith("\n"), line  # only the kill cuts lines off
                    continue
                if "outcome" in answer:
                    self.outcomes.append(answer)
                else:
                    answers.put(answer)

    def tell(self, line: str) -> None:
        assert self.process is not None
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass

    def ask(self, line: str, timeout: float = 10.0) -> dict[str, Any]:
        self.tell(line)
        return self.answers.get(timeout=timeout)

    def leads(self, group: str = "") -> bool:
        return bool(self.ask(f"state {group}")["state"]["is_leader"])

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._close()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            try:
                self.process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._close()

    def _close(self) -> None:
        if self.process is not None and self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
        self._log.close()


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[dict[str, Replica]]:
    sockets = []
    members = {}
    for name in NAMES:  # bound and never listening: reserves the port, which gRPC's SO_REUSEPORT may share
        reserved = socket.socket()
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind(("127.0.0.1", 0))
        sockets.append(reserved)
        members[name] = f"127.0.0.1:{reserved.getsockname()[1]}"
    made = {name: Replica(name, tmp_path, members) for name in NAMES}
    for replica in made.values():
        replica.start()
    try:
        for replica in made.values():
            assert replica.answers.get(timeout=30)["started"] == replica.name
        yield made
    finally:
        for replica in made.values():
            replica.stop()
        for reserved in sockets:
            reserved.close()


def find_leader(replicas: list[Replica], seconds: float = 15.0, group: str = "") -> Replica:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for replica in replicas:
            if replica.leads(group):
                return replica
        time.sleep(0.02)
    raise AssertionError("no leader")


def test_acknowledged_numbers_survive_kills(replicas: dict[str, Replica]) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance = random.Random(seed)
    number = 0
    for _ in range(ROUNDS):
        leader = find_leader(list(replicas.values()))
        for _ in range(150):
            leader.tell(f"p {number}")
            number += 1
        wanted = sum(len(r.outcomes) for r in replicas.values()) + chance.randint(1, 50)
        deadline = time.monotonic() + 20
        while sum(len(r.outcomes) for r in replicas.values()) < wanted:
            assert time.monotonic() < deadline, "no answers"
            time.sleep(0.002)
        victim = leader if chance.random() < 0.7 else chance.choice([r for r in replicas.values() if r is not leader])
        victim.kill()
        began = time.monotonic()
        find_leader([r for r in replicas.values() if r is not victim])
        took = time.monotonic() - began
        print(f"killed {victim.name} ({'leader' if victim is leader else 'follower'}), leader after {took:.2f} s")
        victim.start()
        assert victim.answers.get(timeout=30)["started"] == victim.name

    acknowledged = {o["number"] for r in replicas.values() for o in r.outcomes if o["outcome"] == "applied"}
    assert acknowledged
    dumps = _converged(list(replicas.values()))
    for dump in dumps:
        assert len(set(dump["numbers"])) == len(dump["numbers"])
        assert acknowledged <= set(dump["numbers"])
    assert all(r.ask("state")["healthy"] for r in replicas.values())


def _converged(replicas: list[Replica], group: str = "") -> list[dict[str, Any]]:
    find_leader(replicas, group=group)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        dumps = [replica.ask(f"dump {group}") for replica in replicas]
        if len({dump["hash"] for dump in dumps}) == 1:
            return dumps
        time.sleep(0.05)
    raise AssertionError("the replicas do not converge")


def test_a_wiped_disk_does_not_rejoin(replicas: dict[str, Replica], tmp_path: Path) -> None:
    leader = find_leader(list(replicas.values()))
    leader.tell("p 1")
    _converged(list(replicas.values()))
    victim = next(r for r in replicas.values() if r is not leader)
    victim.kill()
    (tmp_path / victim.name).rename(tmp_path / "gone")
    victim.start()
    assert victim.answers.get(timeout=30)["started"] == victim.name
    deadline = time.monotonic() + 20
    while victim.ask("state")["healthy"]:
        assert time.monotonic() < deadline, "the wiped replica still runs"
        time.sleep(0.05)
    assert "another disk" in victim.ask("failure")["failure"]
    assert leader.ask("state")["state"]["is_leader"]


def test_a_group_that_is_added_survives_kills_too(replicas: dict[str, Replica]) -> None:
    """Two replicas open it, the third was down and is late; the leader is killed; all find it again by themselves."""
    late = replicas["c"]
    find_leader(list(replicas.values()))
    late.kill()
    early = [replicas["a"], replicas["b"]]
    for replica in early:
        assert replica.ask("add 9")["groups"] == [7, 9]
    leader = find_leader(early, group="9")
    for number in range(100):
        leader.tell(f"p {number} 9")
    deadline = time.monotonic() + 20
    while len(leader.outcomes) < 50:
        assert time.monotonic() < deadline, "no answers"
        time.sleep(0.002)
    leader.kill()
    late.start()
    assert late.answers.get(timeout=30)["started"] == "c"
    assert late.ask("groups")["groups"] == [7]
    leader.start()
    assert leader.answers.get(timeout=30)["started"] == leader.name
    assert leader.ask("groups")["groups"] == [7, 9]
    find_leader(early, group="9")
    while late.ask("groups")["dropped"] == 0:
        assert time.monotonic() < deadline, "it hears nothing of the group"
        time.sleep(0.01)
    assert late.ask("add 9")["groups"] == [7, 9]
    acknowledged = {o["number"] for r in replicas.values() for o in r.outcomes if o["outcome"] == "applied"}
    assert len(acknowledged) >= 50
    for dump in _converged(list(replicas.values()), group="9"):
        assert acknowledged <= set(dump["numbers"])
    for replica in replicas.values():
        assert replica.ask("remove 9")["groups"] == [7]
        replica.kill()
        replica.start()
        assert replica.answers.get(timeout=30)["started"] == replica.name
        assert replica.ask("groups")["groups"] == [7]
    find_leader(list(replicas.values()))
