"""A backfill's files, read back; damage is distinguished from unfinished work."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from photon.adapters.contract import Joined, LogFile, Matching
from photon.adapters.envelope import Envelope
from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.eventstore.api import PrimaryRecord
from photon.idregistry.api import Kind
from photon.joiner.api import ForeignEvent
from photon.joiner.rows import Rows
from photon.joiner.verdicts import Judge
from photon.outputs.arrow_columns import LineUnreadable
from photon.spark.backfill.batch_names import HOUR_NS, BackfillPaths, BatchName, hour_directory
from photon.spark.backfill.manifest import (
    BackfillDamaged,
    BackfillJob,
    begun,
    known_backfills,
    read_manifest,
    remember,
)
from photon.spark.backfill.parts import PartWriter, encoder, to_parquet
from photon.spark.backfill.staging import (
    StagingDamaged,
    read_ids,
    read_result,
    read_staged,
    result_of,
    result_paths,
    stage,
    staged_batches,
    write_result,
)
from photon.spark.backfill.work import COLUMNS, batches, columns_of
from tests.lines import joined_lines
from tests.unit.joiner.test_matching import ORDER_AT, Payments
from tests.unit.spark.backfill.rows import Event, rows_of

DISK = RealDisk()
NAME = BatchName(3, 8, 1)
JOB = BackfillJob(slot="s", datacentre="d", join="j", from_ns=1, to_ns=2, format="jsonl", unmatched=False)


def events(count: int) -> list[Event]:
    return [Event(bytes([n, 0]) * 8, n * HOUR_NS // 2) for n in range(count)]


@pytest.fixture
def places(tmp_path: Path) -> BackfillPaths:
    places = BackfillPaths(tmp_path / "out")
    DISK.make_dir(places.staging)
    return places


def test_a_staged_batch_comes_back(places: BackfillPaths) -> None:
    rows = rows_of(events(5), NAME.token)
    stage(DISK, places.staged(NAME), rows, NAME.token)
    again = read_staged(DISK, places.staged(NAME))
    assert (again.digests, again.lines) == (rows.digests, rows.lines)
    assert again.tokens.tolist() == [NAME.token] * 5
    assert again.times.tolist() == rows.times.tolist()
    ids = read_ids(DISK, places.staged(NAME))
    assert (ids.digests, ids.times.tolist(), ids.token) == (rows.digests, rows.times.tolist(), NAME.token)
    assert staged_batches(DISK, places) == [NAME]


@pytest.mark.parametrize("at", [0, 8, 20, 60, -2])
def test_damage_of_a_staged_batch_is_noticed(places: BackfillPaths, at: int) -> None:
    path = places.staged(NAME)
    stage(DISK, path, rows_of(events(5), NAME.token), NAME.token)
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(StagingDamaged, match="restore it"):
        read_staged(DISK, path)
    path.write_bytes(data[:10])
    with pytest.raises(StagingDamaged):
        read_ids(DISK, path)


def test_a_result_names_its_winners_and_parts(places: BackfillPaths) -> None:
    rows = rows_of(events(5), NAME.token)
    writer = PartWriter(DISK, places, "attempt", encoder("jsonl"), "jsonl")
    winners = np.array([0, 1, 2, 4])
    parts = writer.write(str(NAME), rows, winners)
    write_result(DISK, places, result_of(NAME, 5, winners, parts), "attempt")
    [(name, path)] = result_paths(DISK, places).items()
    result = read_result(DISK, path)
    assert (name, result.winners().tolist()) == (NAME, [0, 1, 2, 4])
    assert sum(part.records for part in result.parts) == 4
    lines = set()
    for part in result.parts:
        data = (places.output / part.written).read_bytes()
        assert part.written.split("/")[2].startswith(".part-")
        assert f"hour=1970-01-01T0{part.hour}" == part.name.split("/")[1] == hour_directory(part.hour)
        lines |= set(data.splitlines(keepends=True))
    assert lines == {rows.lines[n] for n in winners}
    path.write_bytes(b"{}")
    with pytest.raises(StagingDamaged):
        read_result(DISK, path)


def test_a_directory_serves_the_job_that_it_was_begun_for(places: BackfillPaths) -> None:
    assert begun(DISK, places.job, JOB) == JOB
    other = BackfillJob(**{**{name: getattr(JOB, name) for name in JOB.__struct_fields__}, "slot": "t"})
    assert begun(DISK, places.job, other).slot == "s"
    wider = BackfillJob(**{**{name: getattr(JOB, name) for name in JOB.__struct_fields__}, "to_ns": 3})
    with pytest.raises(UsageError, match="was begun with to_ns = 2, not 3"):
        begun(DISK, places.job, wider)
    assert read_manifest(DISK, places.manifest) is None
    places.manifest.write_bytes(b'{"version":1')
    with pytest.raises(BackfillDamaged, match=r"manifest\.json: unreadable"):
        read_manifest(DISK, places.manifest)


def test_a_deployment_knows_its_backfills(places: BackfillPaths, tmp_path: Path) -> None:
    def known(join: str, since: int, until: int) -> list[Path]:
        return [each.path for each in known_backfills(DISK, tmp_path, join, since, until)]

    assert known("j", 0, 9) == []
    remember(DISK, tmp_path, places.output, JOB)
    assert known("j", 0, 9) == []  # its directory is gone, or not made yet
    begun(DISK, places.job, JOB)
    assert known("j", 0, 9) == known("j", 1, 2) == [places.output]
    assert known("j", 2, 9) == known("j", 0, 1) == known("other", 0, 9) == []
    (tmp_path / "backfills" / "s.json").write_bytes(b"{")
    with pytest.raises(BackfillDamaged, match=r"s\.json: unreadable"):
        known("j", 0, 9)


def test_parquet_has_the_members_of_the_line(tmp_path: Path) -> None:
    event = ForeignEvent(b"c1", bytes(16), 5, b"q1", b'{"a": 1}', LogFile("c.log"), 10, 0)
    primary = PrimaryRecord(b'{"b": 2}', LogFile("q.log"), 20)
    [line] = joined_lines(Envelope(), [event], [primary], [Joined(b'{"a": 1}', None)], token=255, at_ns=0)
    path = tmp_path / "x.parquet"
    path.write_bytes(to_parquet([line]))
    [row] = pq.read_table(path).to_pylist()
    assert (row["event_id"], row["key"], row["event_time_ns"], row["foreign"]) == (b"c1", b"q1", 5, b'{"a": 1}')
    assert (row["source_file"], row["source_offset"]) == ("c.log", 10)
    assert (row["primary_file"], row["primary_offset"], row["token"]) == ("q.log", 20, "00000000000000ff")
    with pytest.raises(LineUnreadable):
        to_parquet([b"{}\n"])


def test_a_set_is_one_row_and_all_its_records(tmp_path: Path) -> None:
    places = BackfillPaths(tmp_path / "out")
    lines = [b"one\n", b"two 1\ntwo 2\n"]
    rows = Rows(bytes(32), np.zeros(2, np.int64), np.zeros(2, np.uint64), np.full(2, Kind.JOINED, np.uint8),
                np.zeros(2, np.uint32), np.zeros(2, np.uint32), lines)  # fmt: skip
    writer = PartWriter(DISK, places, "w", encoder("jsonl"), "jsonl")
    [part] = writer.write("b", rows, np.arange(2))
    assert (part.records, (places.output / part.written).read_bytes()) == (3, b"".join(lines))


PRIMARY = pa.struct([("log", pa.string()), ("offset", pa.int64()), ("header", pa.binary()), ("record", pa.binary())])
TYPES = (
    pa.binary(), pa.binary(), pa.binary(), pa.int64(), pa.string(), pa.int64(), pa.binary(), pa.binary(), pa.string(),
    pa.list_(PRIMARY),
)  # fmt: skip


@pytest.mark.parametrize("unmatched", [False, True])
def test_all_primaries_of_a_key_are_joined_and_misses_wait_for_the_operators_word(unmatched: bool) -> None:
    def row(name: bytes, *primaries: bytes) -> tuple[object, ...]:
        found = [{"log": "q.log", "offset": at, "header": None, "record": each} for at, each in enumerate(primaries)]
        return name, name.ljust(16), b"k", ORDER_AT, "c.log", 0, None, b"f", None, found or None

    adapter = Payments({})
    adapter.matching = Matching("all", before_ns=10, after_ns=0)
    some = [row(b"a", b"k 95 a", b"k 50 b", b"k 100 c"), row(b"b"), row(b"c", b"k 50"), row(b"d", *[b"k 95"] * 1001)]
    rows = pa.RecordBatch.from_arrays(list(map(pa.array, zip(*some, strict=True), TYPES)), names=list(COLUMNS))
    events, found = columns_of(rows, adapter.matching, unmatched=unmatched)
    decided = Judge(adapter, check_payloads=True).decide(events, found, frozenset())
    absent = Kind.UNMATCHED if unmatched else 0
    assert list(decided.kinds) == [Kind.JOINED, absent, Kind.UNMATCHED, Kind.REJECTED]
    assert (decided.pairs, decided.primaries.offsets.tolist()) == ([2], [0, 2])
    [batch, *_] = batches([rows], 100, 20)
    assert batch == rows.slice(0, 1), "all records of a set count"
    for rows_max, bytes_max, wanted in ((2, 1 << 20, [2, 2]), (100, 4000, [4]), (3, 6, [1, 2, 1]), (1, 1, [1] * 4)):
        cut = list(batches([rows.slice(0, 3), rows.slice(3)], rows_max, bytes_max))
        assert [len(each) for each in cut] == wanted
        assert pa.concat_batches(cut) == rows
