"""Objects as read by Spark's tasks: slices of all of them, and again by the kept keys."""

from __future__ import annotations

import gzip
from pathlib import Path

import msgspec
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import LongType, StringType, StructType

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.logs.slices import cut
from photon.computing.publisher import Publisher
from photon.computing.wire import Item
from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.objects.paths import ObjectPath
from photon.outputs import OutputPlace
from photon.sinks.objects import ObjectSink
from photon.spark import logs as tasks
from photon.spark.data_source import PhotonSource
from photon.spark.key_filter import assembled, filled, hashes_of, part_bits
from photon.spark.key_index import index_path, read_index
from photon.spark.sources import LogSource
from tests.spark.small_deployment import FOREIGN, PRIMARY
from tests.unit.objects.fakes import MemoryBucket

ADAPTER = ConfiguredAdapter({"primary": PRIMARY, "foreign": FOREIGN, "where": "join.clicks"})


def records(count: int, begin: int) -> bytes:
    return b"".join(b'{"query_id": "q%d", "text": "%s"}\n' % (n, b"x" * 20) for n in range(begin, begin + count))


def test_slices_and_kept_keys(bucket: MemoryBucket, logs: ObjectPath, tmp_path: Path) -> None:
    bucket.data["logs/a"] = records(500, 0)[:-1]
    bucket.data["logs/b.gz"] = gzip.compress(records(500, 500))
    source = LogSource(datacentre="east", directory=str(logs))
    found = tasks.list_logs(ADAPTER, [source], print, is_foreign=False)
    assert [log.path for _, log in found] == ["a", "b.gz"]
    join = msgspec.convert(
        {
            "join": "clicks",
            "adapter": {
                "join": "clicks",
                "primary": PRIMARY,
                "foreign": FOREIGN,
                "time_limit_s": 5.0,
                "memory_limit": 1 << 30,
            },
            "key": b"k" * 16,
        },
        tasks.JoinSource,
    )

    def read(keys: list[bytes]) -> list[bytes]:
        hashes, bits = hashes_of(keys), part_bits(len(keys))
        wanted = assembled([(number, table.tobytes()) for number, table in filled(hashes, bits).items()], bits)
        shared = tasks._Shared(
            join=join, sources=[source], columns=tasks.names_of(tasks.schemas.PRIMARY), foreign=False, wanted=wanted,
            index=str(tmp_path),
        )  # fmt: skip
        work = [tasks._Work(0, part, 1) for _, log in found for part in cut(log, 5_000)]
        batches = tasks._read(msgspec.msgpack.encode(shared), msgspec.json.encode(work))
        return sorted(row["key"] for batch in batches for row in batch.to_pylist() if row["key"] in keys)

    keys = sorted([b"q3", b"q499", b"q500", b"q777"])
    assert read(keys) == keys
    parts = [part for _, log in found for part in cut(log, 5_000)]
    assert len(parts) > 3
    assert all(read_index(index_path(tmp_path, "east", part), logs / part.log.path, part) for part in parts)
    assert read(keys) == keys


def test_output_by_url_is_a_source(bucket: MemoryBucket, logs: ObjectPath, tmp_path: Path) -> None:
    """The same rows as from the directory, and offsets with which a stream may continue in either."""
    publisher = Publisher(RealDisk(), tmp_path, "s")
    publisher.publish([Item(number, "", "", number, b"\x01", "x") for number in range(5)])
    publisher.close()
    ObjectSink(RealDisk(), OutputPlace.of_join(tmp_path), logs, ["joined"]).pass_(all_of_it=True)

    def rows(path: str) -> tuple[list[dict[str, object]], object]:
        source = PhotonSource({"path": path})
        schema = StructType().add("offset", LongType()).add("event_time_ns", LongType()).add("foreign", StringType())
        batch = source.reader(schema)
        found = [row for part in batch.partitions() for rows in batch.read(part) for row in rows.to_pylist()]
        stream = source.streamReader(schema)
        end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
        parts = stream.partitions(stream.initialOffset(), end)
        assert [row for part in parts for rows in stream.read(part) for row in rows.to_pylist()] == found
        return found, end

    assert rows(str(logs)) == rows(str(tmp_path))
    assert len(rows(str(logs))[0]) == 5
    with pytest.raises(UsageError, match=r"watermark: s3://.* has no watermark"):
        PhotonSource({"path": str(logs), "watermark": "exact"}).schema()
