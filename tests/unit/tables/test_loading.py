"""A stream is loaded exactly once, despite any interruption."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from photon.tables import LoadedElsewhere, Tables
from photon.tables.loading import CURSORS, load
from photon.tables.oracle import MemoryOracle
from photon.tables.store import in_memory
from photon.tables.surroundings import Limits, Surroundings

LOADS = """
import sys, time
from photon.tables import Tables
from tests.unit.tables.test_loading import Numbers

def work(t, n):
    t.table("loaded").row(f"n{n:02}").set("by", "first")
    print(n, flush=True)
    sys.stdin.readline()

with Tables.open(sys.argv[1]) as tables:
    tables.load(Numbers(), work)
"""


class Piece:
    def __init__(self, numbers: list[int]) -> None:
        self.numbers = numbers
        self.cursor = b"%d" % (numbers[-1] + 1)

    def records(self) -> list[int]:
        return self.numbers


class Numbers:
    """0 to 99; the cursor is the next one."""

    def batches(
        self, *, cursor: bytes | None = None, follow: bool = False, lines: int | None = None
    ) -> Iterator[Piece]:
        assert lines
        for first in range(int(cursor or 0), 100, lines):
            yield Piece(list(range(first, min(100, first + lines))))


def test_a_load_that_is_broken_off_goes_on_where_it_was() -> None:
    tables, fails = Tables.open(":memory:"), [30, 31, 77]

    def work(t: Any, n: int) -> None:
        if n in fails:
            fails.remove(n)
            raise KeyError(n)
        row = t.table("sums").row(f"s{n % 3}")
        row.set("n", (row.get("n") or 0) + n)

    for _ in range(3):
        with pytest.raises(KeyError):
            tables.load(Numbers(), work)
    tables.load(Numbers(), work)
    assert tables.load(Numbers(), work) == 0
    with tables.snapshot() as now:
        assert sum(row.get("n") for row in now.table("sums").scan()) == sum(range(100))


def count(t: Any, n: int) -> None:
    row = t.table("sums").row("all")
    row.set("n", (row.get("n") or 0) + n)


def test_the_second_load_under_a_name_is_refused_and_the_first_goes_on() -> None:
    tables = Tables.open(":memory:")
    refused: list[str] = []

    def work(t: Any, n: int) -> None:
        if n == 42:
            with pytest.raises(LoadedElsewhere) as error:
                tables.load(Numbers(), count)
            refused.append(str(error.value))
            assert tables.load(Numbers(), lambda t, n: None, name="other") == 100
        count(t, n)

    assert tables.load(Numbers(), work) == 100
    host = os.uname().nodename
    assert refused == [
        f"load: process {os.getpid()} on {host} is already loading under this name; stop it, or use another name"
    ]
    assert tables.load(Numbers(), count) == 0
    with tables.snapshot() as now:
        assert now.table("sums").row("all").get("n") == sum(range(100))


def test_a_program_is_refused_until_the_one_that_loads_is_dead(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with (
        subprocess.Popen(
            [sys.executable, "-c", LOADS, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as first,
        Tables.open(path) as tables,
    ):
        assert first.stdin is not None
        assert first.stdout is not None
        assert first.stdout.readline() == "0\n"
        with pytest.raises(
            LoadedElsewhere, match=rf"^load: process {first.pid} on \S+ is already loading under this name"
        ):
            tables.load(Numbers(), count)
        first.stdin.write("\n")
        first.stdin.flush()
        assert first.stdout.readline() == "1\n"
        first.kill()
        first.wait(30)
        assert tables.load(Numbers(), count) == 100


class Elsewhere:
    """A program on another machine: nobody here can tell whether it is alive."""

    def __init__(self, machine: str) -> None:
        self.token = f"{machine}/7/1-boot"

    def dead(self, token: str) -> bool:
        return False


def test_a_machine_that_is_gone_is_waited_for_as_long_as_a_lock_is_kept() -> None:
    store, oracle = in_memory(), MemoryOracle()
    one, other = (
        Tables(store, oracle, Surroundings(store, oracle, liveness=Elsewhere(name), limits=Limits(lock_age_s=1.0)))
        for name in ("one", "other")
    )

    def work(t: Any, n: int) -> None:
        if n == 0:
            time.sleep(1.5)  # it is alive, and says so
            with pytest.raises(LoadedElsewhere, match=r"^load: process 7 on one is already loading"):
                other.load(Numbers(), count)
        if n == 50:
            raise KeyError(n)

    with pytest.raises(KeyError):
        one.load(Numbers(), work)
    assert one.around.locks.acquire(CURSORS, ["load"], 1)  # as if it had died meanwhile
    with pytest.raises(LoadedElsewhere):
        other.load(Numbers(), count)
    time.sleep(1.1)
    assert other.load(Numbers(), count) == 100


def test_two_that_begin_at_one_moment_do_not_load_twice() -> None:
    tables = Tables.open(":memory:")
    stolen = []

    def work(t: Any, n: int) -> None:
        if n == 0 and not stolen:
            stolen.append(load(tables.run, Numbers(), lambda t, n: None))

    with pytest.raises(LoadedElsewhere, match="another name"):
        load(tables.run, Numbers(), work)
