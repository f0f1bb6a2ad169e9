"""photon.join as a program would use it: real logs, real processes, nothing but its arguments."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

import photon
from photon import JoinStopped, UsageError
from tests.integration.commands import alive, children, until

LONG_S = 60.0
WORDS: dict[str, Any] = {"key": "search_id", "id": "click_id", "time": "at", "last_line_after": "0s"}


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """50 searches and 60 clicks, of which 10 have no search. Temporary directories are made in ``tmp``."""
    for name in ("searches", "clicks", "tmp"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    with (tmp_path / "searches" / "a.log").open("w") as searches:
        searches.writelines(json.dumps({"search_id": f"s{n}", "words": {"first": f"w{n}"}}) + "\n" for n in range(50))
    add_clicks(tmp_path, range(60))
    return tmp_path


def add_clicks(shop: Path, numbers: range) -> None:
    with (shop / "clicks" / "a.log").open("a") as clicks:
        for n in numbers:
            click = {"click_id": f"c{n}", "search_id": f"s{n}", "at": 1_760_000_000 + n, "cents": n}
            clicks.write(json.dumps(click) + "\n")


def joining(shop: Path, **more: Any) -> photon.Pairs:
    return photon.join(primary=shop / "searches", foreign=shop / "clicks", **{**WORDS, **more})


def test_pairs_of_two_directories_and_nothing_is_left(shop: Path) -> None:
    found = {}
    for pair in joining(shop):
        found[pair.event_id] = (pair.foreign["cents"], pair.primary["words"]["first"], pair.event_time.timestamp())
    assert found == {f"c{n}": (n, f"w{n}", 1_760_000_000 + n) for n in range(50)}
    gc.collect()
    assert list((shop / "tmp").iterdir()) == [], "what is temporary goes with the object"
    assert {each.name for each in shop.iterdir()} == {"searches", "clicks", "tmp"}


def test_nothing_said_is_found_of_the_data(shop: Path) -> None:
    for log in (*(shop / "clicks").iterdir(), *(shop / "searches").iterdir()):  # s1, s2 … could be met by chance
        log.write_text(re.sub('"s([0-9]+)"', lambda id: f'"{hash((id[1], 7)) & 0xFFFFFFFFFF:010x}"', log.read_text()))
    pairs = photon.join(shop / "searches", shop / "clicks")
    assert len(list(pairs)) == 50
    assert "search_id" in pairs.config
    assert any("key = 'search_id'" in each for each in pairs.said())


def test_unmatched_tables_and_what_it_says(shop: Path) -> None:
    with joining(shop, unmatched=True) as pairs:
        query = "select kind, count(*), sum(pairs.foreign.cents) from pairs group by all order by all"
        assert duckdb.sql(query).fetchall() == [("joined", 50, sum(range(50))), ("unmatched", 10, None)]
        assert sum(pair.foreign["cents"] for pair in pairs) == sum(range(60))
        assert {pair.primary is None for pair in pairs if pair.kind == "unmatched"} == {True}
        assert pairs.to_polars().height == pairs.to_pandas().shape[0] == 60
        assert (pairs.ledger["joined"], pairs.ledger["unmatched"]) == (50, 10)
        assert 'time = { field = "at", unit = "s" }' in pairs.config
        assert pairs.wait().attention == ""
    with pytest.raises(UsageError, match="is closed"):
        list(pairs)


def test_keys_of_other_names_and_a_configuration_as_a_mapping(shop: Path) -> None:
    other = shop / "orders"
    other.mkdir()
    (other / "a.csv").write_text("number,who\n" + "".join(f"s{n},p{n}\n" for n in range(50)))
    words = {"key": None, "primary_key": "number", "foreign_key": "search_id"}
    pairs = photon.join(primary=other, foreign=shop / "clicks", **{**WORDS, **words})
    assert {pair.primary["who"] for pair in pairs} == {f"p{n}" for n in range(50)}
    table = {
        "primary": {"format": "csv", "key": "number"},
        "foreign": {"format": "jsonl", "key": "search_id", "time": {"field": "at", "unit": "s"}},
        "last_line_after": 0,
    }
    assert len(list(photon.join(other, shop / "clicks", config=table))) == 50


def test_it_goes_on_in_its_output(shop: Path) -> None:
    with joining(shop, output=shop / "out") as pairs:
        assert len(list(pairs)) == 50
        cursor = pairs.cursor
    with (shop / "searches" / "a.log").open("a") as searches:
        searches.write('{"search_id":"s70","words":{"first":"new"}}\n')
    add_clicks(shop, range(70, 71))
    with joining(shop, output=shop / "out", cursor=cursor) as pairs:
        assert [pair.event_id for pair in pairs] == ["c70"]
    assert len(list(photon.read(shop / "out"))) == 51
    assert list((shop / "tmp").iterdir()) == []


async def test_async_follows_and_is_cancelled(shop: Path) -> None:
    pairs = joining(shop, output=shop / "out", follow=True)
    found: list[Any] = []
    fifty, more = asyncio.Event(), asyncio.Event()

    async def take() -> None:
        async for pair in pairs:
            found.append(pair.event_id)
            (fifty if len(found) >= 50 else asyncio.Event()).set()
            (more if len(found) >= 51 else asyncio.Event()).set()

    taking = asyncio.create_task(take())
    async with asyncio.timeout(LONG_S):
        await fifty.wait()
        with (shop / "searches" / "a.log").open("a") as searches:
            searches.write('{"search_id":"s50","words":{"first":"late"}}\n')
        await more.wait()
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    assert sorted(found) == sorted(f"c{n}" for n in range(51))
    cursor = pairs.cursor
    await asyncio.to_thread(pairs.close)
    assert list(photon.read(shop / "out", cursor=cursor)) == []


def test_a_program_that_is_killed_leaves_no_process_and_the_next_goes_on(shop: Path) -> None:
    program = (
        "import photon, sys\n"
        "cursor = open('place').read() or None\n"
        "pairs = photon.join('searches', 'clicks', 'out', key='search_id', id='click_id', time='at', follow=True, "
        "cursor=cursor)\n"
        "for pair in pairs:\n"
        "    open('taken', 'a').write(pair.event_id + '\\n'); open('place', 'wb').write(pairs.cursor)\n"
    )
    (shop / "taken").touch()
    (shop / "place").touch()
    for count in (50, 55):
        begun = subprocess.Popen([sys.executable, "-c", program], cwd=shop)
        try:
            until(
                lambda count=count: len((shop / "taken").read_text().splitlines()) >= count, LONG_S, f"{count} pairs"
            )  # type: ignore[misc]
            below = children(begun.pid)
        finally:
            begun.send_signal(signal.SIGKILL)
            begun.wait()
        until(lambda below=below: not any(map(alive, below)), LONG_S, "the join ends with the program")  # type: ignore[misc]
        with (shop / "searches" / "a.log").open("a") as searches:
            searches.writelines(json.dumps({"search_id": f"s{n}", "words": {}}) + "\n" for n in range(50, 55))
    taken = (shop / "taken").read_text().splitlines()
    assert sorted(taken) == sorted(f"c{n}" for n in range(55))


def test_what_is_wrong_is_one_line_and_nothing_is_left(shop: Path, recwarn: pytest.WarningsRecorder) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"once": True, "follow": True}, "contradict each other"),
        ({"unmatched": True, "kinds": "late"}, "not both"),
        ({"config": shop / "no.toml"}, "config and key, id, time, last_line_after both describe"),
        ({"primary_key": "search_id"}, "key is for both sides"),
        ({"time": "when"}, "have no field 'when' for the event time; they have click_id"),
        ({"format": {"clicks": "csv"}}, "clicks is not a side"),
        ({"keep_pending": True, "follow": True}, "requires once"),
        ({"kinds": "matched"}, "there are: joined"),
        ({"schema": {"foreign.a": "number"}}, "not a type"),
        ({"unmatched_afterwards": "1h"}, "unmatched_after"),
        ({"within": object()}, "cannot be written"),
        ({"key": "nowhere"}, "have no field 'nowhere' for the key"),
    ]
    for more, said in wrong:
        with pytest.raises(UsageError) as caught:
            list(joining(shop, **more))
        assert said in str(caught.value), more
        assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="no such directory"):
        list(photon.join(shop / "nowhere", shop / "clicks", **WORDS))
    del caught
    gc.collect()
    assert list((shop / "tmp").iterdir()) == []


def test_a_join_that_dies_says_so(shop: Path) -> None:
    pairs = joining(shop, follow=True)
    iterator = iter(pairs)
    next(iterator)
    pairs._join._process.kill()  # type: ignore[union-attr]
    with pytest.raises(JoinStopped, match="ended with exit code -9"):
        list(iterator)


def test_rejected_records_are_a_warning(shop: Path) -> None:
    with (shop / "clicks" / "a.log").open("a") as clicks:
        clicks.write("no json\n")
    with pytest.warns(RuntimeWarning, match="1 record rejected"):
        assert len(list(joining(shop))) == 50


def test_the_examples_of_the_document(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "embedding.md").read_text()
    examples = [each for each in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "photon.library" not in each]
    assert len(examples) == 4
    for name in ("orders", "payments"):
        (tmp_path / name).mkdir()
    with (tmp_path / "orders" / "a.log").open("w") as orders:
        orders.writelines(json.dumps({"order_id": f"o{n}", "customer": f"c{n % 3}"}) + "\n" for n in range(30))
    with (tmp_path / "payments" / "a.log").open("w") as payments:
        for n in range(30):
            paid = {"payment_id": f"p{n}", "order_id": f"o{n}", "paid_at": 1_760_000_000 + n, "amount": n / 2}
            payments.write(json.dumps(paid) + "\n")
    words: dict[str, Any] = {"key": "order_id", "time": "paid_at", "output": tmp_path / "out"}
    photon.join(tmp_path / "orders", tmp_path / "payments", **words).wait()
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(examples)], cwd=tmp_path, capture_output=True, text=True, timeout=LONG_S
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("2025-10-09") == 30
    assert done.stdout.count("joined") == 30
    assert (
        "{'foreign': {'payment_id': 'text', 'order_id': 'text', 'paid_at': 'int', 'amount': 'float'}" in done.stdout
    )
