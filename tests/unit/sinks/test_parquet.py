"""Parquet sinks: every record once over crashes at any write, and the manifest's contents."""

from __future__ import annotations

import contextlib
import json
import zlib
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.library import Batch
from photon.outputs.arrow_columns import LineUnreadable
from photon.sinks import manifest
from photon.sinks.manifest import Header, ManifestDamaged
from photon.sinks.parquet import ParquetSink, pour
from photon.sinks.rolling import Rolling, RollLimits
from tests.dying_disk import DyingDisk, Killed

SMALL = RollLimits(bytes=2_000, age_s=60.0)


def line(number: int, kind: str = "joined") -> bytes:
    said = {
        "event_id": f"c{number}", "key": "k", "event_time_ns": 1_000 + number, "foreign": {"n": number},
        "primary": {"w": "ä"}, "source": {"file": "a.log", "offset": number * 10},
        "primary_source": {"file": "q.log", "offset": 5}, "joined_at": "2026-01-01T00:00:00Z", "token": "0a",
    }  # fmt: skip
    if kind != "joined":
        source = {"file": "a.log", "offset": number}
        said = {"event_id": f"c{number}", "reason": "why", "record": "x", "source": source}
    return json.dumps(said).encode() + b"\n"


def batches(behind: bytes | None, total: int = 40, kinds: tuple[str, ...] = ("joined",)) -> list[Batch]:
    """Two lines each; the cursor is the number of the next one."""
    begin = 0 if behind is None else int(behind)
    return [
        Batch(kind := kinds[at // 2 % len(kinds)], "s", line(at, kind) + line(at + 1, kind), str(at + 2).encode())
        for at in range(begin, total, 2)
    ]


class Now:
    """A clock that stands."""

    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> float:
        return self.s


def sink_in(directory: Path, kinds: tuple[str, ...] = ("joined",), disk: RealDisk | None = None) -> ParquetSink:
    return ParquetSink(disk or RealDisk(), directory, kinds, SMALL, Now())


def shown(directory: Path, kinds: tuple[str, ...] = ("joined",)) -> list[str]:
    """Event ids of the files that count, in their order."""
    path = directory / "manifest.jsonl"
    rolls, _ = manifest.read(path.read_bytes(), Header(format="parquet", kinds=list(kinds), columns="struct"), path)
    found = []
    for roll in rolls:
        for file in roll.files:
            data = (directory / file.name).read_bytes()
            assert (len(data), zlib.crc32(data)) == (file.bytes, file.crc32)
            table = pq.read_table(directory / file.name)
            assert table.num_rows == file.records
            found += table["event_id"].to_pylist()
    return found


def test_files_roll_and_hold_what_the_lines_say(tmp_path: Path) -> None:
    with sink_in(tmp_path) as sink:
        written = pour(batches(None), sink)
    assert shown(tmp_path) == [f"c{n}" for n in range(40)]
    assert written.records == 40
    assert written.files == len(list((tmp_path / "joined").iterdir())) > 3
    row = pq.read_table(tmp_path / "joined" / "000001.parquet").to_pylist()[1]
    assert row["foreign"] == {"n": 1}
    assert (row["source"], row["event_time_ns"]) == ({"file": "a.log", "offset": 10}, 1_001)
    metadata = pq.ParquetFile(tmp_path / "joined" / "000001.parquet").metadata
    assert metadata.row_group(0).column(0).compression == "ZSTD"


def test_kinds_have_files_of_their_own_under_one_cursor(tmp_path: Path) -> None:
    kinds = ("joined", "unmatched")
    with sink_in(tmp_path, kinds) as sink:
        pour(batches(None, kinds=kinds), sink)
    assert sorted(shown(tmp_path, kinds)) == sorted(f"c{n}" for n in range(40))
    assert {each.name for each in tmp_path.iterdir()} == {"manifest.jsonl", "lock", "joined", "unmatched"}
    reasons = pq.read_table(tmp_path / "unmatched" / "000001.parquet")["reason"].to_pylist()
    assert set(reasons) == {"why"}


def test_an_old_file_rolls_though_nothing_comes(tmp_path: Path) -> None:
    now = Now()
    with ParquetSink(RealDisk(), tmp_path, ("joined",), RollLimits(age_s=10.0), now) as sink:
        sink.add(batches(None)[0])
        now.s = 9.9
        sink.tick()
        assert sink.written.files == 0
        now.s = 10.0
        sink.tick()
        assert sink.written.records == 2
        sink.tick()
    assert shown(tmp_path) == ["c0", "c1"]


@settings(max_examples=60, deadline=None)
@given(ends=st.lists(st.integers(0, 120), min_size=1, max_size=4), torn=st.integers(0, 30))
def test_each_record_once_over_ends_at_any_step(
    tmp_path_factory: pytest.TempPathFactory, ends: list[int], torn: int
) -> None:
    directory = tmp_path_factory.mktemp("sink")
    for left in ends:
        with contextlib.suppress(Killed), sink_in(directory, disk=DyingDisk(left)) as sink:
            for batch in batches(sink.cursor):
                sink.add(batch)
        path = directory / "manifest.jsonl"
        if path.exists() and torn:  # the beginning of a line that was never complete
            with path.open("ab") as file:
                file.write(b'{"number":99,"files":[{"name":"joined/000099'[:torn])
    with sink_in(directory) as sink:
        pour(batches(sink.cursor), sink)
    assert shown(directory) == [f"c{n}" for n in range(40)]
    named = {each.name for each in (directory / "joined").iterdir()}
    assert named == {f"{n:06d}.parquet" for n in range(1, len(named) + 1)}, "nothing that does not count is left"


def test_what_cannot_go_on_is_refused(tmp_path: Path) -> None:
    with sink_in(tmp_path) as sink:
        with pytest.raises(UsageError, match="another sink writes here"):
            sink_in(tmp_path)
        pour(batches(None), sink)
    with pytest.raises(UsageError, match="was begun with kinds joined, but this run has kinds late; name another"):
        sink_in(tmp_path, ("late",))
    path = tmp_path / "manifest.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], *lines[2:]]))
    with pytest.raises(ManifestDamaged, match="missing or doubled"):
        sink_in(tmp_path)
    path.write_bytes(b"no json\n")
    with pytest.raises(ManifestDamaged, match="cannot be read"):
        sink_in(tmp_path)


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    theirs = tmp_path / "joined" / "part-00000.parquet"
    theirs.parent.mkdir()
    theirs.write_bytes(b"theirs")
    for _ in range(2):
        with pytest.raises(UsageError, match=r"there is joined.part-00000.parquet, but no manifest"):
            sink_in(tmp_path)
    theirs.unlink()
    with sink_in(tmp_path) as sink:
        pour(batches(None), sink)
    theirs.write_bytes(b"theirs")
    (theirs.parent / "000001.parquet").rename(theirs.parent / "old.tmp")
    sink_in(tmp_path).__exit__(None, None, None)
    assert theirs.exists()
    assert (theirs.parent / "old.tmp").exists()


def test_a_line_that_is_no_record_ends_it_and_nothing_of_the_roll_counts(tmp_path: Path) -> None:
    bad = Batch("joined", "s", b"none\n", b"2")
    with pytest.raises(LineUnreadable, match="is not an output record"), sink_in(tmp_path) as sink:
        pour([bad], sink)
    assert shown(tmp_path) == []


def test_rolling_begins_anew_with_each_file() -> None:
    rolling = Rolling(RollLimits(bytes=10, age_s=5.0))
    assert not rolling.due(100.0)
    rolling.add(9, 100.0)
    assert not rolling.due(104.9)
    assert rolling.due(105.0)
    rolling.add(1, 101.0)
    assert rolling.due(101.0)
    rolling.rolled()
    assert not rolling.due(200.0)
