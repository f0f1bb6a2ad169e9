"""The timestamp oracle on real registry replicas: strictly increasing while leaders are killed."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from photon.config.tls import open_blocking_channel
from photon.tables.api import StoreFailed
from photon.tables.timestamps import timestamps_pb2 as pb
from photon.tables.timestamps.client import TIMESTAMPS, RegistryOracle
from tests.integration.registry_processes import Processes

ROUNDS = 20 if os.environ.get("PHOTON_FULL") == "1" else 3
THREADS = 4


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Processes]:
    processes = Processes(tmp_path)
    for name in processes.peers:
        processes.start(name, oracle=True)
    yield processes
    for name in list(processes.running):
        processes.kill(name)


def leader(replicas: Processes) -> str:
    """The running replica that hands out a timestamp."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for name in replicas.running:
            channel = open_blocking_channel(replicas.peers[name])
            try:
                if TIMESTAMPS.stub(channel).Take(pb.TakeRequest(count=1), timeout=2.0).first:
                    return name
            except grpc.RpcError:
                pass
            finally:
                channel.close()
        time.sleep(0.1)
    raise AssertionError("no replica leads the oracle")


def test_timestamps_only_grow_while_leaders_are_killed(replicas: Processes) -> None:
    oracles = [RegistryOracle(replicas.peers, wait=60.0) for _ in range(2)]
    stop = threading.Event()
    seen: list[list[tuple[float, float, int]]] = [[] for _ in range(THREADS)]

    def ask(number: int) -> None:
        oracle = oracles[number % 2]
        while not stop.is_set():
            began = time.monotonic()
            found = oracle.timestamp()
            seen[number].append((began, time.monotonic(), found))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(THREADS)]
    before_us = time.time_ns() // 1000
    leader(replicas)
    for each in threads:
        each.start()
    chance = random.Random(28)
    for _ in range(ROUNDS):
        counts = [len(each) for each in seen]
        killed = leader(replicas)
        replicas.kill(killed)
        leader(replicas)  # another one
        time.sleep(chance.random())
        replicas.start(killed, oracle=True)
        deadline = time.monotonic() + 60
        while any(len(each) <= count for each, count in zip(seen, counts, strict=True)):
            assert time.monotonic() < deadline, "a client stands still"
            time.sleep(0.02)
    stop.set()
    for each in threads:
        each.join(60)
        assert not each.is_alive()
    for oracle in oracles:
        oracle.close()
    found = sorted(each for thread in seen for each in thread)
    assert len({timestamp for _, _, timestamp in found}) == len(found)
    assert min(found)[2] > before_us - 3600_000_000  # above all timestamps that a lost oracle has handed out
    assert max(found)[2] < 1.5 * before_us  # a new leader continues instead of starting over
    # A timestamp requested after another was received is higher.
    highest, received = 0, sorted(found, key=lambda each: each[1])
    at = 0
    for began, _, timestamp in found:
        while received[at][1] < began:
            highest = max(highest, received[at][2])
            at += 1
        assert timestamp > highest


def test_a_leader_without_a_majority_hands_out_nothing(replicas: Processes) -> None:
    first = leader(replicas)
    for name in set(replicas.running) - {first}:
        replicas.kill(name)
    channel = open_blocking_channel(replicas.peers[first])
    reply = TIMESTAMPS.stub(channel).Take(pb.TakeRequest(count=1), timeout=3.0)
    channel.close()
    assert reply.first == 0
    assert reply.reason
    oracle = RegistryOracle(replicas.peers, wait=1.0)
    with pytest.raises(StoreFailed, match=r"^no timestamps from the registry: replica r\d"):
        oracle.timestamp()
    oracle.close()


def test_a_replica_that_hosts_no_oracle_says_what_to_do(tmp_path: Path) -> None:
    replicas = Processes(tmp_path, dict([next(iter(Processes(tmp_path).peers.items()))]))
    replicas.start("r1")
    try:
        oracle = RegistryOracle(replicas.peers, wait=0.0)
        deadline = time.monotonic() + 30
        while True:
            with pytest.raises(StoreFailed) as raised:
                oracle.timestamp()
            if "tables.thrift" in str(raised.value) or time.monotonic() > deadline:
                break
            time.sleep(0.1)
        assert "replica r1 has no oracle; restart it with a file that has tables.thrift" in str(raised.value)
        oracle.close()
    finally:
        replicas.kill("r1")
