"""Photon in another program: the documentation's example, and a join that is watched, stopped, killed."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from photon.config.errors import UsageError
from photon.library import Join, Output
from tests.integration.commands import alive, children, photon, running, until

DOCUMENT = Path(__file__).parents[2] / "docs" / "embedding.md"
CONFIG = """
[join.shop]
unmatched_after = "1h"
[join.shop.primary]
format = "jsonl"
key = "search_id"
[join.shop.foreign]
format = "jsonl"
key = "search_id"
id = "click_id"
time = { field = "at", unit = "s" }
"""
LONG_S = 60.0


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "searches").mkdir()
    (tmp_path / "clicks").mkdir()
    (tmp_path / "join.toml").write_text(CONFIG)
    with (tmp_path / "searches" / "a.log").open("w") as searches:
        searches.writelines(json.dumps({"search_id": f"s{n}", "words": f"w{n}"}) + "\n" for n in range(50))
    add_clicks(tmp_path, range(50))
    return tmp_path


def add_clicks(shop: Path, numbers: range) -> None:
    with (shop / "clicks" / "a.log").open("a") as clicks:
        for n in numbers:
            click = {"click_id": f"c{n}", "search_id": f"s{n % 50}", "at": 1_760_000_000 + n, "cents": n}
            clicks.write(json.dumps(click) + "\n")


def joined(shop: Path, cursor: bytes | None = None) -> list[str]:
    batches = Output.of_join(shop / "out").batches(cursor=cursor)
    return [record["event_id"] for batch in batches for record in batch.records()]


def joining(shop: Path, **more: bool) -> Join:
    return Join(shop / "searches", shop / "clicks", shop / "out", config=shop / "join.toml", **more)  # type: ignore[arg-type]


def test_all_that_is_there_and_then_what_has_come(shop: Path) -> None:
    with joining(shop, once=True) as join:
        ended = join.wait(LONG_S)
    assert ended.ledger["joined"] == 50
    assert ended.attention == ""
    first = list(join.output().batches())
    assert sorted(record["event_id"] for batch in first for record in batch.records()) == sorted(
        f"c{n}" for n in range(50)
    )
    assert join.output().end() == first[-1].cursor
    add_clicks(shop, range(50, 60))
    with join:
        assert join.wait(LONG_S).ledger["joined"] == 60
    assert sorted(joined(shop, first[-1].cursor)) == sorted(f"c{n}" for n in range(50, 60))


def test_the_example_books_each_click_once_though_it_is_killed(shop: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    (example,) = [each for each in examples if "books.db" in each]
    (shop / "billing.py").write_text(example)
    command = [sys.executable, "billing.py"]
    books = shop / "books.db"
    begun = subprocess.Popen([*command, "1000000"], cwd=shop)
    try:
        until(lambda: booked(books) >= 50, LONG_S, "fifty clicks are booked")
        assert booked(books) == 50
        below = children(begun.pid)
        assert below
    finally:
        begun.send_signal(signal.SIGKILL)
        begun.wait()
    until(lambda: not any(map(alive, below)), LONG_S, "the join ends with the program")
    add_clicks(shop, range(50, 70))
    said = subprocess.run([*command, "70"], cwd=shop, capture_output=True, text=True, check=True, timeout=LONG_S)
    assert said.stdout.split() == ["70", "joined;", str(sum(range(70))), "cents"]


def booked(books: Path) -> int:
    if not books.exists():
        return 0
    connection = sqlite3.connect(books, timeout=10)
    try:
        return int(connection.execute("SELECT count(*) FROM booked").fetchone()[0])
    except sqlite3.OperationalError:  # the table does not exist yet
        return 0
    finally:
        connection.close()


def test_it_is_stopped_and_its_kill_loses_nothing(shop: Path) -> None:
    with joining(shop) as join:
        for _ in join.output().batches(follow=True, until=lambda: join.ledger()["joined"] == 50):
            pass
        with pytest.raises(UsageError, match="already running"):
            join.start()
        with pytest.raises(TimeoutError):
            join.wait(0.01)
        join.kill()
    assert not join.running()
    add_clicks(shop, range(50, 55))
    with join:
        for _ in join.output().batches(
            cursor=join.output().end(), follow=True, until=lambda: join.ledger()["joined"] == 55
        ):
            pass
        assert join.stop(LONG_S).ledger["joined"] == 55
    assert len(joined(shop)) == len(set(joined(shop))) == 55


def test_what_is_wrong_is_one_line(shop: Path) -> None:
    (shop / "join.toml").write_text("[join.shop]\nno = 1\n")
    with pytest.raises(UsageError, match=r"join\.toml") as caught, joining(shop, once=True) as join:
        join.wait(LONG_S)
    assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="there are: joined"):
        next(joining(shop).output().batches(kinds=["nonsense"]))
    with pytest.raises(UsageError, match="was not started"):
        Join("a", "b", "c").wait()
    assert os.listdir(shop / "searches") == ["a.log"]


def test_a_parquet_sink_is_killed_and_goes_on(shop: Path) -> None:
    with joining(shop, once=True) as join:
        join.wait(LONG_S)
    sink = ("sink", "parquet", shop / "out", "--into", shop / "lake")
    with running(*sink, "--follow", "--roll-age", "0.5s", log=shop / "sink.log"):
        until(lambda: records_in(shop / "lake") >= 50, LONG_S, "fifty records are in the lake")
    add_clicks(shop, range(50, 70))
    with join:
        join.wait(LONG_S)
    said = photon(*sink, "-o", "json", timeout=LONG_S)
    assert (said.code, said.json) == (0, {"files": 1, "records": 20}), said.err
    assert records_in(shop / "lake") == 70


def records_in(lake: Path) -> int:
    path = lake / "manifest.jsonl"
    whole = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
    lines = whole.splitlines()[1:]
    return sum(file["records"] for line in lines for file in json.loads(line)["files"])
