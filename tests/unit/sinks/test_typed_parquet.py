"""Typed Parquet: columns that databases can select from, with any later data; partitions by hour; old datasets."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from photon.config.disk import AppendFile, RealDisk
from photon.config.errors import UsageError
from photon.library import Batch
from photon.sinks import manifest
from photon.sinks.parquet import Form, ParquetSink, by_hour, pour
from photon.sinks.rolling import RollLimits
from tests.dying_disk import DyingDisk, Killed
from tests.unit.outputs.test_typed_columns import bare, laid_over, payloads
from tests.unit.sinks.test_parquet import SMALL, Now

HOUR_NS = 3_600_000_000_000
STRUCT = Form("struct")


def line(number: int, foreign: Any = None, *, time_ns: int | None = 0) -> bytes:
    said: dict[str, Any] = {"event_id": f"c{number}", "key": "k", "event_time_ns": time_ns}
    said |= {"foreign": {"amount": number} if foreign is None else foreign, "primary": {"w": "ä"}}
    return json.dumps(said | {"source": {"file": "a.log", "offset": number}, "token": "0a"}).encode() + b"\n"


def batch(at: int, *lines: bytes, kind: str = "joined") -> Batch:
    return Batch(kind, "s", b"".join(lines), str(at).encode())


def sink(directory: Path, form: Form = STRUCT, **more: Any) -> ParquetSink:
    kinds, limits = more.pop("kinds", ("joined",)), more.pop("limits", SMALL)
    return ParquetSink(more.pop("disk", None) or RealDisk(), directory, kinds, limits, Now(), form, **more)


def rolls(directory: Path) -> list[manifest.Roll]:
    data = (directory / "manifest.jsonl").read_bytes()
    header = manifest.header_of(data, directory)
    assert header is not None
    return manifest.read(data, header, directory)[0]


def rows(directory: Path) -> list[dict[str, Any]]:
    """Rows of the files that count, in their order."""
    names = [file.name for roll in rolls(directory) for file in roll.files]
    return [row for name in names for row in pq.ParquetFile(directory / name).read().to_pylist()]


def test_payloads_are_columns_for_every_reader(tmp_path: Path) -> None:
    with sink(tmp_path) as files:
        pour([batch(n, line(n, {"amount": n / 2, "user": {"id": f"u{n}"}})) for n in range(50)], files)
    every = f"'{tmp_path}/joined/*.parquet'"
    query = f"select sum(t.foreign.amount), max(t.foreign.user.id) from {every} as t"
    assert duckdb.sql(query).fetchall() == [(612.5, "u9")]
    assert duckdb.sql(f'select count("primary".w), min(source.file) from {every}').fetchall() == [(50, "a.log")]
    frame = pl.read_parquet(tmp_path / "joined" / "*.parquet")
    assert frame["foreign"].struct.field("amount").sum() == 612.5
    flat = tmp_path / "flat"
    with sink(flat, Form("flat")) as files:
        pour([batch(n, line(n, {"amount": n / 2, "user": {"id": f"u{n}"}})) for n in range(50)], files)
    query = f"select sum(foreign_amount), max(foreign_user_id), min(primary_w) from '{flat}/joined/*.parquet'"
    assert duckdb.sql(query).fetchall() == [(612.5, "u9", "ä")]


def test_new_fields_and_changed_types_are_told_and_nothing_is_lost(tmp_path: Path) -> None:
    said: list[str] = []
    with sink(tmp_path, say=said.append) as files:
        came = [{"amount": 1}, {"amount": 2, "coupon": "x"}, {"amount": "n/a", "coupon": "y"}, {"amount": "?"}]
        for n, foreign in enumerate(came):
            files.add(batch(n, line(n, foreign)))
            files.roll()
    assert said == [
        "joined: new columns foreign.coupon (text), from the next file on; until then they are kept in _rest",
        "joined: foreign.amount is int here but arrived as text; values that do not fit are kept in _rest; "
        "for another type give --schema, and another directory",
    ]
    found = rows(tmp_path)
    assert [row["foreign"].get("coupon") for row in found] == [None, None, "y", None]
    assert [row["_rest"] and json.loads(row["_rest"]) for row in found] == [
        None, {"foreign": {"coupon": "x"}}, {"foreign": {"amount": "n/a"}}, {"foreign": {"amount": "?"}},
    ]  # fmt: skip
    assert [file.rest for roll in rolls(tmp_path) for file in roll.files] == [0, 1, 1, 1]
    assert [list(roll.types or {}) for roll in rolls(tmp_path)] == [["joined"], ["joined"], [], []]
    query = f"from read_parquet('{tmp_path}/joined/*.parquet', union_by_name = true) as t"
    assert duckdb.sql(f"select sum(t.foreign.amount), count(t.foreign.coupon) {query}").fetchall() == [(3, 1)]
    with sink(tmp_path, Form(), say=said.append) as files:
        assert files.cursor == b"3"
        pour([batch(4, line(4, {"coupon": "z", "amount": 5}))], files)
    assert rows(tmp_path)[-1]["foreign"] == {"amount": 5, "coupon": "z"}, "it goes on with the types that it had"
    assert len(said) == 2


@settings(max_examples=15, deadline=None)
@given(
    records=st.lists(payloads, min_size=1, max_size=12),
    ends=st.lists(st.integers(0, 150), max_size=3),
    flat=st.booleans(),
    hours=st.booleans(),
)
def test_each_record_once_and_whole_over_ends_at_any_step(
    tmp_path_factory: pytest.TempPathFactory, records: list[Any], ends: list[int], flat: bool, hours: bool
) -> None:
    directory = tmp_path_factory.mktemp("sink")
    form = Form("flat" if flat else "struct", "hour" if hours else None)
    limits = RollLimits(bytes=300, age_s=60.0)

    def rest(behind: bytes | None) -> list[Batch]:
        begin = 0 if behind is None else int(behind)
        return [batch(n + 1, line(n, records[n], time_ns=n % 3 * HOUR_NS)) for n in range(begin, len(records))]

    for left in ends:
        with contextlib.suppress(Killed), sink(directory, form, limits=limits, disk=DyingDisk(left)) as files:
            for each in rest(files.cursor):
                files.add(each)
    with sink(directory, form, limits=limits) as files:
        pour(rest(files.cursor), files)
    found = sorted(rows(directory), key=lambda row: int(row["event_id"][1:]))
    assert [row["event_id"] for row in found] == [f"c{n}" for n in range(len(records))]
    if not flat:
        for row, meant in zip(found, records, strict=True):
            extra = json.loads(row["_rest"] or "{}").get("foreign")
            column = row.get("foreign")
            whole = column if extra is None else laid_over(column, extra)
            assert bare(_read(whole)) == bare(_read(meant))
    there = {str(each.relative_to(directory)) for each in directory.rglob("*.parquet*")}
    assert there == {file.name for roll in rolls(directory) for file in roll.files}, "nothing that does not count"


def _read(value: Any) -> Any:
    """Columns of json hold its text: text that is JSON is read on both sides."""
    if isinstance(value, dict):
        return {name: _read(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_read(each) for each in value]
    if isinstance(value, str):
        try:
            return _read(json.loads(value))
        except ValueError:
            return value
    return value


def test_partitions_by_hour_of_the_event_time(tmp_path: Path) -> None:
    times = [0, HOUR_NS - 1, HOUR_NS, 30 * HOUR_NS, None, -1]
    with sink(tmp_path, Form("struct", "hour")) as files:
        pour([batch(1, *[line(n, time_ns=ns) for n, ns in enumerate(times)])], files)
    query = f"from read_parquet('{tmp_path}/joined/**/*.parquet', hive_partitioning = true)"
    found = duckdb.sql(f"select date::text, hour::text, count(*) {query} group by all order by all").fetchall()
    none = "__HIVE_DEFAULT_PARTITION__"
    by = {(date, hour.zfill(2) if hour and hour != none else none): count for date, hour, count in found}
    assert {key: by[key] for key in by if key[1] != none} == {
        ("1969-12-31", "23"): 1, ("1970-01-01", "00"): 2, ("1970-01-01", "01"): 1, ("1970-01-02", "06"): 1,
    }  # fmt: skip
    assert sum(by.values()) == 6
    assert set(by_hour(line(0, time_ns=None))) == {f"date={none}/hour={none}"}
    assert {roll.number for roll in rolls(tmp_path)} == {1}, "one roll makes all of them visible"


def test_many_partitions_roll_before_too_many_files_are_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("photon.sinks.parquet.FILES_MAX", 3)
    monkeypatch.setattr("photon.sinks.parquet.GROUP_BYTES", 400)
    with sink(tmp_path, Form("struct", "hour"), limits=RollLimits()) as files:
        pour([batch(n, line(n, time_ns=n % 7 * HOUR_NS)) for n in range(70)], files)
    assert len(rolls(tmp_path)) > 10
    assert sorted(int(row["event_id"][1:]) for row in rows(tmp_path)) == list(range(70))


class CountingDisk(RealDisk):
    """Counts the files open for appending, and their maximum."""

    def __init__(self) -> None:
        self.open = self.most = 0

    def append(self, path: Path) -> AppendFile:
        file = super().append(path)
        self.open += 1
        self.most = max(self.most, self.open)
        close = file.close

        def closed() -> None:
            self.open -= 1
            close()

        file.close = closed  # type: ignore[method-assign]
        return file


@pytest.mark.parametrize("group_bytes", [16 << 20, 2_000])
def test_a_batch_of_many_partitions_opens_no_more_files_than_may_be_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group_bytes: int
) -> None:
    monkeypatch.setattr("photon.sinks.parquet.FILES_MAX", 8)
    monkeypatch.setattr("photon.sinks.parquet.GROUP_BYTES", group_bytes)
    disk, form = CountingDisk(), Form("struct", "hour")
    manifest_and = 1
    with sink(tmp_path, form, limits=RollLimits(), disk=disk) as files:
        for at in range(3):
            files.add(batch(at, *[line(n, time_ns=n % 50 * HOUR_NS) for n in range(at * 100, at * 100 + 100)]))
        files.roll()
        assert disk.open == manifest_and
    assert disk.most <= 8 + manifest_and
    assert sorted(int(row["event_id"][1:]) for row in rows(tmp_path)) == list(range(300))


def test_given_types_are_kept_and_read_text(tmp_path: Path) -> None:
    schema = {"foreign": {"amount": "decimal(8,2)"}, "primary.w": "text"}
    said: list[str] = []
    with sink(tmp_path, Form("struct", None, schema), say=said.append) as files:
        pour([batch(1, line(1, {"amount": "12.50", "more": 1}), line(2, {"amount": "?"}))], files)
    assert [each.partition(":")[0] for each in said] == ["joined"]
    assert 'foreign.amount is decimal(8,2) in the schema, but "?" does not fit' in said[0]
    first, second = rows(tmp_path)
    assert str(first["foreign"]["amount"]) == "12.50"
    assert (json.loads(first["_rest"]), second["foreign"]) == ({"foreign": {"more": 1}}, {"amount": None})
    with sink(tmp_path, Form()) as files:
        pour([batch(2, line(3, {"amount": 1, "more": 1}))], files)
    assert set(rows(tmp_path)[-1]["foreign"]) == {"amount"}
    other = "was begun with types {.*}, but this run has types {.*int.*}; name another directory"
    with pytest.raises(UsageError, match=other):
        sink(tmp_path, Form(schema={"foreign.amount": "int"}))


def test_what_is_not_given_is_as_the_directory_has_it(tmp_path: Path) -> None:
    with sink(tmp_path, Form("flat", "hour")) as files:
        pour([batch(1, line(1))], files)
    for at, form in enumerate([Form(), Form(partition="hour"), Form("flat"), Form("flat", "hour")], 2):
        with sink(tmp_path, form) as files:
            pour([batch(at, line(at))], files)
    assert [row["foreign_amount"] for row in rows(tmp_path)] == [1, 2, 3, 4, 5]
    assert all("/hour=00/" in file.name for roll in rolls(tmp_path) for file in roll.files)
    with pytest.raises(UsageError) as caught:
        sink(tmp_path, Form("struct"), kinds=("joined", "late"))
    assert str(caught.value) == (
        f"{tmp_path}/manifest.jsonl: was begun with kinds joined, columns flat, "
        "but this run has kinds joined and late, columns struct; name another directory"
    )
    plain = tmp_path / "plain"
    with sink(plain, Form(schema={"foreign.amount": "float"})) as files:
        pour([batch(1, line(1))], files)
    for wanted, said in [
        (Form(partition="hour"), "was begun with no partition, but this run has partition hour;"),
        (Form("flat"), "was begun with columns struct, but this run has columns flat;"),
    ]:
        with pytest.raises(UsageError, match=said):
            sink(plain, wanted)
    with sink(plain, Form("struct")) as files:
        pour([batch(2, line(2, {"amount": "2.5"}))], files)
    assert rows(plain)[-1]["foreign"] == {"amount": 2.5}, "with the types that were given then"


def test_kinds_have_types_of_their_own(tmp_path: Path) -> None:
    odd = b'{"reason":"r","record":"x","source":{"file":"a","offset":1},"match":{"n":1}}\n'
    with sink(tmp_path, kinds=("joined", "rejected")) as files:
        pour([batch(1, line(1)), batch(2, odd, kind="rejected")], files)
    last = rows(tmp_path)[-1]
    assert (last["match"], last["event_id"], last["_rest"], "foreign" in last) == ({"n": 1}, None, None, False)
