"""The kept keys of a log: which of them are valid, and that they lead to exactly the wanted records."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.logs.slices import Slice, cut
from photon.spark import logs
from photon.spark.key_filter import assembled, filled, hashes_of, part_bits
from photon.spark.key_index import index_path, read_index, stale
from photon.spark.read_notes import ReadNote
from photon.spark.sources import LogSource, reading_of
from tests.spark.small_deployment import FOREIGN, PRIMARY

ADAPTER = ConfiguredAdapter({"primary": PRIMARY, "foreign": FOREIGN, "where": "join.clicks"})
ADAPTER_SPEC = {"join": "clicks", "time_limit_s": 5.0, "memory_limit": 1 << 30}


def records(count: int, begin: int = 0) -> bytes:
    return b"".join(
        b'{"query_id": "q%d", "text": "%s"}\n' % (n, b"x" * (n % 50)) for n in range(begin, begin + count)
    )


class Reader:
    def __init__(self, base: Path) -> None:
        self.source = LogSource(datacentre="east", directory=str(base / "logs"))
        self.log = base / "logs" / "q.log"
        self.index = base / "index"
        self.log.parent.mkdir(exist_ok=True)

    def part(self) -> Slice:
        ((_, log),) = logs.list_logs(ADAPTER, [self.source], print, is_foreign=False)
        (part,) = cut(log, 1 << 40)
        return part

    def known(self) -> bool:
        part = self.part()
        return read_index(index_path(self.index, "east", part), self.log, part) is not None

    def read(
        self, keys: list[bytes], lacking: Sequence[bytes] = (), *, filtered: bool = True
    ) -> tuple[list[bytes], ReadNote]:
        """Records of these keys, without those of others that pass."""
        hashes, bits, part = hashes_of(keys), part_bits(len(keys)), self.part()
        parts = [(number, table.tobytes()) for number, table in filled(hashes, bits).items()]
        wanted = assembled(parts, bits) if filtered else None
        absent = hashes_of(lacking).tobytes()
        shared = logs._Shared(
            join=msgspec.convert({"join": "clicks", "adapter": ADAPTER_SPEC, "key": b""}, logs.JoinSource),
            sources=[self.source], columns=logs.names_of(logs.schemas.PRIMARY), foreign=False, wanted=wanted,
            absent=[((0, 24), absent)], new={("east", "q.log")}, index=str(self.index),
        )  # fmt: skip
        reading = reading_of(self.source, ADAPTER, foreign=False)
        note = ReadNote(what="primary", datacentre="east", identity=part.log.identity, begin=0, slices=1,
                        bytes=part.log.size)  # fmt: skip
        batches = list(logs._read_primary(shared, self.source, part, reading, ADAPTER, note))
        rows = [row for batch in batches for row in batch.to_pylist() if row["key"] in keys]
        data = self.log.read_bytes()
        assert all(data[row["offset"] :].startswith(row["record"]) for row in rows)
        return [row["key"] for row in rows], note


@given(st.sets(st.integers(0, 999), max_size=30), st.integers(1, 3))
def test_the_second_time_only_wanted_records_are_read(wanted: set[int], times: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as base:
        reader = Reader(Path(base))
        reader.log.write_bytes(records(1000))
        keys = [b"q%d" % n for n in sorted(wanted)]
        for _ in range(times + 1):
            found, note = reader.read(keys, lacking=[b"q17"])
            assert found == keys
            assert note.met == {(0, 24)}
        assert reader.read(keys, lacking=[b"q1000"])[1].met == set()


def test_little_is_read_of_a_long_log(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    reader.log.write_bytes(records(200_000))
    size = reader.log.stat().st_size
    assert reader.read([b"q100000"])[1].bytes == size
    assert 0 < (nothing := reader.read([])[1].bytes) < size / 5
    assert reader.read([b"q100000"])[1].bytes < nothing + (2 << 20) < size / 2


def test_what_has_changed_is_read_again(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    reader.log.write_bytes(records(100))
    assert not reader.known()
    for change in (
        lambda: reader.log.write_bytes(records(99) + b'{"query_id": "other", "text": "%s"}\n' % (b"x" * 46)),
        lambda: os.utime(reader.log, ns=(5, 5)),
        lambda: reader.log.write_bytes(records(50)),
        lambda: reader.log.write_bytes(records(100)),
    ):
        reader.read([])
        assert reader.known()
        change()
        assert not reader.known()
    reader.read([])
    (path,) = reader.index.iterdir()
    data = path.read_bytes()
    for damaged in (data[:-1], b"", b"{}\n", data[:-9] + b"damage..."):
        path.write_bytes(damaged)
        assert not reader.known()


def test_a_renamed_log_keeps_its_keys(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    reader.log.write_bytes(records(100))
    reader.read([])
    reader.log = reader.log.rename(reader.log.with_name("q.log.1"))
    assert reader.known()


@pytest.mark.parametrize("same", [True, False])
def test_a_slice_of_a_log_that_has_grown(tmp_path: Path, same: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first slice is unchanged if the bytes before its end are."""
    monkeypatch.setattr(Reader, "part", lambda self: cut(logs.list_logs(ADAPTER, [self.source], print,
                        is_foreign=False)[0][1], 2000)[0])  # fmt: skip
    reader = Reader(tmp_path)
    reader.log.write_bytes(records(100))
    reader.read([])
    data = reader.log.read_bytes()
    reader.log.write_bytes((data if same else data[:1990] + b"#" + data[1991:]) + records(9))
    assert reader.known() is same


@pytest.mark.parametrize("slice_bytes", [90, 100])
def test_a_record_that_was_half_written_where_a_slice_ends(
    tmp_path: Path, slice_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins in the first slice, which is the same when it is complete."""
    monkeypatch.setattr(Reader, "part", lambda self: cut(logs.list_logs(ADAPTER, [self.source], print,
                        is_foreign=False)[0][1], slice_bytes)[0])  # fmt: skip
    reader = Reader(tmp_path)
    line = b'{"query_id": "late", "text": "%s"}\n' % (b"x" * 200)
    first = records(2)
    reader.log.write_bytes(first + line[: 100 - len(first)])
    assert reader.read([b"late"])[0] == []
    reader.log.write_bytes(first + line)
    assert reader.read([b"late"])[0] == [b"late"]
    reader.read([b"late"])
    reader.log.write_bytes(first + line + records(3))
    assert reader.known(), "its first slice is whole"


def test_without_a_filter_no_keys_are_kept(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    reader.log.write_bytes(records(10))
    reader.read([], filtered=False)
    assert reader.read([b"q3"])[0] == [b"q3"]


def test_keys_of_logs_that_are_gone_are_stale(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    reader.log.write_bytes(records(100))
    reader.read([])
    identity = reader.part().log.identity
    assert list(stale(reader.index, {("east", identity)})) == []
    assert len(list(stale(reader.index, {("west", identity)}))) == 1
    (reader.index / ".half").touch()
    assert len(list(stale(reader.index, {("east", identity)}))) == 1
    assert list(stale(tmp_path / "none", set())) == []
    assert json.loads(next(reader.index.glob("*.keys")).read_bytes().partition(b"\n")[0])["records"] == 100


def test_a_last_line_without_end_counts_once_nobody_writes_on(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    line = b'{"query_id": "late", "text": "1'
    reader.log.write_bytes(records(9) + line + b'"}')
    written = reader.log.stat().st_mtime
    assert reader.read([b"late"])[0] == []
    reader.source = msgspec.structs.replace(reader.source, last_line_after_s=0.0)  # as if time had passed
    for _ in range(2):
        assert reader.read([b"late"])[0] == [b"late"]
    assert reader.known()
    reader.log.write_bytes(records(9) + line + b'2"}\n' + records(9))
    os.utime(reader.log, (written, written + 1))
    assert not reader.known(), "its last record is another one"
