"""Lines without ids: files that belong to one log, by the command that users run."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from photon.lab.demo.check import records
from tests.integration.commands import Result, photon

CONFIG = """
[join.clicks.primary]
format = "jsonl"
key = "q"
[join.clicks.foreign]
format = "jsonl"
key = "q"
time = { field = "t", unit = "s" }
"""


def write(path: Path, *numbers: int, begin: bytes = b"") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(begin + b"".join(b'{"q":"q%d","t":%d}\n' % (n, 1_700_000_000 + n) for n in numbers))


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "join.toml").write_text(CONFIG)
    write(tmp_path / "queries" / "q.log", *range(100))
    return tmp_path


def join(base: Path, *more: str) -> Result:
    sides: list[str | Path] = ["--primary", base / "queries", "--foreign", base / "clicks", "--output", base / "out"]
    return photon("join", *sides, "--config", base / "join.toml", "--once", "-o", "json", *more)


def joined(base: Path) -> Counter[str]:
    return Counter(record["key"] for record in records(base / "out" / "joined"))


def once_each(count: int) -> Counter[str]:
    return Counter(f"q{n}" for n in range(count))


def test_moved_copied_and_compressed_between_runs(base: Path) -> None:
    clicks = base / "clicks"
    write(clicks / "clicks.log", *range(10))
    assert join(base).code == 0
    (clicks / "2026-11-28").mkdir()
    (clicks / "clicks.log").rename(clicks / "2026-11-28" / "clicks-00.log")
    write(clicks / "clicks.log", *range(10, 20))
    shutil.copy(clicks / "clicks.log", clicks / "clicks.log.bak")
    second = join(base)
    assert (second.code, joined(base)) == (0, once_each(20)), second.err
    assert "clicks.log.bak: is a copy of the beginning of clicks.log: it is left out" in second.err
    write(clicks / "clicks.log.bak", 20)  # a separate log from here on
    write(clicks / "clicks.log", 21)
    third = join(base)
    assert joined(base) == once_each(22), third.err


def test_a_job_writes_the_same_rows_under_new_names(base: Path) -> None:
    write(base / "clicks" / "part-0000-aaaa.json", *range(10))
    write(base / "clicks" / "part-0001-aaaa.json", *range(10, 20))
    assert join(base).code == 0
    shutil.rmtree(base / "clicks")
    write(base / "clicks" / "part-0000-bbbb.json", *range(10))
    write(base / "clicks" / "part-0001-bbbb.json", *range(10, 21))
    again = join(base)
    assert (again.code, joined(base)) == (0, once_each(21)), again.err


def test_logs_that_begin_alike_are_named_once_with_exit_code_3(base: Path) -> None:
    write(base / "clicks" / "a.log", 0, 1)
    write(base / "clicks" / "b.log", 0, 2)
    first = join(base)
    assert (first.code, joined(base)) == (3, once_each(3)), first.err
    assert "b.log: begins with the same record as a.log but then differs: both are read" in first.err
    assert "up to the first difference, and as new lines after it" in first.err
    second = join(base)
    assert (second.code, joined(base)) == (0, once_each(3)), second.err


def test_two_datacentres_that_look_at_different_moments_give_a_line_one_id(base: Path) -> None:
    """One reads a log before a rotation with an unrelated name, the other afterwards."""
    clicks = base / "clicks"
    write(clicks / "clicks.log", *range(10))
    join(base)
    ids = {record["event_id"] for record in records(base / "out" / "joined")}
    (clicks / "clicks.log").rename(clicks / "yesterday")
    shutil.rmtree(base / "out")
    join(base)
    assert {record["event_id"] for record in records(base / "out" / "joined")} == ids
