"""Records of an output one by one and as tables, after a cursor, without a running join."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import photon
from photon.config.errors import UsageError
from photon.library import ExtraMissing, Record, Records
from tests.unit.outputs.helpers import WrittenSlot


def line(number: int, foreign: Any = None, kind: str = "joined") -> bytes:
    said: dict[str, Any] = {"event_id": f"c{number}", "key": "k", "event_time_ns": 1_760_000_000_000_000_999 + number}
    if kind == "joined":
        said |= {"foreign": foreign or {"amount": number}, "primary": {"words": "ä"}}
    else:
        said |= {"reason": "why", "record": json.dumps({"amount": number})}
    return json.dumps(said | {"source": {"file": "a.log", "offset": number}, "token": "0a"}).encode() + b"\n"


@pytest.fixture
def slot(tmp_path: Path) -> WrittenSlot:
    """``out/`` in ``tmp_path`` with 1,000 joined records in two files, and one unmatched."""
    slot = WrittenSlot(tmp_path, "local-1")
    slot.place.state.parent.mkdir(exist_ok=True)
    slot.append(1, b"".join(line(n) for n in range(600)))
    slot.append(1, line(5000, kind="unmatched"), "unmatched")
    slot.roll(1)
    slot.append(2, b"".join(line(n) for n in range(600, 1000)))
    slot.place.output.joinpath(".photon").symlink_to(slot.place.state)
    return slot


def ids(records: Records) -> list[Any]:
    return [each.event_id for each in records]


def left(slot: WrittenSlot, cursor: bytes | str | None) -> list[Any]:
    """Records after a cursor."""
    return ids(photon.read(slot.place.output, cursor=cursor))


def test_a_record_is_an_object_and_a_mapping(slot: WrittenSlot) -> None:
    first = next(iter(photon.read(slot.place.output)))
    assert (first.event_id, first.key, first.foreign, first.primary) == ("c0", "k", {"amount": 0}, {"words": "ä"})
    assert first.event_time is not None
    assert first.event_time.isoformat() == "2025-10-09T08:53:20+00:00", "microseconds, cut off"
    assert (first["token"], dict(first)["source"]["file"], first.kind) == ("0a", "a.log", "joined")
    assert "primary" in first
    assert json.loads(first.line) == dict(first)
    (unmatched,) = photon.read(slot.place.output, kinds="unmatched")
    assert (unmatched.foreign, unmatched.primary, unmatched.reason) == ({"amount": 5000}, None, "why")
    odd = Record("rejected", b'{"reason":"no","record_raw_base64":"gA=="}')
    assert (odd.record, odd.event_id, odd.event_time, odd.foreign) == (b"\x80", None, None, None)
    beyond = Record("joined", b'{"event_id_raw_base64":"gA==","foreign":1e400}')
    assert (beyond.event_id, beyond.foreign) == (b"\x80", "1e400")
    deep = Record("unmatched", b'{"record":"{\\"a\\":%b}"}' % (b"[" * 1020 + b"]" * 1020))
    assert isinstance(deep.foreign["a"], list)


def test_it_goes_on_behind_any_record(slot: WrittenSlot) -> None:
    records = photon.read(slot.place.output)
    assert ids(records) == [f"c{n}" for n in range(1000)]
    assert ids(records) == [f"c{n}" for n in range(1000)], "like a list it begins again"
    end = records.cursor
    for stop in (0, 1, 599, 600, 601, 999):
        found = []
        for each in records:
            found.append(each.event_id)
            if len(found) > stop:
                break
        assert left(slot, records.cursor) == [f"c{n}" for n in range(stop + 1, 1000)]
    assert left(slot, end) == left(slot, "end") == []
    slot.append(2, line(1000))
    assert left(slot, end.decode()) == ["c1000"]


def test_a_program_that_is_killed_goes_on_behind_what_it_kept(slot: WrittenSlot, tmp_path: Path) -> None:
    """Each life takes some records, keeps cursor and record in one write, and ends at once."""
    program = tmp_path / "take.py"
    program.write_text(
        "import os, sys, photon\n"
        "kept = open('kept', 'a+b', buffering=0)\n"
        "kept.seek(0)\n"
        "lines = kept.read().splitlines()\n"
        "cursor = lines[-1].split(b' ', 1)[1] if lines else None\n"
        "records = photon.read('out', cursor=cursor)\n"
        "for number, each in enumerate(records):\n"
        "    if number == int(sys.argv[1]):\n"
        "        os.kill(os.getpid(), 9)\n"
        "    kept.write(each.event_id.encode() + b' ' + records.cursor + b'\\n')\n"
    )
    for lives in (1, 299, 350, 10_000):
        subprocess.run([sys.executable, program, str(lives)], cwd=tmp_path, check=False, timeout=60)
    taken = [each.split()[0].decode() for each in (tmp_path / "kept").read_text().encode().splitlines()]
    assert taken == [f"c{n}" for n in range(1000)]


async def test_async_and_what_comes(slot: WrittenSlot) -> None:
    records = photon.read(slot.place.output, follow=True)
    found = []

    old, new = asyncio.Event(), asyncio.Event()

    async def take() -> None:
        async for each in records:
            found.append(each.event_id)
            (new if len(found) > 1000 else old if len(found) == 1000 else asyncio.Event()).set()

    taking = asyncio.create_task(take())
    await old.wait()
    slot.append(2, line(1000))
    await new.wait()
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    slot.append(2, line(1001))
    assert found == [f"c{n}" for n in range(1001)]
    assert left(slot, records.cursor) == ["c1001"]


async def test_cancelled_at_any_moment_the_cursor_is_behind_the_last_record(slot: WrittenSlot) -> None:
    found: list[Any] = []
    cursor: bytes | None = None
    for turns in [1, 2, 3, 5, 8, 400, 401, *[2000] * 3]:
        records = photon.read(slot.place.output, cursor=cursor)

        async def take(records: Records = records) -> None:
            async for each in records:
                found.append(each.event_id)
                await asyncio.sleep(0)

        taking = asyncio.create_task(take())
        for _ in range(turns):
            await asyncio.sleep(0)
        await asyncio.sleep(0.003)
        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)
        cursor = records.cursor
    assert found == [f"c{n}" for n in range(len(found))]
    assert left(slot, cursor) == [f"c{n}" for n in range(len(found), 1000)]


def test_tables(slot: WrittenSlot) -> None:
    records = photon.read(slot.place.output, kinds=["joined", "unmatched"])
    table = records.to_arrow()
    assert (table.num_rows, table.column("foreign").type) == (1001, pa.struct([("amount", pa.int64())]))
    assert left(slot, records.cursor) == []
    query = 'select kind, sum(records.foreign.amount), count(*) from records where "primary".words = $1 group by all'
    assert duckdb.execute(query, ["ä"]).fetchall() == [("joined", 499_500, 1000)]
    frame = records.to_pandas()
    assert frame["foreign"][3] == {"amount": 3}
    assert str(frame["event_time"].dtype) == "datetime64[us, UTC]"
    assert frame["event_time_ns"][0] == 1_760_000_000_000_000_999
    assert records.to_polars()["foreign"].struct.field("amount").sum() == 499_500
    assert pl.DataFrame(records).height == 1001
    flat = photon.read(slot.place.output, flatten=True)
    assert flat.to_pandas()["foreign_amount"].sum() == 499_500
    assert duckdb.sql("select max(foreign_amount), min(source_file) from flat").fetchall() == [(999, "a.log")]
    assert pa.table(records).equals(table), "each time the whole of it"


def test_types_are_shown_corrected_and_given(slot: WrittenSlot) -> None:
    slot.append(2, line(1000, {"amount": "n/a", "new": True}))
    slot.append(2, line(1001, {"amount": 1 << 70}))
    records = photon.read(slot.place.output)
    assert records.schema() == {"foreign": {"amount": "int", "new": "bool"}, "primary": {"words": "text"}}
    given = photon.read(slot.place.output, schema={"foreign.amount": "int"})
    with pytest.warns(
        RuntimeWarning, match='^foreign.amount is int in the schema, but "n/a" does not fit .2 values so far.: such'
    ):
        rows = given.to_arrow().to_pylist()
    assert given.unfit == {"foreign.amount": 2}
    assert [row["_rest"] for row in rows[1000:]] == [
        '{"foreign":{"amount":"n/a","new":true},"primary":{"words":"ä"}}',
        '{"foreign":{"amount":1180591620717411303424},"primary":{"words":"ä"}}',
    ]
    nested = photon.read(slot.place.output, schema={"foreign": {"amount": "decimal(38,0)"}})
    with pytest.warns(RuntimeWarning, match='"n/a" does not fit'):
        table = nested.to_arrow()
    assert table["foreign"].to_pylist()[-1]["amount"] == 1 << 70


def test_batches_stream_and_the_cursor_follows_them(slot: WrittenSlot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("photon.library.records.SAMPLE_BYTES", 1)
    records = photon.read(slot.place.output)
    rows = 0
    for batch in records.arrow_batches():
        rows += batch.num_rows
        behind = len(left(slot, records.cursor))
        assert rows + behind == 1000
    assert rows == 1000
    following = photon.read(slot.place.output, follow=True)
    assert next(following.arrow_batches()).num_rows == 600
    with pytest.raises(UsageError, match="no end"):
        following.to_arrow()


def test_types_are_found_without_moving_the_cursor(slot: WrittenSlot) -> None:
    records = photon.read(slot.place.output)
    begin = records.cursor
    assert records.schema()["foreign"] == {"amount": "int"}
    assert records.cursor == begin
    for block in (2, 599, 700):
        fresh = photon.read(slot.place.output)
        for number, _ in enumerate(fresh):
            if number == block:
                before = fresh.cursor
                assert fresh.schema()["foreign"] == {"amount": "int"}
                assert fresh.cursor == before
                break
        assert left(slot, fresh.cursor) == [f"c{n}" for n in range(block + 1, 1000)]
    assert records.to_arrow().num_rows == 1000
    assert left(slot, records.cursor) == []


@pytest.mark.parametrize(
    "within",
    [
        *(Records.to_arrow, Records.to_pandas, Records.to_polars, Records.schema, pl.DataFrame, list),
        lambda records: next(iter(records)),
        lambda records: list(records.arrow_batches()),
        lambda records: [next(records.arrow_batches())],
    ],
)
def test_what_is_made_within_a_loop_leaves_the_cursor_where_the_loop_is(slot: WrittenSlot, within: Any) -> None:
    records = photon.read(slot.place.output)
    for number, _ in enumerate(records):
        if number in (0, 3, 599, 600, 650, 999):
            within(records)
        if number % 50 < 4 or number == 999:
            assert left(slot, records.cursor) == [f"c{n}" for n in range(number + 1, 1000)]
    assert left(slot, records.cursor) == []
    assert ids(records)[0] == "c0"


async def test_a_table_after_a_loop_that_was_left_takes_the_cursor(slot: WrittenSlot) -> None:
    records = photon.read(slot.place.output)
    async for _ in records:
        records.to_arrow()
        assert len(left(slot, records.cursor)) == 999
        break
    assert len(left(slot, records.cursor)) == 999
    records.to_arrow()
    assert left(slot, records.cursor) == []
    for _ in records:
        break
    assert len(left(slot, records.cursor)) == 999


def test_an_empty_output_is_an_empty_table(tmp_path: Path) -> None:
    (tmp_path / "out" / ".photon").mkdir(parents=True)
    records = photon.read(tmp_path / "out")
    assert ids(records) == []
    assert records.to_arrow().num_rows == 0
    assert "event_time" in records.to_polars().columns
    assert duckdb.sql("select count(*) from records").fetchall() == [(0,)]


def test_what_is_wrong_is_one_line(slot: WrittenSlot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = slot.place.output
    wrong: list[tuple[Path, dict[str, Any], str]] = [
        (tmp_path / "nowhere", {}, "no such directory"),
        (output, {"datacentre": "east"}, "datacentre can be given only with"),
        (output, {"kinds": "matched"}, "there are: joined"),
        (output, {"cursor": "x"}, "not a cursor"),
        (output, {"schema": {"foreign.a": "integer"}}, "not a type; there are"),
    ]
    for place, words, why in wrong:
        with pytest.raises(UsageError, match=why):
            photon.read(place, **words)
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ExtraMissing, match=r"^polars is not installed; pip install 'photon-join\[polars\]'$"):
        photon.read(slot.place.output).to_polars()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ExtraMissing, match=r"photon-join\[arrow\]"):
        photon.read(slot.place.output).to_arrow()


def test_importing_photon_is_cheap() -> None:
    program = "import sys, photon; assert not [m for m in sys.modules if m.startswith('photon.')]; photon.read; "
    program += "photon.join; assert not {'pyarrow', 'pandas', 'polars', 'duckdb'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with pytest.raises(AttributeError, match="no attribute 'joins'"):
        _ = photon.joins  # type: ignore[attr-defined]
    assert set(photon.__all__) <= set(dir(photon))
