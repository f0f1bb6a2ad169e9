"""Logs from topics: photon join over two topics, and the relay of a deployment; broker and Photon are killed."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from photon.cli.errors import DONE, FAILED, USAGE
from photon.outputs.log.copier import whole_ns
from tests.integration.commands import photon, running, until
from tests.integration.forked import Process
from tests.kafka.broker import Broker

SEED = int(os.environ.get("PHOTON_SEED", "1"))
WAIT_S = 90.0
PARTITIONS = 3
MORE = 100
CONFIG = """
[join.clicks]
primary = { format = "jsonl", key = "query_id" }
foreign = { format = "jsonl", id = "click_id", key = "query_id", time = { field = "time_us", unit = "us" } }
"""
DEPLOYMENT = """
[datacentre.east]
join = "clicks"
primary = "kafka://{address}/{queries}"
foreign = "kafka://{address}/{clicks}"
output = "out"
state = "state"
address = "127.0.0.1:7001"
apart.relay = "127.0.0.1:7003"
"""


def query(number: int) -> bytes:
    return json.dumps({"query_id": f"q{number}", "w": number}).encode()


def click(number: int) -> bytes:
    said = {"click_id": f"c{number}", "query_id": f"q{number}", "time_us": time.time_ns() // 1000}
    return json.dumps(said).encode()


class Traffic:
    """Queries, and a click on each, over all partitions; a click may come before its query."""

    def __init__(self, broker: Broker, name: str) -> None:
        self._broker, self._name = broker, name
        self.queries = broker.make(f"{name}-queries", PARTITIONS)
        self.clicks = broker.make(f"{name}-clicks", PARTITIONS)
        self.total = 0

    def write(self, count: int = MORE) -> None:
        numbers = range(self.total, self.total + count)
        for topic, made in (("clicks", click), ("queries", query)):
            for partition in range(PARTITIONS):
                mine = [made(number) for number in numbers if number % PARTITIONS == partition]
                self._broker.write(f"{self._name}-{topic}", mine, partition)
        self.total += count


def joined(*place: str | Path) -> Counter[str]:
    """Event id -> how often it is joined, as ``photon read`` gives it."""
    done = photon("read", *place)
    assert done.code == DONE, done.err
    records = [json.loads(line) for line in done.out.splitlines()]
    assert all(each["foreign"]["query_id"] == each["primary"]["query_id"] for each in records)
    return Counter(each["event_id"] for each in records)


def waits(process: Process, log: Path, condition: Callable[[], bool], what: str) -> None:
    """For it to be true while the process runs."""

    def is_true() -> bool:
        assert process.poll() is None, log.read_text()
        return condition()

    until(is_true, WAIT_S, what)


def test_each_click_is_joined_once_whatever_is_killed(broker: Broker, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    traffic = Traffic(broker, "ours")
    config, output, log = tmp_path / "join.toml", tmp_path / "out", tmp_path / "join.log"
    config.write_text(CONFIG)
    command = ["join", "--primary", traffic.queries, "--foreign", traffic.clicks, "--output", output,
               "--config", config, "--quiet"]  # fmt: skip

    def count() -> int:
        return sum(joined(output).values()) if (output / "joined").exists() else 0

    def told() -> list[str]:
        return [line for line in log.read_text().splitlines() if line.startswith("photon: topic ours-queries")]

    for kills_broker in (False, True):
        with running(*command, log=log) as join:
            traffic.write()
            waits(join, log, lambda: count() > traffic.total - MORE, "it joins")
            traffic.write()
            if kills_broker:
                broker.kill()
                waits(join, log, lambda: bool(told()), "it says that the broker is away")
                broker.start()
                traffic.write()
                waits(join, log, lambda: count() == traffic.total, "it goes on by itself")
                waits(join, log, lambda: len(told()) % 2 == 0, "it says that the broker is back")
                away = ["no event is declared unmatched" in line for line in told()]
                assert away == [True, False] * (len(away) // 2)
            elif chance.random() < 0.5:
                waits(join, log, lambda: count() > traffic.total - MORE, "it has begun with it")
            assert join.poll() is None, log.read_text()
            join.send_signal(signal.SIGKILL)
            join.wait()
    done = photon(*command, "--once", "-o", "json")
    assert done.code == DONE, done.err
    assert (done.json["read"], done.json["joined"], done.json["duplicate"]) == (traffic.total, traffic.total, 0)
    assert joined(output) == Counter(f"c{number}" for number in range(traffic.total))


def test_a_relay_makes_the_same_logs_whatever_is_killed(broker: Broker, tmp_path: Path) -> None:
    traffic = Traffic(broker, "relayed")
    config, log = tmp_path / "photon.toml", tmp_path / "relay.log"
    config.write_text(CONFIG + DEPLOYMENT.format(
        address=broker.address, queries="relayed-queries", clicks="relayed-clicks"
    ))  # fmt: skip
    logs = tmp_path / "state/upstream/foreign"

    def copied() -> list[bytes]:
        return [line for path in sorted(logs.glob("*.log")) for line in path.read_bytes().splitlines()]

    command = ["serve", "relay", "--config", config]
    for kills_broker in (False, True, False):
        with running(*command, log=log) as relay:
            traffic.write()
            waits(relay, log, lambda: len(copied()) > traffic.total - MORE, "the relay copies")
            if kills_broker:
                broker.kill()
                broker.start()
            traffic.write()
            waits(relay, log, lambda: len(copied()) == traffic.total, "all is copied")
            waits(relay, log, partial(_whole_since, logs, time.time_ns()), "and it says so")
            assert relay.poll() is None, log.read_text()
            relay.send_signal(signal.SIGKILL)
            relay.wait()
    names = {f"relayed-clicks-{partition}-{0:020d}.log" for partition in range(PARTITIONS)}
    assert {path.name for path in logs.glob("*.log")} == names
    for partition in range(PARTITIONS):
        numbers = range(partition, traffic.total, PARTITIONS)
        lines = (logs / f"relayed-clicks-{partition}-{0:020d}.log").read_bytes().splitlines()
        assert [json.loads(line)["click_id"] for line in lines] == [f"c{number}" for number in numbers]
        there = [each.value() for each in broker.read("relayed-clicks", PARTITIONS) if each.partition() == partition]
        assert lines == there


def _whole_since(logs: Path, time_ns: int) -> bool:
    return whole_ns(logs) > time_ns


def test_what_retention_took_is_one_line(broker: Broker, tmp_path: Path) -> None:
    from confluent_kafka import TopicPartition

    traffic = Traffic(broker, "short")
    traffic.write(30)
    config, output = tmp_path / "join.toml", tmp_path / "out"
    config.write_text(CONFIG)
    command = ["join", "--primary", traffic.queries, "--foreign", traffic.clicks, "--output", output,
               "--config", config, "--once"]  # fmt: skip
    assert photon(*command).code == DONE
    traffic.write(30)
    for future in broker.admin.delete_records([TopicPartition("short-clicks", 1, 15)]).values():
        future.result(30)
    done = photon(*command)
    assert done.code == FAILED
    assert "topic short-clicks, partition 1: offsets 10 to 14 are gone" in done.err
    assert done.err.count("\n") == 1
    assert photon(*command, "--accept-lost-offsets").code == DONE
    assert len(joined(output)) == 60 - 5


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_compacted_topic_is_refused_at_the_start(broker: Broker, tmp_path: Path, policy: str) -> None:
    name = f"packed-{policy.replace(',', '-')}"
    queries, clicks = broker.make(f"{name}-queries"), broker.make(f"{name}-clicks", cleanup_policy=policy)
    config, output = tmp_path / "join.toml", tmp_path / "out"
    config.write_text(CONFIG)
    done = photon("join", "--primary", queries, "--foreign", clicks, "--output", output, "--config", config, "--once")
    assert (done.code, done.err.count("\n")) == (USAGE, 1)
    assert f"topic {name}-clicks at" in done.err
    assert f"is compacted (cleanup.policy={policy})" in done.err
    (tmp_path / "photon.toml").write_text(
        CONFIG + DEPLOYMENT.format(address=broker.address, queries=f"{name}-queries", clicks=f"{name}-clicks")
    )
    relay = photon("serve", "relay", "--config", tmp_path / "photon.toml", "--datacentre", "east")
    assert relay.code == USAGE
    assert f"is compacted (cleanup.policy={policy})" in relay.err
