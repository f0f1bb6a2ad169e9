"""Advisory locks among threads and processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from photon.tables.api import StoreFailed
from photon.tables.locks import RowLocks
from photon.tables.tables import Tables

HOLDS = """
import sys
from photon.tables.tables import Tables
locks = Tables.open(sys.argv[1]).around.locks
print(locks.acquire("t", ["one"], 1), flush=True)
sys.stdin.read()
"""


def test_what_another_process_of_a_file_holds_is_free_once_that_is_dead(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with Tables.open(path) as tables:
        locks = tables.around.locks
        with subprocess.Popen(
            [sys.executable, "-c", HOLDS, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other:
            assert other.stdout.readline() == "['one']\n"
            assert locks.acquire("t", ["one", "two", "three"], 1) == []
            assert locks.acquire("t", ["two", "three"], 1) == ["two"]
            assert locks.acquire("t", ["two"], 1) == []
            locks.release("t", ["two"])
            assert locks.acquire("t", ["two"], 1) == ["two"]
            other.kill()
            other.wait(30)
        assert locks.acquire("t", ["one"], 1) == ["one"]


@dataclass
class Notes:
    """Notes of a store, its clock, and dead processes."""

    kept: dict[tuple[str, str], bytes] = field(default_factory=dict)
    dead: set[str] = field(default_factory=set)
    now_s: float = 1_000.0
    fails: bool = False
    asked: int = 0

    def _ask(self) -> None:
        self.asked += 1
        if self.fails:
            raise StoreFailed("away")

    def claims(self, table: str, rows: Sequence[str]) -> list[bytes | None]:
        self._ask()
        return [self.kept.get((table, row)) for row in rows]

    def claim(self, table: str, rows: Sequence[str], claim: bytes) -> None:
        self._ask()
        self.kept.update(((table, row), claim) for row in rows)

    def unclaim(self, table: str, rows: Sequence[str]) -> None:
        self._ask()
        for row in rows:
            self.kept.pop((table, row), None)

    def now_ns(self) -> int:
        return int(self.now_s * 1e9)

    def monotonic(self) -> float:
        return self.now_s

    def locks(self, token: str) -> RowLocks:
        return RowLocks(self, Client(self, token), self, 10.0)


@dataclass
class Client:
    notes: Notes
    token: str

    def dead(self, token: str) -> bool:
        return token in self.notes.dead


def test_processes_of_a_store_leave_each_other_s_rows_alone() -> None:
    notes = Notes()
    one, other = notes.locks("one"), notes.locks("other")
    assert one.acquire("t", ["a", "b", "c"], 2) == ["a", "b"]
    assert other.acquire("t", ["a", "b", "c"], 3) == ["c"]
    assert other.acquire("u", ["a"], 3) == ["a"]
    assert one.acquire("t", ["a"], 1) == [], "by another thread"
    one.release("t", ["a", "b"])
    assert other.acquire("t", ["a", "b", "c"], 3) == ["a", "b"]


def test_many_rows_are_three_round_trips() -> None:
    notes = Notes()
    locks = notes.locks("one")
    rows = [f"r{n}" for n in range(50)]
    locks.release("t", locks.acquire("t", rows, 50))
    assert (notes.asked, notes.kept) == (3, {})


@pytest.mark.parametrize("how", ["dead", "old", "own", "damaged"])
def test_a_note_holds_no_longer_than_its_client_may_live(how: str) -> None:
    notes = Notes()
    one, other = notes.locks("one"), notes.locks("one" if how == "own" else "other")
    one.acquire("t", ["a"], 1)
    if how == "dead":
        notes.dead.add("one")
    elif how == "old":
        notes.now_s += 10.1
    elif how == "damaged":
        notes.kept["t", "a"] = b"\xff"
    assert other.acquire("t", ["a"], 1) == ["a"]


def test_what_the_store_does_not_answer_is_not_locked() -> None:
    notes = Notes(fails=True)
    locks = notes.locks("one")
    with pytest.raises(StoreFailed):
        locks.acquire("t", ["a"], 1)
    notes.fails = False
    assert locks.acquire("t", ["a"], 1) == ["a"]
    notes.fails = True
    with pytest.raises(StoreFailed):
        locks.release("t", ["a"])
    notes.fails = False
    assert locks.acquire("t", ["a"], 1) == ["a"]
