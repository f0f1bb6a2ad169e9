"""Joins whose files are cut by the adapter's own framing, verified from the raw logs."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from photon.adapters.join_adapters import adapter_of_join
from photon.config.settings import Join, Limits
from photon.lab.demo.check import records
from photon.spark import logs, outputs
from photon.spark.shipped_adapter import adapter_spec
from photon.spark.sources import JoinSource, LogSource, OutputSource
from photon.spark.verify.job import VerifyInputs, VerifyQuestion, verify
from tests.integration.commands import photon
from tests.integration.test_framed_packages import EXAMPLES, PACKAGES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOURS = (1_795_910_400 // 3600, 1_796_083_200 // 3600)  # 2026-11-29 to 2026-11-30
COUNT = 300
TORN = b"\x10\x00\x00\x00\x00\x00\x00\x00its CRC is wrong"


@pytest.mark.parametrize("name", PACKAGES)
def test_what_photon_join_wrote_is_verified_and_a_lost_record_is_found(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    package = PACKAGES[name]
    sides = {side: tmp_path / side / "a.log" for side in ("foreign", "primary")}
    for path, write in zip(sides.values(), (package.foreign, package.primary), strict=True):
        path.parent.mkdir()
        write(path, range(COUNT))
    unreadable = int(name == "length_crc")
    if unreadable:
        with sides["foreign"].open("ab") as log:
            log.write(TORN)
    _rest(sides.values())
    shutil.copy(EXAMPLES / name / package.adapter.partition(":")[0], tmp_path)
    config, output = tmp_path / "photon.toml", tmp_path / "out"
    config.write_text(f'[join.x]\nadapter = "{package.adapter}"\n')
    logs_of = ("--primary", tmp_path / "primary", "--foreign", tmp_path / "foreign")
    done = photon("join", *logs_of, "--output", output, "--config", config, "--once", "--max-rejected", "1")
    assert done.code == 0, done.err
    assert sum(1 for _ in records(output / "joined")) == COUNT

    join = Join(adapter=package.adapter)
    source = JoinSource(join="x", adapter=adapter_spec("x", join, tmp_path, Limits()), key=bytes(32))
    where = OutputSource(datacentre="local", output=str(output), state=str(output / ".photon"))

    package.foreign(sides["foreign"], range(COUNT, COUNT + 1))
    _rest(sides.values())
    of = [[LogSource(datacentre="local", directory=str(path.parent))] for path in sides.values()]
    inputs = VerifyInputs(
        logs.foreign(spark, source, of[0]),
        partial(logs.primary, spark, source, of[1]),
        outputs.outputs(spark, [where], source),
        None,
    )
    found = verify(inputs, VerifyQuestion(*HOURS, ("local",), partial(adapter_of_join, join, "x", tmp_path)))
    counts = Counter[str]()
    for each in found.counts:
        counts[str(each.kind)] += each.count
    found.close()
    assert counts == {"correct": COUNT + unreadable, "lost-unregistered": 1}


def _rest(paths: Iterable[Path]) -> None:
    """Nobody continues the last record."""
    for path in paths:
        os.utime(path, (1_790_000_000, 1_790_000_000))
