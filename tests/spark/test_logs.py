"""Raw logs as DataFrames equal the dispatcher's and primary reader's results for the same files."""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from photon.config.settings import Join, Limits
from photon.idregistry.api import Digester
from photon.spark.logs import foreign, primary
from photon.spark.shipped_adapter import adapter_spec
from photon.spark.sources import JoinSource, LogSource, TimeRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY = b"a key of the deployment, secret!"
S = 1_000_000_000
CLICKS = {"format": "jsonl", "key": "q", "id": "id", "time": {"field": "ts", "unit": "s"}}


def click(n: int) -> bytes:
    return json.dumps({"id": f"c{n}", "q": f"q{n % 100}", "ts": 1_700_000_000 + n, "text": "x" * 50}).encode()


def join_source(base: Path, **join: object) -> JoinSource:
    table = {"primary": {"format": "jsonl", "key": "q"}, "foreign": CLICKS} | join
    return JoinSource(join="clicks", adapter=adapter_spec("clicks", Join(**table), base, Limits()), key=KEY)  # type: ignore[arg-type]


def test_foreign_records_have_the_ids_and_digests_of_the_live_system(spark: SparkSession, tmp_path: Path) -> None:
    logs = tmp_path / "clicks"
    logs.mkdir()
    lines = [click(n) for n in range(3000)]
    (logs / "a.log").write_bytes(b"\n".join(lines[:2000]) + b"\nno record\n")
    (logs / "b.log.gz").write_bytes(gzip.compress(b"\n".join(lines[2000:]) + b"\n"))
    (logs / "b.log").write_bytes(b"\n".join(lines[2000:]) + b"\n")
    source = LogSource(datacentre="east", directory=str(logs))
    frame = foreign(spark, join_source(tmp_path), [source], partition_size=20_000)
    assert frame.rdd.getNumPartitions() > 5
    rows = frame.collect()
    digester = Digester(KEY, "clicks")
    good = {row.event_id: row for row in rows if row.unreadable is None}
    assert len(good) == len(rows) - 1 == 3000
    for n, line in enumerate(lines):
        row = good[b"c%d" % n]
        assert (bytes(row.digest), bytes(row.key)) == (digester.digest(b"c%d" % n), b"q%d" % (n % 100))
        assert (row.event_time_ns, row.hour) == ((1_700_000_000 + n) * S, (1_700_000_000 + n) // 3600)
        assert bytes(row.record) == line
        assert row.log == ("a.log" if n < 2000 else "b.log")
    (bad,) = (row for row in rows if row.unreadable is not None)
    assert (bad.event_id, bad.digest, bytes(bad.record), bad.log) == (None, None, b"no record", "a.log")
    assert bad.offset == len(b"\n".join(lines[:2000])) + 1


def test_an_event_without_an_id_is_its_place(spark: SparkSession, tmp_path: Path) -> None:
    from photon.adapters.logs.place_ids import place_ids

    (tmp_path / "a.log.1").write_bytes(click(0) + b"\n" + click(1) + b"\n")
    table = {name: value for name, value in CLICKS.items() if name != "id"}
    source = LogSource(datacentre="east", directory=str(tmp_path))
    rows = foreign(spark, join_source(tmp_path, foreign=table), [source], with_records=False).collect()
    offsets = [0, len(click(0)) + 1]
    ids = place_ids(click(0) + b"\n" + click(1) + b"\n", 0, b"", [click(0), click(1)], offsets)
    assert sorted(bytes(row.event_id) for row in rows) == sorted(ids)
    assert "record" not in rows[0].asDict()


def test_a_window_leaves_out_events_and_old_logs(spark: SparkSession, tmp_path: Path) -> None:
    import os

    (tmp_path / "new.log").write_bytes(b"".join(click(n) + b"\n" for n in range(100)))
    (tmp_path / "old.log").write_bytes(b"".join(click(n) + b"\n" for n in range(30, 100)))
    os.utime(tmp_path / "old.log", (1_600_000_000, 1_600_000_000))
    window = TimeRange(begin_ns=1_700_000_040 * S, end_ns=1_700_000_050 * S)
    source = LogSource(datacentre="east", directory=str(tmp_path), window=window)
    rows = foreign(spark, join_source(tmp_path), [source]).collect()
    assert sorted(row.event_id for row in rows) == [b"c%d" % n for n in range(40, 50)]


def test_primary_records_have_keys_that_can_be_parsed(spark: SparkSession, tmp_path: Path) -> None:
    lines = [b'{"q": "q%d", "text": "\xc3\xa4"}' % n for n in range(500)]
    torn = b'{"q": "q7", "text": '
    (tmp_path / "a.log").write_bytes(b"\n".join([*lines, torn, b""]) + b"\n")
    rows = primary(spark, join_source(tmp_path), [LogSource(datacentre="east", directory=str(tmp_path))]).collect()
    assert sorted((row.offset, bytes(row.key), bytes(row.record)) for row in rows) == [
        (n and sum(len(line) + 1 for line in lines[:n]), b"q%d" % n, line) for n, line in enumerate(lines)
    ]


def test_csv_headers_reach_every_slice(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"q,text\n" + b"".join(b"q%d,some text\n" % n for n in range(1000)))
    join = join_source(tmp_path, primary={"format": "csv", "key": "q"})
    source = LogSource(datacentre="east", directory=str(tmp_path))
    rows = primary(spark, join, [source], partition_size=1000).collect()
    assert sorted(row.key for row in rows) == sorted(b"q%d" % n for n in range(1000))
    assert {bytes(row.header) for row in rows} == {b"q,text"}


def test_an_adapter_of_ones_own_travels(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from photon.adapters.configured import ConfiguredAdapter\n"
        "class Mine(ConfiguredAdapter):\n"
        "    def primary_key(self, record, file):\n"
        "        return super().primary_key(record, file).upper()\n"
    )
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "a.log").write_bytes(b'{"q": "abc"}\n')
    options = {"primary": {"format": "jsonl", "key": "q"}, "foreign": CLICKS}
    join = join_source(tmp_path, adapter="mine.py:Mine", options=options, primary=None, foreign=None)
    (tmp_path / "mine.py").unlink()
    (row,) = primary(spark, join, [LogSource(datacentre="east", directory=str(logs))]).collect()
    assert row.key == b"ABC"


def test_the_key_stands_in_no_log_and_no_plan(spark: SparkSession, tmp_path: Path, spark_event_log: Path) -> None:
    (tmp_path / "a.log").write_bytes(click(1) + b"\n")
    join = join_source(tmp_path)
    frame = foreign(spark, join, [LogSource(datacentre="east", directory=str(tmp_path))])
    assert frame.count() == 1
    files = [path for path in spark_event_log.rglob("*") if path.is_file()]
    said = b"".join(path.read_bytes() for path in files) + repr(join).encode()
    assert b"SparkListenerJobStart" in said
    plan = frame._jdf.queryExecution().toString().encode()
    for form in (KEY, KEY.hex().encode(), b64encode(KEY), b64encode(KEY).rstrip(b"=")):
        assert form not in said
        assert form not in plan


def test_a_primary_log_that_is_damaged_fails_the_job(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    packed = gzip.compress(b"".join(b'{"q": "q%d"}\n' % n for n in range(100_000)))
    (tmp_path / "a.log.gz").write_bytes(packed[: len(packed) // 2])
    source = LogSource(datacentre="east", directory=str(tmp_path))
    with pytest.raises(PySparkException, match=r"a\.log\.gz: the compressed stream is incomplete"):
        primary(spark, join_source(tmp_path), [source]).count()
    (row,) = foreign(spark, join_source(tmp_path), [source]).filter("key is null and record = ''").collect()
    assert row.unreadable.startswith("the log is damaged: the compressed stream is incomplete")
