"""A join whose files are cut by a framing of the adapter's own, verified from the raw logs."""

from __future__ import annotations

import shutil
import struct
import zlib
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from photon.adapters.join_adapters import adapter_of_join
from photon.config.settings import Join
from photon.lab.demo.check import records
from photon.spark import logs, outputs
from photon.spark.shipped_adapter import adapter_spec
from photon.spark.sources import JoinSource, LogSource, OutputSource
from photon.spark.verify.job import VerifyInputs, VerifyQuestion, verify
from tests.integration.commands import photon

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLE = Path(__file__).parents[2] / "adapters" / "examples" / "length_crc"
BEGIN_NS = 1_796_000_000_000_000_000
HOUR_NS = 3_600_000_000_000
COUNT = 500


def framed(record: bytes) -> bytes:
    return struct.pack("<II", len(record), zlib.crc32(record)) + record


def test_what_photon_join_wrote_is_verified_and_a_lost_record_is_found(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "primary").mkdir()
    (tmp_path / "foreign").mkdir()
    sessions = (struct.pack("<Q16s", n, b"tv") for n in range(COUNT))
    samples = [struct.pack("<QQqd", n, n, BEGIN_NS + n, n / 2) for n in range(COUNT)]
    (tmp_path / "primary" / "a.bin").write_bytes(b"".join(map(framed, sessions)))
    torn = framed(b"its CRC is wrong").replace(b"CRC", b"crc")
    (tmp_path / "foreign" / "b.bin").write_bytes(b"".join(map(framed, samples)) + torn)
    shutil.copy(EXAMPLE / "length_crc.py", tmp_path)
    config, output = tmp_path / "photon.toml", tmp_path / "out"
    config.write_text('[join.samples]\nadapter = "length_crc.py:PlayerSamples"\n')
    logs_of = ("--primary", tmp_path / "primary", "--foreign", tmp_path / "foreign")
    done = photon("join", *logs_of, "--output", output, "--config", config, "--once", "--max-rejected", "1")
    assert done.code == 0, done.err
    assert sum(1 for _ in records(output / "joined")) == COUNT

    join = Join(adapter="length_crc.py:PlayerSamples")
    source = JoinSource(join="samples", adapter=adapter_spec("samples", join, tmp_path), key=bytes(32))
    where = OutputSource(datacentre="local", output=str(output), state=str(output / ".photon"))

    def classes() -> Counter[str]:
        sides = [[LogSource(datacentre="local", directory=str(tmp_path / each))] for each in ("foreign", "primary")]
        inputs = VerifyInputs(
            logs.foreign(spark, source, sides[0]),
            partial(logs.primary, spark, source, sides[1]),
            outputs.outputs(spark, [where], source),
            None,
        )
        hour = BEGIN_NS // HOUR_NS
        make_adapter = partial(adapter_of_join, join, "samples", tmp_path)
        found = verify(inputs, VerifyQuestion(hour, hour + 1, ("local",), make_adapter))
        counts = Counter[str]()
        for each in found.counts:
            counts[str(each.kind)] += each.count
        found.close()
        return counts

    assert classes() == {"correct": COUNT + 1}
    with (tmp_path / "foreign" / "b.bin").open("ab") as log:
        log.write(framed(struct.pack("<QQqd", COUNT, 1, BEGIN_NS + COUNT, 0.0)))
    assert classes() == {"correct": COUNT + 1, "lost-unregistered": 1}
