"""Computations whose state is in HBase: the contract of stores, owners on two machines that are killed, a zombie."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

import photon
from deploy.hbase.standalone import Standalone
from photon.computing.store import Store, hbase_rows, on_hbase
from photon.rows.hbase.rows import HBaseRows
from tests.hbase.thrift_servers import Thrift2
from tests.integration.commands import Process, children, drawn_seed, running, until
from tests.integration.commands import photon as command
from tests.unit.computing.test_running import _feed
from tests.unit.computing.test_stores import (
    INTERVAL,
    test_all_of_a_commit_is_there,
    test_many_keys_are_loaded_at_once,
    test_rows_are_replaced_and_removed_and_chunks_are_done,
    test_whatever_is_retired_is_not_used_but_may_be_revived,
    test_whoever_was_replaced_writes_nothing,
)

__all__ = [
    "test_all_of_a_commit_is_there",
    "test_many_keys_are_loaded_at_once",
    "test_rows_are_replaced_and_removed_and_chunks_are_done",
    "test_whatever_is_retired_is_not_used_but_may_be_revived",
    "test_whoever_was_replaced_writes_nothing",
]
ROUNDS = 20 if os.environ.get("PHOTON_FULL") == "1" else 3
SLICE = 1_500
WAIT_S = 120.0
SUMS = """
import time

from photon.computing import Computation, Topology


class Sum(Computation):
    def process_record(self, ctx, record):
        time.sleep(0.0005)
        n = record.value["foreign"]["n"]
        ctx.state["sum"] = ctx.state.get("sum", 0) + n
        ctx.set_timer("end", 1 << 40)
        ctx.produce("seen", {"n": n})

    def process_timer(self, ctx, timer):
        ctx.produce("sums", {"name": ctx.key, "sum": ctx.state.pop("sum")})


topology = Topology("sums-NAME")
joined = topology.joined("in")
topology.add(Sum(), {joined: lambda record: f"{record.value['foreign']['n'] % 97}"}, ["sums", "seen"])
for stream in ("seen", "sums"):
    topology.publish(stream, "published/" + stream)
"""


@pytest.fixture
def rows(hbase: Standalone) -> Iterator[HBaseRows]:
    rows = hbase_rows([f"127.0.0.1:{hbase.ports.admin}"], "computing:contract")
    rows.create()
    yield rows
    rows.close()


@pytest.fixture
def opened(rows: HBaseRows) -> Callable[[], Store]:
    name = uuid4().hex
    return lambda: on_hbase(rows, name, INTERVAL)


def test_owners_on_two_machines_are_killed_and_one_comes_back(hbase: Standalone, tmp_path: Path) -> None:
    with Thrift2(hbase) as second:
        killed_and_back(hbase, second, tmp_path)


def killed_and_back(hbase: Standalone, second: Thrift2, tmp_path: Path) -> None:
    rng = random.Random(drawn_seed())
    file, log = tmp_path / "sums.py", tmp_path / "log"
    file.write_text(SUMS.replace("NAME", uuid4().hex))
    fed = 0

    def feed() -> None:
        nonlocal fed
        _feed(tmp_path, range(fed, fed + SLICE), f"s{fed}")
        fed += SLICE

    def init(machine: str, intervals: str) -> list[str]:
        done = command(
            "compute", "init", file, "--state", tmp_path / machine, "--hbase", f"127.0.0.1:{hbase.ports.admin}",
            "--hbase", second.address, "--not-durable", "--processes", "2", "--intervals", intervals, "-o", "json",
        )  # fmt: skip
        assert done.code == 0, done.err
        here: list[str] = json.loads(done.out)["intervals"]
        return here

    def run(machine: str, *options: str) -> tuple[str | Path, ...]:
        return ("compute", "run", file, "--state", tmp_path / machine, *options)

    def publishes(machine: str, interval: str, process: Process) -> None:
        def some() -> bool:
            assert process.poll() is None, log.read_text()[-2000:]
            status = tmp_path / machine / f"{interval}.status.json"
            said = json.loads(status.read_bytes()) if status.exists() else {"pid": 0}
            return said["pid"] == process.pid and said["published_records"] > 0

        until(some, WAIT_S, f"{machine} publishes")

    machines = {"a": "i0", "b": "i1"}
    feed()
    for machine, interval in machines.items():
        assert init(machine, interval) == [interval]
    for number in range(ROUNDS):
        with running(*run("a"), log=log) as a, running(*run("b"), log=log) as b:
            feed()
            publishes("a", "i0", a)
            publishes("b", "i1", b)
            feed()
            if number == 0:  # what waits for its answer does not know whether it was done
                second.kill()
                feed()
                time.sleep(1.0)
                assert a.poll() is None and b.poll() is None, log.read_text()[-2000:]  # noqa: PT018
            time.sleep(rng.uniform(0.0, 0.5))
            for process in (a, b):  # leaving kills the other one as well, a moment later
                if rng.random() < 0.7:
                    process.kill()

    with running(*run("a"), log=log) as zombie:  # it stops in the middle, and its keys are given to another
        feed()
        publishes("a", "i0", zombie)
        feed()
        time.sleep(rng.uniform(0.0, 0.5))
        zombie.send_signal(signal.SIGSTOP)
        assert init("b", "i0,i1") == ["i0", "i1"]
        feed()
        refused = command(*run("b"), timeout=WAIT_S)
        assert refused.code == 2  # as its process ended: another one publishes there
        assert "another process publishes there" in refused.err
        zombie.send_signal(signal.SIGCONT)
        assert zombie.wait(WAIT_S) == 1
        assert "another process has taken over the interval i0" in log.read_text()
    assert command(*run("a")).code == 2

    with running(*run("b", "--once"), log=log) as process:
        until(lambda: len(children(process.pid)) == 2 or process.poll() is not None, WAIT_S, "two owners")
        for victim in children(process.pid)[:1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
        assert process.wait(WAIT_S) == 0, log.read_text()[-2000:]

    assert sorted(each.foreign["n"] for each in photon.read(tmp_path / "published" / "seen")) == list(range(fed))
    found = [each.foreign for each in photon.read(tmp_path / "published" / "sums")]
    assert {each["name"]: each["sum"] for each in found} == {str(k): sum(range(k, fed, 97)) for k in range(97)}
    assert len(found) == 97
