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
from photon.computing.hbase_rows import VersionedRows
from photon.computing.hbase_store import HBaseStore
from photon.computing.store import Store
from tests.integration.commands import Process, children, running, until
from tests.integration.commands import photon as command
from tests.integration.rig import drawn_seed
from tests.integration.test_computing import EVENTS, WAIT_S, _joined, _said
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
SUMS = """
import time

from photon.computing import SECOND_NS, Computation, Topology, seconds


class Sum(Computation):
    def process_record(self, ctx, record):
        time.sleep(0.001)
        end = seconds(record.time_ns) + SECOND_NS
        ctx.state[end] = ctx.state.get(end, 0) + record.value["foreign"]["n"]
        ctx.set_timer("end", end)
        ctx.produce("seen", {"n": record.value["foreign"]["n"]})

    def process_timer(self, ctx, timer):
        ctx.produce("sums", {"user": ctx.key, "second": timer.time_ns, "sum": ctx.state.pop(timer.time_ns)})


topology = Topology("sums-NAME")
joined = topology.joined("out")
topology.add(Sum(), {joined: lambda record: record.value["primary"]["user"]}, ["sums", "seen"])
for stream in ("seen", "sums"):
    topology.publish(stream, "published/" + stream)
"""


@pytest.fixture
def rows(hbase: Standalone) -> Iterator[VersionedRows]:
    rows = VersionedRows([f"127.0.0.1:{hbase.ports.admin}"], "computing:contract")
    rows.create()
    yield rows
    rows.close()


@pytest.fixture
def opened(rows: VersionedRows) -> Callable[[], Store]:
    name = uuid4().hex
    return lambda: HBaseStore(rows, name, INTERVAL)


def test_a_row_has_what_the_highest_version_gave_it(rows: VersionedRows) -> None:
    assert not rows.create()
    row = uuid4().bytes.replace(b"\xff", b"x")
    rows.put([(row, {b"a": b"new", b"b": b"x"})], 7)
    rows.put([(row, {b"a": b"late"})], 6)
    assert rows.get([row, b"none" + row]) == [{b"a": (b"new", 7), b"b": (b"x", 7)}, {}]
    assert not rows.replace(row, b"a", None, {b"a": b"no"}, 8)
    assert rows.replace(row, b"a", b"new", {b"a": b"newer"}, 8)
    rows.put([(row, {b"big": b"x" * (5 << 20)})], 8)
    rows.delete([(row, 7)])
    assert {name: cell.version for name, cell in rows.get([row])[0].items()} == {b"a": 8, b"big": 8}
    assert [(name, cells.keys()) for name, cells in rows.scan(row, [b"a"])] == [(row, {b"a"})]
    rows.delete([(row, 8)])
    assert list(rows.scan(row)) == []


def test_owners_on_two_machines_are_killed_and_one_comes_back(hbase: Standalone, tmp_path: Path) -> None:
    rng = random.Random(drawn_seed())
    _joined(tmp_path)
    file = tmp_path / "sums.py"
    file.write_text(SUMS.replace("NAME", uuid4().hex))
    machines = {"a": "i0", "b": "i1"}
    log = tmp_path / "log"

    def init(machine: str, intervals: str) -> list[str]:
        done = command(
            "compute", "init", file, "--state", tmp_path / machine, "--hbase", f"127.0.0.1:{hbase.ports.admin}",
            "--not-durable", "--processes", "2", "--intervals", intervals, "-o", "json",
        )  # fmt: skip
        assert done.code == 0, done.err
        here: list[str] = json.loads(done.out)["intervals"]
        return here

    def run(machine: str) -> tuple[str | Path, ...]:
        return ("compute", "run", file, "--once", "--state", tmp_path / machine)

    def works(machine: str, since: float, process: Process) -> None:
        status = tmp_path / machine / f"{machines[machine]}.status.json"
        until(lambda: process.poll() is not None or _said(status) > since, WAIT_S, f"{machine} computes")

    for machine, interval in machines.items():
        assert init(machine, interval) == [interval]
    killed = 0
    for _ in range(ROUNDS):
        began = time.time()
        with running(*run("a"), log=log) as a, running(*run("b"), log=log) as b:
            works("a", began, a)
            works("b", began, b)
            time.sleep(rng.uniform(0.0, 1.0))
            for process in (a, b) if rng.random() < 0.5 else (a,):
                killed += process.poll() is None
                process.kill()
    assert killed

    began = time.time()
    with running(*run("a"), log=log) as zombie:  # it stops in the middle, and its keys are given to another
        works("a", began, zombie)
        zombie.send_signal(signal.SIGSTOP)
        assert init("b", "i0,i1") == ["i0", "i1"]
        refused = command(*run("b"), "-o", "json", timeout=WAIT_S)  # the zombie still has the files it publishes to
        if refused.code:
            assert "another process publishes there" in refused.err
        zombie.send_signal(signal.SIGCONT)
        if zombie.wait(WAIT_S):
            assert "another process has taken over the interval i0" in log.read_text()
    assert command(*run("a")).code == 2

    with running(*run("b"), log=log) as process:
        until(lambda: len(children(process.pid)) == 2 or process.poll() is not None, WAIT_S, "two owners")
        for victim in children(process.pid)[:1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
        assert process.wait(WAIT_S) == 0, log.read_text()[-2000:]

    assert sorted(each.foreign["n"] for each in photon.read(tmp_path / "published" / "seen")) == list(range(EVENTS))
    sums: dict[tuple[str, int], int] = {}
    for each in photon.read(tmp_path / "out"):
        place = each.primary["user"], (each.event_time_ns // 10**9 + 1) * 10**9
        sums[place] = sums.get(place, 0) + each.foreign["n"]
    found = [each.foreign for each in photon.read(tmp_path / "published" / "sums")]
    assert sorted((each["user"], each["second"], each["sum"]) for each in found) == sorted(
        (*place, total) for place, total in sums.items()
    )
