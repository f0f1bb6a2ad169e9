"""``format("photon")``: batch and stream over published output, and registry exports."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import photon.spark
from photon.computing.publisher import Publisher
from photon.computing.wire import Item
from photon.config.disk import RealDisk
from photon.outputs.watermarks import pairs_of, read_journal
from tests.spark import recorded
from tests.spark.test_outputs import HOUR_NS, line, slot_with_lines
from tests.unit.idregistry.operations.test_files import written
from tests.unit.outputs.helpers import WrittenSlot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def deployment(tmp_path: Path) -> Path:
    """A deployment file for the output that ``slot_with_lines`` writes."""
    file = tmp_path / "photon.toml"
    file.write_text(
        '[join.clicks]\n[join.clicks.primary]\nformat = "jsonl"\nkey = "q"\n'
        '[join.clicks.foreign]\nformat = "jsonl"\nkey = "q"\ntime = { field = "t", unit = "s" }\n'
        '[datacentre.east]\njoin = "clicks"\nprimary = "p"\nforeign = "f"\noutput = "out"\nstate = "state"\n'
        'address = "127.0.0.1:1"\n'
    )
    return file


def test_a_batch(spark: SparkSession, tmp_path: Path, deployment: Path) -> None:
    photon.spark.register(spark)
    slot_with_lines(tmp_path)
    source = spark.read.format("photon").option("path", str(deployment)).option("partitionBytes", "6000")
    frame = source.option("columns", "n bigint from foreign.n, none string from primary.x").load()
    assert frame.rdd.getNumPartitions() > 3
    rows = {row.n: row for row in frame.collect()}
    assert sorted(rows) == list(range(300))
    assert frame.count() == 300
    row = rows[201]
    assert (row.event_id, row.key, row.foreign, row.primary, row.none) == ("e201", "k5", '{"n" : 201}', "{}", None)
    assert (row.datacentre, row.slot, row.kind, row.hour) == ("east", "s0", "joined", 100)
    assert row.event_time.replace(tzinfo=datetime.UTC).timestamp() == 201 * HOUR_NS / 2 / 1e9
    assert (row.file, row.offset) == ("joined/s0-000003.jsonl", len(line(200)))
    wanted = frame.where("hour >= 50 and hour < 52 and kind = 'joined' and n % 2 = 0")
    assert sorted(each.n for each in wanted.collect()) == [100, 102]
    assert frame.where("kind = 'joined' and hour < 5").count() == 10
    assert frame.count() == 300  # nothing of earlier queries is kept
    assert frame.where("slot = 'other' or kind = 'late'").count() == 0
    binary = source.option("binary", "true").load().select("event_id", "foreign").first()
    assert binary is not None
    assert isinstance(binary.event_id, bytes | bytearray)
    few = source.option("binary", "false").schema("event_id string, n bigint, source_offset bigint").load()
    assert sorted(few.where("n < 2").collect()) == [("e0", 0, 42), ("e1", 1, 42)]  # no other columns are made


def test_files_of_other_times_are_not_opened(spark: SparkSession, tmp_path: Path, deployment: Path) -> None:
    photon.spark.register(spark)
    slot = WrittenSlot(tmp_path, "s0")
    for number in range(3):
        slot.append(number + 1, b"".join(map(line, range(number * 10, number * 10 + 10))))
        slot.finish(number + 1)
        end = slot.state / "manifest.jsonl"
        *before, last = end.read_bytes().splitlines(keepends=True)
        first_ns, last_ns = (n * HOUR_NS // 2 for n in (number * 10, number * 10 + 9))
        times = b'"version":1,"first_ns":%d,"last_ns":%d' % (first_ns, last_ns)
        end.write_bytes(b"".join(before) + last.replace(b'"version":1', times))
    for number in (1, 3):
        final = slot.path(number)
        final.with_name(final.name + ".gz").write_bytes(b"nothing that can be read")
    source = spark.read.format("photon").option("path", str(deployment))
    assert source.option("from", "1970-01-01T05:00").option("to", "1970-01-01T10:00").load().count() == 10


def test_a_registry_export(spark: SparkSession, tmp_path: Path) -> None:
    photon.spark.register(spark)
    frame = spark.read.format("photon").option("export", str(written(tmp_path / "backup"))).load()
    counts = {row.state: row["count"] for row in frame.groupBy("state").count().collect()}
    assert counts == {"owned": 25, "cleared": 14, "reopened": 1}


def test_wrong_options_are_said_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    photon.spark.register(spark)
    for name, value, why in (
        ("kind", "joint", "kind 'joint': is not known"),
        ("patth", "x", "option 'patth': unknown"),
        ("columns", "x", "NAME TYPE from"),
    ):
        with pytest.raises(Exception, match=why):
            spark.read.format("photon").option("path", str(tmp_path)).option(name, value).load()


def test_a_stream_is_exactly_once_over_stops_and_restarts(
    spark: SparkSession, tmp_path: Path, deployment: Path
) -> None:
    photon.spark.register(spark)
    slot = WrittenSlot(tmp_path, "s0")
    written_lines = 0

    def write(number: int, count: int, *, publish: bool = True) -> None:
        nonlocal written_lines
        slot.append(number, b"".join(map(line, range(written_lines, written_lines + count))), publish=publish)
        written_lines += count

    def run(most: int | None) -> None:
        """Reads everything there, in a separate query."""
        reader = spark.readStream.format("photon").option("path", str(deployment))
        if most is not None:
            reader = reader.option("maxBytesPerTrigger", str(most))
        stream: DataFrame = reader.option("columns", "n bigint from foreign.n").load().select("n")
        sink = stream.writeStream.format("parquet").option("path", str(tmp_path / "sink"))
        query = sink.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        assert query.awaitTermination(240)

    def seen() -> list[int]:
        return sorted(row.n for row in spark.read.parquet(str(tmp_path / "sink")).collect())

    write(1, 40)
    write(1, 5, publish=False)
    run(None)
    assert seen() == list(range(40))
    slot.append(1, b"")  # now the rest is published too
    write(1, 15)
    slot.finish(1)
    write(2, 30)
    run(4000)  # several small batches
    assert seen() == list(range(90))
    assert len(list((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))) > 3
    run(None)  # nothing new
    assert seen() == list(range(90))
    # A query that dies between writing its sink and its commit does that batch again, the same rows.
    commits = sorted((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    commits[-1].unlink()
    (commits[-1].parent / f".{commits[-1].name}.crc").unlink(missing_ok=True)
    write(2, 10)
    slot.roll(2)
    run(None)
    assert seen() == list(range(100))


def test_what_a_computation_publishes_is_read(spark: SparkSession, tmp_path: Path) -> None:
    photon.spark.register(spark)
    publisher = Publisher(RealDisk(), tmp_path, "spark")
    publisher.publish([Item(n, "", "", n, b"\x81\xa1n" + bytes([n]), "sums") for n in range(5)])
    publisher.close()
    reader = spark.read.format("photon").option("path", str(tmp_path)).option("columns", "n bigint from foreign.n")
    assert sorted(row.n for row in reader.load().collect()) == list(range(5))


def test_a_stream_carries_its_watermark(spark: SparkSession, tmp_path: Path) -> None:
    photon.spark.register(spark)
    recorded.write(tmp_path, 300, 20)
    reader = spark.readStream.format("photon").option("path", str(tmp_path / "recorded" / "out"))
    reader = reader.option("watermark", "percentile").option("maxRecordsPerTrigger", "200")
    stream: DataFrame = reader.load().withWatermark("watermark", "1 second")
    sink = stream.select("event_id", "kind", "watermark", "waiting").writeStream.format("parquet")
    sink = sink.option("path", str(tmp_path / "sink")).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = sink.trigger(availableNow=True).start()
    assert query.awaitTermination(240)
    rows = spark.read.parquet(str(tmp_path / "sink")).collect()
    assert len({row.event_id for row in rows if row.kind == "joined"}) == 300
    assert len(rows) == 300 + sum(row.kind == "watermark" for row in rows)
    said = sorted({row.watermark.replace(tzinfo=datetime.UTC).timestamp() - 1 for row in rows})
    (last,) = pairs_of(read_journal(RealDisk(), tmp_path / "recorded" / "out" / ".photon"))[-1:]
    assert len(said) == 2
    assert round(said[-1] * 10) == (last.percentile_ns or 0) // 100_000_000
