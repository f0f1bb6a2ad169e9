"""Computations over a topic: processes and broker are killed, each message counts once, and none comes late."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import photon
from photon.cli.errors import DONE, FAILED, USAGE
from tests.integration.commands import children, drawn_seed, running, until
from tests.integration.commands import photon as command
from tests.integration.forked import Process
from tests.kafka.broker import Broker

WAIT_S = 90.0
PARTITIONS = 3  # the last one is idle
KILLS = 10 if os.environ.get("PHOTON_FULL") else 3
MORE = 60
FILE = """
from photon.computing import SECOND_NS, Topology
from photon.computing.windows import Windows, collect, tumbling

at = {{"field": "time_us", "unit": "us"}}
topology = Topology("clicks")
clicks = topology.log("{topic}", format="jsonl", key="user", time=at, within_ns=5 * SECOND_NS)
ids = {{"ids": collect(lambda each: each.value["id"])}}
topology.add(Windows("seconds", tumbling(SECOND_NS), ids), {{clicks: "user"}})
topology.publish("seconds", "out/seconds")
topology.publish("seconds.late", "out/late")
"""


class Clicks:
    def __init__(self, broker: Broker, directory: Path, name: str) -> None:
        self._broker, self._name, self._random = broker, name, random.Random(drawn_seed())
        self.address, self.directory = broker.make(name, PARTITIONS), directory
        self.file, self.log = directory / "clicks.py", directory / "log"
        self.file.write_text(FILE.format(topic=self.address))
        self.written = list[dict[str, Any]]()

    def write(self, count: int = MORE) -> None:
        for partition in range(PARTITIONS - 1):
            now_us, first = time.time_ns() // 1000, len(self.written)
            made = [
                {"id": first + n, "user": f"u{self._random.randrange(5)}", "time_us": now_us} for n in range(count)
            ]
            self._broker.write(self._name, [json.dumps(each).encode() for each in made], partition)
            self.written += made

    def found(self, stream: str = "seconds") -> list[dict[str, Any]]:
        """The windows that are published."""
        directory = self.directory / "out" / stream
        return [each.foreign for each in photon.read(directory)] if directory.exists() else []

    def ids(self, stream: str = "seconds") -> list[int]:
        return sorted(number for each in self.found(stream) for number in each["ids"])

    def check(self) -> None:
        truth: dict[tuple[str, int], set[int]] = {}
        for each in self.written:
            truth.setdefault((each["user"], each["time_us"] // 1_000_000), set()).add(each["id"])
        found = self.found()
        assert {(each["key"], each["from_ns"] // 10**9): sorted(each["ids"]) for each in found} == {
            window: sorted(ids) for window, ids in truth.items()
        }
        assert len(found) == len(truth)
        assert list(photon.read(self.directory / "out/late")) == []


def _kill(process: Process) -> None:
    for pid in (process.pid, *children(process.pid)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_each_message_counts_once_whatever_is_killed(broker: Broker, tmp_path: Path) -> None:
    clicks, rng = Clicks(broker, tmp_path, "counted"), random.Random(drawn_seed())
    run = ("compute", "run", clicks.file, "--processes", "2", "--quiet")
    for n in range(KILLS + 1):
        with running(*run, log=clicks.log) as process:
            clicks.write()
            time.sleep(rng.uniform(0.0, 3.0))
            if n % 2:
                broker.kill()
                until(
                    lambda: "its watermark stops until it can be read" in clicks.log.read_text(), WAIT_S, "it says so"
                )
                broker.start()
            clicks.write()
            if n == KILLS:  # the windows of idle users are complete, as the idle partition holds nothing back
                until(lambda: len(clicks.ids()) == len(clicks.written), WAIT_S, "all windows are complete")
            assert process.poll() is None, clicks.log.read_text()
            _kill(process)
    clicks.check()
    clicks.write()
    done = command(*run, "--once", "-o", "json", timeout=2 * WAIT_S)
    assert done.code == DONE, done.err
    clicks.check()


def test_what_cannot_be_read_is_one_line(broker: Broker, tmp_path: Path) -> None:
    from confluent_kafka import TopicPartition

    clicks = Clicks(broker, tmp_path, "expired")
    run = ("compute", "run", clicks.file, "--once", "--quiet")
    clicks.write(10)
    assert command(*run).code == DONE
    clicks.write(10)
    for future in broker.admin.delete_records([TopicPartition("expired", 1, 13)]).values():
        future.result(30)
    done = command(*run)
    assert (done.code, done.err.count("\n")) == (FAILED, 1)
    assert "topic expired, partition 1: offsets 10 to 12 are gone" in done.err
    assert command(*run, "--accept-lost-offsets").code == DONE
    left = [each["id"] for each in clicks.written if each["id"] not in range(30, 33)]
    assert clicks.ids() == left

    broker.make("packed", cleanup_policy="compact")
    for name, code, why in (
        ("packed", USAGE, "is compacted"),
        ("none", FAILED, "topic none at"),
        ("no name", USAGE, "must be kafka://HOST:PORT/TOPIC"),
    ):
        other = tmp_path / f"with {name}.py"
        other.write_text(FILE.format(topic=f"kafka://{broker.address}/{name}").replace("out/", f"{name}/"))
        done = command("compute", "run", other, "--once", "--state", tmp_path / f"state with {name}")
        assert (done.code, done.err.count("\n")) == (code, 1), done.err
        assert why in done.err


def test_a_replay_in_place_counts_each_message_once_while_others_are_written(broker: Broker, tmp_path: Path) -> None:
    clicks = Clicks(broker, tmp_path, "replayed")
    run = ("compute", "run", clicks.file, "--quiet")
    clicks.write()
    assert command(*run, "--once").code == DONE
    clicks.write()
    replay = ("compute", "replay", clicks.file, "--name", "fix1", "--quiet")
    assert command(*replay, "--from", "2020-01-01", "--once").code == DONE
    done = command(*replay, "--in-place", "--once")
    assert done.code == DONE, done.err
    assert command(*run, "--once").code == DONE
    assert clicks.ids("seconds.fix1") == [each["id"] for each in clicks.written]
