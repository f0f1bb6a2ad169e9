"""Output logs and registry exports as DataFrames: all published lines, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from photon.idregistry.api import Digester
from photon.spark.exports import registry
from photon.spark.outputs import outputs
from photon.spark.sources import OutputSource, RegistrySource
from tests.lines import event_of
from tests.spark.test_logs import KEY, join_source
from tests.unit.idregistry.model import Row, digest, time_of
from tests.unit.idregistry.operations.test_files import written
from tests.unit.outputs.helpers import WrittenSlot
from tests.unit.spark.test_output_lines import Joined as Payloads
from tests.unit.spark.test_output_lines import joined

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR_NS = 3_600_000_000_000


def line(n: int) -> bytes:
    event = event_of(event_id=b"e%d" % n, key=b"k%d" % (n % 7), event_time_ns=n * HOUR_NS // 2)
    return joined(Payloads(b'{"n" : %d}' % n, b"{}"), event) + b"\n"


def slot_with_lines(base: Path) -> tuple[WrittenSlot, OutputSource]:
    """Lines 0 to 299: a final file, a rolled one, and a growing one with an unpublished part."""
    slot = WrittenSlot(base, "s0")
    slot.append(1, b"".join(map(line, range(100))))
    slot.finish(1)
    slot.append(2, b"".join(map(line, range(100, 200))))
    slot.roll(2)
    slot.append(3, b"".join(map(line, range(200, 300))))
    slot.append(3, line(300), publish=False)
    place = slot.place
    return slot, OutputSource(datacentre="east", output=str(place.output), state=str(place.state))


def test_what_is_published_is_there_once(spark: SparkSession, tmp_path: Path) -> None:
    _, source = slot_with_lines(tmp_path)
    rows = outputs(spark, [source], join_source(tmp_path), partition_size=5000).collect()
    assert sorted(int(row.event_id[1:]) for row in rows) == list(range(300))
    digester = Digester(KEY, "clicks")
    for row in rows:
        n = int(row.event_id[1:])
        assert bytes(row.foreign) == b'{"n" : %d}' % n
        assert bytes(row.digest) == digester.digest(b"e%d" % n)
        assert (row.datacentre, row.slot, row.kind, row.hour, row.torn) == ("east", "s0", "joined", n // 2, None)
        assert row.file == f"joined/s0-{1 + n // 100:06d}.jsonl"
    first = next(row for row in rows if row.event_id == b"e201")
    assert first.offset == len(line(200))


def test_torn_lines_and_lost_files_are_rows(spark: SparkSession, tmp_path: Path) -> None:
    slot, source = slot_with_lines(tmp_path)
    slot.remove(2)
    third = slot.path(3)
    data = bytearray(third.read_bytes())
    data[len(line(200)) + 3] ^= 0x40
    third.write_bytes(data)
    rows = outputs(spark, [source], partition_size=1 << 20).collect()
    torn = sorted((row.file, row.offset, row.torn) for row in rows if row.torn is not None)
    assert [(file, offset) for file, offset, _ in torn] == [
        ("joined/s0-000002.jsonl", 0),
        ("joined/s0-000003.jsonl", len(line(200))),
    ]
    assert "was published, but is gone" in torn[0][2]
    assert len(rows) == 2 + 100 + 99
    assert next(row.line for row in rows if row.torn and row.offset).startswith(b'{"e')


def test_a_registry_export_says_who_owns_what(spark: SparkSession, tmp_path: Path) -> None:
    frame = registry(spark, RegistrySource(directory=str(written(tmp_path / "backup"))), partition_size=1)
    rows = {bytes(row.digest): row for row in frame.collect()}
    assert len(rows) == frame.count() == 40
    for n in range(40):
        row, model = rows[digest(n)], Row(n, incarnation=1 + n % 2, batch=n)
        assert (row.shard, row.event_time_ns, row.token, row.tag) == (1, time_of(n), f"{model.token:016x}", n)
        assert row.state == ("reopened" if n == 1 else "cleared" if n % 3 == 0 else "owned")
        assert row.kind == ("joined", "filtered", "unmatched", "rejected")[n % 4]
        assert (row.incarnation, row.generation) == (1 + n % 2, int(n == 1))
        known = n % 2 == 0  # the config group knows incarnation 1 only
        assert (row.slot, row.datacentre, row.slot_retired) == (("a", "dc1", False) if known else (None, None, None))
